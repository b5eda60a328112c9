"""Reading here and there in an object elsewhere: the right bytes, few requests, and errors that say why not."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UrlChangedError, UrlError, UrlNotFoundError
from shoal.files import UrlInfo, expand, open_read, open_seekable, stat
from shoal.testing.faults import HttpServer, http_server
from support.files import body

BODY = body(600_000)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.001")


@pytest.fixture(scope="module")
def shared() -> Iterator[HttpServer]:
    with http_server() as running:
        running.add("/a.bin", BODY)
        yield running


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as running:
        yield running


moves = st.tuples(st.integers(-20, len(BODY) + 20), st.sampled_from([0, 1, 10, 70_000, 200_000, -1]))


@settings(max_examples=30)
@given(steps=st.lists(moves, max_size=6))
def test_it_reads_what_a_file_reads(shared: HttpServer, steps: list[tuple[int, int]]) -> None:
    model = io.BytesIO(BODY)
    with open_seekable(shared.url("/a.bin")) as file:
        for offset, size in steps:
            whence = os.SEEK_END if offset < 0 else os.SEEK_SET
            assert file.seek(offset, whence) == model.seek(offset, whence)
            assert file.read(size) == model.read(size)
            assert file.tell() == model.tell()
        buffer = bytearray(10)
        assert file.readinto(buffer) == model.readinto(bytearray(10))


def test_a_large_read_is_one_request_for_its_bytes(server: HttpServer) -> None:
    with open_seekable(server.add("/a.bin", BODY)) as file:
        file.seek(100_000)
        assert file.read(300_000) == BODY[100_000:400_000]
    assert server.ranges() == ["bytes=100000-399999"]


def test_small_reads_beside_each_other_are_one_request(server: HttpServer) -> None:
    with open_seekable(server.add("/a.bin", BODY)) as file:
        file.seek(-8, os.SEEK_END)
        assert file.read() == BODY[-8:]
        for begin in range(len(BODY) - 5000, len(BODY) - 100, 100):
            file.seek(begin)
            assert file.read(100) == BODY[begin : begin + 100]
    assert server.ranges() == [f"bytes={len(BODY) - 65536}-{len(BODY) - 1}"]


def test_one_connection_serves_many_ranges(server: HttpServer) -> None:
    with open_seekable(server.add("/a.bin", BODY)) as file:
        for begin in range(0, 500_000, 100_000):
            file.seek(begin)
            assert file.read(80_000) == BODY[begin : begin + 80_000]
    assert len(server.ranges()) == 5
    assert server.connections == 1


def test_a_range_that_breaks_goes_on_where_it_broke(server: HttpServer) -> None:
    url = server.add("/a.bin", BODY, cut_after=[10, 5000, 0], statuses=[503])
    with open_seekable(url) as file:
        file.seek(1000)
        assert file.read(100_000) == BODY[1000:101_000]
    assert server.ranges() == [f"bytes={begin}-100999" for begin in (1000, 1010, 6010, 6010)]


def test_giving_up_names_url_and_byte(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "2")
    url = server.add("/a.bin", BODY, cut_after=[100, 0, 0, 0])
    with open_seekable(url) as file, pytest.raises(UrlError, match=r"/a\.bin at byte 100: gave up after 3"):
        file.read(100_000)


def test_an_object_that_changes_is_an_error(server: HttpServer) -> None:
    url = server.add("/a.bin", BODY)
    with open_seekable(url) as file:
        file.read(10)
        server.add("/a.bin", BODY[::-1], etag='"two"')
        file.seek(300_000)
        with pytest.raises(UrlChangedError, match='version was "one" and is now "two"'):
            file.read(10)


def test_it_may_have_to_be_a_known_version(server: HttpServer) -> None:
    url = server.add("/a.bin", BODY)
    with open_seekable(url, expect=stat(url)) as file:
        assert file.read(5) == BODY[:5]
    with open_seekable(url, expect=UrlInfo(len(BODY), '"old"')) as file, pytest.raises(UrlChangedError):
        file.read(5)


def test_a_server_without_ranges_is_refused(server: HttpServer) -> None:
    with open_seekable(server.add("/a.bin", BODY, ignore_range=True)) as file:
        assert file.read(10) == BODY[:10], "the first bytes need no range"
        file.seek(200_000)
        with pytest.raises(UrlError, match="random access needs ranges"):
            file.read(10)
    with pytest.raises(UrlError, match="does not tell its size"):
        open_seekable(server.add("/b.bin", BODY, ignore_range=True, chunked=True))


def test_what_is_not_there_is_an_error_of_opening(server: HttpServer, tmp_path: Path) -> None:
    for url in (server.url("/none"), "memory://none.bin", str(tmp_path / "none")):
        with pytest.raises(UrlNotFoundError):
            open_seekable(url)


def test_streams_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for url in ("-", "pipe:echo", str(tmp_path / "fifo")):
        with pytest.raises(UrlError, match="is a stream, in which nobody can seek"):
            open_seekable(url)


def test_local_files_are_just_opened(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    with open_seekable(tmp_path / "a.bin") as file:
        assert (file.seek(-3, os.SEEK_END), file.read()) == (7, b"789")
    with pytest.raises(ValueError, match="no byte -1"), open_seekable(memory("neg", b"abc")) as file:
        file.seek(-1)


def memory(name: str, data: bytes) -> str:
    fsspec.filesystem("memory").pipe_file(f"/seekable/{name}", data)
    return f"memory://seekable/{name}"


def test_readers_of_one_object_in_memory_do_not_disturb_each_other() -> None:
    url = memory("a.bin", BODY)
    with open_read(url) as one, open_seekable(url) as two, open_read(url) as three:
        for begin in range(0, 300_000, 100_000):
            two.seek(begin + 50_000)
            assert one.read(100_000) == BODY[begin : begin + 100_000]
            assert two.read(80_000) == BODY[begin + 50_000 : begin + 130_000]
            assert three.read(100_000) == BODY[begin : begin + 100_000]

    def read(_: int) -> bytes:
        with open_read(url) as file:
            return file.read()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(50))) == {BODY}


def test_a_folder_stands_for_the_files_one_asks_for(tmp_path: Path) -> None:
    for name in ("a.tar", "b.parquet", "c.arrow", ".d.parquet"):
        (tmp_path / name).touch()
        memory(name, b"x")
    assert expand(tmp_path, suffixes=[".parquet"]) == [f"{tmp_path}/b.parquet"]
    assert expand(f"{tmp_path}/", suffixes=[".parquet", ".arrow"]) == [f"{tmp_path}/b.parquet", f"{tmp_path}/c.arrow"]
    assert expand("memory://seekable/", suffixes=[".parquet"]) == ["memory://seekable/b.parquet"]
    assert expand(tmp_path) == [f"{tmp_path}/a.tar"]
    with pytest.raises(UrlNotFoundError, match=r"holds no shards \(files ending in \.csv\)"):
        expand(tmp_path, suffixes=[".csv"])
    with pytest.raises(UrlError, match=r"shard-\{0000\.\.0099\}\.parquet"):
        expand("http://host/folder/", suffixes=[".parquet"])

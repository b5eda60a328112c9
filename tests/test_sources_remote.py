"""Tar shards behind a server: streamed, resumed, cached, and read on when the cache's disk is full."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal
from shoal.abc import Shard
from shoal.errors import IndexFileError, TruncatedShardError, UrlNotFoundError
from shoal.shards import TarWriter
from shoal.sources import TarSource
from shoal.testing.faults import HttpServer, http_server, on_small_disk


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HttpServer]:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.01")
    monkeypatch.setenv("SHOAL_CACHE", str(tmp_path / "settings-cache"))
    with http_server() as running:
        yield running


def tar(count: int, size: int = 5000, compression: str | bool = False) -> bytes:
    buffer = io.BytesIO()
    with TarWriter(buffer, compression=compression) as writer:
        for number in range(count):
            writer.write({"__key__": f"{number:04d}", "bin": bytes([number % 256]) * size, "cls": number})
    return buffer.getvalue()


def labels(dataset: shoal.Dataset) -> list[int]:
    return [sample["cls"] for sample in dataset.decode()]


def test_a_shard_whose_connection_is_cut_arrives_complete(server: HttpServer) -> None:
    url = server.add("/a.tar", tar(100), cut_after=[1000, 70_000, 100_000], statuses=[503])
    assert labels(shoal.read_tar(url)) == list(range(100))
    assert len(server.ranges("/a.tar")) >= 4


def test_a_missing_shard_fails_at_once_and_is_named(server: HttpServer) -> None:
    first, missing = server.add("/a.tar", tar(3)), server.url("/gone.tar")
    got = []
    with pytest.raises(UrlNotFoundError, match=r"/gone\.tar"):
        got.extend(shoal.read_tar([first, missing]))
    assert len(got) == 3
    assert len([request for request in server.requests if request.path == "/gone.tar"]) == 1


def test_a_body_shorter_than_announced_is_not_taken_for_the_end(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "2")
    body = tar(10)
    url = server.add("/a.tar", body, claim_length=len(body) + 10_000)
    with pytest.raises(OSError, match=r"/a\.tar"):
        list(shoal.read_tar(url))


def test_a_shard_that_is_cut_itself_says_so(server: HttpServer) -> None:
    url = server.add("/a.tar", tar(10)[:20_000])
    with pytest.raises(TruncatedShardError, match=r"a\.tar.*offset"):
        list(shoal.read_tar(url))


@pytest.mark.parametrize("compression", [False, "gz"])
def test_cached_shards_are_downloaded_once(server: HttpServer, tmp_path: Path, compression: str | bool) -> None:
    url = server.add("/a.tar", tar(50, compression=compression))
    dataset = shoal.read_tar(url, cache=tmp_path / "shards")
    assert labels(dataset) == labels(dataset) == list(range(50))
    assert len(server.ranges("/a.tar")) == 1


def test_single_samples_are_fetched_by_range_once_the_shard_has_an_index(server: HttpServer) -> None:
    url = server.add("/a.tar", tar(100))
    source = TarSource(url)
    assert source.length(Shard(url)) == 100
    seen = len(server.requests)
    (sample,) = source.take(Shard(url), [70])
    assert sample["cls"] == b"70"
    assert [request.range for request in server.requests[seen:]][-1].startswith("bytes=4")  # type: ignore[union-attr]


def test_samples_that_lie_near_each_other_are_fetched_together(server: HttpServer) -> None:
    url = server.add("/a.tar", tar(400))  # 7 KiB a sample
    source = TarSource(url)
    assert source.length(Shard(url)) == 400
    seen = len(server.ranges("/a.tar"))
    positions = [301, 7, 5, 300, 30, 5, 399]
    samples = source.take(Shard(url), positions)
    assert [sample["__key__"] for sample in samples] == [f"{position:04d}" for position in positions]
    assert [sample["bin"][0] for sample in samples] == [position % 256 for position in positions]
    begins = [int(text.removeprefix("bytes=").partition("-")[0]) for text in server.ranges("/a.tar")[seen:] if text]
    assert len(begins) == 3, "5 to 30, 300 to 301, and 399"
    samples[1]["cls"] = b"changed"
    assert source.take(Shard(url), [7])[0]["cls"] == b"7"


def test_a_sample_that_is_asked_for_twice_comes_twice(server: HttpServer) -> None:
    url = server.add("/a.tar", tar(3))
    one, other = TarSource(url).take(Shard(url), [1, 1])
    assert one == other
    assert one is not other


def test_an_index_beside_a_remote_shard_is_used_and_checked_while_reading(server: HttpServer, tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar", index=True) as writer:
        for number in range(20):
            writer.write({"__key__": f"{number:04d}", "cls": number})
    body = (tmp_path / "a.tar").read_bytes()
    url = server.add("/a.tar", body)
    server.add("/a.tar.index", (tmp_path / "a.tar.index").read_bytes())
    assert TarSource(url).length(Shard(url)) == 20
    assert server.ranges("/a.tar") == []
    other = server.add("/b.tar", body.replace(b"0015.cls", b"0515.cls"))
    server.add("/b.tar.index", (tmp_path / "a.tar.index").read_bytes())
    # The header's checksum no longer holds either, so a shard forged this way cannot pass unnoticed.
    with pytest.raises((IndexFileError, shoal.errors.ShardError)):
        TarSource(other).take(Shard(other), [15])


def test_a_compressed_shard_is_known_as_such_however_few_bytes_come_first(server: HttpServer) -> None:
    url = server.add("/a.tar", tar(20, compression="gz"), cut_after=[1, 3])
    source = TarSource(url)
    assert source.length(Shard(url)) == 20
    (sample,) = source.take(Shard(url), [15])
    assert sample["cls"] == b"15"


def test_a_shard_that_ends_before_its_index_does_is_not_taken_for_complete(server: HttpServer, tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar", index=True) as writer:
        for number in range(5):
            writer.write({"__key__": f"{number:04d}", "cls": number})
    body = (tmp_path / "a.tar").read_bytes()
    url = server.add("/a.tar", body[:-2048] + bytes(2048))  # the last sample is now the end of the archive
    server.add("/a.tar.index", (tmp_path / "a.tar.index").read_bytes())
    with pytest.raises(IndexFileError, match="ends before sample '0004'"):
        list(TarSource(url).open(Shard(url), start=1))


def test_training_goes_on_streaming_when_the_disk_of_the_cache_is_full(server: HttpServer, tmp_path: Path) -> None:
    """On a real file system of one megabyte, in a mount namespace of its own."""
    known = server.add("/known.tar", tar(400))
    unknown = server.add("/unknown.tar", tar(400), chunked=True, ignore_range=True, etag=None)
    program = f"""
import warnings, shoal
for url in {[known, unknown]!r}:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = sum(1 for _ in shoal.read_tar(url, cache={str(tmp_path)!r}))
    print(count, [str(warning.message) for warning in caught])
"""
    script = tmp_path.parent / "full_disk.py"
    script.write_text(program)
    command = on_small_disk([sys.executable, str(script)], tmp_path, "1MiB")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert line.startswith("400 ")
        assert "the shard is streamed instead" in line
    assert "No space left on device" in done.stdout.splitlines()[1]

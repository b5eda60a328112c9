"""An S3 store, over the wire: a real server in another process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from shoal.errors import UrlChangedError, UrlError, UrlNotFoundError
from shoal.files import ShardCache, expand, open_read, open_write, stat
from shoal.files._fsspec import filesystem
from shoal.testing.faults import S3Server, cut, s3_server, stall
from support.files import body

BODY = body(9_000_000)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SHOAL_BACKOFF", "0.01")
    fs = fresh_filesystem()
    fs.mkdir("shards")
    yield "s3://shards"
    server.fate.follow()
    fresh_filesystem().rm("shards", recursive=True)


def fresh_filesystem() -> Any:
    """Make a filesystem anew: fsspec keeps them, and with them the address that was in the environment."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    return fsspec.filesystem("s3")


def put(url: str, data: bytes) -> str:
    with open_write(url) as target:
        target.write(data)
    return url


def test_what_is_written_can_be_read_from_any_byte(bucket: str) -> None:
    url = put(f"{bucket}/a.tar", BODY)
    with open_read(url) as file:
        assert file.read() == BODY
    with open_read(url, offset=8_999_990) as file:
        assert file.read() == BODY[-10:]


def test_a_server_that_falls_silent_is_asked_again(
    bucket: str, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_TIMEOUT", "3")
    url = put(f"{bucket}/a.tar", BODY)
    client = filesystem(url)[0].s3.meta.config
    assert (client.connect_timeout, client.read_timeout) == (3, 3)
    server.fate.follow(stall(times=1))
    with open_read(url) as file:
        assert file.read() == BODY
    assert [mishap.kind for mishap in server.fate.happened] == ["stall"]


def test_what_fsspec_was_told_of_time_counts_more(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": {"read_timeout": 7}})
    client = filesystem(bucket)[0].s3.meta.config
    assert (client.connect_timeout, client.read_timeout) == (30, 7)


def test_an_aborted_write_leaves_no_object(bucket: str) -> None:
    target = open_write(f"{bucket}/a.tar")
    target.write(BODY)
    target.abort()
    with pytest.raises(UrlNotFoundError, match=r"s3://shards/a\.tar"):
        open_read(f"{bucket}/a.tar")


def test_shards_are_listed(bucket: str) -> None:
    urls = [put(f"{bucket}/train/{name}.tar", b"x") for name in "ba"]
    put(f"{bucket}/train/readme.txt", b"x")
    assert expand(f"{bucket}/train/*.tar") == expand(f"{bucket}/train/") == sorted(urls)
    put(f"{bucket}/train/c.tar", b"x")
    assert len(expand(f"{bucket}/train/")) == 3, "a listing is of now, not of before"


def test_the_version_changes_with_the_object(bucket: str) -> None:
    url = put(f"{bucket}/a.tar", b"one")
    before = stat(url)
    put(url, b"two")
    assert before.size == stat(url).size == 3
    assert before.version != stat(url).version


def test_an_object_replaced_midway_is_an_error(bucket: str) -> None:
    url = put(f"{bucket}/a.tar", BODY)
    with open_read(url) as file:
        file.read(10)
        put(url, BODY[::-1])
        with pytest.raises(UrlChangedError, match="version was"):
            file.read()


def test_a_connection_that_is_cut_again_and_again_does_not_matter(bucket: str, server: S3Server) -> None:
    url = put(f"{bucket}/a.tar", BODY)
    before = len(server.fate.happened)
    with open_read(url) as file:
        assert file.read(1000) == BODY[:1000]
        server.fate.follow(cut(after=(100_000, 100, 100, 200_000)))
        assert file.read() == BODY[1000:]
    assert len(server.fate.happened) - before == 4


def test_a_missing_bucket_is_named(bucket: str) -> None:
    with pytest.raises(UrlError, match="s3://no-such-bucket"), open_write("s3://no-such-bucket/a.tar") as target:
        target.write(b"x")


def test_shards_are_cached_until_they_change(bucket: str, tmp_path: Path) -> None:
    url = put(f"{bucket}/a.tar", BODY)
    cache = ShardCache(tmp_path / "cache", 10**9)
    with cache.open(url) as one, cache.open(url) as two:
        assert one.path == two.path
        assert Path(one.path).read_bytes() == BODY
    put(url, BODY[::-1])
    with cache.open(url) as three:
        assert Path(three.path).read_bytes() == BODY[::-1]
    assert cache.statistics().entries == 2

"""The shard cache: one download however many ask, nothing half ever seen, nothing in use ever removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from shoal.errors import CacheError, TrustError, UrlError, UrlNotFoundError
from shoal.files import ShardCache
from shoal.testing.faults import HttpServer, full_disk, http_server
from support.files import body

BODY = body(1_000_000)
LARGE = 10**9

READER = """
import hashlib, pathlib, sys
from shoal.errors import CacheError
from shoal.files import ShardCache, open_read
folder, size, hold, *urls = sys.argv[1:]
cache = ShardCache(folder, int(size))
for url in urls:
    try:
        with cache.open(url) as shard:
            print(hashlib.sha256(pathlib.Path(shard.path).read_bytes()).hexdigest(), flush=True)
            if hold == "hold":
                sys.stdin.read()
    except CacheError:
        print(hashlib.sha256(open_read(url).read()).hexdigest(), flush=True)
"""


class Start(Protocol):
    def __call__(self, *urls: str, size: int = LARGE, hold: bool = False) -> subprocess.Popen[str]: ...


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.001")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start processes that read shards through the cache; none outlives its test."""
    with contextlib.ExitStack() as stack:

        def started(*urls: str, size: int = LARGE, hold: bool = False) -> subprocess.Popen[str]:
            arguments = [sys.executable, "-c", READER, str(folder), str(size), "hold" if hold else "go", *urls]
            process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield started


def answers(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return output.split()


def held(folder: Path) -> list[str]:
    """What lies in the folder, without the lock that always stays."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def use(cache: ShardCache, url: str) -> None:
    cache.open(url).close()


def names(folder: Path) -> list[str]:
    return sorted(name.partition("-")[2] for name in held(folder))


def test_a_shard_is_downloaded_once_and_looks_like_its_url(server: HttpServer, folder: Path) -> None:
    url = server.add("/data/train~1.tar.gz", BODY, cut_after=[1000])
    cache = ShardCache(folder, LARGE)
    for _ in range(3):
        with cache.open(url) as shard:
            assert Path(shard.path).read_bytes() == BODY
            assert shard.path.endswith("-train_1.tar.gz")
    assert server.ranges() == [None, "bytes=1000-"]
    assert len(held(folder)) == 1
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("path", ["/..%2Fpasswd", "/a%00b", "/-", "/" + "n" * 400, "/a.tar?sig=/../../x"])
def test_no_url_leads_out_of_the_folder(server: HttpServer, folder: Path, path: str) -> None:
    server.add(path.partition("?")[0], BODY)
    with ShardCache(folder, LARGE).open(server.url(path)) as shard:
        assert Path(shard.path).resolve().parent == folder
        assert Path(shard.path).read_bytes() == BODY
    assert len(held(folder)) == 1


def test_a_changed_object_is_another_entry(server: HttpServer, folder: Path) -> None:
    cache = ShardCache(folder, LARGE)
    with cache.open(server.add("/a.tar", BODY, etag='"1"')) as old:
        with cache.open(server.add("/a.tar", BODY[::-1], etag='"2"')) as new:
            assert Path(new.path).read_bytes() == BODY[::-1]
        assert Path(old.path).read_bytes() == BODY


def test_an_object_that_changes_between_asking_and_reading_is_asked_for_again(server: HttpServer, folder: Path) -> None:
    cache = ShardCache(folder, LARGE)
    with cache.open(server.add("/a.tar", BODY, etags=['"old"'], etag='"new"')) as shard:
        assert Path(shard.path).read_bytes() == BODY
    assert [request.range for request in server.requests] == ["bytes=0-0", None, "bytes=0-0", None]


def test_eight_threads_cause_one_download(server: HttpServer, folder: Path) -> None:
    url = server.add("/a.tar", BODY, delay=0.005)
    cache = ShardCache(folder, LARGE)

    def read(_: int) -> bytes:
        with cache.open(url) as shard:
            barrier.wait(60)  # all of them hold it at once: a waiter does not wait for the downloader to let go
            return Path(shard.path).read_bytes()

    barrier = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [BODY] * 8
    assert server.ranges() == [None]


def test_eight_processes_cause_one_download(server: HttpServer, folder: Path, start: Start) -> None:
    url = server.add("/a.tar", BODY, delay=0.01)
    processes = [start(url) for _ in range(8)]
    assert [answers(process) for process in processes] == [[digest(BODY)]] * 8
    assert server.ranges() == [None]
    assert names(folder) == ["a.tar"]


@pytest.mark.parametrize("moment", [0.0, 0.03, 0.09, 0.15, 0.21])
def test_a_waiter_takes_over_from_the_dead(server: HttpServer, folder: Path, start: Start, moment: float) -> None:
    url = server.add("/a.tar", BODY, delay=0.015)
    first = start(url, hold=True)
    while not server.ranges():
        time.sleep(0.005)
    waiters = [start(url) for _ in range(2)]
    time.sleep(moment)
    first.kill()
    first.communicate()
    assert [answers(waiter) for waiter in waiters] == [[digest(BODY)]] * 2
    assert names(folder) == ["a.tar"]


def test_what_the_dead_left_is_removed_by_the_next_use(server: HttpServer, folder: Path, start: Start) -> None:
    url = server.add("/a.tar", BODY, stall_after=[500_000])
    process = start(url)
    while not list(folder.glob(".*.part")) if folder.exists() else True:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    assert len(held(folder)) == 2
    cache = ShardCache(folder, LARGE)
    assert cache.statistics().entries == 0
    use(cache, server.add("/other.tar", b"other"))
    assert names(folder) == ["other.tar"]


def test_a_live_download_is_not_swept_away(server: HttpServer, folder: Path, start: Start) -> None:
    process = start(server.add("/a.tar", BODY, delay=0.03))
    while not list(folder.glob(".*.part")) if folder.exists() else True:
        time.sleep(0.005)
    use(ShardCache(folder, LARGE), server.add("/other.tar", b"other"))
    assert answers(process) == [digest(BODY)]
    assert server.ranges("/a.tar") == [None]
    assert names(folder) == ["a.tar", "other.tar"]


def test_the_least_recently_used_go_first(server: HttpServer, folder: Path) -> None:
    urls = {name: server.add(f"/{name}", body(100, seed=ord(name))) for name in "abcd"}
    cache = ShardCache(folder, 350)
    for name in "abcabad":
        use(cache, urls[name])
    assert names(folder) == ["a", "b", "d"]
    assert cache.statistics().bytes == 300


def test_use_keeps_the_time_of_download(server: HttpServer, folder: Path) -> None:
    url = server.add("/a", b"x")
    cache = ShardCache(folder, LARGE)
    use(cache, url)
    path = folder / held(folder)[0]
    os.utime(path, ns=(1, 2))
    use(cache, url)
    assert path.stat().st_mtime_ns == 2
    assert path.stat().st_atime_ns > 2


def test_what_another_process_uses_is_not_evicted(server: HttpServer, folder: Path, start: Start) -> None:
    urls = {name: server.add(f"/{name}", body(100, seed=ord(name))) for name in "abcd"}
    holder = start(urls["a"], size=250, hold=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    cache = ShardCache(folder, 250)
    for name in "bcd":
        use(cache, urls[name])
    assert names(folder) == ["a", "d"]
    assert cache.statistics().in_use == 1
    with cache.open(urls["d"]), pytest.raises(CacheError, match=r"no room.*in use"):
        cache.open(urls["b"])
    holder.kill()
    holder.communicate()
    assert cache.statistics().in_use == 0
    use(cache, urls["b"])
    use(cache, urls["c"])
    assert names(folder) == ["b", "c"]


def test_files_of_others_in_the_folder_are_left_alone(server: HttpServer, folder: Path) -> None:
    folder.mkdir()
    (folder / "index.npz").write_bytes(b"x" * 10_000)
    cache = ShardCache(folder, 100)
    use(cache, server.add("/a", b"x" * 60))
    use(cache, server.add("/b", b"x" * 60))
    assert held(folder)[-1] == "index.npz"
    assert cache.statistics().entries == 1


def test_a_shard_larger_than_the_cache_is_refused_before_it_is_read(server: HttpServer, folder: Path) -> None:
    with pytest.raises(CacheError, match=r"1000000 bytes.*enlarge"):
        ShardCache(folder, 1000).open(server.add("/a.tar", BODY))
    assert server.ranges() == []


def test_a_shard_of_unknown_size_is_bounded_too(server: HttpServer, folder: Path) -> None:
    cache = ShardCache(folder, 1_500_000)
    use(cache, server.add("/b.tar", BODY))
    use(cache, server.add("/a.tar", BODY, chunked=True, ignore_range=True))
    assert names(folder) == ["a.tar"], "room was made when the size was known"
    with pytest.raises(CacheError, match="enlarge"):
        ShardCache(folder, 1000).open(server.add("/c.tar", BODY, chunked=True, ignore_range=True))
    assert names(folder) == ["a.tar"]


def test_a_disk_without_room_is_refused_before_anything_is_read(server: HttpServer, folder: Path) -> None:
    url = server.add("/a.tar", BODY, claim_length=10**17)
    with pytest.raises(CacheError, match=r"100000000000000000 more bytes are needed.*are free on the disk"):
        ShardCache(folder, 10**18).open(url)
    assert server.ranges() == []
    assert held(folder) == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_disk_that_fills_up_says_what_was_needed(server: HttpServer, folder: Path, chunked: bool) -> None:
    url = server.add("/a.tar", BODY, chunked=chunked, ignore_range=chunked)
    with full_disk(500_000), pytest.raises(CacheError, match="could not be kept in the cache") as caught:
        ShardCache(folder, LARGE).open(url)
    assert isinstance(caught.value.__cause__, OSError)
    answer = str(caught.value)
    assert f"{url} could not be kept in the cache {folder}: File too large" in answer
    assert ("unknown number of" if chunked else "needs 1000000 bytes") in answer
    assert held(folder) == []


def test_a_folder_that_cannot_be_made_is_a_cache_error(server: HttpServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="could not be kept"):
        ShardCache(tmp_path / "file" / "cache", LARGE).open(server.add("/a.tar", BODY))


def test_a_failed_download_leaves_nothing(server: HttpServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "1")
    cache = ShardCache(folder, LARGE)
    url = server.add("/a.tar", BODY, cut_after=[100, 0, 0, 0])
    with pytest.raises(UrlError, match="at byte 100"):
        cache.open(url)
    with pytest.raises(UrlNotFoundError):
        cache.open(server.url("/gone.tar"))
    assert held(folder) == []
    server.add("/a.tar", BODY)
    use(cache, url)
    assert names(folder) == ["a.tar"]


def test_local_files_are_used_where_they_lie(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(BODY)
    with ShardCache(folder, 10).open(tmp_path / "a.tar") as shard:
        assert shard.path == str(tmp_path / "a.tar")
    assert not folder.exists()
    with pytest.raises(CacheError, match="standard input"):
        ShardCache(folder, 10).open("-")


def test_the_output_of_a_command_can_be_kept(folder: Path, tmp_path: Path) -> None:
    cache = ShardCache(folder, LARGE)
    command = f"pipe:echo run >> {tmp_path}/runs; printf abc"
    with pytest.raises(TrustError):
        cache.open(command)
    for _ in range(2):
        with cache.open(command, trust=True) as shard:
            assert Path(shard.path).read_bytes() == b"abc"
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_cache_can_be_sent_to_another_process(server: HttpServer, folder: Path) -> None:
    cache = pickle.loads(pickle.dumps(ShardCache(folder, LARGE)))
    use(cache, server.add("/a", b"x"))
    assert cache.statistics().entries == 1


def test_nothing_wrong_is_read_while_processes_come_and_die(server: HttpServer, folder: Path, start: Start) -> None:
    bodies = {server.add(f"/{n}", body(200_000 + n, seed=n), delay=0.002): body(200_000 + n, seed=n) for n in range(6)}
    chance = random.Random(0)
    doomed, limit = [], 700_000
    readers = []
    for _ in range(4):
        order = [chance.choice([*bodies]) for _ in range(8)]
        readers.append((order, start(*order, size=limit)))
        doomed.append(start(*order[::-1], size=limit))
    for process in doomed:
        time.sleep(chance.uniform(0.05, 0.3))
        process.kill()
        process.communicate()
    for order, process in readers:
        output, _ = process.communicate(timeout=100)
        assert output.split() == [digest(bodies[url]) for url in order][: len(output.split())]
        assert process.returncode == 0
    cache = ShardCache(folder, limit)
    use(cache, next(iter(bodies)))
    assert cache.statistics().bytes <= limit
    assert [name for name in held(folder) if name.startswith(".")] == []

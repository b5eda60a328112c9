"""Tensorcom 0.1.0 itself, in an environment of its own, at the other end: messages, files and ends of streams."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.environments import Environment, Guest, build
from shoal.errors import GuestError
from shoal.feed.tensorcom import Connection, tenbin
from support.engine import same
from support.guests import module
from support.tensorcom import batch, numbers, real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ARRAYS = [
    np.arange(24, dtype="u1").reshape(2, 3, 4),
    np.array([[0.5, -2.0]], "f2"),
    np.arange(6, dtype="f4").reshape(3, 2)[::-1],
    np.zeros((0, 5), "i2"),
    np.arange(100_000, dtype="i4"),
    np.arange(3, dtype="u2"),
    np.arange(3, dtype="i1"),
]
WIDE = [np.arange(3, dtype=code) for code in ("f8", "i8", "u8")]


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    """The one in the user's cache, which is built if it is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SHOAL_ENVIRONMENTS", raising=False)
        yield build("tensorcom")


@pytest.fixture(scope="module")
def other(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A program that knows Tensorcom itself, and nothing of Shoal."""
    folder = module(tmp_path_factory.mktemp("other"), """
        import sys
        from itertools import islice

        import numpy as np
        from tensorcom import Connection, tenbin

        ends = {}

        def connect(name, url, **options):
            ends[name] = Connection(url, **options)
            return ends[name].socket.last_endpoint.decode()

        def send(name, arrays, **options):
            ends[name].send(arrays, **options)

        def recv(name, count):
            return [[np.array(array) for array in ends[name].recv()] for _ in range(count)]

        def items(name, count):
            return [[np.array(array) for array in message] for message in islice(ends[name].items(), count)]

        def close(name):
            ends.pop(name).close()

        def save(name, arrays, infos):
            tenbin.save(name, *arrays, infos=infos)

        def load(name, infos):
            return [np.array(array) for array in tenbin.load(name, infos=infos)]

        def encoded(arrays):
            return [bytes(part) for part in tenbin.encode_list(arrays)], bytes(tenbin.encode_buffer(arrays))

        def imported():
            return sorted({"torch", "webdataset", "msgpack"} & set(sys.modules))
    """)  # fmt: skip
    with Guest(environment, path=[folder], timeout=120) as guest:
        yield guest


def url_of(scheme: str, endpoint: str) -> str:
    return f"{scheme}://{endpoint.partition('://')[2]}"


@contextmanager
def meanwhile(function: Any, *arguments: Any) -> Iterator[None]:
    """Do something again and again: who publishes does not know when somebody hears it."""
    done = threading.Event()

    def again() -> None:
        while not done.wait(0.01):
            function(*arguments)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(again)
        try:
            yield
        finally:
            done.set()
        result.result()


def test_the_recipe_leaves_out_what_is_not_needed(other: Guest) -> None:
    assert other.call("over_there:imported") == []


@pytest.mark.parametrize("multipart", [True, False])
@pytest.mark.parametrize(("theirs", "ours"), [("zpull", "zpush"), ("zrpull", "zrpush")])
def test_they_pull_what_is_pushed_here(other: Guest, theirs: str, ours: str, multipart: bool) -> None:
    if theirs == "zpull":
        endpoint = other.call("over_there:connect", "in", "zpull://127.0.0.1:*", multipart=multipart)
        source = Connection(url_of(ours, endpoint), multipart=multipart)
    else:
        source = Connection("zrpush://127.0.0.1:*", multipart=multipart)
        other.call("over_there:connect", "in", source.urls[0].replace("push", "pull"), multipart=multipart)
    for message in (ARRAYS, ARRAYS[:1], [*ARRAYS, *WIDE]):
        source.send(message, allow64=True)
    got = other.call("over_there:recv", "in", 3)
    for received, sent in zip(got, (ARRAYS, ARRAYS[:1], [*ARRAYS, *WIDE]), strict=True):
        assert same(received, list(map(np.ascontiguousarray, sent)))
    source.close()
    other.call("over_there:close", "in")


@pytest.mark.parametrize("multipart", [True, False])
@pytest.mark.parametrize(("theirs", "ours"), [("zpush", "zpull"), ("zrpush", "zrpull")])
def test_they_push_what_is_pulled_here(other: Guest, theirs: str, ours: str, multipart: bool) -> None:
    if theirs == "zpush":
        sink = Connection("zpull://127.0.0.1:*", infos=[""] * len(ARRAYS))
        other.call("over_there:connect", "out", sink.urls[0].replace("pull", "push"), multipart=multipart)
    else:
        endpoint = other.call("over_there:connect", "out", "zrpush://127.0.0.1:*", multipart=multipart)
        sink = Connection(url_of(ours, endpoint))
    for _ in range(2):
        other.call("over_there:send", "out", list(map(np.ascontiguousarray, ARRAYS)))
        assert same(sink.recv(), list(map(np.ascontiguousarray, ARRAYS)))
    sink.close()
    other.call("over_there:close", "out")


@pytest.mark.parametrize("multipart", [True, False])
def test_they_hear_what_is_published_here(other: Guest, multipart: bool) -> None:
    with Connection("zpub://127.0.0.1:*", multipart=multipart) as source:
        other.call("over_there:connect", "in", source.urls[0].replace("pub", "sub"), multipart=multipart)
        with meanwhile(source.send, batch(5)):
            assert numbers(other.call("over_there:recv", "in", 3)) == [5, 5, 5]
    other.call("over_there:close", "in")


@pytest.mark.parametrize("multipart", [True, False])
def test_they_publish_what_is_heard_here(other: Guest, multipart: bool) -> None:
    endpoint = other.call("over_there:connect", "out", "zpub://127.0.0.1:*", multipart=multipart)
    with Connection(url_of("zsub", endpoint)) as sink, meanwhile(other.call, "over_there:send", "out", batch(6)):
        assert numbers([sink.recv(), sink.recv()]) == [6, 6]
    other.call("over_there:close", "out")


@pytest.mark.parametrize("multipart", [True, False])
def test_who_pulls_there_survives_the_end(other: Guest, multipart: bool) -> None:
    """It gets the last message once more, and goes on with the next sender."""
    endpoint = other.call("over_there:connect", "in", "zpull://127.0.0.1:*", multipart=multipart)
    for start in (0, 10):
        with Connection(url_of("zpush", endpoint), multipart=multipart) as source:
            source.serve(batch(start + number) for number in range(3))
        got = other.call("over_there:items", "in", 4)
        assert numbers(got) == [start, start + 1, start + 2, start + 2]
        assert same(got[2], got[3])
        assert same(got[3], batch(start + 2))
    other.call("over_there:close", "in")


@pytest.mark.parametrize("multipart", [True, False])
def test_who_listens_there_survives_the_end(other: Guest, multipart: bool) -> None:
    endpoint = other.call("over_there:connect", "in", "zrsub://127.0.0.1:*", multipart=multipart)
    for start in (1, 10):
        source = Connection(url_of("zrpub", endpoint), multipart=multipart)
        with meanwhile(source.send, [np.zeros(1, "i1"), np.zeros(1, "i1")]):
            other.call("over_there:recv", "in", 1)
        source.serve(batch(start + number) for number in range(3))
        source.close()
        got: list[Any] = []
        while len(got) < 4:
            got += real(other.call("over_there:items", "in", 1))
        assert numbers(got) == [start, start + 1, start + 2, start + 2]
    other.call("over_there:close", "in")


def test_messages_without_marks_are_byte_for_byte_theirs(other: Guest) -> None:
    arrays = [*map(np.ascontiguousarray, ARRAYS), *WIDE]
    parts, buffer = other.call("over_there:encoded", arrays)
    assert [bytes(part) for part in tenbin.encode_list(arrays)] == parts
    assert tenbin.encode_buffer(arrays) == buffer


def test_files_are_read_both_ways(other: Guest, tmp_path: Path) -> None:
    arrays = [*map(np.ascontiguousarray, ARRAYS), *WIDE]
    names = [f"array{number}" for number in range(len(arrays))]
    other.call("over_there:save", f"{tmp_path}/theirs.ten", arrays, names)
    assert same(tenbin.load(tmp_path / "theirs.ten", infos=names), arrays)
    tenbin.save(tmp_path / "ours.ten", *ARRAYS, *WIDE, infos=names)
    assert same(other.call("over_there:load", f"{tmp_path}/ours.ten", names), arrays)
    assert (tmp_path / "ours.ten").read_bytes() == (tmp_path / "theirs.ten").read_bytes()


def test_what_they_lack_is_what_the_page_says(other: Guest) -> None:
    """Unsigned integers of 32 bits cannot be read there, nor arrays without dimensions."""
    endpoint = other.call("over_there:connect", "in", "zpull://127.0.0.1:*")
    with Connection(url_of("zpush", endpoint), marks=False) as source:
        for array, why in ((np.zeros(3, "u4"), "unit32"), (np.float32(3), "float")):
            source.send([array])
            with pytest.raises(GuestError, match=why):
                other.call("over_there:recv", "in", 1)
        source.send(batch(3))
        assert numbers(other.call("over_there:recv", "in", 1)) == [3]
    other.call("over_there:close", "in")


def test_their_own_command_looks_at_a_stream_of_ours(environment: Environment, tmp_path: Path) -> None:
    """It stops when one more than it counts has come, which is the end with its mark."""
    command = [Path(environment.python).parent / "tensorstat", "-c", "3", f"zpull+ipc://{tmp_path}/socket"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with Connection(f"zpush+ipc://{tmp_path}/socket") as source:
            source.serve(batch(number) for number in (1, 2, 6))
        said, complaints = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert complaints == ""
    assert "3 [1 6] mean=3 std=2.16 n=36" in said
    assert "('float32', 4, 3)" in said

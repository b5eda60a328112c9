"""Messages of Arrow Flight that are received without Arrow's client: whatever a server says, and in whatever pieces."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal import feed
from shoal._sockets import exactly
from shoal.errors import FeederLostError, FeedError
from shoal.feed._http2 import varint
from shoal.feed._line import Line
from shoal.feed._messages import DirectMessages
from shoal.shards import TarWriter

WORDS = {"compression": None}
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 4, 6, 7, 8, 9
END, PADDED = 1, 8


def frame(kind: int, data: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + data


def message(metadata: bytes, body: bytes) -> bytes:
    """Write a message as Flight does, with a field in front that nobody looks at."""
    told = b"\x12" + varint(3) + b"abc" + b"\x1a" + varint(len(metadata)) + metadata
    data = told + (b"\xc2\x3e" + varint(len(body)) + body if body else b"")
    return b"\0" + len(data).to_bytes(4, "big") + data


@contextmanager
def server(answer: bytes, heard: list[bytes] | None = None) -> Iterator[str]:
    """Say something to whoever comes, and hear what he says until he goes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        end, _ = listener.accept()
        with end, suppress(OSError):  # who has heard enough goes
            end.sendall(answer)
            end.shutdown(socket.SHUT_WR)
            while data := end.recv(2**16):
                if heard is not None:
                    heard.append(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join(30)
        listener.close()


@contextmanager
def messages(answer: bytes, heard: list[bytes] | None = None) -> Iterator[DirectMessages]:
    with server(frame(SETTINGS, stream=0) + frame(HEADERS, b"\x88", 4) + answer, heard) as url:
        made = DirectMessages(Line(url, "a token", None), WORDS)
        try:
            yield made
        finally:
            made.close()


@given(
    bodies=st.lists(st.tuples(st.binary(max_size=700), st.binary(min_size=1, max_size=3000)), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 8000), max_size=12),
    padding=st.integers(0, 255),
)
def test_messages_come_whole_however_they_are_cut_into_frames(
    bodies: list[tuple[bytes, bytes]], cuts: list[int], padding: int
) -> None:
    data = message(b"", b"") + b"".join(message(*each) for each in bodies)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    said = b""
    for begin, end in pairwise(edges):
        said += frame(PING, bytes(8), stream=0) + frame(CONTINUATION, b"12")
        said += frame(DATA, bytes([padding]) + data[begin:end] + bytes(padding), PADDED)
    with messages(said) as found:
        for metadata, body in bodies:
            assert found.next() == (metadata, len(body))
            half = len(body) // 2
            assert bytes(found.read(half)) + bytes(found.read(len(body) - half)) == body


def test_what_was_heard_while_nobody_asked_is_not_lost() -> None:
    said = message(b"", b"") + message(b"first", b"12345678") + message(b"last", b"x")
    with messages(frame(DATA, said[:50]) + frame(DATA, said[50:]) + frame(HEADERS, b"\x88", END)) as found:
        for _ in range(3):
            time.sleep(0.05)
            found.attend()
        assert found.next() == (b"first", 8)
        assert found.read(8) == b"12345678"
        assert found.next() == (b"last", 1)
        assert found.read(1) == b"x"
        found.attend()
        with pytest.raises(FeederLostError, match="ended in the middle"):
            found.next()


def test_bytes_that_nobody_takes_are_passed_over() -> None:
    said = message(b"", b"") + message(b"first", b"12345678") + message(b"second", b"x")
    with messages(frame(DATA, said)) as found:
        assert found.next() == (b"first", 8)
        assert found.read(3) == b"123"
        assert found.next() == (b"second", 1)


def test_pings_and_settings_are_answered() -> None:
    heard: list[bytes] = []
    said = frame(PING, b"12345678", stream=0) + frame(DATA, message(b"", b""))
    with messages(said, heard) as found, pytest.raises(FeederLostError, match="closed"):
        found.next()
    assert frame(SETTINGS, b"", END, 0) in b"".join(heard)
    assert frame(PING, b"12345678", END, 0) in b"".join(heard)


def test_a_server_that_goes_away_politely_may_finish() -> None:
    away = frame(GOAWAY, (1).to_bytes(4, "big") + bytes(4), stream=0)
    with messages(away + frame(DATA, message(b"", b"") + message(b"last", b"x"))) as found:
        assert found.next() == (b"last", 1)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (frame(GOAWAY, bytes(7) + b"\x02too many", stream=0), "goes away: too many"),
        (frame(DATA, message(b"", b"")) + frame(HEADERS, b"\x88", END), "ended in the middle"),
        (frame(DATA, message(b"", b"") + message(b"", b"123")[:-2]), "closed"),
    ],
    ids=["an error", "trailers", "a cut"],
)
def test_a_server_that_goes_is_lost(said: bytes, match: str) -> None:
    with messages(said) as found, pytest.raises(FeederLostError, match=match):
        found.read(found.next()[1])


@pytest.mark.parametrize(
    "said",
    [
        b"\1" + message(b"", b"")[1:],
        b"\0\0\0\0\5" + b"\x1a\xff\xff\xff\x7f",
        b"\0\0\0\0\x0c" + b"\xff" * 12,
        b"\0\0\0\0\4" + b"\xc2\x3e\x70x",
    ],
    ids=["compressed", "longer than all", "no number", "a body that is cut"],
)
def test_what_makes_no_sense_is_refused(said: bytes) -> None:
    with messages(frame(DATA, said)) as found, pytest.raises(FeedError, match="no message of Arrow Flight"):
        found.next()


def test_a_question_waits_until_the_server_has_room_for_it() -> None:
    """A plan of many shards is larger than what a server takes at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    sizes: list[int] = []

    def serve() -> None:
        end, _ = listener.accept()
        with end:
            exactly(end, 24)
            sent = False
            while True:
                head = exactly(end, 9)
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                exactly(end, size)
                if kind == DATA:
                    sizes.append(size)
                if sum(sizes) == 2**16 - 1 and not sent:
                    sent = True
                    more = (2**20).to_bytes(4, "big")
                    settings = (4).to_bytes(2, "big") + (2**20).to_bytes(4, "big")
                    end.sendall(frame(SETTINGS, settings, stream=0) + frame(WINDOW, more, stream=0))
                if kind == DATA and flags & END:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    line = Line(f"grpc://127.0.0.1:{listener.getsockname()[1]}", None, None)
    made = DirectMessages(line, {"compression": None, "plan": "x" * 100_000})
    thread.join(30)
    made.close()
    listener.close()
    assert 100_000 < sum(sizes) < 100_100
    assert max(sizes) <= 2**14


def test_a_plan_of_many_shards_is_asked_for(tmp_path: Path) -> None:
    first = tmp_path / f"{'long' * 40}-0000.tar"
    with TarWriter(first) as writer:
        writer.write({"__key__": "a", "cls": 7})
    for number in range(1, 1000):
        os.link(first, tmp_path / f"{'long' * 40}-{number:04d}.tar")
    dataset = shoal.read_tar(str(tmp_path)).decode()
    with feed.serve(dataset, batch_size=500) as feeder:
        batches: list[Any] = list(feed.connect([feeder.url], token=feeder.token, shared_memory=False))
    assert [batch["cls"].tolist() for batch in batches] == [[7] * 500] * 2

"""What runs in each worker of a gang, on every engine."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import cloudpickle

from shoal.abc import Member, dealt
from shoal.engines._message import Message, pack, unpack
from shoal.engines._task import Caught, opened
from shoal.engines._wire import Kind, Lost, Wire
from shoal.errors import ShoalError

__all__ = ["Call", "leave", "serve", "serve_input"]


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be done, and where those who do it meet."""

    function: bytes
    name: str
    size: int
    attempt: int
    address: tuple[str, int]
    token: bytes
    shards: int | None = None
    """How many shards can be asked for at the address; None if members have theirs already."""


class _Line:
    """The connection with whoever started the gang: one question of a kind at a time, answered some time."""

    def __init__(self, wire: Wire, lost: Callable[[], None]) -> None:
        self.wire = wire
        self._lost, self._over = lost, False
        self._answers: dict[Kind, SimpleQueue[Any]] = {kind: SimpleQueue() for kind in (Kind.GATHER, Kind.SHARD)}
        self._locks = {kind: threading.Lock() for kind in self._answers}
        threading.Thread(target=self._listen, name="shoal-member", daemon=True).start()

    def ask(self, kind: Kind, value: Any) -> bytearray:
        """Send a question, and wait for its answer."""
        with self._locks[kind]:
            with suppress(Lost):
                self.wire.send(kind, value)
            answer: bytearray | Lost = self._answers[kind].get()
        if isinstance(answer, Lost):
            self._answers[kind].put(answer)
            raise ShoalError("the gang was ended") from answer
        return answer

    def done(self) -> None:
        """Take it for no loss any more if the other end goes: it may, as soon as it has heard the result."""
        self._over = True

    def close(self) -> None:
        """Hang up."""
        self._over = True
        self.wire.close()

    def _listen(self) -> None:
        try:
            while True:
                kind, message = self.wire.receive()
                self._answers[kind].put(message)
        except Lost as error:
            for answers in self._answers.values():
                answers.put(error)
            if not self._over:
                self._lost()


class _Connected(Member):
    def __init__(self, call: Call, rank: int, shards: Sequence[Any], line: _Line) -> None:
        self.rank, self.size, self.attempt, self.host = rank, call.size, call.attempt, line.wire.host
        self.shards, self._line = shards, line

    def all_gather(self, value: Any) -> list[Any]:
        """Bring a value, and wait for those of the others."""
        gathered: list[Any] = unpack(self._line.ask(Kind.GATHER, value))
        return gathered

    def report(self, value: Any) -> None:
        """Send a value; nobody answers."""
        with suppress(Lost):
            self._line.wire.send(Kind.REPORT, value)


class _Given(Sequence[Any]):
    """Shards that came with the call; each is made anew whenever somebody looks at it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __getitem__(self, at: Any) -> Any:
        return opened(self._messages[at])


class _Asked(Sequence[Any]):
    """Shards that are asked for whenever somebody looks at them."""

    def __init__(self, numbers: range, line: _Line) -> None:
        self._numbers, self._line = numbers, line

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Any]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, at: Any) -> Any:
        return opened(self._line.ask(Kind.SHARD, self._numbers[at]))


def serve(call: Call, rank: int, messages: Sequence[Message] | None, lost: Callable[[], None]) -> None:
    """Call the function as one of the members; whatever comes of it is told to whoever started the gang.

    ``lost`` is called, by another thread, when nobody waits for that any more.
    """
    try:
        wire = Wire.to(call.address, call.token)
        wire.send(Kind.JOIN, rank)
    except Lost:
        return  # the gang was ended before it began
    line = _Line(wire, lost)
    try:
        shards = _Given(messages or ()) if call.shards is None else _Asked(dealt(call.shards, call.size)[rank], line)
        kind, message = _called(call, _Connected(call, rank, shards, line))
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # there is none, nobody reads it, it is closed
                stream.flush()  # before others hear of the end, and end this process
        line.done()
        with suppress(Lost):
            wire.send_packed(kind, message)
    finally:
        line.close()


def serve_input() -> None:
    """Be a member in a process of its own, which reads what to do from its standard input; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; whoever started it decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    call, rank = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  (of the process that started this one)
    serve(call, rank, None, leave)
    os._exit(0)


def leave() -> None:
    """End this process, in the middle of whatever it is doing."""
    os._exit(1)


def _called(call: Call, member: Member) -> tuple[Kind, bytearray]:
    try:
        return Kind.RESULT, pack(cloudpickle.loads(call.function)(member))
    except BaseException as error:  # an exit too: somebody waits to hear of it
        return Kind.ERROR, pack((error.__dict__.get("raised_at", time.time()), Caught.of(error)))

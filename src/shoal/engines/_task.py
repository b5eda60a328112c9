"""What runs in a worker for one shard, and what becomes of its errors.

An engine carries messages and knows nothing of what is in them. An error of the function is a result like any other: it
goes through the tasks that follow, and is raised by whoever asks for the shard. So engines start a task again only when
its worker died, and never because it failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cloudpickle

from shoal.engines._message import Message, pack, unpack
from shoal.engines._pickling import shipped
from shoal.errors import PlanError, ShoalError

__all__ = ["Caught", "Split", "Task", "opened"]


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception on its way to whoever asks for the result: what pickle keeps of it, and what it does not."""

    error: Exception
    notes: tuple[str, ...]
    text: str
    """The traceback in the worker."""
    where: str = "in a worker process"

    @classmethod
    def of(cls, error: BaseException) -> Caught:
        """Catch what a call of a function by our own code raised."""
        trace = error.__traceback__ and (error.__traceback__.tb_next or error.__traceback__)  # without our own frame
        text = "".join(traceback.format_exception(type(error), error, trace))
        return cls(_sendable(error), tuple(map(str, getattr(error, "__notes__", ()))), text)

    def revived(self) -> Exception:
        """Give the exception, with all that was known about it where it was raised."""
        for note in self.notes:
            if note not in getattr(self.error, "__notes__", ()):
                self.error.add_note(note)
        self.error.add_note(f"{self.where}:\n{self.text}")
        return self.error


@dataclass(frozen=True, slots=True)
class Task:
    """Calls a function with one shard of each of several collections.

    >>> task = Task.of(lambda a, b: a + b, "map")
    >>> unpack(task(0, 1, pack(1), pack(2)))
    3
    """

    function: bytes
    name: str

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> Task:
        """Pack a function for workers."""
        return cls(shipped(function, name), name)

    def __call__(self, number: int, count: int, *messages: Message) -> bytearray:
        """Treat the shards of one number, of so many."""
        return pack(self.done(number, count, messages))

    def done(self, number: int, count: int, messages: Sequence[Message]) -> Any:
        """Give what the function makes of the shards, or what it raised."""
        try:
            shards = [_whole(unpack(message)) for message in messages]
            failed = next((shard for shard in shards if isinstance(shard, Caught)), None)
            return _function(self.function)(*shards) if failed is None else failed
        except Exception as error:
            return replace(Caught.of(error), where=f"in {self.name}, shard {number} of {count}, in a worker")


@dataclass(frozen=True, slots=True)
class Split:
    """Calls a function that cuts a shard into pieces, and gives a message for each.

    >>> [unpack(piece) for piece in Split(Task.of(lambda shard: [shard[:1], shard[1:]], "cut"), 2)(0, 1, pack("abc"))]
    ['a', 'bc']
    """

    task: Task
    pieces: int

    def __call__(self, number: int, count: int, message: Message) -> list[bytearray]:
        """Cut the shard of a number, of so many."""
        made = self.task.done(number, count, [message])
        if not isinstance(made, Caught):
            made = list(made)
            if len(made) != self.pieces:
                error = PlanError(f"{self.task.name} made {len(made)} pieces of a shard, and not {self.pieces}")
                made = Caught.of(error)
        return [pack(made)] * self.pieces if isinstance(made, Caught) else list(map(pack, made))


def opened(message: Message) -> Any:
    """Take a shard out of its message, or raise what went wrong with it."""
    shard = _whole(unpack(message))
    if isinstance(shard, Caught):
        raise shard.revived()
    return shard


def _whole(shard: Any) -> Any:
    """Give the error of a piece for the whole, where a shard is made of pieces."""
    return next(_failures(shard), shard) if isinstance(shard, list) else shard


def _failures(pieces: Sequence[Any]) -> Iterator[Caught]:
    return (piece for piece in pieces if isinstance(piece, Caught))


@lru_cache(maxsize=8)
def _function(packed: bytes) -> Any:
    return cloudpickle.loads(packed)


def _sendable(error: BaseException) -> Exception:
    """Give the exception if it survives the journey and may be raised in a thread of the parent; else its text."""
    if isinstance(error, Exception):
        try:
            if type(cloudpickle.loads(cloudpickle.dumps(error))) is type(error):
                return error
        except Exception:  # noqa: S110  (its class may do anything; the text is sent instead)
            pass
    return ShoalError(traceback.format_exception_only(error)[0].strip())

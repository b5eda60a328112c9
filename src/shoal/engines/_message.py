"""A shard on its way between workers, and while nobody uses it: bytes that every engine can carry, keep and spill.

A message holds one value (a pickle, and behind it the arrays it speaks of), or several messages one behind the other.
It begins with 8-byte numbers: its kind, how many parts it has, the bytes of each. A part begins at a multiple of 64.

What comes out of a message belongs to whoever takes it out: it can be changed in place, on every engine alike.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.engines._pickling import Plain, Thorough, refusal

__all__ = ["Buffer", "Loose", "Message", "as_array", "extents", "joined", "pack", "parts", "unpack"]

#: Anything that has bytes; a message may also be a list of messages that lie in different places.
Buffer: TypeAlias = "bytes | bytearray | memoryview"
Message: TypeAlias = "Buffer | Loose | list[Buffer]"

_VALUE, _JOINED = 0, 1
_ALIGNMENT = 64
_HEAD = Struct("<QQ")


class Loose:
    """A message whose arrays are where they were: for carriers that can take them from there, without another copy.

    >>> unpack(Loose.of({"a": [1, 2]}))
    {'a': [1, 2]}
    """

    __slots__ = ("buffers", "stream")

    def __init__(self, stream: bytes, buffers: Sequence[Any]) -> None:
        self.stream, self.buffers = stream, buffers

    @classmethod
    def of(cls, value: Any) -> Loose:
        """Make a message of a value."""
        stream, buffers = _pickled(value)
        return cls(stream.getvalue(), [buffer.raw() for buffer in buffers])

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Loose, (self.stream, list(map(pickle.PickleBuffer, self.buffers)))


def pack(value: Any) -> bytearray:
    """Make a message of a value.

    >>> unpack(pack({"a": [1, 2]}))
    {'a': [1, 2]}
    """
    stream, buffers = _pickled(value)
    return _laid_out(_VALUE, [stream.getbuffer(), *(buffer.raw() for buffer in buffers)])


def joined(messages: Sequence[Buffer]) -> bytearray:
    """Make one message of several: what comes out is a list.

    >>> unpack(joined([pack(1), pack("a")]))
    [1, 'a']
    """
    return _laid_out(_JOINED, messages)


def parts(message: Buffer) -> list[memoryview]:
    """Give the messages that one was joined of.

    >>> [unpack(part) for part in parts(joined([pack(1), pack("a")]))]
    [1, 'a']
    """
    return _parts(memoryview(message).cast("B"))[1]


def extents(message: Buffer) -> list[tuple[int, int]]:
    """Say where the messages that one was joined of begin, and how many bytes they have."""
    view = memoryview(message).cast("B")
    _, count = _HEAD.unpack_from(view)
    sizes = Struct(f"<{count}Q").unpack_from(view, _HEAD.size)
    return list(zip(_places(sizes)[0], sizes, strict=True))


def as_array(message: Buffer) -> NDArray[np.uint8]:
    """Give the bytes of a message as an array, which some stores take as it is and do not pickle."""
    return np.frombuffer(message, np.uint8)


def unpack(message: Message) -> Any:
    """Take the value out; its arrays are copies."""
    if isinstance(message, list):
        return [unpack(part) for part in message]
    if isinstance(message, Loose):
        return _loaded(message.stream, message.buffers)
    kind, found = _parts(memoryview(message).cast("B"))
    if kind == _JOINED:
        return [unpack(part) for part in found]
    stream, *buffers = found
    return _loaded(stream, buffers)


def _loaded(stream: Buffer, buffers: Sequence[Any]) -> Any:
    return pickle.loads(stream, buffers=map(bytearray, buffers))  # noqa: S301  (of our own workers)


def _pickled(value: Any) -> tuple[io.BytesIO, list[pickle.PickleBuffer]]:
    for kind in (Plain, Thorough):
        stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        try:
            kind(stream, protocol=5, buffer_callback=buffers.append).dump(value)
        except Exception as error:  # whatever refuses to be pickled does so in its own way
            if kind is Thorough:
                raise refusal(value, error) from error
        else:
            return stream, buffers
    raise AssertionError("unreachable")


def _laid_out(kind: int, parts: Sequence[Buffer]) -> bytearray:
    sizes = [memoryview(part).nbytes for part in parts]
    begins, end = _places(sizes)
    message = bytearray(end)
    Struct(f"<{len(sizes) + 2}Q").pack_into(message, 0, kind, len(sizes), *sizes)
    with memoryview(message) as room:
        for part, begin, size in zip(parts, begins, sizes, strict=True):
            room[begin : begin + size] = memoryview(part).cast("B")
    return message


def _parts(view: memoryview) -> tuple[int, list[memoryview]]:
    kind, count = _HEAD.unpack_from(view)
    sizes = Struct(f"<{count}Q").unpack_from(view, _HEAD.size)
    begins, _ = _places(sizes)
    return kind, [view[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]


def _places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Say where parts begin, and where the last one ends."""
    begins, end = [], _HEAD.size + 8 * len(sizes)
    for size in sizes:
        begin = -(-end // _ALIGNMENT) * _ALIGNMENT
        begins.append(begin)
        end = begin + size
    return begins, end

"""Python values as bytes that lie in memory the way they are used: a pickle, and behind it the arrays it speaks of.

A packed message is a pickle stream, then the lengths of its buffers, then the buffers, each at a multiple of 64 bytes.
Arrays that are unpacked are views of the message.
"""

from __future__ import annotations

import pickle
import types
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from shoal._optional import require
from shoal.engines.local._segments import Owned, Owner, copy
from shoal.errors import PlanError

__all__ = ["INLINE", "Packed", "Packer", "unpack"]

INLINE = 2**15  # bytes; a message up to this size is copied through the socket sooner than shared
_SMALL = 2**10  # bytes; an array up to this size goes into the stream, so that keeping it keeps no segment
_ALIGNMENT = 64


@dataclass(slots=True)
class Packed:
    """A message: where it lies, and what is needed to unpack it."""

    view: memoryview
    segment: Owned | None
    """None if the message is small enough to be sent as it is."""
    stream: int
    """Bytes of the pickle stream."""
    buffers: int
    """Number of buffers behind it."""


class Packer:
    """Packs one message after the other."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._kind: Callable[..., pickle.Pickler] = _Plain
        self._last = 0  # bytes of the last message: the next one is expected to need as many

    def pack(self, value: Any) -> Packed:
        """Write a value into a segment, or into a small buffer if that is enough."""
        try:
            return self._packed(value, self._kind)
        except (OSError, MemoryError):  # of the segments
            raise
        except Exception as error:  # whatever refuses to be pickled does so in its own way
            if self._kind is _Thorough:
                raise _refusal(value, error) from error
        try:
            packed = self._packed(value, _Thorough)
        except Exception as error:
            raise _refusal(value, error) from error
        self._kind = _Thorough  # the next messages will hold the like
        return packed

    def _packed(self, value: Any, kind: Callable[..., pickle.Pickler]) -> Packed:
        room = _Room(self._owner, self._last)
        try:
            return self._write(room, value, kind)
        except BaseException:
            room.give_up()
            raise

    def _write(self, room: _Room, value: Any, kind: Callable[..., pickle.Pickler]) -> Packed:
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes > _SMALL:
                buffers.append(raw)
            return raw.nbytes <= _SMALL

        kind(room, protocol=5, buffer_callback=keep).dump(value)
        stream = room.used
        sizes = [buffer.nbytes for buffer in buffers]
        room.reserve(stream + (len(sizes) + 1) * (8 + _ALIGNMENT) + _ALIGNMENT + sum(sizes))
        for part in [memoryview(array("Q", sizes)).cast("B"), *buffers] if sizes else []:
            room.align()
            room.write(part)
        self._last = room.used
        return Packed(room.view[: room.used], room.segment, stream, len(buffers))


def _refusal(value: Any, error: Exception) -> PlanError:
    text = f"a {type(value).__name__} cannot be sent to another process ({type(error).__name__}: {error}); "
    return PlanError(text + 'keep such values out of samples, or use mode="thread"')


def unpack(view: memoryview, stream: int, buffers: int, *, copied: bool) -> Any:
    """Make the value again; its arrays are views of the message, or copies."""
    parts: list[memoryview | bytearray] = []
    place = _aligned(stream)
    sizes = view[place : place + 8 * buffers].cast("Q")
    place += sizes.nbytes
    for size in sizes:
        place = _aligned(place)
        part = view[place : place + size]
        parts.append(bytearray(part) if copied else part)
        place += size
    return pickle.loads(view[:stream], buffers=parts)  # noqa: S301  (of our own process)


def _aligned(place: int) -> int:
    return -(-place // _ALIGNMENT) * _ALIGNMENT


class _Room:
    """A file for a pickler that lies in memory: small at first, then in ever larger segments."""

    def __init__(self, owner: Owner, expected: int) -> None:
        self._owner = owner
        self._expected = expected
        self.view = memoryview(bytearray(INLINE))
        self.segment: Owned | None = None
        self.used = 0

    def write(self, data: Any) -> int:
        source = data if isinstance(data, bytes | bytearray) else memoryview(data).cast("B")
        end = self.used + len(source)
        if end > len(self.view):
            self.reserve(2 * end)
        copy(self.view[self.used : end], source)
        self.used = end
        return len(source)

    def align(self) -> None:
        self.used = _aligned(self.used)

    def reserve(self, size: int) -> None:
        if size <= len(self.view):
            return
        segment = self._owner.take(max(size, self._expected))  # pages that are not written cost nothing
        view = segment.mapping.view()
        copy(view[: self.used], self.view[: self.used])
        self.give_up()
        self.view, self.segment = view, segment

    def give_up(self) -> None:
        if self.segment is not None:
            self._owner.back(self.segment.name)
            self.segment = None


class _Plain(pickle.Pickler):
    """Pickles by name what has one in a module that the other process can import."""

    def reducer_override(self, value: Any) -> Any:
        reduced = _reduced(value)
        if reduced is None and _of_main(value):
            raise pickle.PicklingError(f"{value!r} is known by name in this process only")
        return NotImplemented if reduced is None else reduced


class _Thorough(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles functions and classes of scripts and functions too, by value."""

    def reducer_override(self, value: Any) -> Any:
        reduced = _reduced(value)
        return super().reducer_override(value) if reduced is None else reduced


def _of_main(value: Any) -> bool:
    return isinstance(value, type | types.FunctionType) and value.__module__ == "__main__"


def _reduced(value: Any) -> Any:
    """Say how to make a value again for which pickle has no good way of its own; None for all others."""
    kind = type(value)
    if kind is memoryview:
        return _reduced_view(value)
    if kind.__module__ == "torch" and kind.__name__ == "Tensor" and _plain_tensor(value):
        return _tensor, (value.numpy(),)
    return None


def _reduced_view(view: memoryview) -> Any:
    if not view.nbytes:
        return memoryview, (b"" if view.readonly else bytearray(),)
    memoryview(bytes(view.itemsize)).cast(view.format)  # type: ignore[call-overload]  # or it could not be made again
    if not view.c_contiguous:
        laid_out = memoryview(view.tobytes() if view.readonly else bytearray(view.tobytes()))
        return _view, (pickle.PickleBuffer(laid_out), view.format, view.shape)
    return _view, (pickle.PickleBuffer(view), view.format, view.shape)


def _view(buffer: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    flat = memoryview(buffer).cast("B")
    return flat if form == "B" and len(shape) == 1 else flat.cast(form, shape)  # type: ignore[call-overload]


def _plain_tensor(tensor: Any) -> bool:
    """Tell whether numpy can hold it: torch's own way of pickling copies a tensor several times."""
    if tensor.device.type != "cpu" or tensor.requires_grad or not tensor.is_contiguous():
        return False
    try:
        tensor.numpy()
    except (TypeError, RuntimeError):  # sparse, quantized, of a type that numpy lacks
        return False
    return True


def _tensor(array: Any) -> Any:
    return require("torch", "receiving tensors").from_numpy(array)

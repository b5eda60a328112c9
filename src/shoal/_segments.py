"""Memory that two processes share and nobody can leak.

A segment is an anonymous file of memory (memfd): it has no name, so none can collide or stay behind, and it is gone
with the last process that maps it, however that one ends. One side, the owner, writes a message into a segment; the
other side uses it where it lies, for as long as it likes, and then gives the segment back to be written again, so that
its pages need not be made anew. Descriptors are closed as soon as both sides have mapped what they stand for.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from shoal.errors import SharedMemoryError

__all__ = ["Mapping", "Owned", "Owner", "User", "c_library", "copy"]

_FREE = 4  # segments an owner keeps for the next messages
_GRAIN = 2**16  # bytes; the smallest segment, and the smallest step between sizes
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A stretch of shared memory in this process; unmapped when nothing refers to it any more.

    It is mapped by hand, because an `mmap.mmap` holds a descriptor for as long as it lives.
    """

    def __init__(self, descriptor: int) -> None:
        self.size = os.fstat(descriptor).st_size
        self.forked = False
        self.address = _map(None, self.size, mmap.MAP_SHARED, descriptor)
        self._exporter: weakref.ref[Any] | None = None
        # Not at exit: arrays may be looked at until the very end.
        weakref.finalize(self, c_library().munmap, self.address, self.size).atexit = False
        _watch_forks().add(self)

    def view(self) -> memoryview:
        """Give the bytes."""
        return memoryview(self._export()).cast("B")

    def lend(self, name: int, back: deque[int]) -> memoryview:
        """Give the bytes, and put ``name`` into ``back`` when nothing refers to them any more: no view, array, tensor.

        Each loan has an exporter of its own. A finalizer on an array would come too early: numpy lets views of a view
        refer to the exporter and not to the view.
        """
        exporter = self._export()
        self.forked = False
        self._exporter = weakref.ref(exporter)
        weakref.finalize(exporter, self._back, name, back).atexit = False
        return memoryview(exporter).cast("B")

    def _export(self) -> Any:
        exporter: Any = (ctypes.c_char * self.size).from_address(self.address)
        exporter.mapping = self  # or it would be unmapped under its user
        return exporter

    def _back(self, name: int, back: deque[int]) -> None:
        # A negative name: not to be written again, for a child of this process may still look at it.
        back.append(-name if self.forked else name)

    def part(self) -> None:
        """In a child that was forked: take a copy of what is lent, and see no changes of the parent from here on."""
        if self._exporter is None or self._exporter() is None:
            return
        kept = ctypes.string_at(self.address, self.size)
        _map(self.address, self.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1)
        ctypes.memmove(self.address, kept, self.size)


_MAP_FIXED = 0x10


@cache
def c_library() -> Any:
    """Give the functions of the system that Python has no names for."""
    library = ctypes.CDLL(None, use_errno=True)
    sizes, ints = ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes = [ctypes.c_void_p, sizes, ints, ints, ints, ctypes.c_long]
    library.mmap.restype = ctypes.c_void_p
    library.munmap.argtypes = [ctypes.c_void_p, sizes]
    library.fallocate.argtypes = [ints, ints, ctypes.c_int64, ctypes.c_int64]
    return library


def _map(address: int | None, size: int, flags: int, descriptor: int) -> int:
    got: int | None = c_library().mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if got is None or got == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {size} bytes cannot be mapped")
    return got


@cache
def _watch_forks() -> weakref.WeakSet[Mapping]:
    """Give the mappings of this process, which part from those of a forked child."""
    mappings: weakref.WeakSet[Mapping] = weakref.WeakSet()

    def parent() -> None:
        for mapping in list(mappings):
            mapping.forked = True

    def child() -> None:
        for mapping in list(mappings):
            mapping.part()

    os.register_at_fork(after_in_parent=parent, after_in_child=child)
    return mappings


@dataclass(eq=False, slots=True)
class Owned:
    """A segment of this side; it has a descriptor until the other side got it."""

    name: int
    mapping: Mapping
    descriptor: int | None

    @property
    def size(self) -> int:
        """The bytes it can hold."""
        return self.mapping.size

    def sent(self) -> None:
        """Close the descriptor: the other side has one of its own."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class Owner:
    """The segments that this side writes: made when needed, written again when they come back."""

    def __init__(self) -> None:
        self._made = 0
        self._free: list[Owned] = []
        self._out: dict[int, Owned] = {}
        self.dropped: deque[int] = deque()
        """Names of segments that the other side has to forget."""

    def take(self, size: int) -> Owned:
        """Give a segment of at least ``size`` bytes."""
        fitting = [segment for segment in self._free if segment.size >= size]
        if fitting:
            segment = min(fitting, key=lambda each: each.size)
            self._free.remove(segment)
        else:
            segment = self._make(_size_class(size))
        self._out[segment.name] = segment
        return segment

    def back(self, name: int) -> None:
        """Take a segment back; one with a negative name is not used again."""
        segment = self._out.pop(abs(name))
        self._free.append(segment)
        if name < 0:
            self._drop(segment)
        elif len(self._free) > _FREE:
            self._drop(min(self._free, key=lambda each: each.size))

    def close(self) -> None:
        """Let go of all segments."""
        for segment in [*self._free, *self._out.values()]:
            segment.sent()
        self._free.clear()
        self._out.clear()

    def _make(self, size: int) -> Owned:
        descriptor = os.memfd_create("shoal", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            mapping = Mapping(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise SharedMemoryError(
                f"{size} bytes of shared memory for what goes to another process are not to be had: {error.strerror}; "
                "let blocks be smaller, or the limits of this process be larger (ulimit -f, ulimit -v)"
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        self._made += 1
        return Owned(self._made, mapping, descriptor)

    def _drop(self, segment: Owned) -> None:
        self._free.remove(segment)
        if segment.descriptor is None:
            self.dropped.append(segment.name)
        segment.sent()


class User:
    """The segments of the other side, as they are mapped here."""

    def __init__(self) -> None:
        self._mappings: dict[int, Mapping] = {}
        self._lent: set[int] = set()
        self._unused: deque[int] = deque()  # appended to by whichever thread lets go last

    @property
    def lent(self) -> int:
        """How many segments something here still refers to."""
        return len(self._lent) - len(self._unused)

    def lend(self, name: int, descriptor: int | None) -> memoryview:
        """Give the bytes of a segment, which comes with a descriptor the first time."""
        if descriptor is not None:
            self._mappings[name] = Mapping(descriptor)
        self._lent.add(name)
        return self._mappings[name].lend(name, self._unused)

    def unused(self, limit: int) -> list[int]:
        """Name segments that nothing here refers to any more, each once; negative ones are not to be used again."""
        names = [self._unused.popleft() for _ in range(min(limit, len(self._unused)))]
        for name in names:
            self._lent.remove(abs(name))
            if name < 0:
                self.forget(-name)
        return names

    def forget(self, name: int) -> None:
        """Unmap a segment."""
        self._mappings.pop(name, None)

    def close(self) -> None:
        """Unmap all segments, those that are lent when nothing refers to them any more."""
        self._mappings.clear()


def _size_class(size: int) -> int:
    """Round up by an eighth at most, so that messages of about one size fit each other's segments."""
    step = max(_GRAIN, 1 << max((size - 1).bit_length() - 4, 0))
    return -(-size // step) * step


def copy(target: memoryview, source: memoryview | bytes | bytearray) -> None:
    """Copy bytes; where there are many, numpy lets other threads run meanwhile."""
    if len(target) < _GRAIN:
        target[:] = source
    else:
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))

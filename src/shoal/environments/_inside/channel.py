"""Messages between a process and its guest: a short head, a tree of JSON, and buffers.

Few bytes of buffers go through the socket. Many lie in an anonymous file of memory whose descriptor travels with the
head; the receiver maps it and uses it where it lies. The file is sealed: nobody can change or shorten it any more.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import socket
import struct
import weakref
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Channel", "Garbage", "Lost", "Message"]

_MAGIC = b"SHGU"
_HEAD = struct.Struct("<4sBxxxQQ")  # magic, whether buffers are in a file, bytes of the tree, bytes of the buffers
_INLINE = 2**16  # bytes of buffers; so many are sooner copied through the socket than shared
_ALIGNMENT = 64
_TREE = 2**31  # bytes; no tree is so large
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_FAILED = ctypes.c_void_p(-1).value


class Lost(Exception):  # noqa: N818
    """The other process is gone."""


class Garbage(Exception):  # noqa: N818
    """What came is no message."""


class Message(NamedTuple):
    """What came."""

    tree: Any
    buffers: list[memoryview]
    is_shared: bool


class Channel:
    """One end of a pair of connected stream sockets."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, tree: Any, buffers: Sequence[memoryview]) -> None:
        """Send a message; the buffers are not needed any more when it returns."""
        sizes = [len(buffer) for buffer in buffers]
        text = json.dumps({"tree": tree, "sizes": sizes}, separators=(",", ":")).encode()
        places, total = _laid_out(sizes)
        is_shared = total > _INLINE
        head = _HEAD.pack(_MAGIC, is_shared, len(text), total)
        if not is_shared:
            self._send_all(head + text + _joined(buffers, places, total))
            return
        file = _written(buffers, places, total)
        try:
            self._send_head(head, file)
        finally:
            os.close(file)
        self._send_all(text)

    def receive(self) -> Message:
        """Wait for a message."""
        head, file = self._receive_head()
        try:
            magic, is_shared, text_size, total = _HEAD.unpack(head)
            if magic != _MAGIC or text_size > _TREE or bool(is_shared) != (file is not None):
                raise Garbage(f"it begins with {head[:16]!r}")
            if file is None and total > _INLINE:
                raise Garbage(f"it announces {total} bytes")
            sizes, tree = _parsed(self._receive_exactly(text_size))
            places, expected = _laid_out(sizes)
            if expected != total:
                raise Garbage("its buffers are not as long as it says")
            body = memoryview(self._receive_exactly(total)) if file is None else _mapped(file, total)
        finally:
            if file is not None:
                os.close(file)
        buffers = [body[place : place + size] for place, size in _pairs(places, sizes)]
        return Message(tree, buffers, bool(is_shared))

    def close(self) -> None:
        """Let go of the socket."""
        self.socket.close()

    def wait(self, *, to_write: bool) -> None:
        """Wait until a step can be taken; the side that has limits overrides this."""

    def _send_head(self, head: bytes, file: int) -> None:
        self.wait(to_write=True)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file]))]
        try:
            sent = self.socket.sendmsg([head], rights)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Lost from error
        self._send_all(head[sent:])

    def _send_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self.wait(to_write=True)
            try:
                view = view[self.socket.send(view) :]
            except (BrokenPipeError, ConnectionResetError) as error:
                raise Lost from error
            except BlockingIOError:
                continue

    def _receive_head(self) -> tuple[bytes, int | None]:
        """Take the head of a message, and the descriptor that came with its first byte."""
        self.wait(to_write=False)
        room = socket.CMSG_SPACE(4 * array("i").itemsize)
        try:
            head, ancillary, flags, _ = self.socket.recvmsg(_HEAD.size, room, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError as error:
            raise Lost from error
        files = [file for _, _, data in ancillary for file in array("i", data[: len(data) // 4 * 4])]
        if not head:
            raise Lost
        if len(files) > 1 or flags & socket.MSG_CTRUNC:
            for file in files:
                os.close(file)
            raise Garbage("it came with more descriptors than one, or this process cannot open another file")
        try:
            return head + bytes(self._receive_exactly(_HEAD.size - len(head))), files[0] if files else None
        except BaseException:
            for file in files:
                os.close(file)
            raise

    def _receive_exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self.wait(to_write=False)
            try:
                count = self.socket.recv_into(view)
            except ConnectionResetError as error:
                raise Lost from error
            except BlockingIOError:
                continue
            if not count:
                raise Lost
            view = view[count:]
        return data


def _laid_out(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Give the places of buffers, each aligned, and where the last one ends."""
    places, end = [], 0
    for size in sizes:
        place = -(-end // _ALIGNMENT) * _ALIGNMENT
        places.append(place)
        end = place + size
    return places, end


def _pairs(places: Sequence[int], others: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(place, others[number]) for number, place in enumerate(places)]


def _parsed(text: bytearray) -> tuple[list[int], Any]:
    try:
        loaded = json.loads(text.decode())
        sizes, tree = loaded["sizes"], loaded["tree"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Garbage(f"its tree is not JSON as it should be: {error}") from None
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise Garbage("the sizes of its buffers are no numbers")
    return sizes, tree


def _joined(buffers: Sequence[memoryview], places: Sequence[int], total: int) -> bytes:
    body = bytearray(total)
    for place, buffer in _pairs(places, buffers):
        body[place : place + len(buffer)] = buffer
    return bytes(body)


def _written(buffers: Sequence[memoryview], places: Sequence[int], total: int) -> int:
    """Put buffers into a file of memory that is sealed after that.

    They are written and not copied into a map: that takes half as long, for no page of the map has to be made first.
    """
    file = os.memfd_create("shoal-guest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, total)
        for place, buffer in _pairs(places, buffers):
            while buffer:
                done = os.pwrite(file, buffer, place)
                buffer, place = buffer[done:], place + done
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return file


def _mapped(file: int, size: int) -> memoryview:
    """Map a file for as long as something refers to it; writing to it changes a copy of our own.

    By hand, because an `mmap.mmap` holds a descriptor for as long as it lives, and there may be many.
    """
    try:
        seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if seals & _SEALS != _SEALS or os.fstat(file).st_size != size:
        raise Garbage("its file of memory is not sealed, or of another size than it says")
    library = _library()
    address = library.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, file, 0)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: {size} bytes cannot be mapped")
    exporter = (ctypes.c_char * size).from_address(address)
    # Not at exit: arrays may be looked at until the very end.
    weakref.finalize(exporter, library.munmap, address, size).atexit = False
    return memoryview(exporter).cast("B")


def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    sizes, ints = ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes = [ctypes.c_void_p, sizes, ints, ints, ints, ctypes.c_long]
    library.mmap.restype = ctypes.c_void_p
    library.munmap.argtypes = [ctypes.c_void_p, sizes]
    return library

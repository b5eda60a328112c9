"""Lists of arrays in files and other streams of bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Protocol

from numpy.typing import NDArray

from shoal.errors import DecodeError, TensorcomError
from shoal.feed.tensorcom._arrays import Buffer, Infos, decode_list, encode_list, flat
from shoal.files import open_read, open_write
from shoal.shards.codecs import tenbin

__all__ = ["load", "read", "read_chunk", "save", "write", "write_chunk"]

#: Bytes that are asked of a stream at once: a length that lies costs no memory.
_PIECE = 1 << 24


class Readable(Protocol):
    """A stream to read from."""

    def read(self, size: int, /) -> bytes:
        """Give at most so many bytes."""


class Writable(Protocol):
    """A stream to write to."""

    def write(self, data: Any, /) -> Any:
        """Take bytes."""


def write_chunk(stream: Writable, part: Buffer) -> None:
    """Write a part to a stream, with prefix and padding.

    >>> import io
    >>> write_chunk(stream := io.BytesIO(), b"abc")
    >>> len(stream.getvalue())
    80
    """
    for piece in tenbin.encode_chunk(flat(part)):
        stream.write(piece)


def read_chunk(stream: Readable) -> bytes | None:
    """Read a part from a stream; None at its end.

    >>> import io
    >>> read_chunk(io.BytesIO(b"".join(tenbin.encode_chunk(b"abc")))), read_chunk(io.BytesIO())
    (b'abc', None)
    """
    prefix = _upto(stream, tenbin.PREFIX_SIZE)
    if not prefix:
        return None
    length = tenbin.decode_prefix(prefix)
    whole = length + tenbin.padding(length)
    data = _upto(stream, whole)
    if len(data) < whole:
        raise DecodeError(f"a tenbin chunk of {length} bytes is cut off after {len(data)}")
    return data[:length]


def write(stream: Writable, arrays: Sequence[NDArray[Any]], infos: Sequence[str] | None = None) -> None:
    """Write arrays to a stream, which has them as a file has.

    >>> import io, numpy as np
    >>> write(stream := io.BytesIO(), [np.zeros(3, "f4")])
    >>> len(stream.getvalue())
    160
    """
    for part in encode_list(arrays, infos):
        write_chunk(stream, part)


def read(stream: Readable, n: int = 999999, infos: Infos = False) -> Any:
    """Read at most ``n`` arrays from a stream.

    >>> import io, numpy as np
    >>> stream = io.BytesIO(tenbin.dumps([np.array([1], "u1"), np.array([2], "u1")]))
    >>> read(stream, 1), read(stream), read(stream)
    ([array([1], dtype=uint8)], [array([2], dtype=uint8)], [])
    """
    parts: list[Buffer] = []
    while len(parts) < 2 * n and (header := read_chunk(stream)) is not None:
        data = read_chunk(stream)
        if data is None:
            raise DecodeError("a tenbin header is not followed by its data")
        parts += [header, data]
    return decode_list(parts, infos)


def save(
    fname: str | os.PathLike[str],
    *arrays: NDArray[Any],
    infos: Sequence[str] | None = None,
    nocheck: bool = False,
) -> None:
    """Write arrays to a file, or to any URL; it appears when it is complete.

    >>> import numpy as np, tempfile
    >>> name = f"{tempfile.mkdtemp()}/pair.ten"
    >>> save(name, np.zeros(3, "f2"), np.ones(2, "u1"))
    >>> load(name)
    [array([0., 0., 0.], dtype=float16), array([1, 1], dtype=uint8)]
    """
    with open_write(_ten(fname, nocheck)) as target:
        write(target, arrays, infos)


def load(fname: str | os.PathLike[str], infos: Infos = False, nocheck: bool = False) -> Any:
    """Read the arrays of a file, or of any URL.

    >>> import numpy as np
    >>> save("memory://pair.ten", np.ones(2, "u1"), infos=["ones"])
    >>> load("memory://pair.ten", infos=True)
    ([array([1, 1], dtype=uint8)], ['ones'])
    """
    with closing(open_read(_ten(fname, nocheck))) as stream:
        return read(stream, infos=infos)


def _upto(stream: Readable, size: int) -> bytes:
    """Read so many bytes, or as many as there are."""
    pieces, missing = [], size
    while missing and (piece := stream.read(min(missing, _PIECE))):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _ten(name: str | os.PathLike[str], nocheck: bool) -> str:
    name = os.fspath(name)
    if not nocheck and not name.endswith(".ten"):
        raise TensorcomError(f"the name {name!r} does not end in .ten; say nocheck=True if it is meant so")
    return name

"""Files as pyarrow reads them, and its complaints as errors that name the file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from shoal.errors import CorruptShardError, ShardError, ShoalError, TruncatedShardError, UrlChangedError
from shoal.files import display, local_path, open_seekable
from shoal.shards import detect_compression
from shoal.sources._tables import Place

__all__ = ["HEAD", "explained", "misfit", "open_native", "translated"]

#: Bytes that tell what a file is.
HEAD = 8

#: What pyarrow raises about bytes it does not like; its own exceptions stand beside standard ones.
_FOREIGN = (pa.ArrowException, OSError, ValueError, TypeError, ArithmeticError, LookupError, EOFError)

_KINDS = {
    b"PAR1": "a Parquet file, which read_parquet reads",
    b"PARE": "an encrypted Parquet file",
    b"ARROW1": "an Arrow file, which read_arrow reads",
    b"FEA1": "a Feather file of the first version; write it anew with a current pyarrow.feather",
}


def open_native(place: Place) -> pa.NativeFile:
    """Map a local file, or reach for ranges of a remote one."""
    local = local_path(place.path)
    if local is None:
        return pa.PythonFile(open_seekable(place.path, expect=place.info), mode="r")
    file = pa.memory_map(os.fsencode(local))
    if file.size() != place.info.size:
        text = f"{place.path} changed while it was read: its size was {place.info.size} and is now {file.size()}"
        raise UrlChangedError(text, url=place.path)
    return file


@contextmanager
def translated(url: str, explain: Callable[[Exception], ShardError] | None = None) -> Iterator[None]:
    """Turn what pyarrow raises into an error that names the shard, and explain it if somebody can."""
    try:
        yield
    except ShoalError:
        raise
    except _FOREIGN as error:
        raise (_complaint(url, error) if explain is None else explain(error)) from error


def explained(place: Place, magic: bytes, expected: str, error: Exception) -> ShardError:
    """Find out what is wrong with a file that pyarrow does not open, and that should begin and end with some bytes."""
    with open_seekable(place.path) as file:
        head = file.read(HEAD)
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(magic)))
        tail = file.read()
    if not head.startswith(magic):
        text = f"it is not {expected}: it begins with {head!r}"
        return misfit(place.url, head, expected) or CorruptShardError(text, shard=display(place.url))
    if tail != magic:
        text = f"it begins as {expected} and does not end as one: it was cut off, or is still being written"
        return TruncatedShardError(text, shard=display(place.url))
    return _complaint(place.url, error)


def _complaint(url: str, error: Exception) -> ShardError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, pa.ArrowNotImplementedError):
        return ShardError(f"this pyarrow cannot read it: {lines[0]}", shard=display(url))
    return CorruptShardError(f"it is damaged: {lines[0]}", shard=display(url))


def misfit(url: str, head: bytes, expected: str) -> ShardError | None:
    """Tell what is wrong with a file that begins as something else does, or not at all."""
    shown = display(url)
    if not head:
        return TruncatedShardError(f"the file is empty; it should be {expected}", shard=shown)
    compression = detect_compression(io.BufferedReader(io.BytesIO(head)))[0]
    if compression is not None:
        text = f"the whole file is compressed ({compression}); {expected} compresses its columns itself"
        return CorruptShardError(f"{text}, so decompress it first", shard=shown)
    kind = next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), None)
    return None if kind is None else CorruptShardError(f"it is not {expected} but {kind}", shard=shown)

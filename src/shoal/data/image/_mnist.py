"""The idx files of MNIST as a table."""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import files
from shoal.data.image._schema import DType, FeatureType, SchemaField
from shoal.data.image._table import ParquetDataset, Path
from shoal.errors import CorruptShardError, SampleError, ShardError, TruncatedShardError

__all__ = ["write_mnist"]

_IMAGES, _LABELS = 2051, 2049
_GZIP = b"\x1f\x8b"
#: What is read at a time: a header can promise anything.
_PIECE = 1 << 20


def write_mnist(image_file: Path, label_file: Path, output_path: Path, **options: Any) -> None:
    """Write a table of the pictures and labels of idx files, which may be gzipped.

    Its columns are ``image``, a uint8 array (height, width, 1), and ``label``. Options are those of
    `ParquetDataset.write`.

    >>> import pathlib, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / "images").write_bytes(struct.pack(">4I", 2051, 1, 2, 2) + bytes([1, 2, 3, 4]))
    >>> _ = (root / "labels").write_bytes(struct.pack(">2I", 2049, 1) + bytes([5]))
    >>> write_mnist(root / "images", root / "labels", root / "table")
    >>> next(ParquetDataset.read_as_dicts(root / "table"))["image"][..., 0].tolist()
    [[1, 2], [3, 4]]
    """
    images, labels = _read(image_file, _IMAGES, 3), _read(label_file, _LABELS, 1)
    if len(images) != len(labels):
        shown = f"{len(images)} pictures in {files.display(os.fspath(image_file))}"
        raise SampleError(f"there are {shown}, and {len(labels)} labels in {files.display(os.fspath(label_file))}")
    schema = {
        "image": SchemaField(FeatureType.NDARRAY, DType.UINT8, (*images.shape[1:], 1)),
        "label": SchemaField(FeatureType.SCALAR, DType.INT32),
    }
    pairs = zip(images, labels, strict=True)
    records = ({"image": image[..., np.newaxis], "label": int(label)} for image, label in pairs)
    ParquetDataset.write(output_path, records, schema, **options)


def _read(path: Path, magic: int, dimensions: int) -> NDArray[np.uint8]:
    """Read an idx file of bytes, with so many dimensions."""
    shown = files.display(os.fspath(path))
    with files.open_read(path) as file:
        stream: Any = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
        try:
            return _array(stream, magic, dimensions, shown)
        except ShardError:
            raise
        except EOFError as error:
            raise TruncatedShardError("the gzip stream is cut off", shard=shown) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise CorruptShardError(f"the gzip stream is damaged: {error}", shard=shown) from error


def _array(stream: io.BufferedIOBase, magic: int, dimensions: int, shown: str) -> NDArray[np.uint8]:
    found, *shape = struct.unpack(f">{1 + dimensions}I", _exactly(stream, 4 * (1 + dimensions), shown))
    if found != magic:
        raise CorruptShardError(f"its magic number is {found}, and that of such a file is {magic}", shard=shown)
    data = _exactly(stream, math.prod(shape), shown)
    if stream.read(1):
        raise CorruptShardError(f"there is more in it than the {tuple(shape)} of its header", shard=shown)
    return np.frombuffer(data, np.uint8).reshape(shape)


def _exactly(stream: io.BufferedIOBase, size: int, shown: str) -> bytes:
    pieces, missing = [], size
    while missing and (piece := stream.read(min(missing, _PIECE))):
        pieces.append(piece)
        missing -= len(piece)
    if missing:
        raise TruncatedShardError(f"it is cut off: {missing} of {size} bytes are missing", shard=shown)
    return b"".join(pieces)

"""Several named NumPy arrays in one zip."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._npy import dump_array, load_array
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["NpzCodec"]

_SUFFIX = ".npy"


@dataclass(frozen=True, slots=True)
class NpzCodec:
    """Read and write a dict of arrays.

    >>> data = NpzCodec("npz").encode({"x": [1, 2], "y": [0.5]}, EncodeOptions())
    >>> NpzCodec("npz").decode(data, DecodeOptions())
    {'x': array([1, 2]), 'y': array([0.5])}
    """

    extension: str
    kind = "a dict of NumPy arrays (npz)"

    def decode(self, data: Data, options: DecodeOptions) -> dict[str, NDArray[Any]]:
        """Read all arrays."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > options.max_bytes:
                raise DecodeError(f"the npz expands to {size} bytes, more than the {options.max_bytes} of max_bytes")
            return {
                member.filename.removesuffix(_SUFFIX): load_array(archive.read(member), options) for member in members
            }

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write the arrays uncompressed, in the order of the dict."""
        if not isinstance(value, Mapping):
            raise EncodeError(f"npz holds a dict of arrays, not {type(value).__name__}; use npy for one array")
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in value.items():
                # A ZipInfo has the date 1980-01-01 unless told otherwise, which keeps the bytes the same every time.
                archive.writestr(zipfile.ZipInfo(_member(name)), dump_array(array))
        return file.getvalue()


def _member(name: Any) -> str:
    if not isinstance(name, str) or "\0" in name:
        raise EncodeError(f"the array name {name!r} cannot be written in an npz; use a str without NUL")
    return name + _SUFFIX

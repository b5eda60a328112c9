"""CBOR documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal._optional import require
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["CborCodec"]


@dataclass(frozen=True, slots=True)
class CborCodec:
    """Read and write plain values, dates and decimals among them.

    >>> CborCodec("cbor").decode(b"\\x82\\x01\\xf5", DecodeOptions())
    [1, True]
    """

    extension: str
    kind = "a CBOR document"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Parse one document."""
        return _library().loads(bytes(data))

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write one document."""
        packed: bytes = _library().dumps(value)
        return packed


def _library() -> Any:
    return require("cbor2", "reading and writing cbor fields")

"""MessagePack documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal._optional import require
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["MsgpackCodec"]


@dataclass(frozen=True, slots=True)
class MsgpackCodec:
    """Read and write plain values: numbers, str, bytes, lists and dicts; tuples come back as lists.

    >>> MsgpackCodec("mp").decode(b"\\x81\\xa1x\\x01", DecodeOptions())
    {'x': 1}
    """

    extension: str
    kind = "a MessagePack document"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Parse one document; sizes it claims are checked against its length before anything is allocated."""
        return _library().unpackb(data, strict_map_key=False)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write one document."""
        packed: bytes = _library().packb(value)
        return packed


def _library() -> Any:
    return require("msgpack", "reading and writing msgpack fields")

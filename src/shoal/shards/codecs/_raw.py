"""Fields without a codec: bytes stay bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._table import known_extensions

__all__ = ["RawCodec"]


@dataclass(frozen=True, slots=True)
class RawCodec:
    """Give bytes as they are, and take bytes or text.

    >>> RawCodec("wnid").decode(b"n01440764", DecodeOptions())
    b'n01440764'
    """

    extension: str
    kind = "bytes"

    def decode(self, data: Data, options: DecodeOptions) -> bytes:
        """Copy a view into bytes of its own; bytes are passed on."""
        return bytes(data)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write text as UTF-8, and refuse what has no one way to be written."""
        if isinstance(value, str):
            return value.encode()
        raise EncodeError(
            f"no codec writes a {type(value).__name__} under the extension {self.extension!r}; pass bytes or str, "
            f"or use one of: {' '.join(known_extensions())}"
        )

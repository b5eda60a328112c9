"""Text, as UTF-8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.errors import EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["TextCodec"]


@dataclass(frozen=True, slots=True)
class TextCodec:
    """Read and write text; line ends and blanks stay as they are.

    >>> TextCodec("txt").decode(b"a shoal\\n", DecodeOptions())
    'a shoal\\n'
    """

    extension: str
    kind = "UTF-8 text"

    def decode(self, data: Data, options: DecodeOptions) -> str:
        """Read UTF-8 strictly: a wrong byte is an error, never a replacement character."""
        return str(data, "utf-8")

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write text, and refuse other types instead of writing how they print."""
        if not isinstance(value, str):
            raise EncodeError(f"{self.extension!r} holds text, not {type(value).__name__}; pass str(value) if meant")
        return value.encode()

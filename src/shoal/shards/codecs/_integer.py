"""Class labels, counts and other whole numbers, in decimal digits."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from shoal.errors import EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["IntegerCodec"]


@dataclass(frozen=True, slots=True)
class IntegerCodec:
    """Read and write an integer; blanks and a line end around it are ignored.

    >>> IntegerCodec("cls").decode(b" 12\\n", DecodeOptions())
    12
    """

    extension: str
    kind = "an integer in decimal digits"

    def decode(self, data: Data, options: DecodeOptions) -> int:
        """Read the digits."""
        text = bytes(data)
        if b"_" in text:  # Python would read an identifier such as 2007_000032 as a number
            raise ValueError("an underscore is not a digit")
        return int(text)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write any kind of integer, a float without a fraction, or text as it is."""
        if isinstance(value, str):
            return value.encode()
        return b"%d" % _integer(value, self.extension)


def _integer(value: Any, extension: str) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            if hasattr(value, "is_integer") and value.is_integer():  # Python's floats and NumPy's alike
                return int(value)
    raise EncodeError(
        f"{extension!r} holds an integer, not {value!r:.80} ({type(value).__name__}); pass int(value) if that is meant"
    )

"""What samples are sorted by: a field or the key, as bytes that compare as the values do."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

from shoal.abc import Sample
from shoal.errors import DecodeError, MissingFieldError

__all__ = ["KINDS", "Order"]

_SIGN = 1 << 63
_ALL = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Order:
    """An order of samples.

    >>> order = Order("cls", "int")
    >>> sorted([b"10", b"-3", b"9"], key=lambda text: order.rank({"__key__": "a", "cls": text}))
    [b'-3', b'9', b'10']
    """

    field: str = "__key__"
    kind: str = "text"
    """One of `KINDS`."""
    seed: int = 0
    """What a shuffle depends on, beside the values."""

    def rank(self, sample: Sample) -> bytes:
        """Give the bytes by which a sample is compared with others."""
        value = self._value(sample)
        if self.kind == "shuffle":
            return shuffled(value, self.seed)
        try:
            return _RANKS[self.kind](value)
        except ValueError:
            text = f"{value[:40]!r} is not a number to sort by; sort it as text, or by another field"
            raise DecodeError(text, key=sample["__key__"], field=self.field, shard=sample.get("__source__")) from None

    def _value(self, sample: Sample) -> bytes:
        if self.field not in sample:
            fields = ", ".join(sorted(name for name in sample if not name.startswith("__"))) or "none"
            text = f"there is no such field to sort by; the sample has {fields}"
            raise MissingFieldError(text, key=sample["__key__"], field=self.field, shard=sample.get("__source__"))
        value = sample[self.field]
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def shuffled(value: bytes, seed: int) -> bytes:
    """Give bytes that look random and are the same each time."""
    return hashlib.blake2b(value, digest_size=16, salt=(seed % 2**128).to_bytes(16, "little")).digest()


def ranked_int(text: bytes) -> bytes:
    """Write a whole number of any size so that bytes compare as numbers do.

    >>> numbers = [-(10**30), -256, -255, -1, 0, 1, 255, 256, 10**30]
    >>> numbers == sorted(numbers, key=lambda number: ranked_int(b"%d" % number))
    True
    """
    number = int(text)
    size = (abs(number).bit_length() + 7) // 8
    digits = size.to_bytes(4, "big") + abs(number).to_bytes(size, "big")
    return b"\1" + digits if number >= 0 else b"\0" + bytes(255 - byte for byte in digits)


def ranked_float(text: bytes) -> bytes:
    """Write a number so that bytes compare as numbers do, with what is no number behind them all.

    >>> texts = [b"-inf", b"-1e9", b"-0.5", b"0", b"1e-300", b"2", b"inf", b"nan"]
    >>> texts == sorted(reversed(texts), key=ranked_float)
    True
    """
    number = float(text) + 0.0  # there is one zero, and not a negative one beside it
    if math.isnan(number):
        return b"\xff" * 8
    bits: int = struct.unpack(">Q", struct.pack(">d", number))[0]
    return struct.pack(">Q", bits ^ (_ALL if bits & _SIGN else _SIGN))


_RANKS: dict[str, Callable[[bytes], bytes]] = {"text": bytes, "int": ranked_int, "float": ranked_float}

#: The ways in which values are compared.
KINDS = (*_RANKS, "shuffle")

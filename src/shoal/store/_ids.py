"""Names of objects: 64 bits, written as ``o`` and 16 hexadecimal digits.

The first bit tells a blob, the next 40 say which process made the object (its lease), the last 23 count what it made.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from shoal.errors import StoreError

__all__ = ["BLOB", "COUNT_BITS", "LEASE_BITS", "ObjectID", "looks_like_id", "new_lease"]

BLOB = 1 << 63
LEASE_BITS, COUNT_BITS = 40, 23
_TEXT = re.compile(r"o[0-9a-f]{16}")


class ObjectID(int):
    """The name of an object in a store.

    >>> ObjectID("o000000000000000a"), int(ObjectID(10)), ObjectID(2**63).is_blob
    (o000000000000000a, 10, True)
    """

    __slots__ = ()

    def __new__(cls, value: int | str = 0) -> ObjectID:
        if isinstance(value, str):
            if not _TEXT.fullmatch(value):
                raise StoreError(f"{value!r} is not the id of an object; one looks like o0123456789abcdef")
            value = int(value[1:], 16)
        if not 0 <= value < 1 << 64:
            raise StoreError(f"{value} is not the id of an object: it has 64 bits")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"o{self.digits}"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return ObjectID, (int(self),)

    @property
    def digits(self) -> str:
        """The name of its file."""
        return f"{int(self):016x}"

    @property
    def is_blob(self) -> bool:
        """Whether it names bytes and nothing else."""
        return self >= BLOB

    @property
    def lease(self) -> int:
        """Which process made it."""
        return (self & ~BLOB) >> COUNT_BITS


def looks_like_id(text: str) -> bool:
    """Tell whether a text is how an id is written.

    >>> looks_like_id("o0123456789abcdef"), looks_like_id("observations_2024")
    (True, False)
    """
    return _TEXT.fullmatch(text) is not None


def new_lease() -> int:
    """Draw the number of a lease, which nobody else will draw."""
    return secrets.randbits(LEASE_BITS)

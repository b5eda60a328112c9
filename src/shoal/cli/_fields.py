"""Fields as commands name them, and their values as text that is safe to look at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shoal.abc import Sample

__all__ = ["alternatives", "first_field", "human", "many", "printable"]

#: What a terminal may take for a command: control characters, also those above 127, and marks that turn text around.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def alternatives(fields: str) -> list[list[str]]:
    """Take a list of fields apart: spaces separate them, and of ``a;b`` the first that a sample has is meant.

    >>> alternatives("jpg;png cls")
    [['jpg', 'png'], ['cls']]
    """
    groups = [[name.lower() for name in names.split(";") if name] for names in fields.split()]
    return [names for names in groups if names]


def first_field(sample: Sample, names: Sequence[str]) -> tuple[str, Any] | None:
    """Give the first of some fields that a sample has, with its value.

    >>> first_field({"__key__": "a", "png": b""}, ["jpg", "png"])
    ('png', b'')
    """
    return next(((name, sample[name]) for name in names if name in sample), None)


def printable(text: str) -> str:
    r"""Write as escapes what would not be text on a terminal.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _UNSAFE.sub(_escaped, text)


def human(size: float) -> str:
    """Write a number of bytes with at most four digits.

    >>> human(999), human(12_345), human(3e9)
    ('999 B', '12.3 kB', '3 GB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 100 or float(size).is_integer() else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.0f} PB"


def many(count: int, what: str) -> str:
    """Write how many there are of something.

    >>> many(1, "class"), many(2, "class"), many(0, "shard")
    ('1 class', '2 classes', '0 shards')
    """
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{count} {what if count == 1 else plural}"


def _escaped(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]

"""The grouping rule a second time, from its description as a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_METADATA = re.compile(r"__[^/]*__($|/)")


class Collision(Exception):
    """Two members of one sample want the same place."""


def split(name: str) -> tuple[str, str] | None:
    match = _NAME.fullmatch(name)
    if match is None or _METADATA.match(name):
        return None
    return match[1], match[2].lower()


def grouped(members: Iterable[tuple[str, T]]) -> tuple[list[tuple[str, dict[str, T]]], Collision | None]:
    """Group members; give the samples complete before the first collision, and the collision."""
    samples: list[tuple[str, dict[str, T]]] = []
    for name, value in members:
        parts = split(name)
        if parts is None:
            continue
        key, field = parts
        if not samples or samples[-1][0] != key:
            samples.append((key, {}))
        if field in samples[-1][1] or field == "__key__":
            return samples[:-1], Collision(key, field)
        samples[-1][1][field] = value
    return samples, None

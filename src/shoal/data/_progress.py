"""A bar for what takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

__all__ = ["shown"]

T = TypeVar("T")

#: Seconds before anything is shown, and between two looks.
_AFTER, _EVERY = 1.0, 0.2
_WIDTH = 30


def shown(items: Iterable[T], total: int, what: str, file: TextIO | None = None) -> Iterator[T]:
    """Pass items on, and show on a terminal how many have come.

    >>> list(shown("abc", 3, "letters"))
    ['a', 'b', 'c']
    """
    file = file or sys.stderr
    if not file.isatty():
        yield from items
        return
    begun = time.monotonic()
    following, drawn = begun + _AFTER, False
    try:
        for done, item in enumerate(items, 1):
            now = time.monotonic()
            if now >= following:
                following, drawn = now + _EVERY, True
                file.write(f"\r{bar(what, done, total, now - begun)}\x1b[K")
                file.flush()
            yield item
    finally:
        if drawn:
            file.write("\r\x1b[K")
            file.flush()


def bar(what: str, done: int, total: int, seconds: float) -> str:
    """Draw the line.

    >>> bar("collect", 3, 4, 6.0)
    'collect ██████████████████████········ 3/4, 2 s left'
    """
    full = _WIDTH * done // max(total, 1)
    left = seconds * (total - done) / max(done, 1)
    return f"{what} {'█' * full}{'·' * (_WIDTH - full)} {done}/{total}, {left:.0f} s left"

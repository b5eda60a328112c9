"""How far a command is: a line on a terminal, and nothing where standard error is something else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

__all__ = ["clear_line", "watched"]

T = TypeVar("T")

#: Seconds between two changes of the line.
_INTERVAL = 0.2


def watched(items: Iterable[T], what: str, unit: str = "samples") -> Iterator[T]:
    """Pass samples on, or something else, and show how many they are by now.

    >>> list(watched("abc", "read"))
    ['a', 'b', 'c']
    """
    return _shown(items, what, unit) if sys.stderr.isatty() else iter(items)


def clear_line() -> None:
    """Make room for words where the line stands, if there is one."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def _shown(items: Iterable[T], what: str, unit: str) -> Iterator[T]:
    began = latest = time.monotonic()
    try:
        for count, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if now - latest >= _INTERVAL:
                click.echo(f"\r{count:,} {unit} {what}, {count / (now - began):,.0f}/s\x1b[K", nl=False, err=True)
                latest = now
    finally:
        clear_line()

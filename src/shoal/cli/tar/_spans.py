"""Samples of several tars as they lie there, for tools that move them from tar to tar."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

from shoal.cli._samples import Input
from shoal.cli._tool import say
from shoal.shards import Span, read_spans

__all__ = ["spans_of", "widen_pipes"]

_WIDE = 2**20


def spans_of(inputs: Iterable[Input], *, trust: bool, verbose: bool = False, hold: int = 32 * 2**20) -> Iterator[Span]:
    """Read the wanted samples of tars, one tar after the other; with ``verbose``, name each when it is opened."""
    for found in inputs:
        if verbose:
            say(f"# reading {found.url}")
        yield from islice(read_spans(found.url, hold=hold, trust=trust), found.first, found.stop)


def widen_pipes() -> None:
    """Let the pipes that this process stands in hold more than 64 KiB: each side is woken less often then."""
    for stream in (sys.stdin, sys.stdout):
        with suppress(OSError, ValueError):  # it is closed, or all users' pipes are large enough already
            if stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, _WIDE)

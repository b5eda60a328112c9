"""Messages of Tensorcom as commands receive them: until all who send have ended, enough have come, or nothing comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._fields import human, many
from shoal.cli._tool import say
from shoal.errors import PlanError, StreamTimeoutError

if TYPE_CHECKING:
    from shoal.feed.tensorcom import Connection

__all__ = ["DEFAULT", "messages", "opened", "silence", "summary"]

#: Where a program of Tensorcom publishes unless told otherwise.
DEFAULT = "zsub://127.0.0.1:7880"

#: Seconds without a message after which a command ends.
silence = click.option(
    "-t", "--timeout", type=float, metavar="SECONDS", help="End when nothing has come for so long.  [default: wait]"
)


def opened(urls: Sequence[str], timeout: float | None, default: str = DEFAULT, **options: Any) -> Connection:
    """Open a connection that receives."""
    from shoal.feed.tensorcom import Connection

    if timeout is not None and timeout <= 0:
        raise PlanError(f"a timeout of {timeout:g} seconds is none; it must be more than 0")
    connection = Connection(list(urls) or default, timeout=timeout, **options)
    say(f"# receiving from {', '.join(connection.urls)}")
    return connection


def messages(connection: Connection, count: int | None) -> Iterator[Any]:
    """Give messages. Silence after the first one is an end like another; before it, something is wrong."""
    try:
        yield from islice(connection, count)
    except StreamTimeoutError:
        if not connection.stats.count:
            raise
        say(f"# nothing more came for {connection.terms.timeout:g} s")


def summary(connection: Connection) -> str:
    """Say how much came."""
    samples = "" if connection.raw else f", {many(connection.count, 'sample')}"
    return f"# {many(connection.stats.count, 'message')}{samples}, {human(connection.stats.total)}"

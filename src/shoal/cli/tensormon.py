"""``tensormon``: how fast messages of Tensorcom come."""

from __future__ import annotations

import time

import click

from shoal.cli._fields import human
from shoal.cli._tensors import messages, opened, silence, summary
from shoal.cli._tool import main, say, tool

__all__ = ["command", "run"]

_EXAMPLE = "tensormon -r 100 zsub://127.0.0.1:7880"


@tool("tensormon", example=_EXAMPLE)
@click.option("-R", "--raw", is_flag=True, help="Do not look into messages; bytes are counted, not samples.")
@click.option("-r", "--report", type=click.IntRange(1), default=10, show_default=True, help="Say so after so many.")
@click.option("-c", "--count", type=click.IntRange(0), help="Stop after so many messages.")
@silence
@click.argument("urls", nargs=-1)
def command(urls: tuple[str, ...], raw: bool, report: int, count: int | None, timeout: float | None) -> None:
    """Show how fast messages come: their number so far, batches and samples a second, and how large a batch is.

    URLS are those of Tensorcom, such as zsub://host:7880 or zpull://*:7880, and may have braces; without any it is
    zsub://127.0.0.1:7880. It ends when all who send have ended.
    """
    with opened(urls, timeout, raw=raw) as connection:
        last, since, size = 0, time.monotonic(), 0
        for number, _ in enumerate(messages(connection, count), 1):
            if number == 1:  # how long the first one was waited for says nothing
                last, since, size = 1, time.monotonic(), connection.stats.total
            elif number % report == 0:
                now = time.monotonic()
                rate = (number - last) / max(now - since, 1e-9)
                volume = (connection.stats.total - size) / max(now - since, 1e-9)
                click.echo(_line(number, rate, None if raw else connection.batch_size, volume))
                last, since, size = number, now, connection.stats.total
        say(summary(connection))


def _line(number: int, rate: float, batch: int | None, volume: float) -> str:
    if batch is None:
        return f"{number:20d} {rate:8.3f} batches/s {human(volume)}/s"
    return f"{number:20d} {rate:8.3f} batches/s {rate * batch:8.3f} samples/s (batchsize: {batch})"


def run() -> None:
    """Be the command ``tensormon``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tensormon", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tensormon ...
    """
    main(command)

"""``tensorstat``: what is in messages of Tensorcom."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._tensors import messages, opened, silence, summary
from shoal.cli._tool import main, say, tool

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["command", "run"]

_EXAMPLE = "tensorstat -c 100 zsub://127.0.0.1:7880"


@dataclass
class Figures:
    """What is known of the arrays in one place of the messages.

    >>> import numpy as np
    >>> figures = Figures()
    >>> figures.add(np.array([1, 2], "u1"))
    >>> figures.add(np.array([3, 6], "u1"))
    >>> str(figures)
    '2 [1 6] mean=3 std=1.87 n=4'
    """

    count: int = 0
    size: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0
    """The sum of squared distances from the mean."""
    kinds: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def add(self, array: NDArray[Any]) -> None:
        """Take an array in."""
        self.count += 1
        self.kinds.add((str(array.dtype), array.shape))
        if not array.size:
            return
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))
        mean, size = float(array.mean(dtype=float)), self.size + array.size
        apart = mean - self.mean
        self.squares += float(array.var(dtype=float)) * array.size + apart**2 * self.size * array.size / size
        self.mean += apart * array.size / size
        self.size = size

    def __str__(self) -> str:
        if not self.size:
            return f"{self.count} without elements"
        std = math.sqrt(self.squares / self.size)
        return f"{self.count} [{self.low:.3g} {self.high:.3g}] mean={self.mean:.3g} std={std:.3g} n={self.size}"


@tool("tensorstat", example=_EXAMPLE)
@click.option("-b", "--unbatched", is_flag=True, help="Messages are samples, not batches of them.")
@click.option(
    "-c", "--count", type=click.IntRange(1), default=20, show_default=True, help="Stop after so many messages."
)
@click.option("-r", "--raw", is_flag=True, help="Do not look into messages, only count them.")
@silence
@click.argument("urls", nargs=-1)
def command(urls: tuple[str, ...], unbatched: bool, count: int, raw: bool, timeout: float | None) -> None:
    """Show figures of each array of a message: how many came, the least and the greatest value, mean and standard
    deviation, how many values that were, and the types and shapes that were seen.

    URLS are those of Tensorcom, such as zsub://host:7880 or zpull://*:7880, and may have braces; without any it is
    zsub://127.0.0.1:7880. It ends when enough have come, or all who send have ended.
    """
    figures: list[Figures] = []
    with opened(urls, timeout, raw=raw, batch_count=not unbatched) as connection:
        for message in messages(connection, count):
            for place, array in enumerate([] if raw else message):
                if place == len(figures):
                    figures.append(Figures())
                figures[place].add(array)
        say(summary(connection))
        say(f"# {connection.stats.summary()}")
    for place, each in enumerate(figures):
        click.echo(f"=== Input {place} ===\n\n{each}")
        for dtype, shape in sorted(each.kinds):
            click.echo(f"{dtype} {shape}")
        click.echo()


def run() -> None:
    """Be the command ``tensorstat``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["tensorstat", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: tensorstat ...
    """
    main(command)

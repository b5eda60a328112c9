"""Compare contestants fairly on a busy machine: the same work, interleaved, the best of several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

ROUNDS = 7


@dataclass(frozen=True)
class Result:
    """The seconds of each round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return median(self.seconds)


def compare(contestants: dict[str, Callable[[], float | None]], rounds: int = ROUNDS) -> list[Result]:
    """Run each contestant once a round. One that returns a number has taken its own time."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            own = run()
            seconds[name].append(time.perf_counter() - start if own is None else own)
    return [Result(name, tuple(taken)) for name, taken in seconds.items()]


def table(title: str, results: list[Result], *, work: float, unit: str, against: str) -> str:
    """Write a table of rates, with ratios to one of the contestants."""
    base = next(result for result in results if result.name == against)
    rows = [
        f"| {_escaped(result.name)} | {work / result.best:,.0f} | {base.best / result.best:.2f} "
        f"| {base.median / result.median:.2f} |"
        for result in results
    ]
    head = [f"### {title}", "", f"| | {unit}, best of {len(base.seconds)} | ratio of bests | ratio of medians |"]
    return "\n".join([*head, "|---|---|---|---|", *rows, ""])


def _escaped(name: str) -> str:
    return name.replace("|", "\\|")

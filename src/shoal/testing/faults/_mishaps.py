"""What becomes of which answer of a server: rules as plain data, and who counts the answers."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from shoal.errors import PlanError
from shoal.testing.faults._drawing import drawn_below

__all__ = ["Fate", "Mishap", "Rule", "cut", "lie", "refuse", "stall"]


@dataclass(frozen=True, slots=True)
class Mishap:
    """What becomes of one answer.

    >>> print(Mishap("cut", 512, path="/a.tar", number=3))
    /a.tar, answer 3: cut after 512 bytes
    """

    kind: str
    after: int = 0
    """Bytes of the body that come before; those that are lied about, with a lie."""
    status: int = 503
    retry_after: str | None = None
    path: str = ""
    number: int = 0
    """The how-manieth answer for this path it is."""

    def __str__(self) -> str:
        what = {"refuse": f"answered {self.status}", "lie": f"lied by {self.after} bytes"}
        return f"{self.path}, answer {self.number}: {what.get(self.kind, f'{self.kind} after {self.after} bytes')}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which answers of a server something happens to; made by `cut`, `stall`, `refuse` and `lie`.

    Answers are counted for each path by itself, and the seed of the server says with which of them it begins, so what
    happens to a shard does not depend on who reads others at the same time.

    >>> rule = cut(every=3)
    >>> [rule.strikes(7, "GET", "/a.tar", number) for number in range(6)].count(True)
    2
    """

    kind: str
    every: int = 1
    """Of so many answers for a path it is one."""
    after: int | tuple[int, ...] | None = None
    """Bytes of the body that come before; drawn by default, one after the other where there are several."""
    times: int | None = None
    """How often in all; for ever by default."""
    status: int = 503
    retry_after: str | None = None
    methods: tuple[str, ...] = ("GET",)

    def __post_init__(self) -> None:
        if self.every < 1:
            raise PlanError(f"every={self.every}: a fault comes to every answer (1) or to fewer")

    def strikes(self, seed: int, method: str, path: str, number: int) -> bool:
        """Tell whether this answer is one of those, if nothing else is said about how many."""
        return method in self.methods and (number + drawn_below(self.every, seed, self.kind, path)) % self.every == 0

    def mishap(self, seed: int, path: str, number: int, used: int, size: int) -> Mishap:
        """Say what happens to an answer that has a body of so many bytes."""
        if isinstance(self.after, tuple):
            after = self.after[used]
        elif self.after is not None:
            after = self.after
        else:  # at least a byte comes, so whoever tries again gets on
            after = 1 + drawn_below(max(size - 1, 1), seed, self.kind, path, number)
        return Mishap(self.kind, min(after, size), self.status, self.retry_after, path, number)

    def limit(self) -> int | None:
        """Tell how often it happens at most."""
        return len(self.after) if isinstance(self.after, tuple) else self.times


def cut(*, every: int = 1, after: int | tuple[int, ...] | None = None, times: int | None = None) -> Rule:
    """Close the connection in the middle of a body.

    >>> cut(every=3).every
    3
    """
    return Rule("cut", every, after, times)


def stall(*, every: int = 1, after: int | tuple[int, ...] | None = None, times: int | None = None) -> Rule:
    """Send nothing any more in the middle of a body, and keep the connection until the client goes away.

    >>> stall(times=1).limit()
    1
    """
    return Rule("stall", every, after, times)


def refuse(
    status: int = 503,
    *,
    every: int = 1,
    times: int | None = None,
    retry_after: float | str | None = None,
    methods: tuple[str, ...] = ("GET",),
) -> Rule:
    """Answer with a status instead, and a ``Retry-After`` if one is given.

    >>> refuse(429, times=2, retry_after=0).retry_after
    '0'
    """
    wait = None if retry_after is None else str(retry_after)
    return Rule("refuse", every, 0, times, status, wait, methods)


def lie(by: int = 100, *, every: int = 1, times: int | None = None) -> Rule:
    """Tell a wrong length: so many bytes more than come, or, below 0, so many less, which are then not sent.

    >>> lie(-10, times=1).after
    -10
    """
    return Rule("lie", every, by, times)


class Fate:
    """Counts the answers of a server, and says what becomes of each.

    >>> fate = Fate(7, cut(every=2, after=5))
    >>> [fate.next("GET", "/a.tar", 100) is None for _ in range(4)].count(True)
    2
    """

    def __init__(self, seed: int, *rules: Rule) -> None:
        self.seed, self.rules = seed, rules
        self.happened: list[Mishap] = []
        """What happened, in the order in which it did."""
        self._numbers: Counter[tuple[str, str]] = Counter()
        self._used: Counter[int] = Counter()
        self._guard = threading.Lock()

    def __str__(self) -> str:
        some = "; ".join(map(str, self.happened[-5:])) or "nothing happened"
        return f"seed {self.seed}, {len(self.happened)} faults of a server, the last: {some}"

    def follow(self, *rules: Rule) -> None:
        """Follow other rules from here on."""
        with self._guard:
            self.rules = rules
            self._used.clear()

    def next(self, method: str, path: str, size: int) -> Mishap | None:
        """Say what becomes of the next answer; None if all goes well."""
        with self._guard:
            number = self._numbers[method, path]
            self._numbers[method, path] += 1
            for place, rule in enumerate(self.rules):
                limit = rule.limit()
                if rule.strikes(self.seed, method, path, number) and (limit is None or self._used[place] < limit):
                    mishap = rule.mishap(self.seed, path, number, self._used[place], size)
                    self._used[place] += 1
                    self.happened.append(mishap)
                    return mishap
        return None

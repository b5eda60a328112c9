"""What is found wrong with data: problems with their places, and reports of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from shoal.errors import SampleError, ShardError, ShoalError

__all__ = ["FieldSets", "Problem", "Report", "Sighting", "problem_of"]

#: Problems of one shard that are kept; more say nothing new.
_MOST = 1000
#: Samples with the same fields that are named.
_NAMED = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where.

    >>> print(Problem("a.tar", "structure", "the header's checksum is wrong", offset=512))
    a.tar, offset 512: the header's checksum is wrong
    """

    shard: str
    kind: str
    """``structure``, ``grouping``, ``fields``, ``decoding``, ``index`` or ``reading``."""
    text: str
    offset: int | None = None
    key: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = [self.shard]
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        if self.key is not None:
            place.append(f"sample {self.key!r}")
        if self.field is not None:
            place.append(f"field {self.field!r}")
        return f"{', '.join(place)}: {self.text}"

    def described(self) -> dict[str, Any]:
        """Give it as JSON has it."""
        return asdict(self)


def problem_of(error: ShoalError, shard: str, kind: str, **place: Any) -> Problem:
    """Make a problem of an error, with the place that the error knows."""
    text = str(error.args[0]) if error.args else str(error)
    if isinstance(error, ShardError):
        place = {"offset": error.offset, **place}
        text = text if error.member is None else f"{text} (member {error.member!r})"
    if isinstance(error, SampleError):
        place = {"key": error.key, "field": error.field, **place}
    return Problem(shard, kind, text, **place)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A sample, and where it begins."""

    shard: str
    key: str
    offset: int


@dataclass
class FieldSets:
    """Which fields samples have together: how often, and the first samples that have just these."""

    counts: dict[tuple[str, ...], int] = field(default_factory=dict)
    first: dict[tuple[str, ...], list[Sighting]] = field(default_factory=dict)

    def add(self, fields: tuple[str, ...], sighting: Sighting) -> None:
        """Count a sample."""
        self.counts[fields] = self.counts.get(fields, 0) + 1
        named = self.first.setdefault(fields, [])
        if len(named) < _NAMED:
            named.append(sighting)

    def merge(self, other: FieldSets) -> None:
        """Add what was counted elsewhere."""
        for fields, count in other.counts.items():
            self.counts[fields] = self.counts.get(fields, 0) + count
            named = self.first.setdefault(fields, [])
            named += other.first[fields][: _NAMED - len(named)]

    def usual(self, share: float) -> list[list[str]]:
        """Name the fields that at least such a part of all samples has."""
        total = sum(self.counts.values())
        names = sorted({name for fields in self.counts for name in fields})
        having = {name: sum(count for fields, count in self.counts.items() if name in fields) for name in names}
        return [[name] for name in names if having[name] >= share * total]

    def lacking(self, wanted: Iterable[list[str]]) -> list[Problem]:
        """Tell which samples have none of the alternatives that they should have one of."""
        problems = []
        for names in wanted:
            for fields, sightings in self.first.items():
                if not set(names) & set(fields):
                    unnamed = self.counts[fields] - len(sightings)
                    more = f" (as have {unnamed} more)" if unnamed else ""
                    text = f"there is no {' or '.join(names)}, only {', '.join(fields)}{more}"
                    problems += [Problem(at.shard, "fields", text, at.offset, at.key) for at in sightings]
        return problems


@dataclass
class Report:
    """What was found in one shard."""

    shard: str
    samples: int = 0
    problems: list[Problem] = field(default_factory=list)
    unnamed: int = 0
    """Problems beyond those that are kept."""
    field_sets: FieldSets = field(default_factory=FieldSets)
    unchecked: set[str] = field(default_factory=set)
    """Fields that were not decoded, with the reason."""

    def add(self, problem: Problem) -> None:
        """Take note of a problem."""
        if len(self.problems) < _MOST:
            self.problems.append(problem)
        else:
            self.unnamed += 1

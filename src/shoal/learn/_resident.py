"""A framework in a guest, as the guest has it: what crosses is made of plain values and arrays here, and back.

It is imported over there, where little more than numpy may be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.abc import Framework, Member
from shoal.learn import _random as random_numbers

__all__ = ["PeersLost", "Resident"]

#: How files begin that are the guest's, where its host has one of the same name.
_THERE = "guest-"


class PeersLost(Exception):  # noqa: N818  (it is told as a text)
    """The other workers cannot be reached any more; one of them knows why."""


class Resident:
    """Does with a framework what its host asks for; see `AbroadFramework`."""

    def __init__(self, framework: Framework, seed: int = 0) -> None:
        self.framework, self._seed = framework, seed
        self._place: tuple[int, int, int, str] = 0, 1, 0, ""

    def outgoing(self, values: Any) -> Any:
        """Make arrays of what the framework has; override it where it has something else."""
        return values

    def incoming(self, values: Any) -> Any:
        """Make what the framework takes of arrays."""
        return values

    def offered(self, rank: int, host: str) -> Any:
        """Begin to meet the others: give what all of them have to know of this one."""
        return None

    def offer(self, rank: int, size: int, attempt: int, host: str) -> Any:
        """Hear which worker this is, and give what the others have to know of it."""
        self._place = rank, size, attempt, host
        return self.offered(rank, host)

    def join(self, told: list[Any], files: Mapping[str, bytes]) -> None:
        """Meet the others, of whom each has told something."""
        self.framework.files = files
        self.framework.join(_Told(self._place, told))
        random_numbers.seeded(self._seed, self._place[0])

    def build(self, files: Mapping[str, bytes]) -> None:
        """Build the model without others."""
        self.framework.files = files
        self.framework.build()

    def train(
        self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool
    ) -> tuple[float, float | None]:
        """Learn from some rows; give their loss, and how fast it learns."""
        loss = self.framework.train(self.incoming(features), self.incoming(labels), weight, last)
        return float(loss), self.rate()

    def rate(self) -> float | None:
        """Say how fast it learns, if that is a number."""
        return getattr(self.framework, "learning_rate", None)

    def set_rate(self, rate: float) -> None:
        """Let it learn as fast."""
        framework: Any = self.framework
        framework.learning_rate = rate

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, and their loss."""
        found, loss = self.framework.evaluate(self.incoming(features), self.incoming(labels))
        return self.outgoing(found), loss

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions, which are arrays."""
        return self.framework.predict(self.incoming(features))

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""
        return self.framework.total(numbers)

    def end_epoch(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is done once an epoch."""
        return dict(self.framework.end_epoch(stats))

    def dump(self, parts: str) -> dict[str, bytes]:
        """Give what is needed to go on."""
        others = {} if parts != "own" else {f"{_THERE}{name}": data for name, data in random_numbers.dumped().items()}
        return {**self.framework.dump(parts), **others}

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave."""
        self.framework.load(files)
        random_numbers.taken({name.removeprefix(_THERE): files[name] for name in files if name.startswith(_THERE)})

    def leave(self, done: bool) -> None:
        """Part from the others."""
        self.framework.leave(done)


class _Told(Member):
    """A worker that has heard of all others before: its host met them."""

    def __init__(self, place: tuple[int, int, int, str], told: list[Any]) -> None:
        self.rank, self.size, self.attempt, self.host = place
        self.shards, self._told = (), told

    def all_gather(self, value: Any) -> list[Any]:
        """Give what each of them offered, whatever is brought now."""
        return self._told

    def report(self, value: Any) -> None:
        """Refuse: whoever started the gang hears of the host alone."""
        raise NotImplementedError("a guest cannot report")

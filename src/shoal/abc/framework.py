"""What a library for models must tell whoever trains with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from shoal.abc.gang import Member

__all__ = ["Framework"]


class Framework(ABC):
    """A model with its loss and optimizer, in one of several workers who train it together.

    It is made where the user is, and sent to the workers before anything is built.

    >>> sorted(Framework.__abstractmethods__)
    ['build', 'dump', 'end_epoch', 'evaluate', 'join', 'leave', 'load', 'predict', 'total', 'train']
    """

    format: ClassVar[str]
    """The kind of arrays that it takes, as loaders name them."""
    files: Mapping[str, bytes]
    """What was learnt before, as `dump` gives it."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What workers may import before they begin: modules of a library that bears a fork."""
        return ()

    @abstractmethod
    def build(self) -> None:
        """Make model, loss and optimizer, and take what was learnt before."""

    @abstractmethod
    def join(self, member: Member) -> None:
        """Meet the other workers, and build everything."""

    @abstractmethod
    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows, whose mean loss counts with a weight; give that loss.

        Gradients are averaged over all workers. With ``last`` a step is taken, else they are kept for the next rows.
        """

    @abstractmethod
    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions for rows, and their mean loss if there is a loss."""

    @abstractmethod
    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions: an array, or a list or dict of them."""

    @abstractmethod
    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""

    @abstractmethod
    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do what is done once an epoch, such as a schedule, and give what else is to be told of it."""

    @abstractmethod
    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give what is needed to go on, as files: ``all`` that is the same on every worker, or the ``model`` alone.

        With ``own`` it is what each worker has for itself: its random numbers.
        """

    @abstractmethod
    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave, or a part of it."""

    @abstractmethod
    def leave(self, done: bool) -> None:
        """Part from the other workers; those who are not done, because something went wrong, wait for nobody."""

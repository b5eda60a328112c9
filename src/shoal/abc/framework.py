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
    """

    format: ClassVar[str]
    """The kind of arrays that it takes, as loaders name them."""
    files: Mapping[str, bytes]
    """What was learnt before, as `dump` gives it."""

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
    def end_epoch(self, stats: Mapping[str, Any]) -> None:
        """Do what is done once an epoch, such as a schedule."""

    @abstractmethod
    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give all that is needed to go on, or the ``model`` alone, as files; the same on every worker."""

    @abstractmethod
    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave."""

    @abstractmethod
    def leave(self, done: bool) -> None:
        """Part from the other workers; those who are not done, because something went wrong, wait for nobody."""

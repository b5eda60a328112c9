"""What workers are told to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from shoal.abc import Framework
from shoal.learn._checkpoints import Checkpoints
from shoal.learn._triggers import Trigger

__all__ = ["Batches", "EvaluateJob", "FitJob", "Measures", "Rows", "Sums"]


class Batches(Protocol):
    """What a worker reads: an epoch each time it is iterated. A `Loader` is one."""

    epoch: int

    @property
    def steps(self) -> int | None:
        """How many batches an epoch has, if that is known."""

    @property
    def samples(self) -> int | None:
        """How many rows an epoch has, of all workers, if that is known."""

    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def close(self) -> None:
        """End the epoch that is under way."""

    def state_dict(self) -> dict[str, Any]:
        """Say what was received."""

    def load_state_dict(self, states: Any) -> None:
        """Go on from the states of all workers."""


class Rows(ABC):
    """Data as it goes into a model: the batches of each worker, and what of them are inputs and targets."""

    batch_size: int | None = None
    """Rows of a batch over all workers, where the data has batches of its own."""

    @abstractmethod
    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker."""

    @abstractmethod
    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs, targets and how many rows are real; if none is, there is one that does not count."""


@runtime_checkable
class Measures(Protocol):
    """A framework whose models have metrics of their own."""

    def measured(self) -> Mapping[str, float]:
        """Say what they have found in an evaluation, over all workers; the next one begins anew."""


@dataclass(frozen=True, slots=True)
class FitJob:
    """A training."""

    framework: Framework
    rows: Rows
    batch_size: int
    """Rows of a step, over all workers."""
    epochs: int
    """The epoch after which it ends, counted from the beginning of all training."""
    first_epoch: int = 0
    max_steps: int | None = None
    """Steps after which it ends, whatever the epochs say."""
    first_step: int = 0
    accumulate: int = 1
    """Batches whose gradients make one step."""
    end: str = "pad"
    validation: Rows | None = None
    validation_freq: int = 1
    """Epochs from one validation to the next."""
    validation_steps: int | None = None
    """Batches of a validation; all there are by default."""
    metrics: Sequence[Any] = ()
    callbacks: Sequence[Any] = ()
    checkpoints: Checkpoints | None = None
    trigger: Trigger | None = None
    resume: str | None = None
    """The checkpoint to go on from."""
    loader: dict[str, Any] = field(default_factory=dict)
    """Options of the loader."""
    seed: int = 0
    own: Sequence[Mapping[str, bytes]] = ()
    """What each worker had for itself at the end of the training before."""
    each_worker: bool = False
    """Whether the numbers of each worker are told of an epoch, too."""


@dataclass(frozen=True, slots=True)
class EvaluateJob:
    """An evaluation."""

    framework: Framework
    rows: Rows
    batch_size: int
    metrics: Sequence[Any] = ()
    steps: int | None = None
    callbacks: Sequence[Any] = ()


@dataclass(slots=True)
class Sums:
    """What was added up in an epoch so far, by one worker."""

    loss: float = 0.0
    rows: int = 0
    batches: int = 0
    last: float = 0.0
    """The loss of the last step."""

"""How good predictions are, counted so that parts of the data can be counted apart and put together.

A metric keeps sums, never averages of averages: whoever adds up the sums of several workers, however unevenly the rows
were shared out, gets what one worker would have got.

>>> accuracy = Accuracy()
>>> accuracy([0, 2, 3, 4], [1, 2, 3, 4])
0.75
>>> accuracy([0, 2, 3, 4], [1, 1, 2, 4])
0.5
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = [
    "AUC",
    "MAE",
    "MSE",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossEntropy",
    "CategoricalAccuracy",
    "CategoricalCrossEntropy",
    "KLDivergence",
    "Metric",
    "Poisson",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossEntropy",
    "Top5Accuracy",
    "metric_of",
]

Array = NDArray[Any]
_TINY = 1e-7


class Metric(ABC):
    """Sums over rows, and what follows from them.

    >>> class Largest(Metric):
    ...     def update(self, predictions, targets):
    ...         self.sums = np.maximum(self.sums, np.abs(np.subtract(predictions, targets)).max())
    ...     def compute(self):
    ...         return float(self.sums[0])
    >>> Largest()([1, 2], [1, 5])
    3.0
    """

    def __init__(self) -> None:
        self.reset()

    @property
    def name(self) -> str:
        """What it is called in results."""
        return type(self).__name__

    @abstractmethod
    def update(self, predictions: Any, targets: Any) -> None:
        """Count some rows."""

    @abstractmethod
    def compute(self) -> float:
        """Say how good all rows were that were counted."""

    def reset(self) -> None:
        """Begin anew."""
        self.sums: Array = np.zeros(2)
        """What is added up over workers."""

    def merge(self, sums: Sequence[Array]) -> None:
        """Take the sums of all workers in place of its own."""
        self.sums = np.sum(np.stack(list(sums)), axis=0)

    def __call__(self, predictions: Any, targets: Any) -> float:
        """Count some rows, and say how good all were so far."""
        self.update(predictions, targets)
        return self.compute()

    def __repr__(self) -> str:
        return f"{self.name}()"


class _Mean(Metric):
    """The mean of a number for each row or element."""

    def update(self, predictions: Any, targets: Any) -> None:
        found = self._values(_array(predictions), _array(targets))
        self.sums += found.sum(dtype=np.float64), found.size

    def compute(self) -> float:
        return float(self.sums[0] / self.sums[1]) if self.sums[1] else float("nan")

    def _values(self, predictions: Array, targets: Array) -> Any:
        """Give a number for each row or element."""
        raise NotImplementedError


class Accuracy(_Mean):
    """The share of right answers: classes, scores for each class, or probabilities of yes.

    >>> Accuracy()([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    0.5
    """

    def __init__(self, zero_based_label: bool = True) -> None:
        super().__init__()
        self._first = 0 if zero_based_label else 1

    def _values(self, predictions: Array, targets: Array) -> Any:
        if targets.ndim == predictions.ndim and targets.ndim > 1 and targets.shape[-1] == 1 != predictions.shape[-1]:
            targets = targets[..., 0]
        if predictions.ndim == targets.ndim + 1:
            predictions = predictions.argmax(-1)
        elif np.issubdtype(predictions.dtype, np.floating):
            predictions = predictions >= 0.5
        return _flat(predictions) == _flat(targets) - self._first


class SparseCategoricalAccuracy(_Mean):
    """The share of rows whose highest score is that of the class.

    >>> SparseCategoricalAccuracy()([[0.1, 0.9], [0.8, 0.2]], [1, 1])
    0.5
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        return predictions.argmax(-1).reshape(-1) == _flat(targets)


class CategoricalAccuracy(_Mean):
    """The share of rows whose highest score is where the target, a row of zeros with a one, has its one.

    >>> CategoricalAccuracy()([[0.1, 0.9], [0.8, 0.2]], [[0, 1], [0, 1]])
    0.5
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        return _flat(predictions.argmax(-1)) == _flat(targets.argmax(-1))


class BinaryAccuracy(_Mean):
    """The share of right answers to yes-or-no questions; more than the threshold is a yes.

    >>> BinaryAccuracy(threshold=0.3)([0.2, 0.4, 0.9, 0.1], [0, 1, 1, 1])
    0.75
    """

    def __init__(self, threshold: float = 0.5) -> None:
        super().__init__()
        self._threshold = threshold

    def _values(self, predictions: Array, targets: Array) -> Any:
        return (_flat(predictions) > self._threshold) == _flat(targets).astype(bool)


class Top5Accuracy(_Mean):
    """The share of rows whose class is among the five highest scores.

    >>> Top5Accuracy()([[6, 5, 4, 3, 2, 1], [6, 5, 4, 3, 2, 1]], [4, 5])
    0.5
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        classes = _flat(targets)
        rows = predictions.reshape(len(classes), -1)
        return (np.argsort(-rows, axis=1, kind="stable")[:, :5] == classes[:, None]).any(axis=1)


class MAE(_Mean):
    """The mean distance.

    >>> MAE()([1.0, 2.0], [1.0, 5.0])
    1.5
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        return np.abs(*_differences(predictions, targets))


class MSE(_Mean):
    """The mean of squared distances.

    >>> MSE()([1.0, 2.0], [1.0, 5.0])
    4.5
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        return np.square(*_differences(predictions, targets))


class BinaryCrossEntropy(_Mean):
    """How surprising answers to yes-or-no questions are, given their probabilities.

    >>> round(BinaryCrossEntropy()([0.5, 0.5], [0, 1]), 4)
    0.6931
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        likely, truth = _probabilities(predictions), targets.reshape(predictions.shape)
        return -(truth * np.log(likely) + (1 - truth) * np.log(1 - likely))


class CategoricalCrossEntropy(_Mean):
    """How surprising classes are, given as rows of zeros with a one.

    >>> round(CategoricalCrossEntropy()([[0.5, 0.5], [0.25, 0.75]], [[0, 1], [1, 0]]), 4)
    1.0397
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        return -(targets * np.log(_distribution(predictions))).sum(-1)


class SparseCategoricalCrossEntropy(_Mean):
    """How surprising classes are, given as numbers.

    >>> round(SparseCategoricalCrossEntropy()([[0.5, 0.5], [0.25, 0.75]], [1, 0]), 4)
    1.0397
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        rows = _distribution(predictions).reshape(-1, predictions.shape[-1])
        return -np.log(rows[np.arange(len(rows)), _flat(targets).astype(np.int64)])


class KLDivergence(_Mean):
    """How far distributions are from those that they should be.

    >>> KLDivergence()([[0.5, 0.5]], [[0.5, 0.5]])
    0.0
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        truth, likely = np.clip(targets, _TINY, 1), np.clip(predictions, _TINY, 1)
        return (truth * np.log(truth / likely)).sum(-1)


class Poisson(_Mean):
    """The Poisson loss of rates.

    >>> round(Poisson()([1.0, 2.0], [1.0, 2.0]), 4)
    0.8069
    """

    def _values(self, predictions: Array, targets: Array) -> Any:
        return predictions - targets * np.log(predictions + _TINY)


class AUC(Metric):
    """The area under the curve of true over false alarms, at so many thresholds.

    >>> AUC()([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """

    def __init__(self, threshold_num: int = 200) -> None:
        if threshold_num < 2:
            raise PlanError(f"AUC(threshold_num={threshold_num}); it takes at least 2")
        self._count = threshold_num
        super().__init__()

    def reset(self) -> None:
        """Begin anew."""
        self.sums = np.zeros((2, self._count + 1))

    def update(self, predictions: Any, targets: Any) -> None:
        """Count some rows."""
        likely, truth = _flat(_array(predictions)), _flat(_array(targets)).astype(bool)
        above = np.ceil(np.clip(likely, 0, 1) * self._count).astype(np.int64)
        for row, chosen in enumerate((truth, ~truth)):
            self.sums[row] += np.bincount(above[chosen], minlength=self._count + 1)

    def compute(self) -> float:
        """Say how well the two kinds are told apart."""
        hits, alarms = (np.concatenate([[0.0], np.cumsum(row[::-1])]) for row in self.sums)
        if not hits[-1] or not alarms[-1]:
            return float("nan")
        return float(((hits[1:] + hits[:-1]) / 2 * np.diff(alarms)).sum() / (hits[-1] * alarms[-1]))


class _Called(_Mean):
    """The mean of what a function says of batches, each for as many rows as it has."""

    def __init__(self, function: Callable[[Any, Any], Any], name: str) -> None:
        super().__init__()
        self._function, self._name = function, name

    @property
    def name(self) -> str:
        return self._name

    def update(self, predictions: Any, targets: Any) -> None:
        rows = len(targets)
        self.sums += float(self._function(predictions, targets)) * rows, rows


_KINDS: tuple[type[Metric], ...] = (
    AUC,
    MAE,
    MSE,
    Accuracy,
    BinaryAccuracy,
    BinaryCrossEntropy,
    CategoricalAccuracy,
    CategoricalCrossEntropy,
    KLDivergence,
    Poisson,
    SparseCategoricalAccuracy,
    SparseCategoricalCrossEntropy,
    Top5Accuracy,
)
_BY_NAME = {kind.__name__.lower(): kind for kind in _KINDS}


def metric_of(given: Any) -> Any:
    """Make a metric of what a user gives: one of these, its name, or a function of predictions and targets.

    >>> metric_of("accuracy"), metric_of(MAE())
    (Accuracy(), MAE())
    """
    if isinstance(given, type) and issubclass(given, Metric):
        return given()
    if not isinstance(given, type) and all(hasattr(given, name) for name in ("update", "compute", "reset")):
        return given
    if isinstance(given, str):
        if given.lower() not in _BY_NAME:
            raise PlanError(f"there is no metric {given!r}; by name there are {', '.join(sorted(_BY_NAME))}")
        return _BY_NAME[given.lower()]()
    if callable(given):
        return _Called(given, getattr(given, "__name__", type(given).__name__))
    raise PlanError(f"{given!r} is no metric; give one of shoal.learn.metrics, its name, or a function")


def _array(given: Any) -> Array:
    """Make an array of what a framework gives; this is the one place where tensors become arrays."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() and given.element_size() < 4 else given
    return np.asarray(given)


def _flat(array: Array) -> Array:
    return array.reshape(-1)


def _differences(predictions: Array, targets: Array) -> tuple[Array]:
    return (predictions.astype(np.float64) - targets.reshape(predictions.shape),)


def _probabilities(predictions: Array) -> Array:
    return np.clip(predictions.astype(np.float64), _TINY, 1 - _TINY)


def _distribution(predictions: Array) -> Any:
    found = predictions.astype(np.float64)
    return np.clip(found / found.sum(-1, keepdims=True), _TINY, 1 - _TINY)

"""Metrics of MXNet, whose sums are added up over batches and workers so that each row counts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.errors import PlanError
from shoal.learn.mxnet._mxnet_there import library, listed

__all__ = ["Measuring"]

_CASES = ("true_positives", "false_positives", "true_negatives", "false_negatives")


class Measuring:
    """Some metrics, and what they have counted on this worker."""

    def __init__(self, given: Any) -> None:
        self._metrics = [] if given is None else [leaf for each in listed(given) for leaf in _leaves(_metric(each))]
        self._sums = [_begun(each) for each in self._metrics]

    def update(self, labels: Sequence[Any], found: Any) -> None:
        """Count some rows."""
        rows = len(labels[0]) if labels else 0
        for metric, sums in zip(self._metrics, self._sums, strict=True):
            metric.reset()
            metric.update(list(labels), listed(found))
            for number, value in enumerate(_counted(metric, rows, len(labels))):
                sums[number] += value

    def results(self, total: Callable[[Sequence[float]], list[float]]) -> dict[str, float]:
        """Say what the metrics are over all workers, and begin anew."""
        found: dict[str, float] = {}
        for metric, sums in zip(self._metrics, self._sums, strict=True):
            found |= _result(metric, total(sums))
            sums[:] = _begun(metric)
        return found

    def dump(self) -> list[list[float]]:
        """Give what was counted so far."""
        return [list(each) for each in self._sums]

    def load(self, sums: Sequence[Sequence[float]]) -> None:
        """Go on from what was counted."""
        if [len(each) for each in sums] == [len(each) for each in self._sums]:
            self._sums = [list(each) for each in sums]


def _metric(given: Any) -> Any:
    try:
        return library().metric.create(given) if isinstance(given, str) or callable(given) else _checked(given)
    except ValueError as error:
        raise PlanError(f"there is no such metric: {error}") from error


def _checked(given: Any) -> Any:
    if not isinstance(given, library().metric.EvalMetric):
        raise PlanError(f"a metrics creator made a {type(given).__name__}; it should make an mx.metric, or several")
    return given


def _leaves(metric: Any) -> list[Any]:
    inner = metric.metrics if isinstance(metric, library().metric.CompositeEvalMetric) else None
    return [metric] if inner is None else [leaf for each in inner for leaf in _leaves(each)]


def _cases(metric: Any) -> Any:
    """Give what counts the four cases, for metrics that are made of them."""
    kinds = library().metric.F1, library().metric.MCC
    return (getattr(metric, "_metrics", None) or metric.metrics) if isinstance(metric, kinds) else None


def _begun(metric: Any) -> list[float]:
    if _cases(metric) is None:
        return [0.0, 0.0]
    metric.average = "micro"  # over batches it would depend on how many workers there are
    return [0.0] * len(_CASES)


def _counted(metric: Any, rows: int, labels: int) -> list[float]:
    """Give what a metric has counted of some rows; one that counts batches is made to count their rows."""
    cases = _cases(metric)
    if cases is not None:
        return [float(getattr(cases, name)) for name in _CASES]
    value, count = float(metric.sum_metric), float(metric.num_inst)
    factor = rows if count == labels else 1
    if isinstance(metric, library().metric.RMSE):
        value = value**2 / max(count, 1)
    return [value * factor, count * factor]


def _result(metric: Any, sums: Sequence[float]) -> Mapping[str, float]:
    cases = _cases(metric)
    if cases is not None:
        for name, value in zip(_CASES, sums, strict=True):
            setattr(cases, name, value)
        score = cases.matthewscc() if hasattr(metric, "_metrics") else cases.fscore
        return {metric.name: float(score) if sum(sums) else float("nan")}
    value, count = sums
    if isinstance(metric, library().metric.RMSE):
        return {metric.name: (value / count) ** 0.5 if count else float("nan")}
    metric.reset()
    try:
        metric.sum_metric, metric.num_inst = value, count
    except AttributeError:  # it is worked out from something else
        return {metric.name: value / count if count else float("nan")}
    return {name: float(each) for name, each in metric.get_name_value()}

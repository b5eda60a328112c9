"""Metrics have the numbers that they are known for, and parts put together have those of the whole."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

import support.torchvision_cpu  # noqa: F401  # torchmetrics imports torchvision, where it is installed
from shoal.errors import PlanError
from shoal.learn import metrics
from shoal.learn.metrics import (
    AUC,
    MAE,
    MSE,
    Accuracy,
    BinaryAccuracy,
    BinaryCrossEntropy,
    CategoricalAccuracy,
    CategoricalCrossEntropy,
    KLDivergence,
    Metric,
    Poisson,
    SparseCategoricalAccuracy,
    SparseCategoricalCrossEntropy,
    Top5Accuracy,
    metric_of,
)
from shoal.learn.pytorch import Estimator
from support.learn import shipped

SCORES = [[0.6, 0.4], [0.4, 0.6]]
CHANCES = [[0.05, 0.95, 0], [0.1, 0.8, 0.1]]


def test_accuracy_of_classes_adds_up() -> None:
    accuracy = Accuracy()
    assert accuracy([0, 2, 3, 4], [1, 2, 3, 4]) == 0.75
    assert accuracy([0, 2, 3, 4], [1, 1, 2, 4]) == 0.5
    accuracy.reset()
    assert np.isnan(accuracy.compute())


def test_accuracy_understands_scores_probabilities_and_labels_from_one() -> None:
    assert Accuracy()(CHANCES, [1, 2]) == 0.5
    assert Accuracy()(CHANCES, [[1], [1]]) == 1.0
    assert Accuracy()([0.5, 0.4, 0.9], [1, 0, 0]) == pytest.approx(2 / 3)
    assert Accuracy(zero_based_label=False)(CHANCES, [2, 3]) == 0.5


def test_binary_accuracy() -> None:
    binary = BinaryAccuracy()
    assert binary([0.98, 1, 0, 0.6], [1, 1, 0, 0]) == 0.75
    assert BinaryAccuracy()([0.5], [1]) == 0.0, "half is not more than half"
    higher = BinaryAccuracy(threshold=0.7)
    higher.merge([binary.sums])
    assert higher([0.98, 1, 0, 0.6], [1, 1, 0, 0]) == 0.875


def test_categorical_accuracies() -> None:
    scores = [[0.1, 0.9, 0.8], [0.05, 0.95, 0]]
    assert CategoricalAccuracy()(scores, [[0, 0, 1], [0, 1, 0]]) == 0.5
    sparse = SparseCategoricalAccuracy()
    assert sparse(scores, [[2], [1]]) == 0.5
    assert sparse(scores, [2, 0]) == 0.25


def test_the_five_highest() -> None:
    top = Top5Accuracy()
    scores = [[0.1, 0.9, 0.8, 0.7, 0.5, 0.3], [0.05, 0.95, 0, 0.9, 0.8, 0.7]]
    assert top(scores, [2, 2]) == 0.5
    assert top(scores, [[2], [1]]) == 0.75


def test_distances() -> None:
    assert MAE()([[1, -2], [1, 1]], [[0, 1], [0, 1]]) == 1.25
    assert MSE()([[1, -2], [1, 1]], [[1, 1], [1, 1]]) == 2.25
    assert MSE()([[1.0], [2.0]], [1.0, 4.0]) == 2.0, "a column is a row of numbers"


def test_entropies_and_divergences() -> None:
    assert BinaryCrossEntropy()(SCORES, [[0, 1], [0, 0]]) == pytest.approx(0.81492424, abs=1e-6)
    assert CategoricalCrossEntropy()(CHANCES, [[0, 1, 0], [0, 0, 1]]) == pytest.approx(1.1769392, abs=1e-6)
    assert SparseCategoricalCrossEntropy()(CHANCES, [1, 2]) == pytest.approx(1.1769392, abs=1e-6)
    assert KLDivergence()(SCORES, [[0, 1], [0, 0]]) == pytest.approx(0.45814, abs=1e-5)
    assert Poisson()([[1, 1], [0, 0]], [[0, 1], [0, 0]]) == pytest.approx(0.49999997, abs=1e-7)


def test_the_area_is_the_one_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, 500)
    likely = np.clip(truth * 0.2 + generator.random(500) * 0.8, 0, 1)
    assert AUC(2000)(likely, truth) == pytest.approx(sklearn.metrics.roc_auc_score(truth, likely), abs=1e-3)
    assert np.isnan(AUC()([0.5], [1])), "there is nothing to tell apart"
    with pytest.raises(PlanError, match="it takes at least 2"):
        AUC(1)


def test_tensors_are_arrays() -> None:
    scores = torch.tensor(CHANCES, requires_grad=True)
    assert Accuracy()(scores, torch.tensor([1, 2])) == 0.5
    assert MAE()(torch.tensor([1.0, 2.0]).bfloat16(), torch.tensor([0.0, 0.0])) == 1.5


def _two_halves(kind: type[Metric], rows: int, generator: np.random.Generator) -> tuple[Any, Any]:
    """Make predictions and targets of the kind that a metric is for."""
    if kind in (Accuracy, SparseCategoricalAccuracy, SparseCategoricalCrossEntropy, Top5Accuracy):
        return generator.random((rows, 7)), generator.integers(0, 7, rows)
    if kind in (CategoricalAccuracy, CategoricalCrossEntropy):
        return generator.random((rows, 7)), np.eye(7)[generator.integers(0, 7, rows)]
    if kind in (AUC, BinaryAccuracy, BinaryCrossEntropy):
        return generator.random(rows), generator.integers(0, 2, rows)
    return generator.random((rows, 3)), generator.random((rows, 3))


ALL = [value for value in (getattr(metrics, name) for name in metrics.__all__) if isinstance(value, type)]
KINDS = [kind for kind in ALL if kind is not Metric]


@pytest.mark.parametrize("kind", KINDS)
@given(cuts=st.lists(st.integers(0, 40), max_size=4), seed=st.integers(0, 2**32 - 1))
def test_uneven_parts_put_together_are_the_whole(kind: type[Metric], cuts: list[int], seed: int) -> None:
    predictions, targets = _two_halves(kind, 40, np.random.default_rng(seed))
    whole, merged = kind(), kind()
    whole.update(predictions, targets)
    parts = []
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), 40], strict=True):
        part = kind()
        if low < high:
            part.update(predictions[low:high], targets[low:high])
        parts.append(part.sums)
    merged.merge(parts)
    np.testing.assert_allclose(merged.compute(), whole.compute(), rtol=1e-12)


@given(batches=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 2**32 - 1))
def test_a_function_counts_for_as_many_rows_as_it_saw(batches: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    predictions, targets = generator.random(sum(batches)), generator.random(sum(batches))
    metric = metric_of(mean_error)
    at = 0
    for rows in batches:
        metric.update(predictions[at : at + rows], targets[at : at + rows])
        at += rows
    assert metric.name == "mean_error"
    assert metric.compute() == pytest.approx(float((predictions - targets).mean()))


def mean_error(predictions: Any, targets: Any) -> Any:
    return (predictions - targets).mean()


def test_metrics_are_found_by_name_class_and_likeness() -> None:
    assert isinstance(metric_of("accuracy"), Accuracy)
    assert isinstance(metric_of("MSE"), MSE)
    assert isinstance(metric_of(Top5Accuracy), Top5Accuracy)
    given_one = Accuracy()
    assert metric_of(given_one) is given_one
    with pytest.raises(PlanError, match="there is no metric 'f1'; by name there are accuracy"):
        metric_of("f1")
    with pytest.raises(PlanError, match="4 is no metric"):
        metric_of(4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_has_a_name_of_its_own(kind: type[Metric]) -> None:
    assert isinstance(metric_of(kind.__name__), kind)
    assert repr(kind()) == f"{kind.__name__}()"


class Scores(torch.nn.Module):
    def forward(self, scores: Any) -> Any:
        return scores


def unpacked(classes: int) -> Any:
    """Make a metric of torchmetrics, which imports torchvision; what that lacks here is put in first."""
    from contextlib import suppress

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        with suppress(RuntimeError):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchmetrics.classification import MulticlassAccuracy

    metric = MulticlassAccuracy(num_classes=classes, average="micro")
    metric.library = library  # it is gone with its last reference
    return metric


def packed(metric: Any) -> Any:
    return unpacked, (metric.num_classes,)


@pytest.fixture
def torch_accuracy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from torchmetrics.classification import MulticlassAccuracy

    monkeypatch.setitem(copyreg.dispatch_table, MulticlassAccuracy, packed)
    with shipped(__name__):
        yield MulticlassAccuracy(num_classes=5, average="micro")


@pytest.mark.slow
def test_all_kinds_of_metrics_are_right_over_workers_with_unequal_shares(torch_accuracy: Any) -> None:
    generator = np.random.default_rng(1)
    scores, classes = generator.random((23, 5)).astype(np.float32), generator.integers(0, 5, 23)
    estimator = Estimator.from_torch(
        model=Scores(), metrics=[Accuracy(), Top5Accuracy(), torch_accuracy, share_right], workers=2, restarts=0
    )
    found = estimator.evaluate((scores, classes), batch_size=7)
    right = float((scores.argmax(1) == classes).mean())
    assert found["num_samples"] == 23
    assert found["Accuracy"] == pytest.approx(right)
    assert found["Top5Accuracy"] == 1.0
    assert found["MulticlassAccuracy"] == pytest.approx(right)
    assert found["share_right"] == pytest.approx(right)


def share_right(predictions: Any, targets: Any) -> Any:
    return (predictions.argmax(1) == targets).float().mean()

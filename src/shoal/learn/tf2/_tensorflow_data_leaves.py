"""Elements of a tf.data pipeline as arrays of rows, and which of them are inputs, targets and weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal._optional import require
from shoal.errors import PlanError
from shoal.learn._data import Ask

__all__ = ["Given", "Leaves", "Told", "leaves_of", "rebatched"]

tf: Any = require("tensorflow", "tf.data")

#: What TensorFlow says of elements that make no batch.
_UNEVEN = ("Cannot batch tensors with different shapes", "Cannot add tensor to the batch")


class Given(list[Any]):
    """Arrays, with the names that they have in a dict, and the weights of their rows."""

    names: tuple[str, ...] = ()
    weights: Any = None


class Leaves:
    """The arrays of a batch; it has a length, and can be cut."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    @classmethod
    def of(cls, element: Any) -> Leaves:
        """Take the tensors of a batch, without a copy where TensorFlow gives its memory away."""
        found = cls([each if _is_ragged(each) else np.asarray(each) for each in tf.nest.flatten(element)])
        counts = {_rows(each) for each in found.values}
        if len(counts) != 1 or None in counts:
            shapes = ", ".join(str(each.shape) for each in found.values)
            raise PlanError(f"a batch of the dataset has no rows that belong together: its shapes are {shapes}")
        return found

    def __len__(self) -> int:
        return int(_rows(self.values[0]) or 0)

    def __getitem__(self, places: slice) -> Leaves:
        return Leaves([each[places] for each in self.values])

    def __getstate__(self) -> list[Any]:
        return [_sent(each) for each in self.values]

    def __setstate__(self, state: list[Any]) -> None:
        self.values = [_received(each) for each in state]


def leaves_of(dataset: Any, batched: bool, batch_size: int, drop: bool) -> Iterator[Leaves]:
    """Run a pipeline, and give its batches, or make batches of its elements."""
    batches = dataset if batched else dataset.batch(batch_size, drop_remainder=drop)
    try:
        yield from map(Leaves.of, batches)
    except tf.errors.InvalidArgumentError as error:
        if not any(text in str(error) for text in _UNEVEN):
            raise
        text = "elements of the dataset have different shapes, of which no batch can be made"
        raise PlanError(f"{text}; use padded_batch or ragged_batch, or make them alike with map") from error


def rebatched(pieces: Iterable[Leaves], size: int) -> Iterator[Leaves]:
    """Make batches of a size, of those of other sizes; the last may be short."""
    held: list[Leaves] = []
    have = 0
    for piece in pieces:
        begin = 0
        while have + len(piece) - begin >= size:
            end = begin + size - have
            yield _joined([*held, piece[begin:end]])
            held, have, begin = [], 0, end
        if begin < len(piece):
            held.append(piece[begin:])
            have += len(piece) - begin
    if held:
        yield _joined(held)


@dataclass(frozen=True, slots=True)
class Told:
    """Which arrays of an element, by their numbers, are inputs, targets and weights."""

    features: tuple[int, ...]
    labels: tuple[int, ...] = ()
    weights: int | None = None
    feature_names: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: Any, ask: Ask) -> Told:
        """Look at what elements are: pairs of inputs and targets, with weights or without, or dicts with names."""
        for leaf in tf.nest.flatten(spec):
            if not isinstance(leaf, tf.TensorSpec | tf.RaggedTensorSpec):
                kind = type(leaf).__name__.removesuffix("Spec")
                raise PlanError(
                    f"elements of the dataset have a {kind}; make a tensor of it with map (tf.sparse.to_dense)"
                )
        element = tf.nest.pack_sequence_as(spec, range(len(tf.nest.flatten(spec))))
        if isinstance(element, Mapping) and (ask.features or ask.labelled):
            return cls(*_named(element, ask), feature_names=tuple(ask.features or ()), label_names=_labels(ask))
        parts = element if isinstance(element, tuple) else (element,)
        if (ask.labelled and len(parts) < 2) or len(parts) > 3:
            text = f"an element of the dataset is {_described(spec)}"
            raise PlanError(f"{text}; it should be (inputs, targets) or (inputs, targets, weights)")
        features, names = _flat(parts[0], ask.features)
        labels, label_names = _flat(parts[1], ask.labels) if len(parts) > 1 else ((), ())
        weights = tf.nest.flatten(parts[2]) if len(parts) > 2 and parts[2] is not None else [None]
        if len(weights) > 1:
            raise PlanError("the weights of an element are one tensor, with a number for each row")
        return cls(features, labels, weights[0], names, label_names)

    def taken(self, leaves: Leaves) -> tuple[Given, Given]:
        """Tell inputs from targets; weights are an attribute of the targets."""
        features, labels = Given(leaves.values[each] for each in self.features), Given()
        labels.extend(leaves.values[each] for each in self.labels)
        features.names, labels.names = self.feature_names, self.label_names
        labels.weights = None if self.weights is None else leaves.values[self.weights]
        return features, labels


def _labels(ask: Ask) -> tuple[str, ...]:
    return tuple(ask.labels or ()) if ask.labelled else ()


def _named(element: Mapping[str, Any], ask: Ask) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not ask.features or (ask.labelled and not ask.labels):
        have = ", ".join(map(str, element))
        raise PlanError(f"elements of the dataset are dicts of {have}: name feature_cols= and label_cols=")
    features, labels = (tuple(_leaf(element, name) for name in names) for names in (ask.features, _labels(ask)))
    return features, labels


def _leaf(element: Mapping[str, Any], name: str) -> int:
    if name not in element or not isinstance(element[name], int):
        raise PlanError(f"elements of the dataset have no tensor {name!r} but {', '.join(map(str, element))}")
    found: int = element[name]
    return found


def _flat(part: Any, names: Sequence[str] | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Give the numbers of the arrays of a part, and their names if it is a dict."""
    if not isinstance(part, Mapping):
        return tuple(tf.nest.flatten(part)), ()
    chosen = [str(name) for name in (names or part)]
    return tuple(_leaf(part, name) for name in chosen), tuple(chosen)


def _described(spec: Any) -> str:
    return f"a tuple of {len(spec)}" if isinstance(spec, tuple) else f"a {type(spec).__name__.removesuffix('Spec')}"


def _is_ragged(value: Any) -> bool:
    return isinstance(value, tf.RaggedTensor)


def _rows(value: Any) -> int | None:
    if _is_ragged(value):
        return int(value.nrows())
    return len(value) if value.ndim else None


def _sent(value: Any) -> Any:
    if not _is_ragged(value):
        return value
    return value.flat_values.numpy(), [splits.numpy() for splits in value.nested_row_splits]


def _received(value: Any) -> Any:
    return tf.RaggedTensor.from_nested_row_splits(*value) if isinstance(value, tuple) else value


def _joined(pieces: list[Leaves]) -> Leaves:
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*(piece.values for piece in pieces), strict=True)
    return Leaves([tf.concat(each, 0) if _is_ragged(each[0]) else np.concatenate(each) for each in map(list, columns)])

"""A dataset as a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from shoal._optional import require
from shoal.abc import Sample
from shoal.errors import PlanError
from shoal.pipeline._loader import Loader
from shoal.pipeline._tensorflow import to_tensorflow

__all__ = ["loaded"]

Columns: TypeAlias = "str | Sequence[str] | None"

#: Samples that are taken at once, if no batches are asked for.
_TAKEN = 64


def loaded(
    loader: Callable[[int], Loader], features: Columns, labels: Columns, batch_size: int | None, signature: Any
) -> Any:
    """Make a dataset of what loaders of a batch size give; see `Dataset.to_tf`."""
    tf = require("tensorflow", "to_tf")
    if labels is not None and features is None:
        raise PlanError("to_tf has label_cols and no feature_cols; name both, or none")
    size, epochs = batch_size or _TAKEN, count()

    def batches() -> Iterator[Any]:
        made = loader(size)
        made.epoch = next(epochs)  # each iteration is an epoch, also if two are under way at once
        wanted = (_chosen(tf, to_tensorflow(_real(batch)), features, labels) for batch in made)
        return (tf.nest.map_structure(_as(tf), signature, batch) for batch in wanted)

    if signature is None:
        signature = tf.nest.map_structure(_spec(tf), _first(loader(size), tf, features, labels))
    elif batch_size is None:
        signature = tf.nest.map_structure(_batched(tf), signature)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset if batch_size is not None else _samples(tf, dataset)


def _samples(tf: Any, dataset: Any) -> Any:
    """Take batches apart; a row of a ragged tensor is a tensor, which TensorFlow knows once it has seen it."""
    samples = dataset.unbatch()
    ragged = any(isinstance(spec, tf.RaggedTensorSpec) for spec in tf.nest.flatten(samples.element_spec))
    return samples.map(_same) if ragged else samples


def _same(*element: Any) -> Any:
    return element if len(element) > 1 else element[0]


def _first(loader: Loader, tf: Any, features: Columns, labels: Columns) -> Any:
    """Give a batch to look at."""
    batches = iter(loader)
    try:
        return _chosen(tf, to_tensorflow(_real(next(batches))), features, labels)
    except StopIteration:
        raise PlanError("there is no sample whose shape could be looked at; give signature= to to_tf") from None
    finally:
        loader.close()


def _real(batch: Sample) -> Sample:
    """Leave out the rows that only fill a batch up."""
    mask = batch.get("__mask__")
    if mask is None:
        return batch
    rows = np.flatnonzero(mask)
    kept = {name: value for name, value in batch.items() if name != "__mask__"}
    return {
        name: value[rows] if isinstance(value, np.ndarray) else [value[row] for row in rows]
        for name, value in kept.items()
    }


def _chosen(tf: Any, batch: Sample, features: Columns, labels: Columns) -> Any:
    """Give the fields that are wanted: all as a dict, or a pair of features and labels."""
    if features is None:
        return {name: _tensor(tf, batch, name) for name in batch}
    chosen = _columns(tf, batch, features)
    return chosen if labels is None else (chosen, _columns(tf, batch, labels))


def _columns(tf: Any, batch: Sample, names: str | Sequence[str]) -> Any:
    return _tensor(tf, batch, names) if isinstance(names, str) else {name: _tensor(tf, batch, name) for name in names}


def _tensor(tf: Any, batch: Sample, name: str) -> Any:
    if name not in batch:
        raise PlanError(f"samples have no field {name!r} but {', '.join(batch)}")
    if not isinstance(batch[name], tf.Tensor | tf.RaggedTensor):
        text = f"field {name!r} is none of TensorFlow's types in a batch, but a {type(batch[name]).__name__}"
        raise PlanError(f"{text}; change it with map, or name the fields that are wanted with feature_cols=")
    return batch[name]


def _spec(tf: Any) -> Callable[[Any], Any]:
    """Describe what batches have in common with one of them: all but the number of rows."""

    def described(value: Any) -> Any:
        if isinstance(value, tf.RaggedTensor):
            return tf.RaggedTensorSpec([None, *value.shape[1:]], value.dtype, value.ragged_rank, value.row_splits.dtype)
        return tf.TensorSpec([None, *value.shape[1:]], value.dtype)

    return described


def _batched(tf: Any) -> Callable[[Any], Any]:
    """Describe a batch of such values; those of which the first dimension is open may be of different lengths."""

    def described(spec: Any) -> Any:
        shape = [None, *spec.shape]
        is_open = len(shape) > 1 and shape[1] is None
        return tf.RaggedTensorSpec(shape, spec.dtype, 1, tf.int64) if is_open else tf.TensorSpec(shape, spec.dtype)

    return described


def _as(tf: Any) -> Callable[[Any, Any], Any]:
    """Give a batch whose arrays happen to have one length as the others that have not."""

    def fitted(spec: Any, value: Any) -> Any:
        dense = isinstance(spec, tf.RaggedTensorSpec) and isinstance(value, tf.Tensor)
        return tf.RaggedTensor.from_tensor(value, row_splits_dtype=tf.int64) if dense else value

    return fitted

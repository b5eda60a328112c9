"""Predictions: a function for shards and for batches, which builds its model once in each process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import numpy as np

from shoal import registry
from shoal.abc import Block, Framework, Sample
from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn._data import FOREIGN, check_columns, fields_of, package_of
from shoal.learn._explaining import explained
from shoal.pipeline import Dataset
from shoal.pipeline.stages import BlockStage
from shoal.store import ObjectID, connect

__all__ = ["Predictor", "PredictsMany", "predicted"]

_KINDS = (
    "arrays, lists of arrays for several inputs, a dict with x, a frame, XShards, a Dataset, a Spark, Dask or Ray "
    "collection, a Hugging Face dataset, or an id of the store"
)


@runtime_checkable
class PredictsMany(Protocol):
    """A framework that has several batches under way at once, and whose model stays as it is."""

    number: int
    """The same in every copy, so that a process builds it once, however often it predicts."""

    def predict_many(self, batches: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Give what `predict` gives for each batch, in order; only a few batches are taken ahead."""


class Predictor:
    """Predicts for shards of arrays or frames, and for batches of samples, and gives them with the predictions."""

    def __init__(
        self, framework: Framework, batch_size: int, features: Sequence[str] | None, outputs: Sequence[str] | None
    ) -> None:
        if batch_size < 1:
            raise PlanError(f"batch_size={batch_size}; batch_size should be greater than 0")
        self._framework, self.batch_size = framework, batch_size
        self.features, self._outputs = features, outputs
        # The same in every copy, so that a process has the model once.
        self._number = framework.number if isinstance(framework, PredictsMany) else uuid4().int

    def shard(self, shard: Any) -> Any:
        """Predict for a shard, and give it with its predictions: a dict with another key, a frame with more columns."""
        fields = list(fields_of(shard, self.features, None, labelled=False).values())
        if hasattr(shard, "iloc") and _is_shapeless(shard, self.features or ()):
            return shard.assign(**{name: np.empty(0, object) for name in self._outputs or ("prediction",)})
        made = self._named(self._whole(fields))
        if hasattr(shard, "iloc"):
            return shard.assign(**{name: _cells(values) for name, values in made.items()})
        return {**(shard if isinstance(shard, Mapping) else {"x": shard}), **made}

    def array(self, data: Any) -> Any:
        """Predict for arrays, and give the predictions alone."""
        found = self._whole(list(fields_of({"x": data}, None, None, labelled=False).values()))
        return found if self._outputs is None else self._named(found)

    def samples(self, samples: Sequence[Sample]) -> list[Sample]:
        """Predict for some samples, in batches, and give each with its predictions."""
        names = self.features or ("x",)
        batches = [samples[at : at + self.batch_size] for at in range(0, len(samples), self.batch_size)]
        inputs = ([_stacked([_input(each, name) for each in some], name) for name in names] for some in batches)
        made: list[Sample] = []
        for some, outputs in zip(batches, self._each(inputs), strict=True):
            found = self._named(outputs)
            rows = ({name: _row(values, row) for name, values in found.items()} for row in range(len(some)))
            made += ({**sample, **row} for sample, row in zip(some, rows, strict=True))
        return made

    def columns(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Predict for columns, and give the predictions as columns."""
        (found,) = self._each([[_input(batch, name) for name in self.features or ("x",)]])
        made = self._named(found)
        return {name: _cells(values) for name, values in made.items()}

    def joined(self, batches: Iterable[Sequence[Any]]) -> Any:
        """Predict for the inputs of batches, and put what comes of them together."""
        found = _joined(list(self._each(batches)))
        return found if self._outputs is None else self._named(found)

    def _whole(self, arrays: Sequence[Any]) -> Any:
        """Predict batch by batch, and put the parts together."""
        starts = range(0, max(len(arrays[0]), 1), self.batch_size)
        return _joined(list(self._each([array[at : at + self.batch_size] for array in arrays] for at in starts)))

    def _each(self, batches: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Predict for the inputs of batches, one batch after the other or several at once."""
        model, ready = self._model(), map(self._ready, batches)
        return model.predict_many(ready) if isinstance(model, PredictsMany) else (_once(model, each) for each in ready)

    def _ready(self, inputs: Sequence[Any]) -> list[Any]:
        """Give inputs as the framework takes them; what is no array is for the model to understand."""
        names = [str(number) for number in range(len(inputs))]
        arrays = [_of_list(each) if isinstance(each, list) else each for each in inputs]
        batch = registry.load("format", self._framework.format)(dict(zip(names, arrays, strict=True)))
        return [batch[name] for name in names]

    def _named(self, found: Any) -> dict[str, Any]:
        """Name the outputs of a model: ``prediction``, or as the user wants them."""
        names = self._outputs
        if names is None:
            return dict(found) if isinstance(found, Mapping) else {"prediction": found}
        several = list(found.values()) if isinstance(found, Mapping) else found if isinstance(found, list) else [found]
        if len(several) != len(names):
            raise PlanError(f"the model has {len(several)} outputs, and output_cols names {len(names)}")
        return dict(zip(names, several, strict=True))

    def _model(self) -> Framework:
        with _LOCK:
            if self._number not in _MODELS:
                _MODELS.clear()  # of a predictor that was used before
                self._framework.build()
                _MODELS[self._number] = self._framework
            return _MODELS[self._number]


@dataclass(frozen=True, slots=True)
class Predict(BlockStage):
    """Adds predictions to samples; a block is what lies in memory at a time."""

    predictor: Predictor

    def process(self, block: Block) -> Block:
        """Predict for the samples of a block."""
        return block.with_samples(self.predictor.samples(block.samples))


_MODELS: dict[int, Framework] = {}
_LOCK = threading.Lock()


def predicted(data: Any, predictor: Predictor) -> Any:
    """Predict for data of any kind, and give the same kind back; arrays give arrays."""
    if isinstance(data, Dataset):
        return data.apply(Predict(predictor))
    if isinstance(data, XShards):
        return data.transform_shard(predictor.shard)
    if isinstance(data, ObjectID):
        store, made = connect(), XShards.from_store(data).transform_shard(predictor.shard)
        return store.put(made if store.get_meta(data).isglobal else made.first())
    package = package_of(data)
    if package in FOREIGN:
        if package in ("pyspark", "ray"):
            check_columns(predictor.features, None, labelled=False)
        return _exported(FOREIGN[package](data).transform_shard(predictor.shard), package)
    if package == "datasets":
        return _mapped(data, predictor)
    if hasattr(data, "iloc") or isinstance(data, Mapping):
        return predictor.shard(data)
    if not isinstance(data, list | tuple) and not hasattr(data, "__array__"):
        raise PlanError(f"there is no way to predict for a {type(data).__name__}; data may be {_KINDS}")
    return predictor.array(data)


def _once(model: Framework, inputs: Sequence[Any]) -> Any:
    with explained(inputs):
        return model.predict(inputs)


def _exported(shards: XShards, package: str) -> Any:
    if package == "pyspark":
        return shards.to_spark_df()
    return shards.to_ray() if package == "ray" else shards.to_dask()


def _mapped(data: Any, predictor: Predictor) -> Any:
    """Let a Hugging Face dataset predict: one in memory at once, a stream when it is read."""
    options: dict[str, Any] = {"batched": True, "batch_size": predictor.batch_size}
    if not hasattr(data, "format"):
        return data.map(predictor.columns, **options)
    made = data.with_format("numpy").map(predictor.columns, **options, new_fingerprint=uuid4().hex)
    return made.with_format(data.format["type"])


def _stacked(values: list[Any], name: str) -> Any:
    try:
        array = np.stack([np.asarray(value) for value in values])
    except ValueError as error:
        text = f"values of field {name!r} are of different shapes, so they cannot be predicted for in a batch"
        raise PlanError(f"{text}; make them alike with map, or give batch_size=1: {error}") from None
    return array.astype(np.float32) if type(values[0]) is float else array


def _input(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        have = ", ".join(field for field in batch if not field.startswith("__")) or "none"
        raise PlanError(f"samples have no field {name!r} but {have}; name the inputs with feature_cols=")
    return batch[name]


def _of_list(values: list[Any]) -> Any:
    """Make an array of a list; floats in it are for models, which have 32 bits."""
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _joined(parts: list[Any]) -> Any:
    if not parts:
        raise PlanError("there is no batch to predict for")
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], list):
        return [_joined(list(each)) for each in zip(*parts, strict=True)]
    return np.concatenate(parts)


def _is_shapeless(frame: Any, names: Sequence[str]) -> bool:
    """Tell whether a frame has no rows, and nobody can tell what its cells would be."""
    return not len(frame) and any(frame[name].dtype == object for name in names)


def _row(values: Any, row: int) -> Any:
    """Take a row of an output, or of each of several."""
    return [each[row] for each in values] if isinstance(values, list) else values[row]


def _cells(values: Any) -> Any:
    """Make a column of an output; where it has more than a number for each row, cells are arrays."""
    if isinstance(values, list):
        return [[each[row] for each in values] for row in range(len(values[0]))]
    return list(values) if values.ndim > 1 else values

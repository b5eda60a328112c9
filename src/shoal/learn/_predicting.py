"""Predictions: a function for shards and for batches, which builds its model once in each process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np

from shoal import registry
from shoal.abc import Block, Framework, Sample
from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn._data import FOREIGN, check_columns, fields_of, package_of
from shoal.pipeline import Dataset
from shoal.pipeline.stages import BlockStage
from shoal.store import ObjectID, connect

__all__ = ["Predictor", "predicted"]


class Predictor:
    """Predicts for shards of arrays or frames, and for batches of samples, and gives them with the predictions."""

    def __init__(
        self, framework: Framework, batch_size: int, features: Sequence[str] | None, outputs: Sequence[str] | None
    ) -> None:
        if batch_size < 1:
            raise PlanError(f"batch_size={batch_size}; batch_size should be greater than 0")
        self._framework, self.batch_size = framework, batch_size
        self.features, self._outputs = features, outputs
        self._number = uuid4().int  # the same in every copy, so that a process has the model once

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
        made: list[Sample] = []
        for at in range(0, len(samples), self.batch_size):
            some = samples[at : at + self.batch_size]
            names = self.features or ("x",)
            found = self._named(self._once([_stacked([_input(each, name) for each in some], name) for name in names]))
            rows = ({name: _row(values, row) for name, values in found.items()} for row in range(len(some)))
            made += ({**sample, **row} for sample, row in zip(some, rows, strict=True))
        return made

    def columns(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Predict for columns, and give the predictions as columns."""
        made = self._named(self._once([_input(batch, name) for name in self.features or ("x",)]))
        return {name: _cells(values) for name, values in made.items()}

    def joined(self, batches: Iterable[Sequence[Any]]) -> Any:
        """Predict for the inputs of batches, and put what comes of them together."""
        found = _joined([self._once(inputs) for inputs in batches])
        return found if self._outputs is None else self._named(found)

    def _whole(self, arrays: Sequence[Any]) -> Any:
        """Predict batch by batch, and put the parts together."""
        starts = range(0, max(len(arrays[0]), 1), self.batch_size)
        return _joined([self._once([array[at : at + self.batch_size] for array in arrays]) for at in starts])

    def _once(self, inputs: Sequence[Any]) -> Any:
        """Predict for one batch; what is no array is for the model to understand."""
        names = [str(number) for number in range(len(inputs))]
        arrays = [_of_list(each) if isinstance(each, list) else each for each in inputs]
        batch = registry.load("format", self._framework.format)(dict(zip(names, arrays, strict=True)))
        return self._model().predict([batch[name] for name in names])

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
        return connect().put(XShards.from_store(data).transform_shard(predictor.shard))
    package = package_of(data)
    if package in FOREIGN:
        if package in ("pyspark", "ray"):
            check_columns(predictor.features, None, labelled=False)
        return _exported(FOREIGN[package](data).transform_shard(predictor.shard), package)
    if package == "datasets":
        return _mapped(data, predictor)
    if hasattr(data, "iloc") or isinstance(data, Mapping):
        return predictor.shard(data)
    return predictor.array(data)


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

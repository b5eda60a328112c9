"""Data for models of Keras: of all kinds that others take, too, and those of TensorFlow and PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shoal.learn._creators import CreatedRows
from shoal.learn._data import Ask, FieldRows, Prepared, package_of, prepared
from shoal.learn._job import Batches, Rows
from shoal.learn._meeting import Meeting
from shoal.learn._predicting import Predictor, predicted

__all__ = ["TextRows", "keras_predicted", "keras_prepared"]


def keras_prepared(data: Any, ask: Ask, *, config: Mapping[str, Any], batch_size: int | None = None) -> Prepared:
    """Make rows of data, or of what a function makes in each worker."""
    package = package_of(data)
    if package == "tensorflow":
        from shoal.learn.tf2._tensorflow_data import tensorflow_prepared

        return tensorflow_prepared(data, ask, batch_size)
    if inspect.isroutine(data) or isinstance(data, partial):
        meeting = None if ask.workers is None else Meeting(ask.workers)
        there = replace(ask, workers=None, meeting=None if meeting is None else meeting.ticket)
        rows = CreatedRows(data, config, partial(keras_prepared, ask=there, config=config))
        return Prepared(rows, None if meeting is None else meeting.close)
    if _is_of_torch(data):
        from shoal.learn.pytorch._torch_loaders import torch_prepared

        return torch_prepared(data, ask, config=config, batch_size=batch_size)
    found = prepared(data, ask)
    return replace(found, rows=TextRows(found.rows)) if isinstance(found.rows, FieldRows) else found


def keras_predicted(data: Any, predictor: Predictor) -> Any:
    """Predict for data of any kind; datasets of TensorFlow and loaders of PyTorch give arrays, row by row."""
    if package_of(data) == "tensorflow" and hasattr(data, "element_spec"):
        from shoal.learn.tf2._tensorflow_data import inputs_of

        return predictor.joined(inputs_of(data, predictor.features, predictor.batch_size))
    if _is_of_torch(data) and hasattr(data, "batch_sampler"):
        from shoal.learn.pytorch._torch_loaders import inputs_of as inputs_of_loader

        return predictor.joined(inputs_of_loader(data, predictor.features))
    return predicted(data, predictor)


class TextRows(Rows):
    """Rows in which texts may be, for layers that take them; in batches they are lists, and here arrays."""

    def __init__(self, rows: FieldRows) -> None:
        self._rows, self.batch_size = rows, rows.batch_size
        self.dataset, self.end = rows.dataset, rows.end

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker."""
        return self._rows.loader(batch_size, rank, world_size, to, **options)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs and targets of the real rows."""
        names = (*self._rows.features, *self._rows.labels)
        return self._rows.taken({**batch, **{name: _texts(batch[name]) for name in names if name in batch}})


def _is_of_torch(data: Any) -> bool:
    return any(kind.__module__.startswith("torch.utils.data") for kind in type(data).__mro__)


def _texts(values: Any) -> Any:
    is_text = isinstance(values, list) and all(isinstance(each, str | bytes) for each in values)
    return np.array(values, object) if is_text else values

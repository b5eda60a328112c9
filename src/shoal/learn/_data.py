"""Data of all kinds as rows for a model: a dataset that any worker can read, and the names of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shoal.data import XShards
from shoal.errors import ObjectNotFoundError, PlanError
from shoal.learn._job import Batches, Rows
from shoal.pipeline import Dataset
from shoal.readers import from_arrays, from_store
from shoal.store import ObjectID, connect

__all__ = [
    "FOREIGN",
    "Ask",
    "FieldRows",
    "Prepared",
    "check_columns",
    "fields_of",
    "named",
    "of_columns",
    "package_of",
    "prepared",
]

#: Bytes of arrays that are sent to each worker; more are put into the store, where all workers of a host share them.
_SENT = 2**20
#: Collections of other systems, by the module of their class, and how they become shards.
FOREIGN: dict[str, Callable[[Any], XShards]] = {
    "pyspark": XShards.from_spark,
    "dask": XShards.from_dask,
    "dask_expr": XShards.from_dask,
    "ray": XShards.from_ray,
}
_KINDS = (
    "a Dataset, XShards, a Spark, Dask or Ray collection, a Hugging Face dataset, an id of the store, a frame, "
    "arrays (x, y), a dict of arrays x and y, or a function that makes one of these"
)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is wanted of data."""

    features: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    labelled: bool = True
    shuffle: int | None = None
    """A number from which the order follows, unless the data has its own; None leaves rows as they lie."""
    workers: int | None = None
    """Who is to share the rows out: None means that each worker has the data itself."""
    meeting: Any = None
    """Where workers meet who make data themselves, if it can be shared out in more than one way."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows, and what has to be undone when they are not needed any more."""

    rows: Rows
    undo: Callable[[], None] | None = None

    def release(self) -> None:
        """Let go of what is held for the rows."""
        if self.undo is not None:
            self.undo()


@dataclass(frozen=True, slots=True)
class FieldRows(Rows):
    """Samples of a dataset, and which of their fields are inputs, and which targets."""

    dataset: Dataset
    features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    batch_size: int | None = None
    end: str | None = None
    """What becomes of an incomplete last batch, where the data says so itself."""

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker."""
        chosen = options if self.end is None else {**options, "end": self.end}
        return self.dataset.loader(self.batch_size or batch_size, rank=rank, world_size=world_size, to=to, **chosen)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs and targets of the real rows."""
        mask = batch.get("__mask__")
        features, labels = ([_field(batch, name) for name in names] for names in (self.features, self.labels))
        if mask is None:
            return features, labels, len(features[0])
        count = int(mask.sum())
        chosen = np.flatnonzero(np.asarray(mask)) if count else np.zeros(1, np.int64)
        return [each[chosen] for each in features], [each[chosen] for each in labels], count

    def shuffled(self, seed: int | None) -> FieldRows:
        """Let the order follow from a number."""
        return self if seed is None else replace(self, dataset=self.dataset.shuffle("full", seed=seed))


def prepared(data: Any, ask: Ask) -> Prepared:
    """Make rows of data."""
    if isinstance(data, Dataset):
        return Prepared(FieldRows(data, *_names(ask)))
    if isinstance(data, ObjectID):
        return Prepared(FieldRows(from_store(data), *_names(ask)).shuffled(ask.shuffle))
    package = package_of(data)
    if package == "datasets":
        from shoal.data.huggingface import from_huggingface

        return Prepared(FieldRows(from_huggingface(data), *_names(ask)).shuffled(ask.shuffle))
    if package in FOREIGN:
        check_columns(ask.features, ask.labels, ask.labelled)
        data = FOREIGN[package](data)
    if isinstance(data, XShards):
        return _of_shards(data, ask)
    columns = fields_of(data, ask.features, ask.labels, ask.labelled)
    return of_columns(columns, ask)


def package_of(data: Any) -> str:
    """Name the library that a thing is of."""
    return type(data).__module__.partition(".")[0]


def of_columns(columns: dict[str, Any], ask: Ask) -> Prepared:
    """Make rows of arrays that are named as `fields_of` names them."""
    names = named(columns)
    if ask.workers is None or sum(column.nbytes for column in columns.values()) <= _SENT:
        return Prepared(FieldRows(from_arrays(columns), *names).shuffled(ask.shuffle))
    stored = connect().put(columns, persist=True)
    return Prepared(FieldRows(from_store(stored), *names).shuffled(ask.shuffle), partial(_deleted, stored))


def fields_of(
    data: Any, features: Sequence[str] | None, labels: Sequence[str] | None, labelled: bool
) -> dict[str, Any]:
    """Name the arrays of a shard, or of data in memory: ``x0``, ``x1``, ... are inputs, ``y0``, ``y1``, ... targets."""
    parts: dict[str, Any]
    if hasattr(data, "iloc"):
        check_columns(features, labels, labelled)
        parts = {"x": [_cells(_column(data, name)) for name in features or ()]}
        parts |= {"y": [_cells(_column(data, name)) for name in labels or ()]}
    elif isinstance(data, Mapping):
        parts = {"x": [_column(data, name) for name in features]} if features else dict(data)
        parts |= {"y": [_column(data, name) for name in labels]} if labels and labelled else {}
    elif isinstance(data, tuple | list) and labelled and len(data) == 2:
        parts = {"x": data[0], "y": data[1]}
    elif labelled or not isinstance(data, np.ndarray | tuple | list):
        text = "each shard should be a dict of x and y, a pair of them, or a frame"
        raise PlanError(f"{text}, and this is a {type(data).__name__}; data may be {_KINDS}")
    else:
        parts = {"x": data}
    for letter in ("x", "y") if labelled else ("x",):
        if letter not in parts:
            have = ", ".join(map(str, parts)) or "nothing"
            raise PlanError(f"the key {letter} should be in each shard, and there is {have}")
    return {**_numbered("x", parts["x"]), **(_numbered("y", parts["y"]) if labelled else {})}


def named(columns: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tell inputs from targets, by the names that `fields_of` gives."""
    return tuple(name for name in columns if name[0] == "x"), tuple(name for name in columns if name[0] == "y")


def _of_shards(shards: XShards, ask: Ask) -> Prepared:
    taken = partial(fields_of, features=ask.features, labels=ask.labels, labelled=ask.labelled)
    named_shards = shards.transform_shard(taken)
    names = named(named_shards.first())
    stored = connect().put(named_shards, persist=True)
    return Prepared(FieldRows(from_store(stored), *names).shuffled(ask.shuffle), partial(_deleted, stored))


def _deleted(stored: Any) -> None:
    with suppress(ObjectNotFoundError):
        connect().delete(stored)


def _names(ask: Ask) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(ask.features or ("x",)), tuple(ask.labels or ("y",)) if ask.labelled else ()


def check_columns(features: Sequence[str] | None, labels: Sequence[str] | None, labelled: bool) -> None:
    """Refuse a table without names of columns."""
    if features is None:
        use = "training" if labelled else "prediction"
        raise PlanError(f"feature columns is None; it should not be None in {use}: name them with feature_cols=")
    if labelled and labels is None:
        raise PlanError("label columns is None; it should not be None in training: name them with label_cols=")


def _column(data: Any, name: str) -> Any:
    try:
        return data[name]
    except KeyError:
        have = ", ".join(map(str, data.columns if hasattr(data, "iloc") else data)) or "none"
        raise PlanError(f"there is no column {name!r}; the columns are {have}") from None


def _field(batch: Mapping[str, Any], name: str) -> Any:
    if name not in batch:
        have = ", ".join(field for field in batch if not field.startswith("__"))
        raise PlanError(f"samples have no field {name!r} but {have}; name the fields with feature_cols=, label_cols=")
    if isinstance(batch[name], list):
        text = f"field {name!r} is no array in a batch: its values are no numbers, or of different shapes"
        raise PlanError(f"{text}; make them alike with map, or pad them")
    return batch[name]


def _numbered(letter: str, given: Any) -> dict[str, Any]:
    """Name one array, or several in a list or tuple."""
    several = [np.asarray(each) if _is_tensor(each) else each for each in _listed(given)]
    if not several or not all(isinstance(each, np.ndarray) for each in several):
        text = "the value of x and y should be a ndarray, a tuple of ndarrays or a list of ndarrays"
        raise PlanError(f"{text}, and {letter} is a {type(given).__name__}")
    return {f"{letter}{number}": each for number, each in enumerate(several)}


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, tuple | list) else [given]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "shape") and not isinstance(value, np.ndarray)


def _cells(column: Any) -> Any:
    """Make one array of a column, also of one that has lists, arrays or vectors in its cells."""
    values = column.to_numpy()
    if values.dtype != object:
        return values
    if not len(values):  # of what shape its cells are, nobody can tell
        return np.zeros(0, np.float32)
    try:
        return np.stack([_cell(cell) for cell in values])
    except ValueError as error:
        text = f"the cells of column {column.name!r} are of different shapes; pad or truncate them"
        raise PlanError(f"{text}: {error}") from None


def _cell(cell: Any) -> Any:
    """Make an array of a cell, also of lists in lists; floats in them are for models, which have 32 bits."""
    array = np.asarray(cell.toArray() if hasattr(cell, "toArray") else cell)
    if array.dtype == object and array.ndim:
        array = np.stack([_cell(each) for each in array])
    return array.astype(np.float32) if array.dtype == np.float64 and array.ndim else array

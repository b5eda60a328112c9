"""Data of all kinds as rows for BigDL, which wants several columns of a table as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn._data import FOREIGN, Ask, Prepared, package_of, prepared
from shoal.learn._job import Batches, Rows
from shoal.learn._predicting import Predictor, predicted
from shoal.store import ObjectID, connect

__all__ = ["FEATURES", "LABELS", "Joined", "bigdl_predicted", "bigdl_prepared", "chunks", "columns_of", "joined"]

FEATURES, LABELS = "features", "label"
#: Rows that are sent to the guest at a time.
_SENT = 8192


@dataclass(frozen=True, slots=True)
class Joined(Rows):
    """Rows whose columns are one input, and one target, where they were named."""

    rows: Rows
    features: bool
    labels: bool

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker."""
        return self.rows.loader(batch_size, rank, world_size, to, **options)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs and targets of the real rows."""
        features, labels, count = self.rows.taken(batch)
        return joined(features, self.features), joined(labels, self.labels), count


def bigdl_prepared(data: Any, features: Any, labels: Any) -> Prepared:
    """Make rows of data; columns are named by a text or a list."""
    x, y = columns_of(data, features, FEATURES), columns_of(data, labels, LABELS)
    found = prepared(data, Ask(x, y))
    return replace(found, rows=Joined(found.rows, x is not None, y is not None))


def columns_of(data: Any, given: Any, usual: str) -> list[str] | None:
    """Say which columns are meant; arrays and dicts of ``x`` and ``y`` have none, unless they are named."""
    names = [given] if isinstance(given, str) else None if given is None else list(given)
    if names == [usual] and not _is_table(data):
        return None
    return names


def joined(arrays: Sequence[Any], together: bool) -> list[Any]:
    """Make numbers of what is given, and one array of several if they belong together.

    >>> [each.shape for each in joined([np.zeros(4), np.zeros((4, 2))], True)]
    [(4, 3)]
    """
    found = [_numbers(each) for each in arrays]
    if not together or len(found) < 2:
        return found
    return [np.concatenate([each.reshape(len(each), -1) for each in found], axis=1)]


def chunks(rows: Rows) -> Iterator[tuple[list[Any], list[Any]]]:
    """Read all rows, some at a time, in their order."""
    loader = rows.loader(_SENT, 0, 1, "numpy")
    for batch in loader:
        features, labels, count = rows.taken(batch)
        if count:
            yield features, labels


def bigdl_predicted(data: Any, predictor: Predictor) -> Any:
    """Predict for data of any kind in this process, whose guest has the model, and give the same kind back."""
    if isinstance(data, XShards):
        return XShards.from_shards([predictor.shard(shard) for shard in data])
    if isinstance(data, ObjectID):
        return connect().put(bigdl_predicted(XShards.from_store(data), predictor))
    package = package_of(data)
    if package not in FOREIGN:
        return predicted(data, predictor)
    shards = bigdl_predicted(FOREIGN[package](data), predictor)
    return {"pyspark": shards.to_spark_df, "ray": shards.to_ray}.get(package, shards.to_dask)()


def _numbers(array: Any) -> Any:
    if array.dtype.kind not in "biuf":
        raise PlanError(f"BigDL takes numbers, and there are values of type {array.dtype}; make numbers of them first")
    return np.asarray(array, np.float32)


def _is_table(data: Any) -> bool:
    if isinstance(data, XShards):
        return hasattr(data.first(), "iloc")
    return hasattr(data, "iloc") or package_of(data) in FOREIGN or package_of(data) == "datasets"

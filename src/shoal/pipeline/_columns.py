"""Batches made of columns, without looking at single samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from shoal._slabs import aligned_empty
from shoal.abc import Columns, Picks, Sample, Source, SupportsBatches, SupportsColumns
from shoal.order import Ids
from shoal.pipeline._collate import column
from shoal.pipeline._memory import is_aligned, joined
from shoal.pipeline._parcel import Batches
from shoal.pipeline.stages import BlockStage, Select

__all__ = ["column_batches"]


def column_batches(source: Source, picks: Picks, sizes: Ids, stages: Sequence[BlockStage]) -> Batches | None:
    """Read samples as batches of so many.

    None where they cannot be columns: the samples differ in their fields, or their values in kind.
    """
    assert isinstance(source, SupportsColumns)
    taken = source.take_batches(picks, sizes) if isinstance(source, SupportsBatches) else None
    batches = _cut(source, picks, sizes, stages) if taken is None else _all_selected(taken, stages)
    return None if batches is None else list(zip(map(_aligned, batches), sizes.tolist(), strict=True))


def _cut(source: SupportsColumns, picks: Picks, sizes: Ids, stages: Sequence[BlockStage]) -> list[Columns] | None:
    """Read the columns of each shard by itself, join them, and cut batches out of them."""
    runs = picks.by_shard()
    parts = _all_selected([source.take_columns(shard, picks.offsets[places]) for shard, places in runs], stages)
    if parts is None or any(list(part) != list(parts[0]) for part in parts):
        return None
    whole = {name: _joined([part[name] for part in parts]) for name in parts[0]}
    if any(values is None for values in whole.values()):
        return None
    order = np.concatenate([places for _, places in runs])
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    return [_batch(whole, places) for places in np.split(where, np.cumsum(sizes)[:-1])]


def _aligned(columns: Sample) -> Sample:
    """Let arrays lie where every framework can share them."""
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and not is_aligned(values):
            columns[name] = joined([values])
    return columns


def _all_selected(parts: Sequence[Sample | None], stages: Sequence[BlockStage]) -> list[Sample] | None:
    chosen = [None if part is None else _selected(part, stages) for part in parts]
    there = [part for part in chosen if part is not None]
    return there if len(there) == len(chosen) else None


def _selected(columns: Sample, stages: Sequence[BlockStage]) -> Sample | None:
    for stage in stages:
        if isinstance(stage, Select):
            chosen: Sample = {"__key__": columns["__key__"]}
            for names in stage.fields:
                name = next((name for name in names if name in columns), None)
                if name is None:
                    return None  # what is missing is said sample by sample
                chosen[names[0]] = columns[name]
            columns = chosen
    return columns


def _joined(parts: list[Any]) -> Any:
    """Put the columns of several shards one below the other; None if they are of different kinds."""
    first = parts[0]
    if all(isinstance(part, list) for part in parts):
        return first if len(parts) == 1 else list(chain.from_iterable(parts))
    for part in parts:
        if not isinstance(part, np.ndarray) or part.dtype != first.dtype or part.shape[1:] != first.shape[1:]:
            return None
    return first if len(parts) == 1 else np.concatenate(parts)


def _batch(columns: dict[str, Any], where: Ids) -> Columns:
    places = where.tolist()
    batch: Columns = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            rows = aligned_empty((len(where), *values.shape[1:]), values.dtype)
            batch[name] = np.take(values, where, axis=0, out=rows, mode="clip")
        else:
            batch[name] = column(list(itemgetter(*places)(values)) if len(places) > 1 else [values[places[0]]])
    return batch

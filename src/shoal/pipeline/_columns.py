"""Batches made of columns, without looking at single samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from shoal.abc import Columns, Sample, Shard, Source, SupportsBatches, SupportsColumns
from shoal.order import Ids
from shoal.pipeline._collate import column
from shoal.pipeline._memory import aligned_empty, is_aligned, joined
from shoal.pipeline._parcel import Batches
from shoal.pipeline.stages import BlockStage, Select

__all__ = ["column_batches"]


def column_batches(
    source: Source, shards: Sequence[Shard], numbers: Ids, offsets: Ids, sizes: Ids, stages: Sequence[BlockStage]
) -> Batches | None:
    """Read samples by the number of their shard and their place in it, as batches of so many.

    None where they cannot be columns: the samples differ in their fields, or their values in kind.
    """
    assert isinstance(source, SupportsColumns)
    if isinstance(source, SupportsBatches):
        taken = source.take_batches(shards, numbers, offsets, sizes)
        selected = None if taken is None else [_selected(columns, stages) for columns in taken]
        if selected is not None and None not in selected:
            return [(_aligned(columns), size) for columns, size in zip(selected, sizes.tolist(), strict=True)]  # type: ignore[arg-type]
    order = np.lexsort((offsets, numbers))
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    parts: list[Columns] = []
    for places in np.split(order, cuts) if len(order) else ():
        part = source.take_columns(shards[int(numbers[places[0]])], offsets[places])
        part = None if part is None else _selected(part, stages)
        if part is None or (parts and list(part) != list(parts[0])):
            return None
        parts.append(part)
    if not parts:
        return []
    whole = {name: _joined([part[name] for part in parts]) for name in parts[0]}
    if any(values is None for values in whole.values()):
        return None
    where = np.empty_like(order)
    where[order] = np.arange(len(order))
    ends = np.cumsum(sizes)
    bounds = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
    return [(_batch(whole, where[low:high]), high - low) for low, high in bounds]


def _aligned(columns: Columns) -> Sample:
    """Let arrays lie where every framework can share them."""
    return {
        name: joined([values]) if isinstance(values, np.ndarray) and not is_aligned(values) else values
        for name, values in columns.items()
    }


def _selected(columns: Columns, stages: Sequence[BlockStage]) -> Columns | None:
    for stage in stages:
        if isinstance(stage, Select):
            chosen: Columns = {"__key__": columns["__key__"]}
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


def _batch(columns: dict[str, Any], where: Ids) -> Sample:
    places = where.tolist()
    batch: Sample = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            rows = aligned_empty((len(where), *values.shape[1:]), values.dtype)
            batch[name] = np.take(values, where, axis=0, out=rows, mode="clip")
        else:
            batch[name] = column(list(itemgetter(*places)(values)) if len(places) > 1 else [values[places[0]]])
    return batch

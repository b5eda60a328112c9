"""What a report on shuffles has to know of the sources of a plan: lengths and sizes, never the samples themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from shoal.abc import Shard, Source
from shoal.order import Batching, Ids, ShuffleReport, Stock, shuffle_report
from shoal.pipeline._leaves import lengths_of
from shoal.pipeline._plan import Mixture, Plan

__all__ = ["report_on_shuffles"]

# A length may cost the reading of an index, a size a question to a server: of many shards, some stand for the others.
_ALL, _SOME = 256, 64


def report_on_shuffles(plan: Plan, batching: Batching) -> ShuffleReport:
    """Say what each way of shuffling would do to each source of a plan."""
    plans = list(_leaf_plans(plan))
    report = shuffle_report([_stock(leaf) for leaf in plans], batching)
    return replace(report, notes=(*report.notes, *_notes(plan, plans)))


def _leaf_plans(plan: Plan) -> Iterator[Plan]:
    if not isinstance(plan.source, Mixture):
        yield plan
    for component in plan.components:
        yield from _leaf_plans(component)


def _stock(plan: Plan) -> Stock:
    source = plan.source
    assert isinstance(source, Source)
    shards = source.shards()
    lengths = None
    if source.seekable:
        asked = np.arange(len(shards)) if source.counted else _asked(len(shards))
        known = lengths_of(source)(asked)
        lengths = known[np.searchsorted(asked, np.arange(len(shards)), side="right") - 1]
    name = type(source).__name__ if type(source).__repr__ is object.__repr__ else repr(source)
    return Stock(name, len(shards), lengths, _bytes(source, shards), plan.shuffle, plan.with_limit().limit)


def _asked(shards: int) -> Ids:
    """Choose the shards that are asked about: all of a few, or some that are spread over all."""
    count = shards if shards <= _ALL else _SOME
    return np.arange(count) * shards // max(count, 1)


def _bytes(source: Source, shards: Sequence[Shard]) -> int | None:
    asked = _asked(len(shards)).tolist()
    total = 0
    for number in asked:
        size = source.size(shards[number])
        if size is None:
            return None
        total += size
    return round(total * len(shards) / max(len(asked), 1))


def _notes(plan: Plan, plans: Sequence[Plan]) -> Iterator[str]:
    if len(plans) > 1:
        yield "Each component of the mixture is looked at by itself, as if batches were made of it alone."
    if any(len(source.shards()) > _ALL for source in plan.sources()):
        yield f"Of more than {_ALL} shards {_SOME} were asked for their sizes and, if these cost a read, their lengths."
    if not all(each.keeps_count for each in (plan, *plans)):
        yield "Stages that drop, add or gather samples are not looked at: these are the samples that are read."

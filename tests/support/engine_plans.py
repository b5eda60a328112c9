"""Plans of all shapes whose stages may have workers of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.abc import Pool, Sample
from shoal.pipeline import Dataset, mix
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline.stages import BlockStage
from support.engine import forward, numbers

__all__ = ["PLANS", "with_pools"]


def double(sample: Sample) -> Sample:
    return {**sample, "n": 2 * sample["n"]}


def jitter(sample: Sample, rng: np.random.Generator) -> Sample:
    return {**sample, "noise": rng.normal()}


def odd(sample: Sample) -> bool:
    return bool(sample["n"] % 2)


def never(sample: Sample) -> bool:
    return sample["n"] < 0


def some(sample: Sample) -> list[Sample]:
    """Give none, one, two or three."""
    return [{"n": 10 * sample["n"] + at} for at in range(sample["n"] % 4)]


def with_tokens(sample: Sample) -> Sample:
    return {**sample, "tokens": np.arange(sample["n"] % 5 + 1)}


def total(batch: Sample) -> Sample:
    return {**batch, "total": np.full(len(batch["__key__"]), np.sum(batch["n"]))}


def segments(packed: Sample) -> Sample:
    return {**packed, "most": int(np.max(packed["segments"]))}


def _nested(count: int, options: dict[str, Any]) -> Dataset:
    """Mix what has stages with what has none, so that samples pass mixtures in different states."""
    inner = mix([numbers(count).map(double, **options), forward(count).flat_map(some, **options)], [2, 1])
    plain = numbers(count // 2, shard=7)
    outer = mix([inner.filter(odd, **options), plain], [3, 1], exhausted="drop")
    return outer.map(jitter, random=True, **options)


#: Each makes a dataset of about so many samples; all its stages get the options.
PLANS: dict[str, Callable[[int, dict[str, Any]], Dataset]] = {
    "map": lambda count, own: numbers(count).map(double, **own).shuffle("full", seed=1),
    "random maps": lambda count, own: (
        numbers(count).map(jitter, random=True, **own).map(double, **own).map(jitter, random=True, **own)
    ),
    "filter": lambda count, own: numbers(count).filter(odd, **own).shuffle("shards", seed=2, window=2),
    "filter that drops all": lambda count, own: numbers(count).filter(never, **own),
    "flat_map": lambda count, own: forward(count).map(jitter, random=True).flat_map(some, **own).filter(odd, **own),
    "take": lambda count, own: numbers(count).filter(odd, **own).take(count // 4).map(jitter, random=True, **own),
    "batch": lambda count, own: (
        forward(count).map(jitter, random=True, **own).batch(5).map(total, **own).flat_map(lambda b: [b, b], **own)
    ),
    "pack": lambda count, own: (
        numbers(count).map(with_tokens, **own).shuffle("full").pack(8).map(segments, **own).map(jitter, random=True)
    ),
    "mixture": lambda count, own: mix(
        [numbers(count).map(double, **own), forward(count).flat_map(some)], [2, 1], exhausted="drop"
    ).map(jitter, random=True, **own),
    "nested mixture": _nested,
    "mixture of batches": lambda count, own: mix(
        [numbers(count).batch(3).map(total, **own), forward(count).map(double, **own).batch(4).map(total)], [1, 1]
    ).filter(lambda batch: batch["n"][0] % 3 > 0, **own),
}


def with_pools(dataset: Dataset, choose: Callable[[], Pool | None]) -> Dataset:
    """Give the stages of a dataset workers of their own, by a choice for each."""
    return Dataset._of(_with_pools(dataset._plan, choose))


def _with_pools(plan: Plan, choose: Callable[[], Pool | None]) -> Plan:
    stages = tuple(replace(each, pool=choose()) if isinstance(each, BlockStage) else each for each in plan.stages)
    source = plan.source
    if isinstance(source, Mixture):
        source = replace(source, components=tuple(_with_pools(part, choose) for part in source.components))
    return replace(plan, source=source, stages=stages)

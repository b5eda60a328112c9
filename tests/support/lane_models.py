"""Plans of every make, each twice: as a model for `support.lane_oracle`, and as a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shoal.order import Shuffle, Weights
from shoal.pipeline import Dataset, mix
from support.lane_oracle import (
    Blend,
    Drawn,
    First,
    Grouped,
    Kept,
    Mapped,
    Model,
    Packed,
    Sample,
    Samples,
    Spread,
    Stage,
)
from support.lane_sources import ForwardSource, MemorySource, StreamSource

__all__ = [
    "Case",
    "Mix",
    "Origin",
    "as_lying",
    "begins_again",
    "cases",
    "dataset_of",
    "is_straight",
    "numbered",
    "rows_of",
    "rows_of_item",
    "shuffled_origins",
    "with_arrays",
    "with_everything",
]

KINDS = {"memory": MemorySource, "forward": ForwardSource, "stream": StreamSource}
#: Ways from samples to what is delivered; a mixture lies somewhere on them.
PATHS = (("sample",), ("sample", "packed"), ("sample", "batch"), ("sample", "packed", "batch"))


@dataclass(frozen=True, repr=False)
class Origin(Samples):
    """A source, and which class stands for it."""

    kind: str = "memory"
    make: Callable[[], Dataset] | None = None
    """Opens it where it lies in files."""


@dataclass(frozen=True)
class Mix(Blend):
    """A mixture, and its weights as a user writes them."""

    written: Sequence[Any] = ()
    ramp: bool = False


@dataclass(frozen=True)
class Case:
    """A plan, and how often it is dealt."""

    model: Model
    lanes: int
    wrap: bool = False
    """Whether the loader begins again."""

    @property
    def endless(self) -> bool:
        return self.wrap or _is_endless(self.model)


def numbered(lengths: Sequence[int], first: int = 0) -> tuple[tuple[Sample, ...], ...]:
    """Make shards of samples that are numbered through all of them."""
    shards, number = [], first
    for length in lengths:
        shards.append(tuple(_sample(number + at) for at in range(length)))
        number += length
    return tuple(shards)


def _sample(number: int) -> Sample:
    return {"__key__": f"k{number}", "cls": number, "tokens": tuple(range(number, number + number * 7 % 5))}


def with_arrays(sample: Sample) -> Sample:
    return {**sample, "tokens": np.array(sample["tokens"], np.int64)}


def way_of(kind: str, shuffle: Shuffle | None) -> str:
    """Say how a source is gone through, as the docs have it."""
    if shuffle is not None and (shuffle.mode == "full" or shuffle.cut != "auto"):
        return "samples" if shuffle.mode == "full" else shuffle.cut
    if kind == "memory":
        return "samples"
    return "forward" if shuffle is None else "shards"


def dataset_of(model: Model) -> Dataset:
    """Build with the public methods what a model describes."""
    origin = model.origin
    if isinstance(origin, Mix):
        parts = [dataset_of(part) for part in origin.parts]
        dataset = mix(parts, origin.written, exhausted=origin.exhausted, ramp=origin.ramp)
    else:
        assert isinstance(origin, Origin)
        if origin.make is not None:
            dataset = origin.make()
        else:
            dataset = Dataset(KINDS[origin.kind]([list(map(with_arrays, shard)) for shard in origin.shards]))
        if (shuffle := origin.shuffle) is not None:
            options = {"seed": shuffle.seed, "window": shuffle.window, "chunk": shuffle.chunk, "cut": shuffle.cut}
            dataset = dataset.shuffle(shuffle.mode, **options)
    for stage in model.stages:
        dataset = _then(dataset, stage)
    return dataset


def _then(dataset: Dataset, stage: Stage) -> Dataset:
    match stage:
        case Mapped(function):
            return dataset.map(function)
        case Drawn(function):
            return dataset.map(function, random=True)
        case Kept(function):
            return dataset.filter(function)
        case Spread(function):
            return dataset.flat_map(function)
        case First(count):
            return dataset.take(count)
        case Grouped(unit, limit, boundaries, pad, partial):
            options: dict[str, Any] = {unit: limit, "pad": {"tokens": 0} if pad else None, "partial": partial}
            if boundaries:
                return dataset.bucket("tokens", boundaries, **options)
            return dataset.batch(**options, length="tokens" if unit == "tokens" else None)
        case Packed(length, method, bins, long, pad, partial):
            return dataset.pack(length, method=method, bins=bins, long=long, pad=pad, partial=partial)


def is_straight(model: Model) -> bool:
    """Tell whether how many samples there are is known beforehand."""
    simple = all(isinstance(stage, Mapped | Drawn | First) for stage in model.stages)
    return simple and isinstance(model.origin, Samples) and model.origin.way == "samples"


def with_everything(model: Model) -> Model:
    """Leave out what makes a sample's fate depend on its lane or its neighbours."""
    stages = tuple(stage for stage in model.stages if not isinstance(stage, First))
    origin = model.origin
    if isinstance(origin, Mix):
        parts = tuple(map(with_everything, origin.parts))
        weights = [1] * len(parts)
        origin = replace(origin, parts=parts, weights=Weights.of(weights), exhausted="drop", written=weights)
    return Model(origin, stages)


def _has_share(blend: Blend, part: int) -> bool:
    return any(shares[part] for _, shares in blend.weights.points)


def begins_again(model: Model) -> bool:
    """Tell whether a component of a mixture may be gone through several times."""
    origin = model.origin
    return isinstance(origin, Blend) and (origin.exhausted == "wrap" or any(map(begins_again, origin.parts)))


def _is_endless(model: Model) -> bool:
    """Tell whether a loader wants to be told how many steps there are."""
    origin = model.origin
    if not isinstance(origin, Blend) or any(isinstance(stage, First) for stage in model.stages):
        return False
    inner = [_is_endless(part) for at, part in enumerate(origin.parts) if _has_share(origin, at)]
    return origin.exhausted == "wrap" or (all(inner) if origin.exhausted == "stop" else any(inner))


# What is done to samples; to those with arrays, and to those with tuples


def plus(sample: Sample) -> Sample:
    return {**sample, "cls": sample["cls"] + 1}


def without_key(sample: Sample) -> Sample:
    return {"cls": sample["cls"] * 3, "tokens": sample["tokens"]}


def noise(sample: Sample, rng: np.random.Generator) -> Sample:
    return {**sample, "cls": int(rng.integers(2**30))}


def keep_most(sample: Sample) -> bool:
    return bool(sample["cls"] % 4)


def keep_few(sample: Sample) -> bool:
    return not sample["cls"] % 3


def children(sample: Sample) -> list[Sample]:
    key, number = sample["__key__"], sample["cls"]
    return [{**sample, "__key__": f"{key}.{at}", "cls": number * 2 + at} for at in range(number % 4)]


def unnamed(sample: Sample) -> list[Sample]:
    return [{"cls": sample["cls"] + at, "tokens": sample["tokens"]} for at in range(1 + sample["cls"] % 2)]


def renamed(sample: Sample) -> Sample:
    key = sample["__key__"]
    return {**sample, "__key__": f"{key}!" if isinstance(key, str) else [f"{each}!" for each in key]}


def marked(sample: Sample, rng: np.random.Generator) -> Sample:
    key, mark = sample["__key__"], int(rng.integers(1000))
    return {**sample, "__key__": f"{key}~{mark}" if isinstance(key, str) else [f"{each}~{mark}" for each in key]}


def keep_odd(sample: Sample) -> bool:
    return len(sample["__parts__"] if isinstance(sample["__key__"], str) else sample["__key__"]) != 2


def twice(sample: Sample) -> list[Sample]:
    return [sample, renamed(sample)]


_ON_SAMPLES: list[Stage] = [
    Mapped(plus), Mapped(without_key), Drawn(noise), Kept(keep_most), Kept(keep_few), Spread(children), Spread(unnamed)
]  # fmt: skip
_ON_OTHERS: list[Stage] = [Mapped(renamed), Drawn(marked), Kept(keep_odd), Spread(twice)]
_FIRSTS: list[Stage] = [First(100), First(40)]
_partial = st.sampled_from([True, True, True, False])
_packs = st.builds(
    Packed,
    length=st.sampled_from([3, 8, 11]),
    method=st.sampled_from(["first-fit", "concat"]),
    bins=st.integers(1, 4),
    long=st.sampled_from(["split", "truncate", "drop"]),
    pad=st.sampled_from([0, None]),
    partial=_partial,
)
_size_groups = st.builds(Grouped, unit=st.just("size"), limit=st.integers(1, 5), partial=_partial)
_groups = st.builds(
    lambda budget, boundaries, pad, partial: Grouped(*budget, tuple(boundaries), pad, partial),
    st.sampled_from([("size", 1), ("size", 3), ("tokens", 5), ("tokens", 12), ("bytes", 200), ("bytes", 400)]),
    st.sampled_from([(), (), (2,), (1, 3)]),
    st.booleans(),
    _partial,
)


@st.composite
def _stages(draw: st.DrawFn, kinds: Sequence[str], *, most: int = 2) -> tuple[Stage, ...]:
    """Lead from samples, or from what the first kind is, to the last kind."""
    made: list[Stage] = []
    for at, kind in enumerate(kinds):
        if at:
            made.append(draw(_packs if kind == "packed" else _groups if kinds[at - 1] == "sample" else _size_groups))
        known = _ON_SAMPLES if kind == "sample" else _ON_OTHERS
        made += draw(st.lists(st.sampled_from([*known, *_FIRSTS]), max_size=most))
    return tuple(made)


_seeds = st.integers(0, 3)
_enough = st.lists(st.sampled_from([21, 13, 34, 5, 1, 0]), min_size=1, max_size=6).map(lambda lengths: [*lengths, 9])
_lengths = st.one_of(_enough, _enough, _enough, st.lists(st.sampled_from([1, 0, 2]), max_size=4))


@st.composite
def _shuffles(draw: st.DrawFn, kind: str) -> Shuffle | None:
    mode = draw(st.sampled_from(["none", "shards", "shards", "full"] if kind != "stream" else ["none", "shards"]))
    if mode == "none":
        return None
    if mode == "full":
        return Shuffle("full", draw(_seeds))
    cut = draw(st.sampled_from(["auto", "shards", "samples"] if kind != "stream" else ["auto", "shards"]))
    return Shuffle("shards", draw(_seeds), draw(st.integers(1, 4)), draw(st.integers(1, 8)), cut)


@st.composite
def origins(draw: st.DrawFn, number: int, *, wrap: bool = False) -> Origin:
    kind = draw(st.sampled_from(["memory", "memory", "forward", "stream"]))
    shuffle = draw(_shuffles(kind))
    shards = numbered(draw(_enough if wrap else _lengths), 1000 * number)
    return Origin(shards, way_of(kind, shuffle), shuffle, kind=kind)


@st.composite
def shuffled_origins(draw: st.DrawFn, known: Sequence[Origin]) -> Origin:
    """Take one of several sources, shuffled in some way."""
    origin = draw(st.sampled_from(known))
    shuffle = draw(_shuffles(origin.kind))
    return replace(origin, shuffle=shuffle, way=way_of(origin.kind, shuffle))


def as_lying(model: Model) -> Model:
    """Leave out all shuffles."""
    origin = model.origin
    if isinstance(origin, Mix):
        return replace(model, origin=replace(origin, parts=tuple(map(as_lying, origin.parts))))
    assert isinstance(origin, Origin)
    return replace(model, origin=replace(origin, shuffle=None, way=way_of(origin.kind, None)))


@st.composite
def _weights(draw: st.DrawFn, count: int) -> tuple[Sequence[Any], bool]:
    weights = st.lists(st.integers(0, 4), min_size=count, max_size=count).filter(any)
    if draw(st.booleans()):
        return draw(weights), False
    begins = sorted({0, *draw(st.lists(st.integers(1, 60), max_size=2))})
    return [(begin, draw(weights)) for begin in begins], draw(st.booleans())


@st.composite
def models(
    draw: st.DrawFn,
    path: Sequence[str],
    *,
    depth: int = 2,
    wrap: bool = False,
    numbers: list[int] | None = None,
    leaf: st.SearchStrategy[Origin] | None = None,
) -> Model:
    """Make a plan that leads along a path; where it begins again, one that finds something each time."""
    numbers = [] if numbers is None else numbers
    if not depth or not draw(st.booleans()):
        numbers.append(len(numbers))
        origin = draw(origins(numbers[-1], wrap=wrap) if leaf is None else leaf)
        return _allowed(Model(origin, draw(_stages(path))), wrap)
    at = draw(st.integers(1, len(path)))
    exhausted = draw(st.sampled_from(["drop", "stop", "wrap"]))
    inner = wrap or exhausted == "wrap"
    count = draw(st.integers(1, 3))
    parts = tuple(
        draw(models(path[:at], depth=depth - 1, wrap=inner, numbers=numbers, leaf=leaf)) for _ in range(count)
    )
    written, ramp = draw(_weights(count))
    blend = Mix(parts, Weights.of(written, ramp=ramp), exhausted, written=written, ramp=ramp)
    return _allowed(Model(blend, draw(_stages(path[at - 1 :]))), wrap)


def _allowed(model: Model, wrap: bool) -> Model:
    """Leave out what is refused: an end of something that begins again."""
    if not wrap or (isinstance(model.origin, Samples) and is_straight(model)):
        return model
    return replace(model, stages=tuple(stage for stage in model.stages if not isinstance(stage, First)))


@st.composite
def cases(
    draw: st.DrawFn, leaf: st.SearchStrategy[Origin] | None = None, paths: Sequence[Sequence[str]] = PATHS
) -> Case:
    lanes = draw(st.sampled_from([3, 4, 2, 1, *range(5, 17), 64]))
    path = draw(st.sampled_from(paths))
    wrap = draw(st.integers(0, 4)) == 4
    return Case(draw(models(path, wrap=wrap, leaf=leaf)), lanes, wrap)


# What was delivered, in a form that can be compared


def plain(value: Any) -> Any:
    """Turn arrays into tuples, at any depth."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def rows_of(batch: Sample) -> list[Sample]:
    """Take a batch apart, leaving out what is padding."""
    mask = batch.get("__mask__", np.ones(len(batch["__key__"]), bool)).tolist()
    names = [name for name in batch if name != "__mask__"]
    return [{name: plain(batch[name][at]) for name in names} for at in range(len(mask)) if mask[at]]


def rows_of_item(sample: Sample) -> list[Sample]:
    """List the rows that a sample of the oracle becomes in a batch."""
    if isinstance(sample["__key__"], str):
        return [{name: plain(value) for name, value in sample.items()}]
    return [{name: plain(sample[name][at]) for name in sample} for at in range(len(sample["__key__"]))]

"""What a plan is, as far as the order of its samples goes: a resume is refused where this has changed."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from shoal.abc import Shard, Source
from shoal.files import display
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline._state import MARKS
from shoal.pipeline.gather import Budget, LaneStage
from shoal.pipeline.stages import On, Stage, describe

__all__ = ["changed_shards", "plan_description", "plan_weights"]

# Asking a server about each of many shards takes longer than a checkpoint should.
_ALL, _SOME = 1024, 256
#: Marks in a state, for the shards of all its sources, that tell which have changed; and the bytes of each.
_TELLING, _MARK = 1024, 2
#: Shards that an error names.
_NAMED = 3


def plan_description(plan: Plan, ways: Sequence[str], *, wrap: bool) -> dict[str, Any]:
    """Describe everything that decides about the order: shards, stages, shuffles, lanes, how shards are read.

    Left out are the bodies of functions and the weights of mixtures, which may change, and how many ranks and workers
    there are, which devices they use and how large batches are, which make no difference.
    """
    errors = {"errors": "skipped"} if plan.skips else {}
    return {"lanes": plan.lanes, "wrap": wrap, **errors, **_described(plan, iter(ways), _TELLING // max(len(ways), 1))}


def changed_shards(plan: Plan, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name the shards that are not what they were when a plan was described, if it has as many as then."""
    if isinstance(plan.source, Mixture):
        parts = zip(plan.source.components, before.get("components", ()), now["components"], strict=False)
        return [text for component, then, today in parts for text in changed_shards(component, then, today)]
    if before.get("shards") == now["shards"]:
        return []
    names = list(_suspects(plan.source.shards(), *(_marks(each.get(MARKS, "")) for each in (before, now))))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"not what it was: {', '.join(names[:_NAMED])}{more}"] if names else []


def _marks(text: str) -> list[bytes]:
    data = base64.b85decode(text)
    return [data[at : at + _MARK] for at in range(0, len(data), _MARK)]


def _suspects(shards: Sequence[Shard], before: Sequence[bytes], now: Sequence[bytes]) -> Iterator[str]:
    if len(before) != len(now):
        return
    for (first, last), then, today in zip(_groups(len(shards), len(now)), before, now, strict=True):
        if then != today:
            ends = [display(shards[first].url), display(shards[last - 1].url)]
            yield ends[0] if last - first == 1 else f"one of {ends[0]} to {ends[1]}"


def _groups(shards: int, groups: int) -> list[tuple[int, int]]:
    """Cut shards into neighbours that share a mark.

    >>> _groups(5, 2), _groups(2, 2)
    ([(0, 2), (2, 5)], [(0, 1), (1, 2)])
    """
    return [(shards * at // groups, shards * (at + 1) // groups) for at in range(groups)]


def plan_weights(plan: Plan) -> list[Any]:
    """List the weights of all mixtures."""
    if not isinstance(plan.source, Mixture):
        return []
    own = [[[samples, list(shares)] for samples, shares in plan.source.weights.points], plan.source.weights.ramp]
    return [own, *(weights for component in plan.source.components for weights in plan_weights(component))]


def _described(plan: Plan, ways: Any, telling: int) -> dict[str, Any]:
    stages = [_stage(stage) for stage in plan.stages if not isinstance(stage, On)]
    if isinstance(plan.source, Mixture):
        components = [_described(component, ways, telling) for component in plan.source.components]
        return {"components": components, "exhausted": plan.source.exhausted, "stages": stages}
    shuffle = plan.shuffle
    keyed = "none" if shuffle is None else f"{shuffle.mode}, window {shuffle.window}, chunk {shuffle.chunk}"
    return {
        **_shards(plan.source, telling),
        "stages": stages,
        "shuffle": keyed,
        "seed": None if shuffle is None else shuffle.seed,
        "reading": next(ways),
    }


def _shards(source: Source, telling: int) -> dict[str, str]:
    """Describe shards by one digest, and by a mark for each or for some neighbours, which tells where it differs."""
    shards = source.shards()
    step = 1 if len(shards) <= _ALL else -(-len(shards) // _SOME)
    texts = [f"{_name(shard)}\n".encode("utf-8", "surrogateescape") for shard in shards]
    prints = [f"{source.fingerprint(shard)}\n".encode() for shard in shards[::step]]
    digest = hashlib.blake2b(b"".join(texts + prints), digest_size=12)
    for number, text in enumerate(prints):
        texts[number * step] += text
    groups = _groups(len(shards), min(len(shards), max(telling, 1)))
    sums = (zlib.crc32(b"".join(texts[first:last])) for first, last in groups)
    marks = b"".join(each.to_bytes(4, "big")[-_MARK:] for each in sums)
    return {"shards": f"{len(shards)} shards with digest {digest.hexdigest()}", MARKS: base64.b85encode(marks).decode()}


def _name(shard: Shard) -> str:
    """Name a shard without the folder or server it lies in today: data may be moved."""
    name = display(shard.url).rstrip("/").rpartition("/")[2]
    return f"{name}:{shard.start}:{shard.stop}:{shard.step}"


def _stage(stage: Stage) -> str:
    """Describe a stage by its kind, its numbers, and the names of its functions."""
    kind, _, function = describe(stage).rstrip(")").partition("(")
    values = [getattr(stage, field.name) for field in fields(stage)]  # type: ignore[arg-type]
    telling = str | int | tuple | Budget | Mapping if isinstance(stage, LaneStage) else str | int | tuple
    numbers = [value for value in values if isinstance(value, telling)]
    return f"{kind}({', '.join([function.rpartition('.')[2], *map(_plain, numbers)]).strip(', ')})"


def _plain(value: Any) -> str:
    if isinstance(value, Budget):
        length = value.length
        measured = getattr(length, "__name__", type(length).__name__) if callable(length) else length
        return repr((value.size, value.tokens, value.bytes, measured))
    return repr(sorted(value) if isinstance(value, Mapping) else value)

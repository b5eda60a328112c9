"""What a plan is, as far as the order of its samples goes: a resume is refused where this has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from shoal.abc import Shard, Source
from shoal.files import display
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline.gather import Budget, LaneStage
from shoal.pipeline.stages import On, Stage, describe

__all__ = ["plan_description", "plan_weights"]

# Asking a server about each of many shards takes longer than a checkpoint should.
_ALL, _SOME = 1024, 256


def plan_description(plan: Plan, ways: Sequence[str], *, wrap: bool) -> dict[str, Any]:
    """Describe everything that decides about the order: shards, stages, shuffles, lanes, how shards are read.

    Left out are the bodies of functions and the weights of mixtures, which may change, and how many ranks and workers
    there are, which devices they use and how large batches are, which make no difference.
    """
    errors = {"errors": "skipped"} if plan.skips else {}
    return {"lanes": plan.lanes, "wrap": wrap, **errors, **_described(plan, iter(ways))}


def plan_weights(plan: Plan) -> list[Any]:
    """List the weights of all mixtures."""
    if not isinstance(plan.source, Mixture):
        return []
    own = [[[samples, list(shares)] for samples, shares in plan.source.weights.points], plan.source.weights.ramp]
    return [own, *(weights for component in plan.source.components for weights in plan_weights(component))]


def _described(plan: Plan, ways: Any) -> dict[str, Any]:
    stages = [_stage(stage) for stage in plan.stages if not isinstance(stage, On)]
    if isinstance(plan.source, Mixture):
        components = [_described(component, ways) for component in plan.source.components]
        return {"components": components, "exhausted": plan.source.exhausted, "stages": stages}
    shuffle = plan.shuffle
    keyed = "none" if shuffle is None else f"{shuffle.mode}, window {shuffle.window}, chunk {shuffle.chunk}"
    return {
        "shards": _shards(plan.source),
        "stages": stages,
        "shuffle": keyed,
        "seed": None if shuffle is None else shuffle.seed,
        "reading": next(ways),
    }


def _shards(source: Source) -> str:
    shards = source.shards()
    digest = hashlib.blake2b(digest_size=12)
    for shard in shards:
        digest.update(f"{_name(shard)}\n".encode("utf-8", "surrogateescape"))
    step = 1 if len(shards) <= _ALL else -(-len(shards) // _SOME)
    for shard in shards[::step]:
        digest.update(f"{source.fingerprint(shard)}\n".encode())
    return f"{len(shards)} shards with digest {digest.hexdigest()}"


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

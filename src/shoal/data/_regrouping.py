"""Results of shards put together by key: in as many parts as there are shards, or in one go if there is little to do.

Both ways give the same rows in the same partitions; which one is taken follows from the rows alone, so it is the same
on every engine. A few thousand groups in many partitions would be mostly the cost of moving tiny frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shoal.abc import Handle
from shoal.data._lazy import Recipe
from shoal.data._xshards import XShards

__all__ = ["regrouped"]

#: Rows, of all shards together, that one task puts together as well as many do.
_FEW = 100_000


@dataclass(frozen=True, slots=True)
class _Finished:
    """A piece of what has been put together already."""

    frame: Any


def regrouped(
    shards: XShards, partitions: int, cut: Callable[[Any], Any], finish: Callable[[Sequence[Any]], Any]
) -> XShards:
    """Bring the rows of each partition together: ``cut`` deals the rows of a frame, ``finish`` joins what was dealt."""
    whole, engine = shards._whole(), shards._engine

    def make() -> Handle:
        handle = whole.handle()
        if partitions == 1 or sum(engine.gather(engine.map(len, handle))) > _FEW:
            return engine.exchange(cut, handle, partitions)
        together = engine.map(finish, engine.exchange(_alone, handle, 1))
        return engine.exchange(partial(_dealt, cut=cut), together, partitions)

    recipe = Recipe(engine, partitions, make, parents=[whole])
    return XShards(recipe, chain=(partial(_ended, finish=finish),))


def _alone(frame: Any) -> list[Any]:
    return [frame]


def _dealt(frame: Any, cut: Callable[[Any], Any]) -> list[_Finished]:
    return [_Finished(piece.reset_index(drop=True)) for piece in cut(frame)]


def _ended(pieces: Sequence[Any], finish: Callable[[Sequence[Any]], Any]) -> Any:
    first = pieces[0]
    return first.frame if isinstance(first, _Finished) else finish(pieces)

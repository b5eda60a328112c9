"""Types on which all shards of a result agree.

What pandas makes of a column depends on what is in it: whole numbers among which one is missing are floats. A shard of
a join sees only its own rows, so its types would depend on how rows were dealt out. Here all shards are looked at
once, and get the types that pandas would have found in all rows together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.abc import Handle
from shoal.data._lazy import Recipe

if TYPE_CHECKING:
    import pandas as pd

    from shoal.data._xshards import XShards

__all__ = ["agreed"]


class Kinds(NamedTuple):
    """The types of the columns of a shard, which say nothing if it has no rows."""

    rows: int
    dtypes: Mapping[Any, Any]


def agreed(shards: XShards) -> XShards:
    """Give all shards, which are frames with the same columns, the same types; they are made once and kept for it."""
    from shoal.data._xshards import XShards  # which has methods that use this

    if shards.num_partitions() == 1:
        return shards
    whole, engine = shards._whole(), shards._engine

    def learn() -> Handle:
        seen = list(engine.gather(engine.map(_kinds, whole.handle())))
        return engine.scatter([common_kinds(seen)] * len(seen))

    kinds = Recipe(engine, shards.num_partitions(), learn, parents=[whole])
    return XShards(whole, kinds, chain=(_conformed,))


def common_kinds(seen: Sequence[Kinds]) -> dict[Any, Any]:
    """Find the types that hold what is in all shards, each of which holds its own.

    >>> common_kinds([Kinds(2, {"n": np.dtype("int64")}), Kinds(1, {"n": np.dtype("float64")})])
    {'n': dtype('float64')}
    """
    told = [each.dtypes for each in seen if each.rows] or [each.dtypes for each in seen[:1]]
    return {name: _common([each[name] for each in told]) for name in told[0]}


def _common(kinds: Sequence[Any]) -> Any:
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    numbers = all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in kinds)
    return np.result_type(*kinds) if numbers else np.dtype(object)


def _kinds(frame: pd.DataFrame) -> Kinds:
    return Kinds(len(frame), dict(frame.dtypes))


def _conformed(frame: pd.DataFrame, kinds: Mapping[Any, Any]) -> pd.DataFrame:
    odd = {name: kind for name, kind in kinds.items() if frame[name].dtype != kind}
    return frame.astype(odd) if odd else frame

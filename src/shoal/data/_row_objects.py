"""Python objects that hold rows: how many, which of them, and several put together again.

An object is an array, a frame, a series, a list of rows, or a nest of lists, tuples and dicts around arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shoal.errors import PlanError

__all__ = ["check_arrays", "concatenated", "is_batch", "row_count", "rows_between", "splits"]


def check_arrays(data: Any) -> int:
    """Count the rows of an array, or of lists, tuples and dicts of arrays, which must agree on it.

    >>> check_arrays({"x": np.zeros((4, 2)), "y": [np.zeros(4)]})
    4
    """
    leaves = list(_leaves(data, "data"))
    if not leaves:
        raise PlanError("there is no array in what is to be partitioned")
    counts = {place: len(leaf) for place, leaf in leaves}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{place} has {count}" for place, count in counts.items())
        raise PlanError(f"all arrays must have the same number of rows (the first dimension): {told}")
    return next(iter(counts.values()))


def splits(count: int, parts: int) -> list[tuple[int, int]]:
    """Cut rows into parts, the first of them one longer than the others if need be.

    >>> splits(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    each, longer = divmod(count, parts)
    ends = np.cumsum([each + (part < longer) for part in range(parts)]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def is_batch(shard: Any) -> bool:
    """Tell whether a dict is one of arrays with rows, as `XShards.repartition` cuts them."""
    return isinstance(shard, dict) and bool(shard) and all(getattr(value, "ndim", 0) > 0 for value in shard.values())


def row_count(shard: Any) -> int | None:
    """Count the rows of a shard; None if it is one thing that cannot be cut."""
    if is_batch(shard):
        return check_arrays(shard)
    if isinstance(shard, list) or getattr(shard, "ndim", 0) > 0:
        return len(shard)
    return None


def rows_between(data: Any, low: int, high: int) -> Any:
    """Take some rows of everything in a nest.

    >>> rows_between({"x": np.arange(5), "y": (np.arange(5),)}, 1, 3)
    {'x': array([1, 2]), 'y': (array([1, 2]),)}
    """
    if isinstance(data, dict):
        return {name: rows_between(value, low, high) for name, value in data.items()}
    if type(data) in (list, tuple) and not _is_rows(data):
        return type(data)(rows_between(value, low, high) for value in data)
    return data.iloc[low:high] if hasattr(data, "iloc") else data[low:high]


def concatenated(parts: Sequence[Any]) -> Any:
    """Put shards of the same kind together, one behind the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, dict):
        return {name: concatenated([part[name] for part in parts]) for name in first}
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if hasattr(first, "iloc"):
        import pandas as pd  # whoever has a frame has it

        return pd.concat(parts, ignore_index=True)
    return np.concatenate(parts)


def _is_rows(data: Any) -> bool:
    """Tell whether a list holds rows, and not arrays of them."""
    return isinstance(data, list) and not any(
        hasattr(value, "shape") or type(value) in (list, tuple, dict) for value in data
    )


def _leaves(data: Any, place: str) -> Iterator[tuple[str, Any]]:
    if type(data) is dict:
        for name in data:
            yield from _leaves(data[name], f"{place}[{name!r}]")
    elif type(data) in (list, tuple):
        for number, value in enumerate(data):
            yield from _leaves(value, f"{place}[{number}]")
    elif isinstance(data, np.ndarray) and data.ndim:
        yield place, data
    else:
        kind = "an array without dimensions" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
        raise PlanError(f"{place} is {kind}; partition takes arrays, and lists, tuples and dicts of them")

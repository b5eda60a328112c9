"""Groups of rows and what is made of them: each shard by itself first, and the shards' results together.

So little has to move. What cannot be put together from results of parts (lists, sets) moves as lists of values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from shoal.data._frames import check_columns, check_frame, joined
from shoal.errors import PlanError

__all__ = ["Aggregate", "aggregates", "combined", "is_typed_by_values", "partial_groups"]

#: What may be asked for: a function, several, or those of each column.
Asked: TypeAlias = "str | Sequence[str] | Mapping[str, str | Sequence[str]]"

_MOMENTS = ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "skewness", "kurtosis")
_VALUES = ("collect_list", "collect_set", "sumDistinct", "sum_distinct", "approx_count_distinct", "count_distinct")
_COUNTS = ("approx_count_distinct", "count_distinct")
_SUMS = ("sumDistinct", "sum_distinct")
_SIMPLE = ("max", "min", "count", "sum", "first", "last")
_MEANS = ("avg", "mean")
_FUNCTIONS = (*_SIMPLE, *_MEANS, *_MOMENTS, *_VALUES)
_ALL = "*"
_ONE = "__all__"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function of a column."""

    column: str
    function: str

    @property
    def name(self) -> str:
        """The name of the column that it becomes, as Spark's."""
        if self.column == _ALL:
            return "count(1)"
        return f"{'avg' if self.function == 'mean' else self.function}({self.column})"


def aggregates(asked: Asked, columns: Sequence[str], keys: Sequence[str]) -> list[Aggregate]:
    """Put what is asked for into a list.

    >>> [each.name for each in aggregates({"a": ["min", "mean"]}, ["a", "k"], ["k"])]
    ['min(a)', 'avg(a)']
    """
    if isinstance(asked, Mapping):
        pairs = [(column, some) for column, some in asked.items()]
    else:
        pairs = [(column, asked) for column in columns if column not in keys]
    found = [Aggregate(column, each) for column, some in pairs for each in ([some] if isinstance(some, str) else some)]
    for each in found:
        if each.function not in _FUNCTIONS:
            raise PlanError(f"there is no function {each.function!r} for groups; known are {', '.join(_FUNCTIONS)}")
        if each.column == _ALL and each.function != "count":
            raise PlanError(f'"*" stands for rows, which can be counted, but have no {each.function}')
    if not found:
        raise PlanError("there is nothing to make of the groups: agg names no column that is not a key")
    return found


def partial_groups(frame: Any, keys: Sequence[str], wanted: Sequence[Aggregate]) -> pd.DataFrame:
    """Make of the groups of one shard what is needed to make the whole of it."""
    check_columns(check_frame(frame, "group_by()"), [*keys, *(each.column for each in wanted if each.column != _ALL)])
    frame = frame.assign(**{_ONE: 0}) if not keys else frame
    groups = frame.groupby(list(keys) or [_ONE], dropna=False, observed=True, sort=True)
    parts: dict[str, Any] = {}
    for each in wanted:
        for name, make in _parts(each).items():
            if name not in parts:
                parts[name] = make(groups, frame)
    made = pd.DataFrame(parts, index=groups.size().index)
    return made.reset_index()


def combined(pieces: Sequence[pd.DataFrame], keys: Sequence[str], wanted: Sequence[Aggregate]) -> pd.DataFrame:
    """Put the groups of all shards together, and finish what was asked for."""
    whole = joined(pieces)
    names = list(keys) or [_ONE]
    groups = whole.groupby(names, dropna=False, observed=True, sort=True)
    index = groups.size().index
    made = pd.DataFrame({each.name: _finished(each, groups, whole, names) for each in wanted}, index=index)
    return made.reset_index() if keys else made.reset_index(drop=True)


def is_typed_by_values(wanted: Sequence[Aggregate]) -> bool:
    """Tell whether the type of a result depends on the values that a shard has."""
    return any(each.function in _SUMS for each in wanted)


def _parts(each: Aggregate) -> dict[str, Callable[[Any, pd.DataFrame], Any]]:
    """Say what a shard must tell, under which name."""
    column = each.column
    if column == _ALL:
        return {"rows": lambda groups, frame: groups.size()}
    if each.function in _SIMPLE:
        return {f"{each.function}:{column}": lambda groups, frame: getattr(groups[column], each.function)()}
    if each.function in _MEANS:
        return {
            f"sum:{column}": lambda groups, frame: groups[column].sum(),
            f"count:{column}": lambda groups, frame: groups[column].count(),
        }
    if each.function in _MOMENTS:
        return {f"moments:{column}": lambda groups, frame: groups[column].agg(_moments)}
    return {f"values:{column}": lambda groups, frame: groups[column].agg(_listed)}


def _finished(each: Aggregate, groups: Any, whole: pd.DataFrame, keys: Sequence[str]) -> Any:
    column = each.column
    if column == _ALL:
        return groups["rows"].sum()
    if each.function in _MEANS:
        return groups[f"sum:{column}"].sum() / groups[f"count:{column}"].sum()
    if each.function in _MOMENTS:
        made = groups[f"moments:{column}"].agg(lambda some: _MADE[each.function](_merged(list(some))))
        return made.astype(np.float64)
    if each.function in _VALUES:
        finish = _OF_VALUES[each.function]
        made = groups[f"values:{column}"].agg(lambda some: finish([value for part in some for value in part]))
        return made.astype(np.int64) if each.function in _COUNTS else made
    how = "sum" if each.function == "count" else each.function
    return getattr(groups[f"{each.function}:{column}"], how)()


def _listed(values: pd.Series) -> list[Any]:
    return list(values.dropna())


def _moments(values: pd.Series) -> tuple[float, ...]:
    numbers = values.dropna().to_numpy(np.float64)
    if not len(numbers):
        return 0.0, 0.0, 0.0, 0.0, 0.0
    mean = float(numbers.mean())
    away = numbers - mean
    return float(len(numbers)), mean, float((away**2).sum()), float((away**3).sum()), float((away**4).sum())


def _merged(parts: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """Put count, mean and powers of distances from it together, one part after the other."""
    n, mean, second, third, fourth = parts[0]
    for m, other, two, three, four in parts[1:]:
        if not m:
            continue
        total, gap = n + m, other - mean
        fourth += four + gap**4 * n * m * (n * n - n * m + m * m) / total**3
        fourth += 6 * gap**2 * (n * n * two + m * m * second) / total**2 + 4 * gap * (n * three - m * third) / total
        third += three + gap**3 * n * m * (n - m) / total**2 + 3 * gap * (n * two - m * second) / total
        second += two + gap**2 * n * m / total
        mean += gap * m / total
        n = total
    return n, mean, second, third, fourth


def _over(above: float, below: float) -> float:
    return above / below if below else float("nan")


_MADE: dict[str, Callable[[tuple[float, ...]], float]] = {
    "variance": lambda m: _over(m[2], m[0] - 1) if m[0] > 1 else float("nan"),
    "var_samp": lambda m: _over(m[2], m[0] - 1) if m[0] > 1 else float("nan"),
    "var_pop": lambda m: _over(m[2], m[0]),
    "stddev": lambda m: _MADE["variance"](m) ** 0.5,
    "stddev_samp": lambda m: _MADE["variance"](m) ** 0.5,
    "stddev_pop": lambda m: _MADE["var_pop"](m) ** 0.5,
    "skewness": lambda m: _over(m[0] ** 0.5 * m[3], m[2] ** 1.5),
    "kurtosis": lambda m: _over(m[0] * m[4], m[2] ** 2) - 3,
}

_OF_VALUES: dict[str, Callable[[list[Any]], Any]] = {
    "collect_list": lambda values: values,
    "collect_set": lambda values: list(dict.fromkeys(values)),
    "sumDistinct": lambda values: sum(dict.fromkeys(values)),
    "sum_distinct": lambda values: sum(dict.fromkeys(values)),
    "approx_count_distinct": lambda values: len(dict.fromkeys(values)),
    "count_distinct": lambda values: len(dict.fromkeys(values)),
}

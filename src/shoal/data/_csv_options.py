"""Options of `pandas.read_csv`, checked where pandas is silent or tells of a file that the user has not named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.errors import PlanError

__all__ = ["check_options", "check_types", "has_numbers_for_names"]

_IN_PIECES = ("chunksize", "iterator")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that cannot be meant, before anything is read.

    >>> check_options({"names": ["user", "item"], "usecols": ["ID"]})
    Traceback (most recent call last):
    shoal.errors.PlanError: Passed names did not match usecols: names=['user', 'item'] has no 'ID'
    """
    for name in _IN_PIECES:
        if options.get(name):
            text = f"{name} makes pandas give pieces of a frame; shards are pieces already, so leave it out"
            raise PlanError(text)
    names, used = options.get("names"), options.get("usecols")
    if names is None:
        return
    if len(set(names)) < len(names):
        raise PlanError(f"Found duplicate names: {list(names)}")
    if used is not None and not callable(used):
        _check_used(list(names), list(used))


def check_types(options: Mapping[str, Any], columns: Sequence[Any], everything: Callable[[], Sequence[Any]]) -> None:
    """Refuse types for columns that are not read: pandas would pass over them.

    ``columns`` are the names of those that are; ``everything`` gives the names of all that are in the file.
    """
    wanted = options.get("dtype")
    for name in wanted if isinstance(wanted, Mapping) else ():
        if name in columns or (has_numbers_for_names(options) and str(name) in columns):
            continue
        if not isinstance(name, int):
            text = f"column to be set type is not in current dataframe: dtype= names {name!r}"
            raise PlanError(f"{text}, and there are {', '.join(map(str, columns))}")
        if name not in _read_numbers(options, columns, everything()):
            text = f"column index to be set type is not in current dataframe: dtype= names column {name}"
            raise PlanError(f"{text}, counted in the file from 0, which is not read or not there")


def has_numbers_for_names(options: Mapping[str, Any]) -> bool:
    """Tell whether columns have no names, and get their numbers as names."""
    return options.get("header", "infer") is None and options.get("names") is None


def _check_used(names: list[Any], used: list[Any]) -> None:
    unknown = next((name for name in used if isinstance(name, str) and name not in names), None)
    if unknown is not None:
        raise PlanError(f"Passed names did not match usecols: names={names} has no {unknown!r}")
    numbers = [name for name in used if isinstance(name, int)]
    if len(names) != len(used) and max(numbers, default=-1) >= len(names):
        text = f"names={names} are as many as neither usecols={used} nor the columns of the file"
        raise PlanError(f"Passed names did not match usecols: {text}")


def _read_numbers(options: Mapping[str, Any], columns: Sequence[Any], everything: Sequence[Any]) -> list[int]:
    """Give the places in the file of the columns that are read."""
    used = options.get("usecols")
    if used is not None and not callable(used) and all(isinstance(name, int) for name in used):
        return list(used)
    return [place for place, name in enumerate(everything) if str(name) in columns or name in columns]

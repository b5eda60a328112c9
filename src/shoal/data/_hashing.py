"""Numbers for values, the same on every engine, in every run and for every type that can hold the value.

So 1, 1.0 and True are the same, as are a text and the same text in another kind of column, and all kinds of nothing.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from shoal.order import combine, scramble

__all__ = ["hash_rows", "hash_values", "homes"]

Hashes: TypeAlias = "NDArray[np.uint64]"

# Any fixed numbers do; that texts, numbers and times differ keeps a column of all of them apart.
_NOTHING = np.uint64(0x9AE16A3B2F90404F)
_NUMBER, _TIME = 0x51A3, 0x71E5
_TEXT = "shoal-partitions"
_EXACT = 2.0**63


def homes(frame: pd.DataFrame, columns: Sequence[str], partitions: int) -> NDArray[np.int64]:
    """Say in which of so many partitions each row belongs, by the values of some columns.

    >>> frame = pd.DataFrame({"a": [1, 2, 1]})
    >>> found = homes(frame, ["a"], 4)
    >>> bool(found[0] == found[2]), bool((found == homes(frame.astype(float), ["a"], 4)).all())
    (True, True)
    """
    return (hash_rows(frame, columns) % np.uint64(partitions)).astype(np.int64)


def hash_rows(frame: pd.DataFrame, columns: Sequence[str]) -> Hashes:
    """Give a number to each row, by the values of some columns."""
    mixed = np.zeros(len(frame), np.uint64)
    for name in columns:
        mixed = combine(mixed, hash_values(frame[name]))
    return mixed


def hash_values(values: pd.Series) -> Hashes:
    """Give a number to each value of a column.

    >>> bool(hash_values(pd.Series(["a"]))[0] == hash_values(pd.Series(["a"], dtype="category"))[0])
    True
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        return _of_codes(values)
    hashed = _of_column(values)
    hashed[values.isna().to_numpy(bool)] = _NOTHING
    return hashed


def _of_codes(values: pd.Series) -> Hashes:
    words = hash_values(pd.Series(values.cat.categories))
    hashed: Hashes = np.append(words, _NOTHING)[values.cat.codes.to_numpy(np.int64)]
    return hashed


def _of_column(values: pd.Series) -> Hashes:
    kind = values.dtype
    if pd.api.types.is_bool_dtype(kind) or pd.api.types.is_integer_dtype(kind):
        if pd.api.types.is_unsigned_integer_dtype(kind):
            return _of_unsigned(values.fillna(0).to_numpy(np.uint64) if values.hasnans else values.to_numpy(np.uint64))
        return _of_integers((values.fillna(0) if values.hasnans else values).to_numpy(np.int64))
    if pd.api.types.is_float_dtype(kind):
        return _of_floats(values.to_numpy(np.float64, na_value=np.nan))
    if pd.api.types.is_datetime64_any_dtype(kind):
        zoned = values.dt.tz_convert("UTC").dt.tz_localize(None) if getattr(kind, "tz", None) is not None else values
        return scramble(zoned.astype("datetime64[ns]").to_numpy().view(np.int64), _TIME)
    if pd.api.types.is_timedelta64_dtype(kind):
        return scramble(values.astype("timedelta64[ns]").to_numpy().view(np.int64), _TIME)
    return _of_objects(values.astype(object).to_numpy())


def _of_integers(values: NDArray[np.int64]) -> Hashes:
    return scramble(values, _NUMBER)


def _of_unsigned(values: NDArray[np.uint64]) -> Hashes:
    hashed = _of_integers(values.astype(np.int64))
    large = values > np.uint64(2**63 - 1)
    if large.any():
        hashed[large] = [_of_one(int(value)) for value in values[large]]
    return hashed


def _of_floats(values: NDArray[np.float64]) -> Hashes:
    with np.errstate(invalid="ignore"):
        whole = (values == np.floor(values)) & (np.abs(values) < _EXACT)
        hashed = scramble(np.where(whole, 0.0, values).view(np.uint64), _NUMBER + 1)
        hashed[whole] = _of_integers(values[whole].astype(np.int64))
    return hashed


def _of_objects(values: NDArray[Any]) -> Hashes:
    """Hash text at once, and what else there is one by one."""
    texts = np.fromiter((isinstance(value, str) for value in values), bool, len(values))
    hashed = np.zeros(len(values), np.uint64)
    if texts.any():
        hashed[texts] = pd.util.hash_array(values[texts], hash_key=_TEXT, categorize=True)
    if not texts.all():
        hashed[~texts] = [_of_one(value) for value in values[~texts]]
    return hashed


def _of_one(value: Any) -> int:
    if isinstance(value, bool | numbers.Number | np.number | np.bool_) and not isinstance(value, complex):
        whole = int(value) if value == value and abs(value) < float("inf") else None  # type: ignore[operator, arg-type]
        if whole is not None and whole == value:
            if -(2**63) <= whole < 2**63:
                return int(_of_integers(np.array([whole]))[0])
            if float(whole) != whole:
                return int(pd.util.hash_array(np.array([str(whole)], object), hash_key=_TEXT)[0])
        return int(_of_floats(np.array([float(value)]))[0])  # type: ignore[arg-type]
    if isinstance(value, pd.Timestamp | pd.Timedelta):
        return int(hash_values(pd.Series([value]))[0])
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else repr(value)
    kind = type(value).__name__
    return int(pd.util.hash_array(np.array([f"{kind}:{text}"], object), hash_key=_TEXT)[0])

"""pandas, to a Vineyard and back: frames, series and indexes of numbers, dates and texts.

Vineyard keeps a frame as a tensor a column. Texts go as columns of objects, which all versions of its client read; what
they were is in their marks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from shoal.errors import StoreError
from shoal.store._ids import ObjectID
from shoal.store._meta import Object
from shoal.store._vineyard_packing import Packed, pack_array

__all__ = ["make_texts", "open_frame", "open_index", "open_series", "pack_pandas"]

Opener = Callable[[Packed], Any]
_LABELS = (str, int, type(None))


def pack_pandas(value: Any, partition_index: Any = None, row_batch_index: int = 0) -> Packed | None:
    """Pack a frame, a series or an index; None for those that Vineyard would pickle or change."""
    if isinstance(value, pd.Index):
        return _index(value)
    if not isinstance(value, pd.DataFrame | pd.Series) or value.attrs:
        return None
    if isinstance(value, pd.Series):
        return _series(value)
    place = [int(number) for number in partition_index or (-1, -1)]
    return _frame(value, {"place": place, "batch": int(row_batch_index)})


def _frame(value: pd.DataFrame, more: Packed) -> Packed | None:
    labels = value.columns.tolist()
    plain = all(type(label) in (str, int) for label in labels)
    if not plain or isinstance(value.columns, pd.MultiIndex) or value.columns.name is not None:
        return None
    index, columns = _index(value.index), []
    for number in range(value.shape[1]):
        column = _column(value.iloc[:, number].array)
        if column is None:
            return None
        columns.append(column)
    if index is None:
        return None
    mark = {"columns": _range(value.columns) or str(value.columns.dtype)}
    return {"form": "frame", "labels": labels, "columns": columns, "index": index, "mark": mark, **more}


def _series(value: Any) -> Packed | None:
    index, column = _index(value.index), _column(value.array)
    if index is None or column is None or type(value.name) not in _LABELS:
        return None
    return {"form": "series", "name": value.name, "index": index, "values": column}


def _index(value: Any) -> Packed | None:
    """Pack the labels of rows; those of several levels, with a rhythm or of odd types Vineyard cannot keep."""
    if isinstance(value, pd.MultiIndex) or getattr(value, "freq", None) is not None or type(value.name) not in _LABELS:
        return None
    values = _column(value.array)
    if values is None:
        return None
    kind = "object" if values["form"] == "texts" else value.dtype.name
    mark = {"mark": {"range": _range(value)}} if isinstance(value, pd.RangeIndex) else {}
    return {"form": "index", "name": value.name, "type": kind, "values": values, **mark}


def _range(value: Any) -> list[int] | None:
    return [value.start, value.stop, value.step] if isinstance(value, pd.RangeIndex) else None


def _column(values: Any) -> Packed | None:
    dtype = values.dtype
    if isinstance(dtype, pd.StringDtype):
        return _texts(values, [dtype.storage, "NA" if dtype.na_value is pd.NA else "nan"])
    if isinstance(values, pd.arrays.NumpyExtensionArray) or isinstance(dtype, np.dtype):
        return pack_array(values.to_numpy())
    return None


def _texts(values: Any, text: list[str]) -> Packed | None:
    import pyarrow as pa

    try:
        return {"form": "texts", "value": pa.array(values, pa.large_string(), from_pandas=True), "mark": {"text": text}}
    except UnicodeEncodeError:  # a half of a character, which UTF-8 cannot write
        return None


def open_frame(packed: Packed, opened: Opener) -> pd.DataFrame:
    """Make a frame of its columns."""
    index = None if packed["index"] is None else opened(packed["index"])
    columns = {number: _values(opened(column), packed, index) for number, column in enumerate(packed["columns"])}
    made = pd.DataFrame(columns, index=index, copy=False) if columns else pd.DataFrame(index=index)
    made.columns = _labels(packed)
    return made


def open_series(packed: Packed, opened: Opener) -> Any:
    """Make a series."""
    index = opened(packed["index"])
    return pd.Series(_values(opened(packed["values"]), packed, index), index, name=packed["name"], copy=False)


def open_index(packed: Packed, opened: Opener) -> Any:
    """Make an index."""
    name = packed["name"]
    if "range" in packed["mark"]:
        return pd.RangeIndex(*packed["mark"]["range"], name=name)
    values = opened(packed["values"])
    return pd.Index(values, dtype=values.dtype, name=name, copy=False)


def make_texts(texts: Any, text: list[str]) -> Any:
    """Make the column of texts that a mark tells of."""
    storage, missing = text
    dtype: Any = pd.StringDtype(storage) if missing == "NA" else pd.StringDtype(storage, na_value=np.nan)
    return dtype.__from_arrow__(texts)


def _values(found: Any, packed: Packed, index: Any) -> Any:
    """Take what a column is made of; arrays of more dimensions, as others put them, are a column of arrays."""
    if isinstance(found, Object):
        raise StoreError(f"object {ObjectID(packed['id'])} has a column of {found.typename}, which cannot be read here")
    if found.ndim > 1 or found.dtype == object:
        return pd.Series(list(found), index, dtype=object)  # of which pandas guesses no other type
    return found


def _labels(packed: Packed) -> Any:
    kind, labels = packed["mark"].get("columns"), packed["labels"]
    if isinstance(kind, list):
        return pd.RangeIndex(*kind)
    if labels and all(isinstance(label, list) for label in labels):
        return pd.MultiIndex.from_tuples(list(map(tuple, labels)))
    return pd.Index(labels, dtype=kind)

"""What holds columns, as arrays by name: dicts, one array, frames of pandas, tables of Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = ["named_arrays"]


def named_arrays(data: Any) -> dict[str, Any]:
    """Give the columns of what a user gave; one array is called ``x``.

    >>> named_arrays(np.arange(3))
    {'x': array([0, 1, 2])}
    """
    kind = type(data).__module__.partition(".")[0]
    if isinstance(data, Mapping):
        return dict(data)
    if kind == "pandas" and getattr(data, "ndim", 0) == 2:
        return {str(name): _of_series(data[name]) for name in data.columns}
    if kind == "pyarrow" and hasattr(data, "column_names"):
        return {name: _of_arrow(data.column(name)) for name in data.column_names}
    if isinstance(data, list | tuple):
        text = f"a {type(data).__name__} of arrays has no names for them"
        raise PlanError(f"{text}; write from_arrays(x=images, y=labels), or a dict")
    return {"x": data}


def _of_series(values: Any) -> NDArray[Any]:
    """Give a column of a frame; what is neither number nor time is objects, and None where it is missing."""
    if isinstance(values.dtype, np.dtype) and not values.dtype.hasobject:
        return np.asarray(values)
    if not values.hasnans and isinstance(getattr(values.dtype, "numpy_dtype", None), np.dtype):
        return np.asarray(values.to_numpy(values.dtype.numpy_dtype))
    objects = values.astype(object)
    return np.asarray(objects.where(values.notna(), None), object)


def _of_arrow(column: Any) -> NDArray[Any]:
    """Give a column of a table: numbers, and shapes of numbers, as they lie, if none is missing; else objects."""
    from shoal.sources._values import dense, values

    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    chunks = array.chunks if hasattr(array, "chunks") else [array]
    found = [dense(chunk) for chunk in chunks]
    if all(each is not None and each[1].all() for each in found):
        arrays = [each[0] for each in found if each is not None]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    objects = [value for chunk in chunks for value in values(chunk)]
    made = np.empty(len(objects), object)
    for place, value in enumerate(objects):  # all at once, numpy would look into arrays
        made[place] = value
    return made

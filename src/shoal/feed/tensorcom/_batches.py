"""Arrays of what somebody wants to send: lists of them, or batches of a Shoal loader, which are dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._optional import is_tensor
from shoal.errors import MissingFieldError, PlanError, TensorcomError
from shoal.feed.tensorcom._arrays import encode_header

__all__ = ["arrays_of", "check_types", "chosen"]


def arrays_of(values: Any) -> list[NDArray[Any]]:
    """Give the arrays of a list; tensors and numbers become arrays.

    >>> arrays_of([np.zeros(2, "f4"), [1, 2]])[1].tolist()
    [1, 2]
    """
    if isinstance(values, Mapping):
        raise PlanError(f"a batch with fields is sent by serve(batches, fields=[...]); there are {_names(values)}")
    if not isinstance(values, list | tuple):
        raise PlanError(f"a message is a list of arrays, and not {type(values).__name__}; send [array] for one")
    if not values:
        raise PlanError("a message has at least one array, and this is an empty list")
    return [np.asarray(value.detach().cpu() if is_tensor(value) else value) for value in values]


def check_types(arrays: Sequence[NDArray[Any]], *, allow64: bool) -> None:
    """Refuse arrays that Tensorcom has no type for, and those of 64 bits unless they are wanted.

    >>> check_types([np.zeros(2)], allow64=False)
    Traceback (most recent call last):
        ...
    shoal.errors.TensorcomError: array 0 is float64: as float32 it is half the bytes; convert it, or say allow64=True
    """
    for place, array in enumerate(arrays):
        encode_header(array)
        if array.dtype.itemsize == 8 and not allow64:
            half = array.dtype.name.replace("64", "32")
            text = f"array {place} is {array.dtype}: as {half} it is half the bytes; convert it, or say allow64=True"
            raise TensorcomError(text)


def chosen(batch: Any, fields: str | Sequence[str] | None) -> Any:
    """Give the fields of a batch in their order, without rows that only fill it up; lists are given as they are.

    >>> chosen({"x": np.array([5, 6]), "y": np.array([1, 2]), "__mask__": np.array([True, False])}, "y x")
    [array([1]), array([5])]
    """
    if not isinstance(batch, Mapping):
        return batch
    if fields is None:
        raise PlanError(f"a batch has fields, {_names(batch)}: say with fields=[...] which to send, in which order")
    wanted = fields.split() if isinstance(fields, str) else list(fields)
    missing = [name for name in wanted if name not in batch]
    if missing:
        raise MissingFieldError(f"the batch has no field {missing[0]!r}; it has {_names(batch)}", field=missing[0])
    mask = batch.get("__mask__")
    return [_rows(name, batch[name], mask) for name in wanted]


def _rows(name: str, value: Any, mask: Any) -> Any:
    if isinstance(value, list):
        raise PlanError(f"the rows of {name!r} differ in their shapes, or are no numbers; a message has whole arrays")
    return value if mask is None else value[mask]


def _names(batch: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, batch))

"""Rows as a model of Keras wants them: one array, a list, or a dict by the names of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Names", "arranged", "first_rows", "plain", "rows_of"]


@dataclass(frozen=True, slots=True)
class Names:
    """What the user calls inputs and targets."""

    features: Sequence[str] = ()
    labels: Sequence[str] = ()


def arranged(model: Any, features: Sequence[Any], labels: Sequence[Any], names: Names) -> tuple[Any, Any, Any]:
    """Give inputs, targets and the weights of rows as a model wants them; some data has names and weights itself."""
    called, targets = (getattr(some, "names", ()) for some in (features, labels))
    x = _as(_structure(model, "input"), [plain(each) for each in features], called or names.features)
    if not labels:
        return x, None, None
    y = _as(_structure(model, "output"), [plain(each) for each in labels], targets or names.labels)
    return x, y, getattr(labels, "weights", None)


def plain(value: Any) -> Any:
    """Make an array of what a loader of another library gives."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return value.astype(object)
    return value


def rows_of(x: Any) -> tuple[Any, Any]:
    """Give one row of inputs, and a description of which `first_rows` makes such a row again."""
    if isinstance(x, Mapping):
        found = {name: rows_of(each) for name, each in x.items()}
        return {name: row for name, (row, _) in found.items()}, {name: told for name, (_, told) in found.items()}
    if isinstance(x, list | tuple):
        several = [rows_of(each) for each in x]
        return [row for row, _ in several], [told for _, told in several]
    dtype = np.dtype(x.dtype.as_numpy_dtype if hasattr(x.dtype, "as_numpy_dtype") else x.dtype)
    return x[:1], {"shape": [int(size) for size in x.shape[1:]], "dtype": dtype.name}


def first_rows(told: Any) -> Any:
    """Make a row of nothing that has the shape of those which were described."""
    if isinstance(told, list):
        return [first_rows(each) for each in told]
    if set(told) == {"shape", "dtype"} and isinstance(told["dtype"], str):
        return np.full((1, *told["shape"]), "" if told["dtype"] == "object" else 0, told["dtype"])
    return {name: first_rows(each) for name, each in told.items()}


def _structure(model: Any, which: str) -> Any:
    """Give the inputs or outputs of a model that was put together of layers; None if nobody knows them."""
    try:
        return getattr(model, which, None)
    except (AttributeError, ValueError, RuntimeError):
        return None


def _as(structure: Any, values: Sequence[Any], names: Sequence[str]) -> Any:
    if isinstance(structure, Mapping):
        order = list(names) if set(names) == set(structure) else list(structure)
        return dict(zip(order, values, strict=True)) if len(order) == len(values) else list(values)
    return values[0] if len(values) == 1 and not isinstance(structure, list) else list(values)

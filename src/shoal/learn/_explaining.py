"""Errors of models, which know nothing of data: what a model was given is told with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["explained"]


@contextmanager
def explained(features: Sequence[Any], labels: Sequence[Any] = ()) -> Iterator[None]:
    """Add to an error what inputs and targets the model was given.

    >>> import numpy as np
    >>> try:
    ...     with explained([np.zeros((20, 5), np.float32)], [np.zeros(20)]):
    ...         raise ValueError("matrices do not fit")
    ... except ValueError as error:
    ...     print(*error.__notes__)
    the model was given inputs of shape (20, 5) float32, and targets of shape (20,) float64
    """
    try:
        yield
    except Exception as error:
        targets = f", and targets of shape {_shapes(labels)}" if labels else ""
        error.add_note(f"the model was given inputs of shape {_shapes(features)}{targets}")
        raise


def _shapes(values: Sequence[Any]) -> str:
    return " and ".join(f"{tuple(each.shape)} {each.dtype}" if hasattr(each, "shape") else "unknown" for each in values)

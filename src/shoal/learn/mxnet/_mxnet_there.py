"""MXNet itself, where it is; and its random numbers."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from shoal.errors import PlanError
from shoal.learn import _random as random_numbers

__all__ = ["alike", "as_arrays", "as_ndarrays", "library", "listed", "seeded"]

#: The largest whole number that has all whole numbers below it in 32 bits.
_WHOLE = 2**24


def library() -> Any:
    """Give MXNet; only the environment that has it calls this."""
    return importlib.import_module("mxnet")


def seeded(*numbers: int) -> None:
    """Let the random numbers of MXNet follow from others: their state cannot be kept, but they can begin anew."""
    library().random.seed(int(np.random.SeedSequence(numbers).generate_state(1)[0]) % 2**31)


@contextmanager
def alike(*numbers: int) -> Iterator[None]:
    """Draw the same random numbers on all workers in a block; those of Python and numpy go on after it as before."""
    python, others = random.getstate(), np.random.get_state(legacy=True)
    random_numbers.seeded(int(np.random.SeedSequence(numbers).generate_state(1)[0]), 0)
    seeded(*numbers)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(others)


def as_ndarrays(values: Any) -> list[Any]:
    """Make arrays of MXNet, which have 32 bits."""
    return [_ndarray(np.asarray(value), number) for number, value in enumerate(values)]


def as_arrays(values: Any) -> Any:
    """Make arrays of numpy of one or several of MXNet."""
    if isinstance(values, tuple | list):
        return [as_arrays(each) for each in values]
    return values.asnumpy()


def listed(values: Any) -> list[Any]:
    """Take one or several as several."""
    return list(values) if isinstance(values, tuple | list) else [values]


def _ndarray(array: Any, number: int) -> Any:
    if array.dtype.kind not in "biuf":
        raise PlanError(f"array {number} of the rows has {array.dtype} and no numbers, which MXNet cannot take")
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2 and array.size and np.abs(array).max() > _WHOLE:
        text = f"array {number} of the rows has whole numbers beyond {_WHOLE}, which MXNet would round to 32-bit floats"
        raise PlanError(f"{text}; map them to smaller ones")
    return library().nd.array(array, dtype="float32")

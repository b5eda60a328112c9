"""Values for the store that tell by themselves whether they are what was put."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd

from shoal.store import ObjectID

__all__ = ["WrongError", "made", "verified"]

_SIZES = (10, 1000, 9000, 40_000, 150_000, 300_000, 450_000)


class WrongError(Exception):
    """A value is not what was put."""


def made(drawn: random.Random) -> Any:
    """Make a value: numbers of 80 bytes to 3.6 MB, alone or as the columns of a frame."""
    array = _numbers(drawn.randrange(1, 2**40), drawn.choice(_SIZES))
    if drawn.random() < 0.2:
        return pd.DataFrame({"x": array, "text": "some text"}) if len(array) < 50_000 else pd.DataFrame({"x": array})
    return array


def verified(value: Any) -> Any:
    """Give a value, if it is right."""
    if isinstance(value, pd.DataFrame):
        _check(value["x"].to_numpy())
        if "text" in value and not (value["text"] == "some text").all():
            raise WrongError(f"a frame has other texts: {value}")
    elif isinstance(value, dict):
        _check(value["old"])
        if value["new"].tolist() != list(range(10)):
            raise WrongError(f"a dict has {value['new']}")
    elif isinstance(value, list):
        for each in value:
            if not isinstance(each, ObjectID):
                verified(each)
    else:
        _check(value)
    return value


def _numbers(seed: int, count: int) -> Any:
    return np.arange(count, dtype=np.uint64) * np.uint64(2**20) + np.uint64(seed)


def _check(array: Any) -> None:
    if not np.array_equal(array, _numbers(int(array[0]), len(array))):
        raise WrongError(f"an array of {len(array)} numbers has others than were put")

"""Several samples as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal import registry
from shoal._optional import is_tensor
from shoal.abc import Sample
from shoal.errors import MissingFieldError

__all__ = ["collate", "to_numpy"]


def collate(samples: Sequence[Sample]) -> Sample:
    """Make a batch: numbers and arrays of one shape are stacked, everything else becomes a list.

    >>> collate([{"__key__": "a", "cls": 1}, {"__key__": "b", "cls": 2}])
    {'__key__': ['a', 'b'], 'cls': array([1, 2])}
    """
    names = samples[0].keys()
    for sample in samples:
        if sample.keys() != names:
            odd = sorted(sample.keys() ^ names)
            text = f"the samples of a batch differ in their fields: {', '.join(odd)} is not in all of them"
            raise MissingFieldError(text, key=sample["__key__"])
    return {name: _column([sample[name] for sample in samples]) for name in names}


def to_numpy(batch: Sample) -> Sample:
    """Leave a batch as it is: numpy is what batches are made of."""
    return batch


def _column(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, np.ndarray):
        alike = all(isinstance(v, np.ndarray) and v.shape == first.shape and v.dtype == first.dtype for v in values)
        return np.stack(values) if alike else values
    if all(isinstance(value, bool | int | float | np.generic) for value in values):
        return np.array(values)
    if is_tensor(first) and all(getattr(value, "shape", None) == first.shape for value in values):
        return registry.load("stack", "torch")(values)
    return values

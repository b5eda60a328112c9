"""A rank's part of a global batch, padded to the size that all ranks have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.abc import Sample
from shoal.pipeline._collate import collate
from shoal.pipeline._memory import Memory, joined

__all__ = ["assemble"]


def assemble(samples: Sequence[Sample], size: int, filler: Sample, memory: Memory = None) -> Sample:
    """Make one batch of samples, or of batches, and mask what is padding.

    >>> assemble([{"__key__": "a", "x": 1}], 2, {"__key__": "b", "x": 0})
    {'__key__': ['a', 'b'], 'x': array([1, 0]), '__mask__': array([ True, False])}
    >>> assemble([{"__key__": ["a", "b"], "x": np.array([1, 2])}, {"__key__": ["c"], "x": np.array([3])}], 2, {})
    {'__key__': ['a', 'b', 'c'], 'x': array([1, 2, 3])}
    """
    if isinstance((samples[0] if samples else filler)["__key__"], list):
        batch = _joined(samples, memory) if samples else dict(filler)
        missing = 0 if samples else len(batch["__key__"])
        size = len(batch["__key__"])
    else:
        missing = size - len(samples)
        batch = collate([*samples, *[filler] * missing], memory)
    if missing:
        batch["__mask__"] = np.arange(size) < size - missing
    return batch


def _joined(batches: Sequence[Sample], memory: Memory) -> Sample:
    """Put the rows of several batches one below the other."""
    if len(batches) == 1:
        return dict(batches[0])
    return {name: _column([batch[name] for batch in batches], memory) for name in batches[0]}


def _column(parts: list[Any], memory: Memory) -> Any:
    first = parts[0]
    if isinstance(first, np.ndarray):
        alike = all(
            isinstance(p, np.ndarray) and p.shape[1:] == first.shape[1:] and p.dtype == first.dtype for p in parts
        )
        if alike:
            return joined(parts, memory) if first.ndim and not first.dtype.hasobject else np.concatenate(parts)
    return [row for part in parts for row in part]

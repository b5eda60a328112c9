"""A rank's part of a global batch, padded to the size that all ranks have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal import registry
from shoal._optional import tensor_library
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
    first, library = parts[0], _library(parts[0])
    if library is None or not all(_is_alike(part, first) for part in parts):
        return [row for part in parts for row in part]
    if library != "numpy":
        return registry.load("join", library)(parts)
    return joined(parts, memory) if first.ndim and not first.dtype.hasobject else np.concatenate(parts)


def _library(part: Any) -> str | None:
    """Say whose array or tensor it is, if it is one."""
    return "numpy" if isinstance(part, np.ndarray) else tensor_library(part)


def _is_alike(part: Any, first: Any) -> bool:
    return _library(part) == _library(first) and part.shape[1:] == first.shape[1:] and part.dtype == first.dtype

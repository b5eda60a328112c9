"""Several samples as one, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial as bound
from typing import Any, TypeAlias

import numpy as np

from shoal import registry
from shoal._optional import is_tensor
from shoal.errors import SampleError
from shoal.webdataset._stage import Stage
from shoal.webdataset._stream import listed

__all__ = ["batched", "default_collation_fn", "unbatched"]

Collation: TypeAlias = Callable[[Sequence[Any]], Any]


def batched(batchsize: int = 20, collation_fn: Collation | None = None, partial: bool = True) -> Stage:
    """Gather samples into batches; ``partial`` keeps a smaller one at the end.

    >>> list(batched(2)([("a", 1), ("b", 2), ("c", 3)]))
    [(['a', 'b'], array([1, 2])), (['c'], array([3]))]
    """
    collate = default_collation_fn if collation_fn is None else collation_fn
    return bound(_batched, lists=listed(batchsize, partial), collate=collate)


def _batched(samples: Iterable[Any], lists: Stage, collate: Collation) -> Iterator[Any]:
    return (collate(group) for group in lists(samples))


def default_collation_fn(samples: Sequence[Any]) -> Any:
    """Make a batch of tuples or dicts: numbers become an array, arrays and tensors are stacked, the rest are lists.

    >>> default_collation_fn([{"cls": 1}, {"cls": 2}])
    {'cls': array([1, 2])}
    """
    first = samples[0]
    if isinstance(first, dict):
        odd = next((sample for sample in samples if sample.keys() != first.keys()), None)
        if odd is not None:
            differing = ", ".join(map(repr, sorted(odd.keys() ^ first.keys())))
            raise SampleError(f"a batch needs the same fields in all samples; {differing} is not in each of them")
        return {name: _column([sample[name] for sample in samples], name) for name in first}
    if isinstance(first, tuple | list):
        if len({len(sample) for sample in samples}) > 1:
            raise SampleError(f"a batch needs tuples of one length, not of {sorted({len(s) for s in samples})}")
        return tuple(_column(list(values), number) for number, values in enumerate(zip(*samples, strict=True)))
    raise SampleError(f"a batch is made of dicts or tuples, not of {type(first).__name__}; use .listed() for lists")


def _column(values: list[Any], name: object) -> Any:
    first = values[0]
    if isinstance(first, int | float | np.generic):
        return np.array(values)
    is_array = isinstance(first, np.ndarray)
    if not is_array and not is_tensor(first):
        return values
    shapes = {tuple(np.shape(value)) for value in values}
    if len(shapes) > 1:
        text = f"arrays of different shapes cannot be stacked: {sorted(shapes)}; resize them, or use .listed()"
        raise SampleError(text, field=str(name))
    return np.stack(values) if is_array else registry.load("stack", "torch")(values)


def unbatched() -> Stage:
    """Take batches of tuples or dicts apart.

    >>> list(unbatched()([(["a", "b"], [1, 2])]))
    [('a', 1), ('b', 2)]
    """
    return _unbatched


def _unbatched(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        if isinstance(batch, dict):
            rows = zip(*batch.values(), strict=True)
            yield from (dict(zip(batch, row, strict=True)) for row in rows)
        else:
            yield from zip(*batch, strict=True)

"""What workers tell one another through MXNet's kvstore; its servers add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.learn.mxnet._mxnet_there import library

__all__ = ["Exchange"]

#: A number of 64 bits is four of 16, which 32-bit floats hold exactly: the kvstore knows no longer ones.
_PIECES = 4


class Exchange:
    """A worker of several, at a kvstore of the kind ``dist_sync``; or a worker alone, who has nothing to tell."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store: Any = library().kv.create("dist_sync") if size > 1 else None
        self._known: set[str] = set()
        self.has_begun = False
        """Whether all have the same parameters."""

    def begin(self, arrays: Mapping[str, Any]) -> None:
        """Let all have in their arrays what one of them has."""
        self.has_begun = True
        if self._store is not None and arrays:
            names = list(arrays)
            self._store.init(names, list(arrays.values()))
            self._store.pull(names, out=list(arrays.values()))
            self._known.update(names)

    def add_up(self, arrays: Mapping[str, Any]) -> None:
        """Replace arrays by their sums over all workers; all get the same bits."""
        if self._store is None or not arrays:
            return
        new = [name for name in arrays if name not in self._known]
        if new:
            self._store.init(new, [arrays[name].zeros_like() for name in new])
            self._known.update(new)
        for number, (name, array) in enumerate(arrays.items()):
            self._store.push(name, array, priority=-number)
            self._store.pull(name, out=array, priority=-number)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers with all their bits, in the order of the workers."""
        if self._store is None or not numbers:
            return [float(each) for each in numbers]
        return [float(each) for each in self._gathered(np.asarray(numbers, np.float64)).sum(axis=0)]

    def close(self, done: bool) -> None:
        """Part from the others, who all have to do so; whoever is not done would wait for them."""
        if done:
            self._store = None  # nobody else holds it, so MXNet takes leave of scheduler and servers now

    def _gathered(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give the numbers of all workers: each fills its own row, and the sum with zeros is what it wrote."""
        rows = np.zeros((self.size, len(numbers) * _PIECES), np.float32)
        rows[self.rank] = numbers.view(np.uint16)
        table = library().nd.array(rows, dtype="float32")
        self.add_up({f"numbers.{len(numbers)}": table})
        found: NDArray[np.float64] = table.asnumpy().astype(np.uint16).view(np.float64)
        return found

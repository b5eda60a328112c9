"""A model of MXNet where MXNet is not: its description and its numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from shoal.files import open_write

__all__ = ["MXNetModel"]


@dataclass(frozen=True, slots=True)
class MXNetModel:
    """What a model has learnt, as anybody can read it.

    >>> import numpy as np
    >>> MXNetModel(symbol=None, parameters={"0.weight": np.ones((2, 3)), "0.bias": np.zeros(2)})
    MXNetModel(no symbol, 0.weight (2, 3), 0.bias (2,))
    """

    symbol: str | None
    """The graph as JSON; None of a block that cannot be hybridized."""
    parameters: Mapping[str, NDArray[Any]]
    """Name -> array. A block of Gluon has them by their place, such as ``0.weight``, as torch has."""
    file: bytes = field(default=b"", repr=False)
    """The parameters in the format of MXNet, by the names that the symbol has for them."""

    def save(self, prefix: str | os.PathLike[str], epoch: int = 0) -> list[str]:
        """Write ``prefix-symbol.json`` and ``prefix-0000.params``, which MXNet loads; give their names."""
        name = os.fspath(prefix)
        files = {f"{name}-{epoch:04d}.params": self.file}
        if self.symbol is not None:
            files = {f"{name}-symbol.json": self.symbol.encode(), **files}
        for url, data in files.items():
            with open_write(url) as target:
                target.write(data)
        return list(files)

    def __repr__(self) -> str:
        shapes = [f"{name} {array.shape}" for name, array in self.parameters.items()]
        return f"MXNetModel({', '.join(['no symbol' if self.symbol is None else 'symbol', *shapes])})"

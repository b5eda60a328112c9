"""An MXNet model in a guest, as its host asks for it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.learn._resident import Resident
from shoal.learn.mxnet._mxnet_batches import Made
from shoal.learn.mxnet._mxnet_framework import Creators, MXNetFramework
from shoal.learn.mxnet._mxnet_there import as_arrays, as_ndarrays

__all__ = ["MXNetResident"]


class MXNetResident(Resident):
    """A model, and the data that creator functions make beside it."""

    framework: MXNetFramework

    def __init__(self, creators: Creators, config: Mapping[str, Any], seed: int) -> None:
        super().__init__(MXNetFramework(creators, config, seed), seed)
        os.putenv("MXNET_SUBGRAPH_VERBOSE", "0")  # it would tell of every graph that it has looked at
        self._made: dict[str, Made] = {}

    def outgoing(self, values: Any) -> Any:
        """Make arrays of numpy."""
        return as_arrays(values)

    def incoming(self, values: Any) -> Any:
        """Make arrays of MXNet."""
        return as_ndarrays(values)

    def meet(self, meeting: Mapping[str, str]) -> None:
        """Hear where the scheduler is, before the kvstore is made."""
        self.framework.meeting = meeting

    def predict(self, features: Any) -> Any:
        """Give predictions as arrays; MXNet knows no arrays without rows, so for these it sees a row of zeros."""
        if len(features[0]):
            return self.outgoing(super().predict(features))
        found = self.predict([np.zeros((1, *each.shape[1:]), np.float32) for each in features])
        return [each[:0] for each in found] if isinstance(found, list) else found[:0]

    def measured(self) -> dict[str, float]:
        """Say what the metrics of a validation are."""
        return self.framework.measured()

    def exported(self) -> tuple[str | None, dict[str, Any], bytes]:
        """Give the model itself."""
        return self.framework.exported()

    def make(self, name: str, packed: bytes, batch_size: int) -> None:
        """Call a function that makes data, unless it was called before."""
        if name not in self._made:
            config = {**self.framework.config, "batch_size": batch_size}
            self._made[name] = Made(pickle.loads(packed), config, self._seed)  # noqa: S301  (of this program)

    def begin(self, name: str, *which: Any) -> None:
        """Begin an epoch of such data."""
        self._made[name].begin(*which)

    def part(self, name: str, rank: int, size: int) -> tuple[list[Any], list[Any], int] | None:
        """Give what a worker has of the next batch."""
        return self._made[name].part(rank, size)

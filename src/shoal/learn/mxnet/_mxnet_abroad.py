"""MXNet whose models are in guests of the environment that has it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from shoal.abc import Member
from shoal.environments import find
from shoal.learn._abroad import AbroadFramework
from shoal.learn.mxnet._mxnet_framework import Creators
from shoal.learn.mxnet._mxnet_model import MXNetModel
from shoal.learn.mxnet._mxnet_nodes import Nodes
from shoal.learn.mxnet._mxnet_resident import MXNetResident
from shoal.learn.mxnet._mxnet_sending import sent

__all__ = ["MXNetAbroad"]


class MXNetAbroad(AbroadFramework):
    """A model that guests train together, by a kvstore of MXNet."""

    modules = (__name__,)
    nodes: Nodes | None = None
    """What this worker runs of the kvstore, while it is with the others."""

    def __init__(self, creators: Creators, config: Mapping[str, Any], seed: int, servers: int) -> None:
        super().__init__(partial(MXNetResident, creators, config, seed), find("mxnet"))
        self._servers = servers
        self._built: Mapping[str, bytes] | None = None

    def build(self) -> None:
        """Start a guest, and build the model there; one that has just this model serves again."""
        if self.guest is None or not self.guest.is_alive or self._built is not self.files:
            super().build()
            self._built = self.files

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave."""
        self._built = None
        super().load(files)

    def join(self, member: Member) -> None:
        """Start what the kvstore needs here, and let the guest meet the others there; one alone needs none."""
        self._built = None
        self.nodes = Nodes(self.environment, self._servers, member) if member.size > 1 else None
        super().join(member)

    def leave(self, done: bool) -> None:
        """Part from the others, and end guest, scheduler and servers."""
        nodes, self.nodes = self.nodes, None
        try:
            super().leave(done)
        finally:
            if nodes is not None:
                nodes.close(done)

    def measured(self) -> Mapping[str, float]:
        """Say what the metrics of MXNet have found in an evaluation."""
        found: dict[str, float] = self._ask("measured")
        return found

    def exported(self) -> MXNetModel:
        """Give the model with what it has learnt."""
        symbol, parameters, file = self._ask("exported")
        return MXNetModel(symbol, parameters, file)

    def make(self, name: str, packed: bytes, batch_size: int) -> None:
        """Let a function make data over there."""
        self._ask("make", name, packed, batch_size)

    def begin(self, name: str, epoch: int, began: int, steps: int | None, wraps: bool) -> None:
        """Begin an epoch of such data."""
        self._ask("begin", name, epoch, began, steps, wraps)

    def part(self, name: str, rank: int, size: int) -> tuple[list[Any], list[Any], int] | None:
        """Give what a worker has of the next batch."""
        found: tuple[list[Any], list[Any], int] | None = self._ask("part", name, rank, size)
        return found

    def _start(self) -> Any:
        line = super()._start()
        if self.nodes is not None:
            line.ask("meet", self.nodes.meeting)
        return line

    def _sent(self) -> bytes:
        return self._maker if isinstance(self._maker, bytes) else sent(self._maker)

    def __copy__(self) -> Self:
        made = super().__copy__()
        made.nodes = made._built = None
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "nodes": None, "_built": None}

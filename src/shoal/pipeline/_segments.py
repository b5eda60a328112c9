"""Stages that look at one sample at a time, behind one that acts inside the lane: who does them, and when."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.abc import Block, Pool
from shoal.pipeline._meter import CALLER, Meter
from shoal.pipeline._parcel import Parcel, Part
from shoal.pipeline._steps import start, through
from shoal.pipeline.gather import Piece
from shoal.pipeline.ledger import Failure
from shoal.pipeline.stages import BlockStage, describe

__all__ = ["CalledSegment", "PooledSegment", "Segment", "Ticket"]


class Ticket:
    """A sample on its way through a segment, and what became of it when that is known."""

    __slots__ = ("errors", "outputs", "piece")

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.outputs: list[tuple[Any, int]] | None = None
        self.errors: list[Exception] = []
        """What went wrong with it, to be raised when it is needed."""


class Segment(ABC):
    """Some stages, for all lanes of a run."""

    ahead = 0
    """How many samples a lane should have on their way beside the one that is needed."""

    @abstractmethod
    def begin(self, piece: Piece) -> Ticket:
        """Send a sample on its way."""

    @abstractmethod
    def finish(self, ticket: Ticket) -> list[tuple[Any, int]]:
        """Wait for what becomes of a sample: samples with their ids."""

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of workers."""


class CalledSegment(Segment):
    """Stages that are done by whoever asks for samples."""

    def __init__(
        self, stages: Sequence[BlockStage], salt: int, meter: Meter, fail: Callable[[Failure], None] | None
    ) -> None:
        self._stages, self._salt, self._meter, self._fail = stages, salt, meter, fail
        self._name = ", ".join(map(describe, stages))

    def begin(self, piece: Piece) -> Ticket:
        return Ticket(piece)

    def finish(self, ticket: Ticket) -> list[tuple[Any, int]]:
        begun = time.perf_counter()
        failures: list[tuple[int, Failure]] | None = None if self._fail is None else []
        made = through(self._stages, _block(ticket.piece, self._salt), failures)
        for _, failure in failures or ():
            assert self._fail is not None
            self._fail(failure)
        self._meter.add(CALLER, [(0, self._name, time.perf_counter() - begun, 1)])
        return _outputs(made)


class PooledSegment(Segment):
    """Stages that have workers."""

    def __init__(
        self,
        stages: Sequence[BlockStage],
        salt: int,
        pool: Pool,
        meter: Meter,
        fail: Callable[[Failure], None] | None,
        lanes: int,
        memory: int,
    ) -> None:
        self._salt, self._meter, self._fail = salt, meter, fail
        self._stream = start({0: stages}, pool, catch=fail is not None, memory=memory, ahead=lanes)
        self._number = meter.watch(self._stream)
        self._tickets: deque[Ticket] = deque()
        self.ahead = max(self._stream.capacity // lanes, 1)

    def begin(self, piece: Piece) -> Ticket:
        while self._stream.full:
            self._receive()
        ticket = Ticket(piece)
        self._tickets.append(ticket)
        self._stream.put(Parcel(None, [Part(0, _block(piece, self._salt), [0])]))
        return ticket

    def finish(self, ticket: Ticket) -> list[tuple[Any, int]]:
        while ticket.outputs is None:
            if ticket.errors:
                raise ticket.errors.pop()
            self._receive()
        return ticket.outputs

    def close(self) -> None:
        self._stream.close()
        self._tickets.clear()

    def _receive(self) -> None:
        under_way = len(self._stream)
        try:
            parcel = self._meter.received(self._number)
        except Exception as error:
            if len(self._stream) == under_way:
                raise  # nothing has come yet
            self._tickets.popleft().errors.append(error)
            return
        for _, failure in parcel.failures:
            assert self._fail is not None
            self._fail(failure)
        self._tickets.popleft().outputs = _outputs(parcel.parts[0].block)


def _block(piece: Piece, salt: int) -> Block:
    return Block([piece.sample], (), np.array([piece.id], np.uint64), None, salt)


def _outputs(block: Block) -> list[tuple[Any, int]]:
    assert block.ids is not None
    return list(zip(block.samples, block.ids.tolist(), strict=True))

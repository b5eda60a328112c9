"""Inputs for lanes: what lanes will need is drawn, read and sent through the leading stages, some blocks ahead.

In which order lanes are served here is a matter of speed alone. Each channel (one lane of one leaf) is a sequence of
its own, so what a lane sees does not depend on what was fetched for others, or on how many workers there are.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from shoal.abc import Block, Stream
from shoal.pipeline._leaves import Cursor, Draw, Leaf
from shoal.pipeline._meter import CALLER, Meter
from shoal.pipeline._parcel import Outputs, Parcel, Part
from shoal.pipeline._steps import BLOCK, fitting
from shoal.pipeline.ledger import Failure, Ledger

__all__ = ["Channel", "Feed", "Group", "Reader"]


class Group(NamedTuple):
    """One input of a lane and what became of it."""

    draw: Draw
    outputs: Outputs
    failures: tuple[Failure, ...] = ()
    errors: list[Exception] | None = None
    """What went wrong with it; shared with what was treated together, and raised when the first of them is needed."""


class Wanted(NamedTuple):
    """Inputs of several leaves."""

    draws: Sequence[tuple[int, Draw]]
    leaves: Sequence[Leaf]

    def urls(self) -> list[str]:
        """Name the shards."""
        return [self.leaves[leaf].shards[draw.shard].url for leaf, draw in self.draws]


class Reader:
    """Reads the inputs of a parcel; runs in the engine's workers."""

    def __call__(self, parcel: Parcel) -> Parcel:
        """Read what is wanted, each leaf's as one block."""
        begun = time.perf_counter()
        wanted, leaves = parcel.wanted
        parcel.stage = "read"
        by_leaf = sorted(range(len(wanted)), key=lambda place: wanted[place][0])
        for number, group in groupby(by_leaf, key=lambda place: wanted[place][0]):
            places = list(group)
            draws = [wanted[place][1] for place in places]
            leaf = leaves[number]
            origins = [leaf.shards[draw.shard] for draw in draws]
            ids = np.array([draw.id for draw in draws], np.uint64)
            parcel.parts.append(Part(number, Block(leaf.samples(draws), origins, ids), places))
        parcel.wanted = None
        parcel.spent.append((0, "read", time.perf_counter() - begun, len(wanted)))
        return parcel


class Channel:
    """One lane of one leaf."""

    __slots__ = ("ended", "error", "groups", "lane", "leaf", "need", "ready", "under_way")

    def __init__(self, leaf: int, lane: int) -> None:
        self.leaf, self.lane = leaf, lane
        self.groups: deque[Group] = deque()
        self.ready = 0
        """Outputs in the groups, an input without any counting as none."""
        self.under_way = 0
        self.need = 0
        """Outputs that were asked for and not taken yet."""
        self.ended = False
        self.error: Exception | None = None
        """Why nothing can be drawn; raised when everything that was drawn before has been used."""

    @property
    def is_open(self) -> bool:
        """Whether there may be more to draw."""
        return not self.ended and self.error is None

    @property
    def lacks(self) -> bool:
        """Whether another input is to be drawn."""
        return self.is_open and self.need > self.ready + self.under_way


class Feed:
    """The channels of all leaves, served through one stream of work."""

    def __init__(
        self,
        leaves: Sequence[Leaf],
        stream: Stream[Parcel, Parcel],
        memory: int,
        meter: Meter,
        ledger: Ledger,
        epoch: int,
    ) -> None:
        self._leaves, self._stream = leaves, stream
        self._memory, self._block = memory, BLOCK
        self._meter, self._number = meter, meter.watch(stream)
        self._ledger, self._epoch, self._seen = ledger, epoch, 0
        self._todo: deque[Channel] = deque()
        self._sent: deque[list[tuple[Channel, Draw]]] = deque()

    @property
    def capacity(self) -> int:
        """Inputs that may be under way at once."""
        return self._stream.capacity * BLOCK

    def ask(self, channel: Channel, count: int = 1) -> None:
        """Announce that outputs of a channel will be needed."""
        for _ in range(count):
            channel.need += 1
            if channel.lacks:
                self._todo.append(channel)

    def take(self, channel: Channel) -> Group | None:
        """Give the next input of a channel with its outputs, which may be none; None at the end of the lane."""
        while not channel.groups:
            if not channel.under_way:
                if channel.error is not None:
                    raise channel.error
                if channel.ended:
                    return None
                self._todo.appendleft(channel)
            self._send()
            if len(self._stream):
                self._receive()
        group = channel.groups.popleft()
        if group.errors:
            raise group.errors.pop()
        channel.ready -= len(group.outputs)
        channel.need -= len(group.outputs)
        self._seen += 1
        for failure in group.failures:
            self._admit(failure, channel.leaf, group.draw)
        return group

    def again(self, wanted: Iterable[tuple[int, int, Cursor]]) -> dict[tuple[int, int, Cursor], Group]:
        """Make once more what became of inputs that lanes drew earlier."""
        places = sorted(set(wanted))
        by_leaf = groupby(places, key=lambda place: place[0])
        draws = [draw for leaf, some in by_leaf for draw in self._leaves[leaf].redraws([place[1:] for place in some])]
        found: list[Outputs] = []
        for at in range(0, len(draws), BLOCK):
            self._put([(place[0], draw) for place, draw in zip(places[at : at + BLOCK], draws[at:], strict=False)])
            if self._stream.full:
                found += self._get()[0]
        while len(self._stream):
            found += self._get()[0]
        groups = map(Group, draws, found)
        return dict(zip(places, groups, strict=True))

    def close(self) -> None:
        """Let go of the workers, and of what they have done."""
        self._stream.close()
        self._todo.clear()
        self._sent.clear()

    def fail(self, failure: Failure) -> None:
        """Write down what failed behind the lanes' inputs."""
        self._meter.skipped += 1
        self._ledger.admit(replace(failure, epoch=self._epoch), seen=self._seen)

    def _admit(self, failure: Failure, leaf: int, draw: Draw) -> None:
        self.fail(replace(failure, offset=draw.offset, at=(leaf, draw.shard, draw.number)))

    def _send(self) -> None:
        while self._todo and not self._stream.full:
            block = self._drawn()
            if block:
                self._sent.append(block)
                self._put([(channel.leaf, draw) for channel, draw in block])

    def _put(self, draws: Sequence[tuple[int, Draw]]) -> None:
        self._stream.put(Parcel(Wanted(draws, self._leaves)))

    def _get(self) -> tuple[list[Outputs], list[tuple[int, Failure]]]:
        parcel = self._meter.received(self._number)
        results: list[Outputs] = [[]] * sum(len(part.places) for part in parcel.parts)
        self._block = min(fitting(parcel, len(results), self._memory, self._stream.capacity), BLOCK)
        for part in parcel.parts:
            for place, outputs in zip(part.places, part.outputs(), strict=True):
                results[place] = outputs
        return results, parcel.failures

    def _drawn(self) -> list[tuple[Channel, Draw]]:
        """Draw what is asked for; where that is reading it, it takes the time of whoever asks."""
        begun, block = time.perf_counter(), self._draws()
        read = sum(draw.sample is not None for _, draw in block)
        if read:
            self._meter.add(CALLER, [(0, "read", time.perf_counter() - begun, read)])
        return block

    def _draws(self) -> list[tuple[Channel, Draw]]:
        block: list[tuple[Channel, Draw]] = []
        while self._todo and len(block) < self._block:
            channel = self._todo.popleft()
            if not channel.is_open:
                continue
            try:
                drawn = self._leaves[channel.leaf].draw(channel.lane)
            except Exception as error:
                channel.error = error
                continue
            if drawn is None:
                channel.ended = True
            else:
                channel.under_way += 1
                block.append((channel, drawn))
        return block

    def _receive(self) -> None:
        under_way = len(self._stream)
        try:
            results, failures = self._get()
        except Exception as error:
            if len(self._stream) == under_way:
                raise  # nothing has come yet
            self._spoil([error])
            return
        failed: dict[int, tuple[Failure, ...]] = {}
        for place, failure in failures:
            failed[place] = (*failed.get(place, ()), failure)
        for place, ((channel, draw), outputs) in enumerate(zip(self._sent.popleft(), results, strict=True)):
            channel.under_way -= 1
            channel.ready += len(outputs)
            channel.groups.append(Group(draw, outputs, failed.get(place, ())))
            if channel.lacks:
                self._todo.append(channel)

    def _spoil(self, errors: list[Exception]) -> None:
        """Let an error wait until all that was drawn before has been used, as it would without workers."""
        for channel, draw in self._sent.popleft():
            channel.under_way -= 1
            channel.groups.append(Group(draw, [], (), errors))

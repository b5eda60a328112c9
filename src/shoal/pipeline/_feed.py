"""Inputs for lanes: what lanes will need is drawn, read and sent through the leading stages, some blocks ahead.

In which order lanes are served here is a matter of speed alone. Each channel (one lane of one leaf) is a sequence of
its own, so what a lane sees does not depend on what was fetched for others, or on how many workers there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.abc import Block, Stream
from shoal.pipeline._blocks import BLOCK, through
from shoal.pipeline._leaves import Cursor, Draw, Leaf
from shoal.pipeline.stages import BlockStage

__all__ = ["Chain", "Channel", "Feed", "Group", "Outputs", "Work"]

#: What became of one input: a list of (sample, id); where a mixture lies between stages, a list of such lists.
Outputs: TypeAlias = list[Any]
#: Leading stages of a leaf, cut where its samples pass through a mixture.
Chain: TypeAlias = Sequence[Sequence[BlockStage]]


class Group(NamedTuple):
    """One input of a lane and what became of it."""

    draw: Draw
    outputs: Outputs


class Work:
    """Reads inputs and sends them through the leading stages of their leaf; runs in the engine's workers."""

    def __init__(self, leaves: Sequence[Leaf], chains: Sequence[Chain], salts: Sequence[Sequence[int]]) -> None:
        self._leaves, self._chains, self._salts = leaves, chains, salts

    def __call__(self, wanted: Sequence[tuple[int, Draw]]) -> list[Outputs]:
        """Treat inputs of several leaves; results are in their order."""
        results: list[Outputs] = [[]] * len(wanted)
        by_leaf = sorted(range(len(wanted)), key=lambda place: wanted[place][0])
        for leaf, group in groupby(by_leaf, key=lambda place: wanted[place][0]):
            places = list(group)
            for place, outputs in zip(places, self._treat(leaf, [wanted[p][1] for p in places]), strict=True):
                results[place] = outputs
        return results

    def _treat(self, number: int, draws: list[Draw]) -> list[Outputs]:
        leaf = self._leaves[number]
        origins = [leaf.shards[draw.shard] for draw in draws]
        ids = np.array([draw.id for draw in draws], np.uint64)
        block = Block(leaf.samples(draws), origins, ids)
        return _outputs(block, self._chains[number], self._salts[number])


def _outputs(block: Block, chain: Chain, salts: Sequence[int]) -> list[Outputs]:
    """Send a block through a chain and tell for each of its samples what became of it."""
    made = through(chain[0], replace(block, rows=None, salt=salts[0]))
    assert made.ids is not None
    if len(chain) == 1:
        items: list[Any] = list(zip(made.samples, made.ids.tolist(), strict=True))
    else:
        items = _outputs(made, chain[1:], salts[1:])
    if made.rows is None:
        return [[item] for item in items]
    results: list[Outputs] = [[] for _ in block.samples]
    for row, item in zip(made.rows, items, strict=True):
        results[row].append(item)
    return results


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

    def __init__(self, leaves: Sequence[Leaf], stream: Stream[Sequence[tuple[int, Draw]], list[Outputs]]) -> None:
        self._leaves, self._stream = leaves, stream
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
        channel.ready -= len(group.outputs)
        channel.need -= len(group.outputs)
        return group

    def again(self, wanted: Iterable[tuple[int, int, Cursor]]) -> dict[tuple[int, int, Cursor], Group]:
        """Make once more what became of inputs that lanes drew earlier."""
        places = sorted(set(wanted))
        by_leaf = groupby(places, key=lambda place: place[0])
        draws = [draw for leaf, some in by_leaf for draw in self._leaves[leaf].redraws([place[1:] for place in some])]
        found: list[Outputs] = []
        for at in range(0, len(draws), BLOCK):
            self._stream.put(
                [(place[0], draw) for place, draw in zip(places[at : at + BLOCK], draws[at:], strict=False)]
            )
            if len(self._stream) >= self._stream.capacity:
                found += self._stream.get()
        while len(self._stream):
            found += self._stream.get()
        groups = map(Group, draws, found)
        return dict(zip(places, groups, strict=True))

    def close(self) -> None:
        """Let go of the workers."""
        self._stream.close()

    def _send(self) -> None:
        while self._todo and len(self._stream) < self._stream.capacity:
            block = self._drawn()
            if block:
                self._sent.append(block)
                self._stream.put([(channel.leaf, draw) for channel, draw in block])

    def _drawn(self) -> list[tuple[Channel, Draw]]:
        block: list[tuple[Channel, Draw]] = []
        while self._todo and len(block) < BLOCK:
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
        results = self._stream.get()
        for (channel, draw), outputs in zip(self._sent.popleft(), results, strict=True):
            channel.under_way -= 1
            channel.ready += len(outputs)
            channel.groups.append(Group(draw, outputs))
            if channel.lacks:
                self._todo.append(channel)

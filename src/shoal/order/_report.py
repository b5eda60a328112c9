"""What shuffles would do to an epoch, before it is run: how well batches are mixed, and what is read for that.

All of it follows from the lengths of the shards. Where an epoch is long, batches and reads that are spread over all of
it stand for the rest, always the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple

import numpy as np

from shoal.order._elements import ElementOrder, Ids, Located, Walk
from shoal.order._keys import derive, scramble
from shoal.order._lanes import LANES, Part
from shoal.order._permute import permutation
from shoal.order._shuffle import Shuffle
from shoal.order._streams import StreamOrder

__all__ = ["Batching", "ShuffleReport", "ShuffleRow", "Stock", "shuffle_report"]

# How many samples are looked up for a figure, how many at once, and how many are sent through a buffer.
_LOOKED_UP, _AT_ONCE, _STREAMED = 2**16, 2**14, 2**17
_WINDOWS = 16
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
# webdataset gives out the first sample when so many are in its buffer.
_INITIAL = 100

_LEGEND = (
    "Shards in a batch: the mean number of different ones, out of those that it could have.",
    "Spread: 0 where neighbours in a batch are neighbours in storage, 1 where they lie anywhere.",
    "Reads: stretches of consecutive samples that are fetched at once, by all ranks. In use: shards at the same time.",
    "Buffer: what a shuffle buffer over shuffled shards does, as webdataset has it. *: how the dataset is shuffled.",
)


@dataclass(frozen=True, slots=True)
class Stock:
    """What is known of a source.

    >>> Stock("numbers", shards=2, lengths=np.array([10, 20])).samples
    30
    """

    name: str
    shards: int
    lengths: Ids | None
    """Samples of each shard; None where shards can only be read whole and nobody knows their lengths."""
    bytes: int | None = None
    """Bytes of all shards, if they are known."""
    shuffle: Shuffle | None = None
    limit: int | None = None
    """Samples that are used at most."""

    @property
    def samples(self) -> int | None:
        """Samples of an epoch."""
        if self.lengths is None:
            return None
        total = int(self.lengths.sum())
        return total if self.limit is None else min(total, self.limit)


@dataclass(frozen=True, slots=True)
class Batching:
    """How batches are made, and by whom.

    >>> Batching(256, world_size=4).lanes
    64
    """

    batch_size: int = 64
    world_size: int = 1
    lanes: int = LANES
    block: int = 64
    """Samples of one rank that are fetched together."""
    buffer: int = 1000
    """Samples of the shuffle buffer to compare with."""

    def __post_init__(self) -> None:
        Part(self.batch_size, 0, self.world_size, self.lanes)


@dataclass(frozen=True, slots=True)
class ShuffleRow:
    """What one way of shuffling makes of one source; None is what cannot be known beforehand.

    >>> from shoal.order import Batching, shuffle_report
    >>> report = shuffle_report([Stock("a", 4, np.full(4, 100))], Batching(16, 1, 64, 64, 1000))
    >>> isinstance(report.row("full"), ShuffleRow), report.row("full").attainable
    (True, 4)
    """

    shuffle: str
    """``"none"``, ``"shards"``, ``"full"``, or ``"buffer"``: a shuffle buffer over shuffled shards."""
    shards_in_batch: float | None
    """Different shards in a batch, on average."""
    attainable: int
    """Different shards that a batch could have."""
    spread: float | None
    """1 minus the correlation of where neighbours in a batch lie in storage: 0 for storage order, 1 for none."""
    bytes: int | None
    """Bytes that all ranks read in an epoch."""
    reads: int | None
    """In how many stretches of consecutive samples."""
    shards_in_use: int | None
    """Shards that are read from at the same time."""
    source: int = 0
    """Which component of a mixture this is."""
    chosen: bool = False
    """Whether the dataset is shuffled this way."""


@dataclass(frozen=True, slots=True)
class ShuffleReport:
    """What each way of shuffling would do; print it, or look at its rows.

    >>> report = shuffle_report([Stock("numbers", 4, np.full(4, 100))])
    >>> report.row("none").spread < 0.01 < 0.8 < report.row("full").spread
    True
    """

    batching: Batching
    sources: tuple[str, ...]
    rows: tuple[ShuffleRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, shuffle: str, source: int = 0) -> ShuffleRow:
        """Find a row."""
        return next(row for row in self.rows if (row.shuffle, row.source) == (shuffle, source))

    def __str__(self) -> str:
        head = self._head()
        table = [head, *(self._cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = []
        for number, name in enumerate(self.sources):
            chosen = [self._cells(row) for row in self.rows if row.source == number]
            lines += [name, *(_line(cells, widths) for cells in [head, *chosen]), ""]
        return "\n".join([*lines, *self._remarks()])

    def _repr_html_(self) -> str:
        parts = []
        for number, name in enumerate(self.sources):
            head = "".join(f"<th>{escape(cell)}</th>" for cell in self._head())
            rows = (self._cells(row) for row in self.rows if row.source == number)
            body = ("".join(f"<td>{escape(cell)}</td>" for cell in cells) for cells in rows)
            inner = "".join(f"<tr>{cells}</tr>" for cells in [head, *body])
            parts.append(f"<table><caption>{escape(name)}</caption>{inner}</table>")
        return "".join([*parts, "<p>", "<br>".join(map(escape, self._remarks())), "</p>"])

    def _head(self) -> list[str]:
        return ["shuffle", f"shards in a batch of {self.batching.batch_size:,}", "spread", "bytes", "reads", "in use"]

    def _cells(self, row: ShuffleRow) -> list[str]:
        name = f"buffer of {self.batching.buffer:,}" if row.shuffle == "buffer" else row.shuffle
        mixed = "?" if row.shards_in_batch is None else f"{row.shards_in_batch:,.1f} of {row.attainable:,}"
        spread = "?" if row.spread is None else f"{row.spread:.2f}"
        counts = ("?" if number is None else f"{number:,}" for number in (row.reads, row.shards_in_use))
        return [name + " *" * row.chosen, mixed, spread, "?" if row.bytes is None else _human(row.bytes), *counts]

    def _remarks(self) -> list[str]:
        return [*self.notes, *_LEGEND]


class _Mixed(NamedTuple):
    shards: float
    spread: float


def shuffle_report(stocks: Sequence[Stock], batching: Batching | None = None) -> ShuffleReport:
    """Say what each way of shuffling would do to each of several sources.

    >>> print(str(shuffle_report([Stock("numbers", 4, np.full(4, 100))])).splitlines()[0])
    numbers: 4 shards, 400 samples
    """
    batching = batching or Batching()
    rows = [
        replace(row, source=number, chosen=row.shuffle == ("none" if stock.shuffle is None else stock.shuffle.mode))
        for number, stock in enumerate(stocks)
        for row in _rows(stock, batching)
    ]
    return ShuffleReport(batching, tuple(map(_heading, stocks)), tuple(rows), tuple(_notes(stocks)))


def _rows(stock: Stock, batching: Batching) -> Iterator[ShuffleRow]:
    own = stock.shuffle
    windows = own if own is not None and own.mode == "shards" else Shuffle("shards", 0 if own is None else own.seed)
    if stock.lengths is None or not stock.samples:
        yield _forward(stock, batching)
        yield _whole(stock, batching, windows)
        yield ShuffleRow("full", None, _attainable(stock, batching), None, None, None, None)
        yield ShuffleRow("buffer", None, _attainable(stock, batching), None, stock.bytes, stock.shards, 1)
        return
    full = Shuffle("full", windows.seed)
    yield _picked(stock, batching, None)
    yield _whole(stock, batching, windows) if windows.cut == "shards" else _picked(stock, batching, windows)
    yield _picked(stock, batching, full)
    yield _buffered(stock, batching, windows.seed)


# Samples that are picked


def _picked(stock: Stock, batching: Batching, shuffle: Shuffle | None) -> ShuffleRow:
    """Look at an order in which samples are picked one by one."""
    lengths, samples = stock.lengths, stock.samples
    assert lengths is not None
    assert samples
    walk = Walk(shuffle, 0, stock.shards, batching.lanes, limit=stock.limit)
    order = ElementOrder(walk, lambda shards: lengths[shards])
    slots = _spread_batches(samples, batching.batch_size)
    found = _located(order, slots.ravel())
    starts = np.cumsum(lengths) - lengths
    shards, places = found.shards.reshape(slots.shape), (starts[found.shards] + found.offsets).reshape(slots.shape)
    mixed = _mixing(shards[:, : batching.batch_size], places)
    in_use = {None: 1, "shards": 0 if shuffle is None else shuffle.window, "full": stock.shards}
    return ShuffleRow(
        "none" if shuffle is None else shuffle.mode,
        mixed.shards,
        _attainable(stock, batching),
        mixed.spread,
        None if stock.bytes is None else round(stock.bytes * samples / int(lengths.sum())),
        _reads(order, samples, batching),
        min(in_use[None if shuffle is None else shuffle.mode], stock.shards),
    )


def _spread_batches(samples: int, size: int) -> Ids:
    """List the slots of some batches, one below the other; neighbours need two of them at least."""
    width = min(max(size, 2), samples)
    whole = max((samples - width) // size + 1, 1)
    count = min(whole, max(_LOOKED_UP // size, 4))
    numbers = np.unique(np.linspace(0, whole - 1, count).astype(np.int64))
    return numbers[:, None] * size + np.arange(width)


def _located(order: ElementOrder, slots: Ids) -> Located:
    pieces = [order.locate(slots[at : at + _AT_ONCE]) for at in range(0, len(slots), _AT_ONCE)]
    return Located(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def _mixing(shards: Ids, places: Ids) -> _Mixed:
    """Count the different shards of batches, and compare where neighbours lie in storage."""
    different = 1 + np.count_nonzero(np.diff(np.sort(shards, axis=1), axis=1), axis=1)
    before, after = places[:, :-1].ravel(), places[:, 1:].ravel()
    if len(before) < 2 or not np.ptp(before) or not np.ptp(after):
        return _Mixed(float(different.mean()), 0.0)
    return _Mixed(float(different.mean()), max(1 - abs(float(np.corrcoef(before, after)[0, 1])), 0.0))


def _reads(order: ElementOrder, samples: int, batching: Batching) -> int:
    """Count the stretches of consecutive samples in what ranks fetch at once; some blocks may stand for all."""
    lanes, world, block = batching.lanes, batching.world_size, batching.block
    every = samples <= _LOOKED_UP
    elements = np.arange(samples) if every else np.linspace(0, samples - 1, _LOOKED_UP // block).astype(np.int64)
    # A rank goes through the rows of its lanes; its blocks begin anew with the rows of another window, and a row that
    # lies in two windows is a block of its own.
    rows, ranks = elements // lanes, elements % lanes % world
    own = np.bincount(np.arange(lanes) % world)[ranks]
    begins, ends = order.spans(rows * lanes)
    inner = -(-begins // lanes)
    alone = (rows < inner) | (rows >= ends // lanes)
    base, stop = np.where(alone, rows, inner), np.where(alone, rows + 1, ends // lanes)
    first = ((rows - base) * own + elements % lanes // world) // block * block
    _, chosen, weights = np.unique((base * own + first) * world + ranks, return_index=True, return_counts=True)
    inside = first[chosen, None] + np.arange(block)
    down, across = np.divmod(inside, own[chosen, None])
    slots = (base[chosen, None] + down) * lanes + ranks[chosen, None] + across * world
    there = (slots < samples) & (inside < ((stop - base) * own)[chosen, None])
    sizes = there.sum(axis=1)
    stretches = _stretches(np.repeat(np.arange(len(chosen)), sizes), _located(order, slots[there]))
    return round(float((stretches / sizes) @ weights) * samples / len(elements))


def _stretches(blocks: Ids, found: Located) -> Ids:
    """Count the stretches of each block."""
    order = np.lexsort((found.offsets, found.shards, blocks))
    blocks, shards, offsets = blocks[order], found.shards[order], found.offsets[order]
    begins = np.ones(len(blocks), bool)
    begins[1:] = (np.diff(blocks) != 0) | (np.diff(shards) != 0) | (np.diff(offsets) != 1)
    return np.bincount(blocks[begins])


# Whole shards


def _forward(stock: Stock, batching: Batching) -> ShuffleRow:
    """Read everything in order, on each rank: nobody can tell where another one's samples begin."""
    world = batching.world_size
    read = None if stock.bytes is None else stock.bytes * world
    return ShuffleRow("none", None, _attainable(stock, batching), 0.0, read, stock.shards * world, min(stock.shards, 1))


def _whole(stock: Stock, batching: Batching, shuffle: Shuffle) -> ShuffleRow:
    """Deal whole shards to lanes, as if all were of one length."""
    attainable, lanes = _attainable(stock, batching), batching.lanes
    windows = -(-stock.shards // lanes)
    if not windows:
        return ShuffleRow("shards", None, attainable, None, stock.bytes, 0, 0)
    order = StreamOrder(Walk(shuffle, 0, stock.shards, lanes))
    seen, weights = [], []
    for window in np.unique(np.linspace(0, windows - 1, min(windows, _WINDOWS)).astype(np.int64)).tolist():
        shards = _dealt(order, window, lanes)
        firsts = np.arange(4) * batching.batch_size
        seen.append(shards[(firsts[:, None] + np.arange(max(batching.batch_size, 2))) % lanes])
        weights.append(min(stock.shards - window * lanes, lanes))
    mixed = [_mixing(shards[:, : batching.batch_size], shards).shards for shards in seen]
    # In the last window several lanes may share a shard, and each rank that has one of them reads it.
    last = _dealt(order, windows - 1, lanes) * batching.world_size + np.arange(lanes) % batching.world_size
    reads = (windows - 1) * lanes + len(np.unique(last))
    return ShuffleRow(
        "shards",
        float(np.average(mixed, weights=weights)),
        attainable,
        _mixing(np.concatenate(seen), np.concatenate(seen)).spread,
        None if stock.bytes is None else round(stock.bytes * reads / stock.shards),
        reads,
        min(stock.shards, lanes),
    )


def _dealt(order: StreamOrder, window: int, lanes: int) -> Ids:
    turns = (order.turn(lane, window) for lane in range(lanes))
    return np.array([turn.shard for turn in turns if turn is not None])


# A buffer


def _buffered(stock: Stock, batching: Batching, seed: int) -> ShuffleRow:
    """Send shuffled shards through a shuffle buffer, as webdataset does; of a long epoch, the beginning."""
    lengths, samples = stock.lengths, stock.samples
    assert lengths is not None
    assert samples
    order = permutation(stock.shards, derive("buffer shards", seed))
    ends = np.cumsum(lengths[order])
    given = _through_buffer(samples, batching.buffer, derive("buffer", seed))
    at = np.searchsorted(ends, given, side="right")
    shards = order[at]
    places = (np.cumsum(lengths) - lengths)[shards] + given - (ends - lengths[order])[at]
    width = min(batching.batch_size, len(given))
    whole = len(given) // width * width
    mixed = _mixing(shards[:whole].reshape(-1, width), places[:whole].reshape(-1, width if width > 1 else whole))
    read = None if stock.bytes is None else round(stock.bytes * samples / int(ends[-1]))
    opened = int(np.searchsorted(ends, samples - 1, side="right")) + 1
    return ShuffleRow("buffer", mixed.shards, _attainable(stock, batching), mixed.spread, read, opened, 1)


def _through_buffer(count: int, size: int, key: int) -> Ids:
    """Say in which order a stream leaves a shuffle buffer; the end of a long one is left out."""
    arriving = range(min(count, _STREAMED + size))
    chances = ((scramble(np.arange(len(arriving)), key) >> np.uint64(11)) * 2.0**-53).tolist()
    numbers, held, given = iter(arriving), list[int](), list[int]()

    def give() -> None:
        chosen = int(chances[len(given)] * len(held))
        held[chosen], held[-1] = held[-1], held[chosen]
        given.append(held.pop())

    for number in numbers:
        held.append(number)
        if len(held) < size and (further := next(numbers, None)) is not None:
            held.append(further)
        if len(held) >= min(_INITIAL, size):
            give()
    while held and len(arriving) == count:
        give()
    return np.array(given, np.int64)


# Words


def _attainable(stock: Stock, batching: Batching) -> int:
    shards = stock.shards if stock.lengths is None else int(np.count_nonzero(stock.lengths))
    return min(shards, batching.batch_size)


def _heading(stock: Stock) -> str:
    samples = "samples unknown" if stock.samples is None else f"{stock.samples:,} samples"
    return f"{stock.name}: {stock.shards:,} shards, {samples}"


def _notes(stocks: Sequence[Stock]) -> Iterator[str]:
    if any(stock.lengths is None for stock in stocks):
        yield (
            "Where nobody can seek in shards, their lengths are not known beforehand: whole shards are dealt to lanes, "
            'and count as equally long here; "full" would go through a shard for every few samples.'
        )
        yield "Plain shards on a disk, in a cache, or with an index beside them, can be picked from."


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _human(count: float) -> str:
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:,.{min(unit, 1)}f} {_UNITS[unit]}"

"""One epoch of a plan that keeps the number of samples: which sample is in which slot is known beforehand."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.abc import Picks, Source
from shoal.errors import StateError
from shoal.order import Anchor, ElementOrder, Hashes, Ids, Walk, own_lanes, sample_ids
from shoal.pipeline._delivered import Delivered
from shoal.pipeline._leaves import lengths_of
from shoal.pipeline._meter import CALLER
from shoal.pipeline._parcel import Parcel
from shoal.pipeline._picking import Picker, Wanted, filled_row
from shoal.pipeline._plan import Plan
from shoal.pipeline._rows import ColumnRows, Rows, SampleRows
from shoal.pipeline._run import CHANGED, Run, Setting
from shoal.pipeline._state import Position
from shoal.pipeline._steps import BLOCK, Cross, fitting, fused, is_plain, share_of_memory, start, with_bytes
from shoal.pipeline._storage import run_salt
from shoal.pipeline.stages import BlockStage

__all__ = ["StraightRun"]

# Slots that are looked up at once, and rows that are read at once where they are read as columns.
_CHUNK, _COLUMN_ROWS, _COLUMN_BYTES = 16_384, 16_384, 8 * 2**20
# How long a parcel should keep a worker: long enough not to count, short enough to end soon.
_GRAIN_SECONDS = 0.02


class StraightRun(Run):
    """An epoch of a plan that keeps the number of samples."""

    def __init__(self, plan: Plan, setting: Setting, position: Position) -> None:
        super().__init__(setting)
        plan = plan.with_limit()
        assert isinstance(plan.source, Source)
        self._shards = plan.source.shards()
        walk = Walk(plan.shuffle, position.epoch, len(self._shards), plan.lanes, setting.wrap, plan.limit)
        anchor = Anchor(*position.anchors[0]) if position.anchors else None
        self.order = ElementOrder(walk, lengths_of(plan.source), anchor)
        self._delivered = Delivered(own_lanes(setting.part), setting.part.lanes, position.lanes)
        self._check()
        stages = fused([stage for stage in plan.stages if isinstance(stage, BlockStage)])
        chain = with_bytes(stages, views=plan.views, to_the_end=True)
        self._picker = Picker(plan.source, chain, views=plan.views)
        self._fills = filled_row(chain, setting.pool)
        # Where reading is no more than looking at a map, it is done for a whole batch while the workers are busy.
        self._reads_ahead = self._fills is not None and not plan.source.waits
        self._plain = is_plain(chain)
        self._grain = BLOCK if self._plain else max(min(setting.part.batch_size, BLOCK) // 4, 4)
        self._rows_ahead = 1
        chain = () if self._picker.as_columns else (Cross(run_salt(plan, position.epoch), first=True), *chain)
        # Batches that are filled are large: one is made while one is used, and the memory of a third would be fresh.
        # But each worker has something in hand, and something to go on with.
        batch = -(-setting.part.batch_size // setting.part.world_size)
        self._most = batch if self._fills is not None else None
        pools = [setting.pool, *(stage.pool for stage in stages if stage.pool is not None)]
        self._least = max(2 * sum(pool.bounds[1] for pool in pools), 1)
        self._under_way = 0
        self._memory = share_of_memory(1)
        self._stream = start(
            {0: chain},
            setting.pool,
            read=self._picker,
            waits=plan.source.waits,
            catch=False,
            memory=self._memory,
            ahead=batch + 1 if self._fills else 1,
        )
        self._number = self.meter.watch(self._stream)
        self._wanted = self._pieces(position.slot, position.step)
        self._sent: deque[Hashes] = deque()
        self._ready: deque[tuple[Rows, Hashes]] = deque()

    def rows(self, slots: Ids) -> Rows:
        found, ids = self._take(len(slots))
        self._delivered.add(slots[: len(ids)], ids)
        return found

    def rows_of_others(self, slots: Ids) -> Rows | None:
        return None

    @property
    def alive(self) -> bool:
        return False

    def marks(self) -> Mapping[int, Any]:
        return self._delivered.marks()

    def anchors(self, slot: int, marks: Mapping[int, Any]) -> tuple[Any, ...]:
        # What lanes delivered last is looked at again, to tell whether the order is still the same.
        lanes = self._setting.part.lanes
        delivered = [(count - 1) * lanes + lane for lane, (count, *_) in marks.items() if count]
        return (list(self.order.anchor(min([slot, *delivered]))),)

    def _let_go(self) -> None:
        self._stream.close()
        self._ready.clear()
        self._wanted = iter(())

    def _check(self) -> None:
        """Make sure that what lanes delivered last is still where it was."""
        counts, _, last = self._delivered.totals()
        delivered = np.flatnonzero(counts)
        if len(delivered):
            found = self.order.locate((counts[delivered] - 1) * len(counts) + delivered)
            wrong = delivered[sample_ids(found, 0) != last[delivered]]
            if len(wrong):
                raise StateError(CHANGED.format(lane=wrong[0]))

    def _take(self, count: int) -> tuple[Rows, Hashes]:
        """Take the next rows; fewer at the end of the epoch."""
        taken: list[tuple[Rows, Hashes]] = []
        missing = count
        while missing and (self._ready or self._receive()):
            rows, ids = self._ready.popleft()
            if len(ids) > missing:
                rest = rows.cut(missing)
                self._ready.appendleft((rest, ids[missing:]))
                ids = ids[:missing]
            taken.append((rows, ids))
            missing -= len(ids)
        self._send()
        if len(taken) == 1 and not missing:
            return taken[0]
        ids = np.concatenate([np.zeros(0, np.uint64), *(ids for _, ids in taken)])
        samples = [sample for rows, _ in taken for sample in rows.samples()]
        return SampleRows([*samples, *[None] * missing]), ids

    def _send(self) -> None:
        while self._has_room() and (wanted := next(self._wanted, None)) is not None:
            self._sent.append(wanted.ids)
            self._under_way += len(wanted.ids)
            self._stream.put(Parcel(wanted))

    def _has_room(self) -> bool:
        enough = self._most is not None and self._under_way >= self._most and len(self._stream) >= self._least
        return not enough and not self._stream.full

    def _receive(self) -> bool:
        """Wait for the next parcel; False at the end."""
        self._send()
        if not self._sent:
            return False
        parcel = self.meter.received(self._number)
        ids = self._sent.popleft()
        self._under_way -= len(ids)
        if parcel.batches is None:
            fits = fitting(parcel, len(ids), self._memory, self._stream.capacity)
            seconds = 0.0 if self._plain else sum(spent[2] for spent in parcel.spent)
            self._grain = int(min(max(_GRAIN_SECONDS * len(ids) / max(seconds, 1e-9), 1), fits, BLOCK))
            self._ready.append((SampleRows(list(parcel.parts[0].block.samples)), ids))
            return True
        nbytes = parcel.nbytes
        self._rows_ahead = max(min(4 * len(ids), _COLUMN_ROWS, _COLUMN_BYTES * len(ids) // max(nbytes, 1)), 1)
        at = 0
        for columns, count in parcel.batches:
            self._ready.append((ColumnRows(columns, count, nbytes * count // len(ids)), ids[at : at + count]))
            at += count
        return True

    def _pieces(self, slot: int, step: int) -> Iterator[Wanted]:
        """Cut what is in the slots of this rank into parcels.

        Where rows of batches are filled, or batches are made as columns, parcels end where batches do.
        """
        aligned = self._picker.as_columns or self._fills is not None
        held: Wanted | None = None
        for found, ended in self._located(slot, step):
            found = found if held is None else held.joined(found)
            ends = np.flatnonzero(np.diff(found.batches)) + 1
            if ended or not aligned:
                ends, held = np.append(ends, len(found.ids)), None
            else:
                held = found.piece(int(ends[-1]) if len(ends) else 0, len(found.ids))
            if not aligned:
                yield from self._cut(found, 0, len(found.ids))
            elif self._picker.as_columns:
                yield from self._grouped(found, ends)
            else:
                for low, high in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                    yield from self._cut(found, low, high)

    def _cut(self, found: Wanted, low: int, high: int) -> Iterator[Wanted]:
        """Cut a batch, or what need not end with one, into parcels."""
        found = self._prepared(found.piece(low, high)) if high > low else found.piece(low, high)
        at = 0
        while at < high - low:
            end = at + self._grain  # which is another one when the next piece is asked for
            yield found.piece(at, end)
            at = end

    def _prepared(self, batch: Wanted) -> Wanted:
        """Give a batch that is filled its memory, and its samples if they are at hand."""
        if self._fills is not None:
            shape, dtype = self._fills
            batch = replace(batch, rows=self._setting.slabs.empty((len(batch.ids), *shape), dtype))
        if self._reads_ahead:
            begun = time.perf_counter()
            batch = self._picker.with_samples(batch)
            self.meter.add(CALLER, [(0, "read", time.perf_counter() - begun, len(batch.ids))])
        return batch

    def _grouped(self, found: Wanted, ends: Ids) -> Iterator[Wanted]:
        """Put whole batches together."""
        low = 0
        for number, end in enumerate(ends.tolist()):
            if end - low >= self._rows_ahead or (number == len(ends) - 1 and end > low):
                yield found.piece(low, end)
                low = end

    def _located(self, slot: int, step: int) -> Iterator[tuple[Wanted, bool]]:
        """List what is in the slots of this rank from one on, and whether that is the end of it."""
        part = self._setting.part
        lanes = np.array(own_lanes(part))
        worker, workers = self._setting.worker
        row = slot // part.lanes
        while True:
            horizon = self.order.horizon(max(row * part.lanes, slot))
            rows = min(max(horizon // part.lanes - row, 1), max(_CHUNK // len(lanes), 1))
            slots = (np.arange(row, row + rows)[:, None] * part.lanes + lanes).ravel()
            slots = slots[slots >= slot]
            batches = (slots - slot) // part.batch_size
            if workers > 1:
                mine = (step + batches) % workers == worker
                slots, batches = slots[mine], batches[mine]
            found = self.order.locate(slots)
            there = found.shards >= 0
            ids, count = sample_ids(found, 0), int(there.sum())
            picks = Picks(self._shards, found.shards[:count], found.offsets[:count])
            yield Wanted(picks, ids[:count], batches[:count]), not there.all()
            if not there.all():
                return
            row += rows

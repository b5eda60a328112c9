"""Batches for training: their order follows from seed and epoch alone, from any position, on any number of ranks."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal import registry
from shoal._slabs import Slabs
from shoal.abc import Pool, Sample, Workers
from shoal.errors import PlanError, StateError
from shoal.order import Part, merge_digests, own_lanes, rank_part
from shoal.pipeline._meter import Meter
from shoal.pipeline._origin import Origin
from shoal.pipeline._run import Run, Setting
from shoal.pipeline._state import Position, merge_states, read_states, state_of
from shoal.pipeline.groups import Group, current_group, current_worker
from shoal.pipeline.ledger import Ledger, OnError
from shoal.pipeline.statistics import Statistics

__all__ = ["Loader", "LoaderOptions"]

_ENDS = ("pad", "drop", "wrap")
_REMEMBERED = 16
# What may become of a batch; the end is the least, so that ranks agree by the highest, or by the least.
_STOP, _PASS, _GO = 0, 1, 2


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """How a loader makes batches.

    >>> LoaderOptions(64, end="drop").to
    'numpy'
    """

    batch_size: int
    """Samples of a batch over all ranks; a rank yields its part of them."""
    rank: int | None = None
    """Which rank this is; found by itself under torch.distributed, else 0 of 1."""
    world_size: int | None = None
    steps: int | None = None
    """Batches an epoch; by default all there are."""
    workers: Workers = "auto"
    """Who does the stages that have no workers of their own: a number, a range ``(1, 4)``, or ``"auto"``."""
    mode: str = "thread"
    """``"process"`` for stages that hold the interpreter's lock."""
    on_error: OnError = "raise"
    """What becomes of samples that fail: the end of the run, ``"skip"``, or what a function says of the `Failure`."""
    error_budget: float = 0.05
    """How many samples may be skipped: a number, or a share as in 0.05."""
    end: str = "pad"
    """What becomes of an incomplete last batch: padded and masked, dropped, or filled from the next pass."""
    to: str = "numpy"
    progress: bool = False
    """Whether a line on the terminal says how the epoch is doing."""

    def __post_init__(self) -> None:
        Pool(self.workers, self.mode)
        if self.end not in _ENDS:
            raise PlanError(f"end={self.end!r}; known are {', '.join(map(repr, _ENDS))}")
        if self.end == "wrap" and self.steps is None:
            raise PlanError('end="wrap" never ends by itself: give steps=')
        if self.steps is not None and self.steps < 0:
            raise PlanError(f"steps={self.steps} must not be negative")
        if (self.rank is None) != (self.world_size is None) and self.world_size not in (None, 1):
            raise PlanError(f"world_size={self.world_size} needs rank= as well")
        Part(self.batch_size, self.rank or 0, self.world_size or (self.rank or 0) + 1, lanes=2**62)


class Loader:
    """Yields batches: dicts of stacked arrays with ``"__key__"`` and, where rows are padding, ``"__mask__"``.

    Iterating runs one epoch, iterating again the next one. Ranks of one world get disjoint parts of the same global
    batches, in the same number of steps. `state_dict` says after which batch the user is, and `load_state_dict` lets a
    loader of the same plan go on from there, also with another number of ranks or workers or another batch size.

    >>> import shoal, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with shoal.shards.TarWriter(f"{folder}/a.tar") as writer:
    ...     for i in range(5):
    ...         _ = writer.write({"__key__": str(i), "cls": i})
    >>> loader = shoal.read_tar(f"{folder}/a.tar").decode().loader(2, end="drop")
    >>> [batch["cls"].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """

    def __init__(self, origin: Origin, options: LoaderOptions) -> None:
        if origin.endless and options.steps is None:
            raise PlanError('a mixture whose components begin again ("wrap") never ends by itself: give steps=')
        self.ledger = Ledger(options.on_error, options.error_budget)
        """The samples that were skipped, of all epochs that this loader ran."""
        self._origin = origin.skipping() if self.ledger.catches else origin
        self._options = options
        self._slabs = Slabs()
        self._meter: Meter | None = None
        self._convert = registry.load("format", options.to)
        self._group: Group | None = None
        self._part: Part | None = None
        self._ways: tuple[str, ...] | None = None
        self._description: dict[str, Any] | None = None
        self.epoch = 0
        """The epoch that iterating runs next."""
        self._resume: Position | None = None
        self._new_weights = False
        self._run: Run | None = None
        self._received: deque[Position] = deque(maxlen=_REMEMBERED)
        self._under_way: weakref.ref[Any] | None = None
        if options.world_size is not None:
            self._place()

    def __iter__(self) -> Iterator[Sample]:
        self.close()
        batches = self._next_epoch()
        self._under_way = weakref.ref(batches)  # whoever leaves early drops it, and with it the workers
        return batches

    def __repr__(self) -> str:
        options, world = self._options, self._options.world_size or 1
        part = f", part of rank {options.rank} of {world}" if world > 1 else ""
        return f"<Loader: batches of {options.batch_size}{part}, to={options.to!r}, next is epoch {self.epoch}>"

    def show(self, n: int = 12) -> Any:
        """Picture the samples of the first batch; what is loaded next stays what it is. See `Dataset.show`.

        >>> import shoal
        >>> shoal.from_arrays({"x": range(4)}).shuffle("full", seed=1).loader(2).show()
        000000002  x 2
        000000000  x 0
        """
        return registry.load("look", "samples")(self, n)

    def close(self) -> None:
        """End the epoch that is under way, and let go of its workers."""
        batches = None if self._under_way is None else self._under_way()
        if batches is not None:
            batches.close()

    @property
    def rank(self) -> int:
        """Which rank this is."""
        return self._place().rank

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self._place().world_size

    @property
    def steps(self) -> int | None:
        """How many batches an epoch has; None if that is not known beforehand. May read the lengths of all shards."""
        known = self._known_slots()
        if known is None:
            return self._options.steps
        size = self._options.batch_size
        found = known // size if self._options.end == "drop" else -(-known // size)
        return found if self._options.steps is None else min(found, self._options.steps)

    @property
    def samples(self) -> int | None:
        """How many samples an epoch has, of all ranks; None if that is not known beforehand."""
        known, steps = self._known_slots(), self.steps
        return None if known is None or steps is None else min(known, steps * self._options.batch_size)

    def order_digest(self) -> str:
        """Give a fingerprint of what this rank received of the epoch, and where; see `shoal.order.merge_digests`."""
        begun = (position.lanes for position in reversed(self._positions()) if position.lanes is not None)
        return merge_digests(int(mark[1]) for mark in next(begun, {}).values())

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Say what was received: the batches up to the last one, or up to ``step`` of the epoch, of the last few.

        It can be kept as JSON. Each rank has a state of its own.
        """
        position, place = self._position(step), self._place()
        return state_of(position, self._describe(), rank=place.rank, world_size=place.world_size)

    def load_state_dict(self, states: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Let the next iteration go on from a state of this rank, or from the list of the states of all ranks."""
        saved = read_states(states)
        ways = self._origin.ways(saved.ways)
        description = self._described(ways)
        changed = self._origin.changes(saved.plan, description)
        if changed:
            raise StateError(f"the state is of another plan: {'; '.join(changed)}")
        position = merge_states(saved, own_lanes(self._place()))
        self.close()
        self._ways, self._description = ways, description
        self._new_weights = position.weights != self._origin.weights()
        self._resume, self.epoch = position, position.epoch
        self._run = None
        self._received.clear()

    def statistics(self) -> Statistics:
        """Tell how the epoch that is under way is doing, or how the last one did.

        >>> import shoal, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with shoal.shards.TarWriter(f"{folder}/a.tar") as writer:
        ...     _ = writer.write({"__key__": "a", "cls": 1})
        >>> loader = shoal.read_tar(f"{folder}/a.tar").decode().loader(1)
        >>> len(list(loader)), loader.statistics().samples
        (1, 1)
        """
        return (self._meter or Meter()).statistics()

    def torch_dataset(self) -> Any:
        """Give the batches as an `IterableDataset`, for a `DataLoader(..., batch_size=None)` or `StatefulDataLoader`.

        Its worker processes make every so-manieth batch, so that batches come in the same order as without them.
        """
        self._place()
        return registry.load("adapter", "torch")(self)

    def batch_at(self, epoch: int, step: int) -> Sample:
        """Make any batch of any epoch again, as the whole world gets it; see `Dataset.batch_at`."""
        if step < 0 or epoch < 0:
            raise PlanError(f"there is no step {step} of epoch {epoch}")
        options = replace(self._options, rank=0, world_size=1, steps=step + 1, progress=False)
        alone = Loader(self._origin, options)
        first = step if self._origin.is_straight(alone._reading()) else 0
        batches = alone._epoch(Position(epoch, first * options.batch_size, first))
        try:
            for _ in range(first, step):
                next(batches)
            return next(batches)
        except StopIteration:
            raise PlanError(f"epoch {epoch} has no step {step}") from None
        finally:
            alone._run = None
            getattr(batches, "close", lambda: None)()

    def _position(self, step: int | None) -> Position:
        """Say where the user was after a step, with all that is needed to go on from there."""
        known = self._positions()
        found = [position for position in known if step is None or position.step == step]
        if not found:
            steps = [position.step for position in known]
            raise StateError(f"step {step} is not among the last that were received: {steps}")
        position = found[-1]
        if position.lanes is not None and self._run is not None and not position.anchors:
            position = replace(position, anchors=self._run.anchors(position.slot, position.lanes))
        weights = self._origin.weights() if position.weights is None else position.weights
        return replace(position, ways=self._reading(), weights=weights)

    def _positions(self) -> Sequence[Position]:
        """List where the user was last; before anything was received, where the next iteration begins."""
        return self._received or (self._resume or Position(self.epoch),)

    def _place(self) -> Part:
        """Find out which rank of how many this is."""
        if self._part is None:
            options, group = self._options, current_group()
            world = options.world_size or (group.world_size if group is not None else 1)
            rank = options.rank if options.rank is not None else (group.rank if group is not None and world > 1 else 0)
            self._group = group if group is not None and group.world_size == world else None
            if self._origin.part is not None and world > 1:
                index, count = self._origin.part
                raise PlanError(
                    f"the dataset is part {index} of {count} already, and {world} ranks would split it again: each "
                    f"would see one sample in {count * world}. Leave .part() out, or load with rank=0, world_size=1"
                )
            self._part = Part(options.batch_size, rank, world, self._origin.lanes)
        return self._part

    def _reading(self) -> tuple[str, ...]:
        if self._ways is None:
            self._ways = self._origin.ways()
        return self._ways

    def _describe(self) -> dict[str, Any]:
        if self._description is None:
            self._description = self._described(self._reading())
        return self._description

    def _described(self, ways: Sequence[str]) -> dict[str, Any]:
        return self._origin.description(ways, wrap=self._options.end == "wrap")

    def _setting(self) -> Setting:
        return Setting(
            self._place(),
            Pool(self._options.workers, self._options.mode),
            self._options.end == "wrap",
            self._reading(),
            current_worker(),
            self._new_weights,
            self.ledger,
            self._slabs,
            self._options.progress,
        )

    def _known_slots(self) -> int | None:
        """Say how many slots an epoch has, where that follows from the lengths of the shards."""
        if self._options.end == "wrap" or not self._origin.is_straight(self._reading()):
            return None
        return self._origin.slots()

    def __getstate__(self) -> dict[str, Any]:
        self._place()  # a worker process would not find the process group
        gone = {"_group": None, "_under_way": None, "_run": None, "_slabs": None, "_meter": None}
        kept = {**self.__dict__, **gone, "_received": deque(maxlen=_REMEMBERED), "_resume": self._position(None)}
        return {name: value for name, value in kept.items() if name != "_convert"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._convert = registry.load("format", self._options.to)
        self._slabs = Slabs()

    def _next_epoch(self) -> Generator[Sample]:
        """Run an epoch, or what is left of one; it begins with its first batch, not when the iterator is made."""
        position = self._resume or Position(self.epoch)
        self._resume, self.epoch = None, position.epoch + 1
        self._received.clear()
        self._received.append(position)
        yield from self._epoch(position)

    def _epoch(self, position: Position) -> Generator[Sample]:
        setting = self._setting()
        known = self._slots_of_world(setting)
        run = self._run = self._origin.run(setting, position)
        self._meter = run.meter
        try:
            for batch, received in self._parts(run, setting, position, known):
                self._received.append(received)
                if run.line is not None:
                    run.line.tick()
                yield self._convert(batch)
                del batch
        finally:
            run.close()
        if self._run is run:
            self._finish(position.epoch)

    def _finish(self, epoch: int) -> None:
        """After the last batch, the position is the beginning of the next epoch; those before it stay known."""
        self._received.append(Position(epoch + 1))

    def _slots_of_world(self, setting: Setting) -> int | None:
        """Make sure that all ranks will take the same number of steps, by one of the ways there are."""
        if setting.part.world_size == 1:
            return None
        straight = self._origin.is_straight(setting.ways) and not setting.wrap
        if straight and (self._origin.counted or self._group is None):
            return self._origin.slots()
        if self._options.steps is None and self._group is None:
            raise PlanError(
                "ranks cannot know how many steps there are: the plan changes the number of samples, or the lengths of "
                "shards are not known. Give steps=, or start torch.distributed before the loader is iterated"
            )
        return None

    def _parts(
        self, run: Run, setting: Setting, position: Position, known: int | None
    ) -> Iterator[tuple[Sample, Position]]:
        """Yield this rank's part of each global batch, and the position after it."""
        part, slot, step = setting.part, position.slot, position.step
        filler: Sample | None = None
        while not self._is_over(slot, step, known):
            slots, size = rank_part(slot, part)
            mine = step % setting.worker[1] == setting.worker[0]
            rows = run.rows(slots) if mine else run.rows_of_others(slots)
            verdict = _GO if known is not None or rows is None else self._verdict(rows.present, len(rows), run.alive)
            if verdict == _STOP:
                return
            slot += part.batch_size
            if verdict == _GO:
                step += 1
                if mine and rows is not None:
                    run.meter.samples += rows.present
                    run.meter.bytes += rows.nbytes
                    if rows.present < size:
                        filler = rows.samples()[-1] if rows.present else filler or self._any_sample(position.epoch)
                    yield (
                        rows.batch(size, filler, setting.slabs.empty),
                        Position(position.epoch, slot, step, run.marks()),
                    )

    def _is_over(self, slot: int, step: int, known: int | None) -> bool:
        if self._options.steps is not None and step >= self._options.steps:
            return True
        if known is None:
            return False
        return slot + self._options.batch_size > known if self._options.end == "drop" else slot >= known

    def _verdict(self, samples: int, rows: int, alive: bool) -> int:
        """Decide, with the other ranks if need be, whether a batch is delivered, passed over, or the end."""
        if self._options.end == "drop":
            own = _GO if samples == rows else _STOP
        else:
            own = _GO if samples else _PASS if alive else _STOP
        if self._place().world_size == 1:
            return own
        if self._group is None or self._options.end == "wrap":
            return _GO  # the number of steps was given
        return self._group.highest(own) if self._options.end == "pad" else -self._group.highest(-own)

    def _any_sample(self, epoch: int) -> Sample:
        """Make another rank's sample, for a rank that never had one to pad its batches with."""
        options = replace(self._options, rank=0, world_size=1, workers=0, mode="thread", to="numpy", steps=1)
        alone = Loader(self._origin, replace(options, progress=False))
        run = self._origin.run(replace(alone._setting(), worker=(0, 1)), Position(epoch))
        try:
            for first in range(0, 2**62, options.batch_size):
                rows = run.rows(rank_part(first, alone._place())[0])
                if rows.present:
                    return rows.samples()[0]
                if not run.alive:
                    break
        finally:
            run.close()
        raise PlanError("there is no sample at all, so nothing to pad batches with: give fewer steps")

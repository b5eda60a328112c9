"""From stages to steps: what is done together, by whom, and what becomes of samples that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal import registry, settings
from shoal.abc import Block, Engine, Pool, Step, Stream
from shoal.errors import MissingDeviceError, SampleError, WorkerDiedError
from shoal.pipeline._devices import Move, with_devices
from shoal.pipeline._parcel import Parcel, Part
from shoal.pipeline.ledger import Failure
from shoal.pipeline.stages import BlockStage, FillStage, Own, Select, describe

__all__ = [
    "BLOCK",
    "Alone",
    "Chain",
    "Cross",
    "engine",
    "fitting",
    "fused",
    "is_plain",
    "share_of_memory",
    "start",
    "steps_of",
    "through",
    "with_bytes",
]

#: Samples that travel together, where nothing speaks for fewer.
BLOCK = 64

#: The stages that the samples of a leaf pass.
Chain = Sequence[BlockStage]


@dataclass(frozen=True, slots=True)
class Cross(BlockStage):
    """Where samples come to a plan: its random stages have a key of their own, and what was before is behind them."""

    shows_bytes = False
    counts = False
    salt: int
    first: bool = False

    def process(self, block: Block) -> Block:
        """Begin anew to tell what is made of which sample."""
        return replace(block, rows=None, salt=self.salt)


def start(
    chains: Mapping[int, Chain],
    pool: Pool,
    *,
    read: Callable[[Parcel], Parcel] | None = None,
    waits: bool = False,
    catch: bool,
    memory: int,
    ahead: int = 1,
) -> Stream[Parcel, Parcel]:
    """Start a stream that takes parcels through the stages of their leaves; it reads them first, if they are not yet.

    Neighbouring stages that ask for no workers of their own are one step, done by ``pool``; reading is part of the
    first, or a step of its own where the first is done in processes. Where reading does not wait for anything
    (``waits``) and no stage does, one thread does as much as several: they would only pass the interpreter's lock on.
    """
    chains = {leaf: with_devices(chain, pool) for leaf, chain in chains.items()}
    if all(map(is_plain, chains.values())) and not waits and pool.mode == "thread":
        pool = Pool(min(pool.bounds[1], 1))
    steps, treats = _steps(chains, pool, catch)
    joins = treats and treats[0].room is None and steps[0].pool.mode == "thread" and steps[0].pool == pool
    if read is not None and joins:
        steps[0] = Step(f"read and {treats[0].name}", _Both(read, treats[0]), pool)
    elif read is not None:
        steps.insert(0, Step("read", read, Pool(pool.workers if waits or pool.mode == "thread" else 1)))
    for number, treat in enumerate(treats, len(steps) - len(treats)):
        treat.step = number
    return engine().stream(steps, memory=memory, ahead=ahead)


def engine() -> Engine:
    """Give the engine that runs things now."""
    found: Engine = registry.load("session", "engine")()
    return found


def steps_of(chain: Chain, pool: Pool, *, catch: bool) -> list[Step]:
    """Say what is done with the samples of a plan that has one leaf, step by step, each in any process."""
    return _steps({0: with_devices(chain, pool, apart=True)}, pool, catch)[0]


def _steps(chains: Mapping[int, Chain], pool: Pool, catch: bool) -> tuple[list[Step], list[Treat]]:
    processes = any((stage.pool or pool).mode == "process" for chain in chains.values() for stage in chain)
    cuts = {leaf: list(_cut(chain, pool, at_mixtures=processes)) for leaf, chain in chains.items()}
    steps, treats = [], []
    for number in range(max(map(len, cuts.values()), default=0)):
        here = {leaf: cut[number] for leaf, cut in cuts.items() if number < len(cut)}
        treat = Treat({leaf: tuple(stages) for leaf, (_, stages) in here.items()}, catch)
        treat.step = number
        treats.append(treat)
        widest = _widest([pool for pool, _ in here.values()])
        steps.append(Step(treat.name, treat, widest, treat.rescue, treat.room))
    return steps, treats


def is_plain(chain: Chain) -> bool:
    """Tell whether stages do nothing that takes long or needs samples one by one."""
    return all(isinstance(stage, Cross | Own | Select) and stage.pool is None for stage in chain)


def share_of_memory(streams: int) -> int:
    """Give the bytes that each of several streams of a run may hold."""
    return settings.current().memory // streams


def fitting(parcel: Parcel, count: int, memory: int, capacity: int) -> int:
    """Say how many samples like those of a parcel a parcel may have, if there are as many of them as there may be."""
    return max(memory // (2 * capacity) * count // max(parcel.nbytes, 1), 1)


def fused(stages: Sequence[BlockStage]) -> tuple[BlockStage, ...]:
    """Put stages together that can do their work better at once."""
    done: list[BlockStage] = []
    for stage in stages:
        better = stage.after(done[-1]) if done else None
        done[len(done) - (better is not None) :] = [stage] if better is None else better
    return tuple(done)


def with_bytes(stages: Sequence[BlockStage], *, views: bool, to_the_end: bool) -> tuple[BlockStage, ...]:
    """Put in where views into shards become bytes: before user code sees them, or at the end if it is asked for."""
    if views:
        return tuple(stages)
    at = next((at for at, stage in enumerate(stages) if stage.shows_bytes), len(stages) if to_the_end else None)
    if at is None:
        return tuple(stages)
    neighbour = stages[at] if at < len(stages) else stages[-1] if stages else None
    return (*stages[:at], Own(pool=None if neighbour is None else neighbour.pool), *stages[at:])


def through(stages: Sequence[BlockStage], block: Block, failures: list[tuple[int, Failure]] | None = None) -> Block:
    """Send a block through stages in this thread; where failures are collected, samples that fail are left out."""
    parcel = Alone(stages, catch=failures is not None)(block)
    if failures is not None:
        failures += parcel.failures
    return parcel.parts[0].block


class Alone:
    """Sends blocks through stages in this thread; where it catches, samples that fail are left out and told."""

    def __init__(self, stages: Sequence[BlockStage], *, catch: bool) -> None:
        self._treat = Treat({0: with_devices(stages, Pool(0))}, catch)

    def __call__(self, block: Block) -> Parcel:
        """Treat a block, the only one of its parcel."""
        return self._treat(Parcel(None, [Part(0, block, range(len(block.samples)))]))


class Treat:
    """Takes parcels through neighbouring stages; runs in a worker, which may be another process."""

    def __init__(self, stages: Mapping[int, tuple[BlockStage, ...]], catch: bool) -> None:
        self._stages = {leaf: [(_name(stage), stage) for stage in some] for leaf, some in stages.items()}
        self._catch = catch
        self.step = 0
        """Which step of its stream it is."""
        named = [pair for some in self._stages.values() for pair in some if pair[1].counts]
        names = (name for name, stage in named if not isinstance(stage, Own))
        self.name = ", ".join(dict.fromkeys(names)) or "copy"
        rooms = [stage.room for _, stage in named if isinstance(stage, Move) and stage.room is not None]
        self.room = max(rooms, default=None)
        """How many parcels may be where it took them and wait there."""

    def __call__(self, parcel: Parcel) -> Parcel:
        """Treat a parcel."""
        for part in parcel.parts:
            for name, stage in self._stages.get(part.leaf, ()):
                begun, count = time.perf_counter(), len(part.block.samples)
                parcel.stage = name
                self._treat(name, stage, part, parcel)
                if stage.counts:
                    parcel.spent.append((self.step, name, time.perf_counter() - begun, count))
        parcel.stage = ""
        return parcel

    def rescue(self, work: Callable[[Any], Any], parcel: Parcel, error: Exception) -> Parcel:
        """Find the samples of which worker processes die, by sending them one by one."""
        for part in parcel.parts:
            made: list[tuple[int, Block]] = []
            for place in range(len(part.block.samples)):
                single = Parcel(None, [Part(part.leaf, _single(part.block, place), [part.input_of(place)])])
                try:
                    treated = work(single)
                except WorkerDiedError as death:
                    self._bury(parcel, part, place, death)
                else:
                    made.append((place, treated.parts[0].block))
                    parcel.failures += treated.failures
            self._cross(part)
            part.block = _joined(part.block, made)
        return parcel

    def _treat(self, name: str, stage: BlockStage, part: Part, parcel: Parcel) -> None:
        if isinstance(stage, Cross) and not stage.first:
            part.crossed.append(part.block.rows)
        try:
            if part.rows is not None and isinstance(stage, FillStage):
                part.block, part.rows = stage.fill(part.block, part.rows), None
            else:
                part.block = stage.process(part.block)
        except MissingDeviceError:
            raise  # no sample is to blame
        except Exception:
            if not self._catch:
                raise
            part.rows = None
            part.block = self._one_by_one(name, stage, part, parcel)

    def _one_by_one(self, name: str, stage: BlockStage, part: Part, parcel: Parcel) -> Block:
        made: list[tuple[int, Block]] = []
        for place, sample in enumerate(part.block.samples):
            single = _single(part.block, place)
            try:
                made.append((place, stage.process(single)))
            except Exception as error:
                shard = single.origin(sample["__key__"])
                failure = Failure.of(error, key=sample["__key__"], shard=shard, stage=name)
                parcel.failures.append((part.input_of(place), failure))
        return _joined(part.block, made)

    def _bury(self, parcel: Parcel, part: Part, place: int, death: WorkerDiedError) -> None:
        single = _single(part.block, place)
        key = single.samples[0]["__key__"]
        error = SampleError(f"worker processes died of it: {death}", key=key, shard=single.origin(key))
        error.add_note(f"in stage {self.name}")
        if not self._catch:
            raise error from death
        failure = Failure.of(error, key=key, shard=single.origin(key), stage=self.name)
        parcel.failures.append((part.input_of(place), failure))

    def _cross(self, part: Part) -> None:
        """Pass the mixtures at which the stages begin, if there are any: in a step of processes they come first."""
        for _, stage in self._stages.get(part.leaf, ()):
            if not isinstance(stage, Cross):
                return
            if not stage.first:
                part.crossed.append(part.block.rows)
            part.block = stage.process(part.block)


@dataclass(frozen=True)
class _Both:
    read: Callable[[Parcel], Parcel]
    treat: Treat

    def __call__(self, parcel: Parcel) -> Parcel:
        return self.treat(self.read(parcel))


def _name(stage: BlockStage) -> str:
    return "copy" if isinstance(stage, Own) else describe(stage)


def _cut(chain: Chain, pool: Pool, *, at_mixtures: bool) -> Iterator[tuple[Pool, list[BlockStage]]]:
    """Put neighbours together that are done by the same workers; stages that ask for their own are by themselves."""
    stages: list[BlockStage] = []
    own: Pool | None = None
    for stage in chain:
        crossing = isinstance(stage, Cross)
        begun = any(not isinstance(each, Cross) for each in stages)
        if begun and (at_mixtures if crossing else stage.pool is not own):
            yield own or pool, stages
            stages = []
        own = own if crossing else stage.pool
        stages.append(stage)
    if any(not isinstance(stage, Cross) for stage in stages):
        yield own or pool, stages


def _widest(pools: Sequence[Pool]) -> Pool:
    """Give a pool for what several leaves ask for."""
    if len(set(pools)) == 1:
        return pools[0]
    low, high = (max(pool.bounds[at] for pool in pools) for at in range(2))
    mode = "process" if any(pool.mode == "process" for pool in pools) else "thread"
    cpus = max((pool.cpus for pool in pools if pool.cpus is not None), default=None)
    return Pool((low, high) if low < high else high, mode, cpus, max(pool.gpus for pool in pools))


def _single(block: Block, place: int) -> Block:
    """Take one sample by itself."""
    return replace(block.pick([place], [block.samples[place]]), rows=None)


def _joined(before: Block, made: Sequence[tuple[int, Block]]) -> Block:
    """Put together what was made of the samples of a block one by one."""
    places = [place for place, block in made for _ in block.samples]
    joined = before.pick(places, [sample for _, block in made for sample in block.samples])
    ids = [block.ids for _, block in made if block.ids is not None]
    return joined if joined.ids is None else replace(joined, ids=np.concatenate([joined.ids[:0], *ids]))

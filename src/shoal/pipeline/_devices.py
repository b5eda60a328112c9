"""Where samples are taken to devices and back: stages that are put around those that ask for one.

Neighbours on one device are a group, in which samples stay there. Taking them there is a step with a thread of its own,
so the next samples are on their way while some are computed with; bringing them back is another. Who computes waits for
the samples in hand alone. Processes share no device's memory, so there a group is what one process does, with its way
there and back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from shoal.abc import Block, Device, Pool, Sample
from shoal.pipeline._site import Site
from shoal.pipeline.stages import BlockStage, CallStage, On, Own, Place, describe

__all__ = ["Move", "with_devices"]


@dataclass(frozen=True, slots=True)
class _Visit(BlockStage):
    """Something that is done with each sample of a group."""

    shows_bytes = False
    site: Site
    of: str
    """The stage that asks for the device."""

    @property
    def title(self) -> str:
        return self.of

    def process(self, block: Block) -> Block:
        act, samples = self.act(self.site.find(self.of)), []
        for sample in block.samples:
            with Place(self, sample, block):
                samples.append(act(sample))
        return block.with_samples(samples)

    @abstractmethod
    def act(self, device: Device) -> Callable[[Sample], Sample]:
        """Say what is done."""


@dataclass(frozen=True, slots=True)
class Move(_Visit):
    """Begins to take samples to a device."""

    room: int | None = None
    """Parcels that may be on their way, or there and wait to be computed with, where others compute."""

    @property
    def title(self) -> str:
        """How it is called."""
        return f"to {self.site.name}"

    def act(self, device: Device) -> Callable[[Sample], Sample]:
        """Take them there."""
        return device.there


@dataclass(frozen=True, slots=True)
class _Arrive(_Visit):
    """Lets what is computed next wait for samples that are on their way."""

    counts = False

    def act(self, device: Device) -> Callable[[Sample], Sample]:
        return device.ready


@dataclass(frozen=True, slots=True)
class _Leave(_Visit):
    """Notes up to where samples have been computed."""

    counts = False

    def act(self, device: Device) -> Callable[[Sample], Sample]:
        return device.made


@dataclass(frozen=True, slots=True)
class _Return(_Visit):
    """Brings samples back, or waits for those that stay."""

    stays: bool = False

    @property
    def title(self) -> str:
        return f"{'on' if self.stays else 'from'} {self.site.name}"

    def act(self, device: Device) -> Callable[[Sample], Sample]:
        return device.stay if self.stays else device.back


class _Where(NamedTuple):
    """What stages have in common that find one another's samples where they left them; nothing without a device."""

    device: Any = None
    process: int | None = None
    """Which pool of processes it is; None for threads, which share what is there."""


def with_devices(stages: Sequence[BlockStage], pool: Pool, *, apart: bool = False) -> tuple[BlockStage, ...]:
    """Put in where samples are taken to the devices that stages ask for, and back.

    A device that threads of this process use is looked for at once, so that a run that misses it does not begin. With
    ``apart`` each step may be done in another process, whatever its pool says.
    """
    made: list[BlockStage] = []
    for where, some in groupby(stages, lambda stage: _where(stage, pool, apart)):
        group = list(some)
        if where.device is None:
            made += group
            continue
        stays = isinstance(group[-1], On) and group[-1] is stages[-1] and not apart
        visited = list(_visited(group, pool, where, stays))
        if made and isinstance(made[-1], Own) and made[-1].pool is group[0].pool is not None:
            made[-1] = replace(made[-1], pool=visited[0].pool)  # views are copied by whoever takes them there
        made += visited
    return tuple(made)


def _where(stage: BlockStage, pool: Pool, apart: bool) -> _Where:
    site = stage.device if isinstance(stage, CallStage) else None
    if site is None:
        return _Where()
    own = stage.pool or pool
    if apart or (own.mode == "process" and not isinstance(stage, On)):
        return _Where(site.wanted, id(own))
    return _Where(site.find(describe(stage)).name)


def _visited(group: Sequence[BlockStage], pool: Pool, where: _Where, stays: bool) -> Iterator[BlockStage]:
    """Give the stages of a group with all that is done for the device around them."""
    first, last = group[0], group[-1]
    assert isinstance(first, CallStage)
    assert first.device is not None
    site, mover = first.device, _mover(first, pool, where)
    room = None if mover is first.pool else (first.pool or pool).bounds[1] + 1
    yield Move(site, describe(first), room, pool=mover)
    before: BlockStage | None = None
    for stage in group:
        if isinstance(stage, On):
            continue
        if before is None or before.pool is not stage.pool:
            if before is not None:
                yield _Leave(site, describe(before), pool=before.pool)
            yield _Arrive(site, describe(stage), pool=stage.pool)
        yield stage
        before = stage
    if before is not None:
        yield _Leave(site, describe(before), pool=before.pool)
    yield _Return(site, describe(last), stays, pool=_mover(last, pool, where))


def _mover(stage: BlockStage, pool: Pool, where: _Where) -> Pool | None:
    """Say who goes there or back with samples: a thread that does nothing else, where others compute in threads."""
    alone = where.process is None and (stage.pool or pool).bounds != (0, 0)
    return Pool(1) if alone else stage.pool

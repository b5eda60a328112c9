"""Batches that are read in one place and dealt out: each worker gets its part of each of them.

Every worker gets as many parts as there are batches, so all take the same steps. Whoever has no row of a small batch
gets one that does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from shoal.abc import Block, Shard, Source, dealt
from shoal.engines import Share
from shoal.errors import PlanError
from shoal.pipeline import Dataset

__all__ = ["Item", "Part", "PartsLoader", "Shared", "parts_of"]

#: Items, or anything else that has a length and can be cut, and how many of them count.
Part: TypeAlias = "tuple[Any, int]"


class Item:
    """A value that travels as it is; wrapped, so that nobody stacks it on the way."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class PartsLoader:
    """The parts of one worker; each iteration is an epoch."""

    samples: int | None = None

    def __init__(self, parts: Callable[[], Iterator[Part]], steps: int | None = None) -> None:
        self._parts, self.steps = parts, steps
        self.epoch = self._step = self._skipped = 0
        self._under_way: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.close()
        self._under_way = self._next_epoch()
        return self._under_way

    def close(self) -> None:
        """End the epoch that is under way."""
        if self._under_way is not None:
            self._under_way.close()  # type: ignore[attr-defined]
            self._under_way = None

    def state_dict(self) -> dict[str, Any]:
        """Say how many batches of which epoch were received."""
        return {"epoch": self.epoch, "step": self._step}

    def load_state_dict(self, states: Any) -> None:
        """Go on after as many batches, which are read and left out: whoever deals them out begins anew."""
        state = states if isinstance(states, Mapping) else states[0]
        self.epoch, self._skipped = state["epoch"], state["step"]
        self._step = self._skipped

    def _next_epoch(self) -> Iterator[dict[str, Any]]:
        skipped, self._skipped = self._skipped, 0
        parts = self._parts()
        for number, (items, count) in enumerate(parts, 1):
            if number > skipped:
                self._step = number
                yield {"items": items, "count": count}
            if number == self.steps:
                break
        getattr(parts, "close", lambda: None)()
        self.epoch, self._step = self.epoch + 1, 0


class Shared:
    """Parts of batches that the process which has the data sends to the workers."""

    def __init__(self, batches: Iterable[Any], workers: int) -> None:
        source = _BatchSource(batches, workers)
        self._shares: list[Share] = Dataset(source).split(workers, equal=False, part=1, workers=0)

    def __call__(self, rank: int, world_size: int) -> Iterator[Part]:
        """Give the parts of a worker."""
        if world_size != len(self._shares):
            text = f"the batches are dealt out to {len(self._shares)} workers, and there are {world_size}"
            raise PlanError(f"{text}; data that is served needs the number of workers that it began with")
        for sample in self._shares[rank]:
            yield sample["part"].value

    def close(self) -> None:
        """End the dealing."""
        self._shares[0].close()


def parts_of(batch: Any, workers: int) -> Iterator[Part]:
    """Deal a batch out: as many to each, in their order; who has none gets the first, which does not count.

    >>> list(parts_of([1, 2, 3], 2)), list(parts_of([1], 2))
    ([([1, 2], 2), ([3], 1)], [([1], 1), ([1], 0)])
    """
    for places in dealt(len(batch), workers):
        yield (batch[places.start : places.stop], len(places)) if places else (batch[:1], 0)


class _BatchSource(Source):
    """A sample is the part that one worker has of a batch; those of a batch follow one another."""

    def __init__(self, batches: Iterable[Any], workers: int) -> None:
        self._batches, self._workers = batches, workers

    @property
    def seekable(self) -> bool:
        """False: it is a stream."""
        return False

    def shards(self) -> Sequence[Shard]:
        """Name the stream."""
        return [Shard("batches://")]

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        """Yield the parts of a batch as a block."""
        for number, batch in enumerate(self._batches):
            parts = enumerate(parts_of(batch, self._workers))
            yield Block([{"__key__": f"{number}-{rank}", "part": Item(part)} for rank, part in parts], (shard,))

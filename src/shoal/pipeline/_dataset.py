"""`Dataset`: a plan with methods that add to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shoal.abc import Sample, Shard, Source
from shoal.errors import PlanError
from shoal.order import Shuffle
from shoal.pipeline._loader import Loader, LoaderOptions
from shoal.pipeline._plan import Plan, run, shard_lengths, storage_blocks
from shoal.pipeline.stages import Batch, Decode, Filter, FlatMap, Map, Select, Stage, Take, describe
from shoal.shards import ShardWriter, WrittenShard
from shoal.shards.codecs import DecodeOptions

__all__ = ["Dataset"]


class Dataset:
    """A list of shards and what is to be done with their samples.

    Each method gives a new dataset; nothing is read until it is iterated, written or loaded from. Iterating keeps the
    order in which the samples lie in their shards; `loader` shuffles and batches for training.

    >>> import shoal, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with shoal.shards.TarWriter(f"{folder}/a.tar") as writer:
    ...     for i in range(3):
    ...         _ = writer.write({"__key__": str(i), "cls": i})
    >>> dataset = shoal.read_tar(f"{folder}/a.tar").decode().filter(lambda sample: sample["cls"] != 1)
    >>> [sample["cls"] for sample in dataset]
    [0, 2]
    """

    def __init__(self, source: Source, *, plan: Plan | None = None) -> None:
        self._plan = Plan(source) if plan is None else plan

    def __repr__(self) -> str:
        shuffle = [f"shuffle({self._plan.shuffle.mode!r})"] if self._plan.shuffle else []
        return ".".join([repr(self._plan.source), *map(describe, self._plan.stages), *shuffle])

    def __iter__(self) -> Iterator[Sample]:
        return self.run()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards, in storage order."""
        return tuple(self._plan.source.shards())

    def select(self, *fields: str) -> Dataset:
        """Keep some fields. ``"jpg;jpeg"`` takes the first of them that a sample has, under the first name."""
        return self._then(Select(tuple(tuple(names.split(";")) for names in fields)))

    def decode(
        self,
        images: str = "rgb8",
        *,
        only: Iterable[str] | None = None,
        codecs: Mapping[str, Callable[[bytes], Any]] | None = None,
        trust: bool = False,
    ) -> Dataset:
        """Turn bytes into values by extension; see `shoal.shards.codecs` for the kinds of pictures.

        ``only`` leaves the other fields as they are; ``codecs`` gives functions of your own for some fields; ``trust``
        allows formats that can run code (pickle, pth).
        """
        options = DecodeOptions(images=images, trust=trust)
        return self._then(Decode(options, None if only is None else frozenset(only), dict(codecs or {})))

    def map(self, function: Callable[[Sample], Sample]) -> Dataset:
        """Turn each sample into another; a result without a key gets that of its sample."""
        return self._then(Map(function))

    def filter(self, predicate: Callable[[Sample], bool]) -> Dataset:
        """Keep the samples for which a function is true."""
        return self._then(Filter(predicate))

    def flat_map(self, function: Callable[[Sample], Iterable[Sample]]) -> Dataset:
        """Turn each sample into any number of samples; those without a key are numbered after their parent's."""
        return self._then(FlatMap(function))

    def take(self, count: int) -> Dataset:
        """Keep the first samples."""
        if count < 0:
            raise PlanError(f"take({count}) makes no sense: the count must not be negative")
        return self._then(Take(count))

    def batch(self, size: int, *, partial: bool = True) -> Dataset:
        """Stack samples into dicts of arrays; the stages after this one see batches."""
        if size < 1:
            raise PlanError(f"a batch has at least 1 sample, not {size}")
        return self._then(Batch(size, partial))

    def shuffle(self, mode: str = "shards", *, seed: int = 0, window: int = 16) -> Dataset:
        """Let `loader` shuffle: ``"full"`` over all samples, ``"shards"`` inside windows of shuffled shards."""
        return self._with(replace(self._plan, shuffle=Shuffle(mode, seed, window)))

    def views(self) -> Dataset:
        """Let fields that are not decoded be read-only memoryviews into their mapped shard, instead of bytes.

        Nothing is copied then; a view keeps its shard mapped, and cannot be pickled.
        """
        return self._with(replace(self._plan, views=True))

    def count(self) -> int:
        """Count the samples, from the indexes of the shards where no stage drops or adds any."""
        if self._plan.keeps_count:
            return sum(shard_lengths(self._plan.source))
        return sum(1 for _ in self)

    def run(self, *, workers: int | str = 0) -> Iterator[Sample]:
        """Yield the samples in storage order, the work of the stages spread over ``workers`` threads."""
        return run(self._plan, storage_blocks(self._plan.source), workers)

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Load batches for training; see `Loader` for the options."""
        return Loader(self._plan, LoaderOptions(batch_size, **options))

    def write_tar(
        self,
        pattern: str | os.PathLike[str],
        *,
        maxcount: int = 100_000,
        maxsize: float | str = 3e9,
        index: bool = True,
        **options: Any,
    ) -> list[WrittenShard]:
        """Run the plan and write its samples into shards named by ``pattern`` (``"train-%06d.tar"``).

        Further options are those of `shoal.shards.TarWriter`.
        """
        with ShardWriter(pattern, maxcount, maxsize, index=index, **options) as writer:
            for sample in self.run(workers="auto"):
                writer.write(sample)
        return writer.shards

    def _then(self, stage: Stage) -> Dataset:
        return self._with(self._plan.then(stage))

    def _with(self, plan: Plan) -> Dataset:
        return Dataset(plan.source, plan=plan)

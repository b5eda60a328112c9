"""`Dataset`: a plan with methods that add to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from shoal import registry
from shoal.abc import Pool, PoolOptions, Sample, Shard, Source, Workers
from shoal.errors import PlanError
from shoal.order import Batching, Shuffle, ShuffleReport, Weights
from shoal.pipeline._built import function_of
from shoal.pipeline._leaves import lengths_of
from shoal.pipeline._loader import Loader, LoaderOptions
from shoal.pipeline._origin import PlanOrigin
from shoal.pipeline._part import PartOf
from shoal.pipeline._plan import Mixture, Plan
from shoal.pipeline._replay import replayed
from shoal.pipeline._shuffle_report import report_on_shuffles
from shoal.pipeline._site import Site
from shoal.pipeline._steps import BLOCK
from shoal.pipeline._storage import StorageRun
from shoal.pipeline.gather import Batch, Budget, Length, Pack, Take
from shoal.pipeline.ledger import Failure, Ledger, OnError
from shoal.pipeline.stages import BlockStage, Decode, Filter, FlatMap, Map, On, Select, Stage, describe
from shoal.shards import ShardWriter, WrittenShard
from shoal.shards.codecs import DecodeOptions

__all__ = ["Dataset", "mix"]

_EXHAUSTED = ("stop", "drop", "wrap")


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
        plan = self._plan
        shuffle = [f"shuffle({plan.shuffle.mode!r})"] if plan.shuffle else []
        parts = (repr(Dataset._of(component)) for component in plan.components)
        source = f"mix({', '.join(parts)})" if plan.components else repr(plan.source)
        return ".".join([source, *map(describe, plan.stages), *shuffle])

    def _repr_html_(self) -> str:
        drawn: str = registry.load("look", "plan")(self)
        return drawn

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.run())

    def show(self, n: int = 12) -> Any:
        """Picture the plan and the first samples that come out of it: drawn in a notebook, a few lines on a terminal.

        >>> import shoal
        >>> shoal.from_arrays({"x": range(3)}).filter(lambda sample: sample["x"] > 0).show(1)
        ArraySource(x[3]) -> filter(<lambda>)
        000000001  x 1
        """
        return registry.load("look", "samples")(self, n)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards, in storage order; those of a mixture's components one after the other."""
        return tuple(shard for source in self._plan.sources() for shard in source.shards())

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
        **pool: Unpack[PoolOptions],
    ) -> Dataset:
        """Turn bytes into values by extension; see `shoal.shards.codecs` for the kinds of pictures.

        ``only`` leaves the other fields as they are; ``codecs`` gives functions of your own for some fields; ``trust``
        allows formats that can run code (pickle, pth). Who does it is said as in `map`.
        """
        options, chosen = DecodeOptions(images=images, trust=trust), None if only is None else frozenset(only)
        return self._then(Decode(options, chosen, dict(codecs or {}), pool=_pool(pool)))

    def map(
        self,
        function: Callable[..., Sample],
        *,
        random: bool = False,
        arguments: Mapping[str, Any] | None = None,
        environment: str | Path | None = None,
        device: Any = None,
        **pool: Unpack[PoolOptions],
    ) -> Dataset:
        """Turn each sample into another; a result without a key gets that of its sample.

        With ``workers`` the stage has so many of its own: a number, a range ``(1, 4)`` in which the run looks for the
        right one, or ``"auto"``. ``mode="process"`` is for functions that hold the interpreter's lock. ``cpus`` and
        ``gpus`` are what each worker uses; on Ray, processes are actors that have them.

        A class is built once by each worker, with ``arguments``, and then called: for models, and whatever else takes
        long to load.

        With ``device`` (``"cuda:1"``, a ``torch.device``, or an object like `shoal.abc.Device`) the class is built
        there, and the function gets tensors that are there; they are moved ahead of time. Stages that follow on the
        same device find what this one left, others get arrays. Where no device is asked for, and what is built of a
        class has a ``device``, it gets tensors that are there all the same, one sample after the other.

        With ``environment`` the function runs in another Python environment (`shoal.environments`): one that was built
        by `shoal env create`, or that of a path. It may be named there, as in ``"package.module:function"``.

        With ``random=True`` the function is called as ``function(sample, rng)`` with a numpy generator that follows
        from the seed of `shuffle`, the epoch, the sample and this stage: a sample is treated alike wherever and
        whenever it is its turn, and otherwise in the next epoch.
        """
        number = self._stage_number() if random else None
        site = _site(device)
        called = function_of(function, arguments, environment, site)
        return self._then(Map(called, number, device=site, pool=_pool(pool)))

    def filter(
        self,
        predicate: Callable[[Sample], bool],
        *,
        arguments: Mapping[str, Any] | None = None,
        environment: str | Path | None = None,
        device: Any = None,
        **pool: Unpack[PoolOptions],
    ) -> Dataset:
        """Keep the samples for which a function, or what is built of a class, is true; see `map`."""
        site = _site(device)
        called = function_of(predicate, arguments, environment, site)
        return self._then(Filter(called, device=site, pool=_pool(pool)))

    def flat_map(
        self,
        function: Callable[[Sample], Iterable[Sample]],
        *,
        arguments: Mapping[str, Any] | None = None,
        environment: str | Path | None = None,
        device: Any = None,
        **pool: Unpack[PoolOptions],
    ) -> Dataset:
        """Turn each sample into any number of samples; those without a key are numbered after their parent's.

        Functions and classes are as in `map`.
        """
        site = _site(device)
        called = function_of(function, arguments, environment, site)
        return self._then(FlatMap(called, device=site, pool=_pool(pool)))

    def on(self, device: Any) -> Dataset:
        """Take samples to a device, as in `map`, and let them stay there if this is the last stage.

        Iterating and `loader` give tensors on the device, then; behind `batch` a batch is moved as a whole. What
        stages of this device made right before is there already.

        >>> import shoal
        >>> loader = shoal.from_arrays({"x": range(4)}).lanes(1).batch(2).on("cpu").loader(1, to="torch")
        >>> [batch["x"].device.type for batch in loader]
        ['cpu', 'cpu']
        """
        return self._then(On(device=Site.of(device)))

    def apply(self, *stages: BlockStage, **pool: Unpack[PoolOptions]) -> Dataset:
        """Add stages that are made elsewhere, such as those of `shoal.image`.

        Who does them, all together, is said as in `map`.
        """
        chosen, dataset = _pool(pool), self
        for stage in stages:
            own: dict[str, Any] = {} if chosen is None else {"pool": chosen}
            if stage.is_random:
                own["random"] = dataset._stage_number()
            dataset = dataset._then(replace(stage, **own))
        return dataset

    def unordered(self) -> Dataset:
        """Let samples come in any order where that is quicker: iterating on Ray runs the plan as Ray Data then.

        A loader keeps its order all the same.
        """
        return self._with(replace(self._plan, unordered=True))

    def take(self, count: int) -> Dataset:
        """Keep the first samples; in a loader, the first of each lane."""
        return self._then(Take(count))

    def batch(
        self,
        size: int | None = None,
        *,
        tokens: int | None = None,
        bytes: int | None = None,
        length: Length | None = None,
        pad: Mapping[str, Any] | None = None,
        partial: bool = True,
    ) -> Dataset:
        """Stack samples into dicts of arrays; the stages after this one see batches.

        A batch has ``size`` samples, or as many as fit into a number of ``tokens`` (what ``length`` measures: the
        length of a field, or what a function tells) or ``bytes``. ``pad`` fills fields of different length up, as in
        ``{"tokens": 0}``; padding counts as tokens then.
        """
        return self._then(Batch(Budget(size, tokens, bytes, length), (), pad, partial))

    def bucket(
        self,
        length: Length,
        boundaries: Iterable[int],
        *,
        size: int | None = None,
        tokens: int | None = None,
        bytes: int | None = None,
        pad: Mapping[str, Any] | None = None,
        partial: bool = True,
    ) -> Dataset:
        """Make batches of samples of similar length: each bucket, from one boundary to the next, fills its own."""
        return self._then(Batch(Budget(size, tokens, bytes, length), tuple(boundaries), pad, partial))

    def pack(self, length: int, fields: str | Iterable[str] = "tokens", **options: Any) -> Dataset:
        """Fill sequences of one length with several samples; see `shoal.pipeline.gather.Pack` for the options.

        The result has the packed fields, ``segments`` (which sample a token is of, from 1 on; 0 is padding),
        ``positions`` (where in it), and ``__parts__``: the key and range of each sample.
        """
        return self._then(Pack(length, (fields,) if isinstance(fields, str) else tuple(fields), **options))

    def shuffle(
        self, mode: str = "shards", *, seed: int = 0, window: int = 16, chunk: int = 8, cut: str = "auto"
    ) -> Dataset:
        """Let `loader` shuffle: ``"full"`` over all samples, ``"shards"`` inside windows of shuffled shards.

        See `shoal.order.Shuffle` for what the numbers mean, and `shuffle_report` for what they do.
        """
        if isinstance(self._plan.source, Mixture):
            raise PlanError("a mixture is drawn from its components in turn: shuffle these, each by itself")
        return self._with(replace(self._plan, shuffle=Shuffle(mode, seed, window, chunk, cut)))

    def lanes(self, count: int) -> Dataset:
        """Set how many lanes `loader` deals samples to: as many ranks as that can share the work at most."""
        if count < 1:
            raise PlanError(f"a dataset has at least 1 lane, not {count}")
        return self._with(replace(self._plan, lanes=count))

    def part(self, index: int, count: int) -> Dataset:
        """Keep one of ``count`` parts, for programs that run by themselves: every so-manieth shard.

        Ranks of one training need no parts, they share each batch; a loader refuses to split a part again.
        """
        if not 0 <= index < count:
            raise PlanError(f"part {index} is not one of the {count} parts 0 to {count - 1}")
        if self._plan.part is not None:
            raise PlanError("the dataset is a part already: a part is not split again")
        if isinstance(self._plan.source, Mixture):
            raise PlanError("a mixture has no shards of its own: take parts of its components")
        return self._with(replace(self._plan, source=PartOf(self._plan.source, index, count), part=(index, count)))

    def views(self) -> Dataset:
        """Let fields that are not decoded be read-only memoryviews into their mapped shard, instead of bytes.

        Nothing is copied then; a view keeps its shard mapped, and cannot be pickled.
        """
        return self._with(replace(self._plan, views=True))

    def count(self) -> int:
        """Count the samples, from the indexes of the shards where no stage drops or adds any."""
        source = self._plan.source
        if not self._plan.keeps_count or not isinstance(source, Source):
            return sum(1 for _ in self)
        if source.seekable:
            samples = int(lengths_of(source)(np.arange(len(source.shards()))).sum())
        else:
            samples = sum(len(block.samples) for shard in source.shards() for block in source.open(shard))
        limit = self._plan.with_limit().limit
        return samples if limit is None else min(samples, limit)

    def run(
        self, *, workers: Workers = 0, mode: str = "thread", on_error: OnError = "raise", error_budget: float = 0.05
    ) -> StorageRun:
        """Yield the samples in storage order.

        The stages that have no workers of their own are done by ``workers`` threads or processes (``mode``).
        ``on_error="skip"`` leaves out samples that fail and writes them into the run's ``ledger``, as long as they are
        no more than ``error_budget``: a number, or a share of the samples as in 0.05. A function decides by the
        `Failure` that it is given: true skips.
        """
        ledger = Ledger(on_error, error_budget)
        return StorageRun(self._plan.skipping() if ledger.catches else self._plan, Pool(workers, mode), ledger)

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Load batches for training; see `Loader` for the options."""
        return Loader(PlanOrigin(self._plan), LoaderOptions(batch_size, **options))

    def to_tf(
        self,
        feature_cols: str | Sequence[str] | None = None,
        label_cols: str | Sequence[str] | None = None,
        *,
        batch_size: int | None = None,
        signature: Any = None,
        **options: Any,
    ) -> Any:
        """Make a ``tf.data.Dataset``: of batches, or without ``batch_size`` of samples, in the order of `loader`.

        Elements are dicts of all fields, or pairs of features and labels: a tensor for one name, a dict for a list of
        names. Shapes and types are those of a first batch, which is read for that, with any number of rows; where they
        are not those of all, give ``signature``, a structure of ``tf.TensorSpec`` for an element. Each iteration is an
        epoch. Options are those of `loader`.

        Batches are handed over: arrays of numbers that a loader has stacked keep their memory. Text and arrays of
        different lengths (ragged tensors) are copied, and so are samples, of which TensorFlow makes one each.
        ``shoal.from_arrays({"x": range(5)}).to_tf("x", batch_size=2)`` has elements of shape ``(None,)``.
        """
        world = {} if "rank" in options or "world_size" in options else {"rank": 0, "world_size": 1}
        return registry.load("adapter", "tensorflow")(
            lambda size: self.loader(size, **world, **options), feature_cols, label_cols, batch_size, signature
        )

    def batch_at(self, epoch: int, step: int, batch_size: int, **options: Any) -> Sample:
        """Make one global batch again, alone: what all ranks together got in a step of a `loader` with these options.

        Where the plan keeps the number of samples, only the samples of this batch are read; else the epoch is gone
        through up to it.
        """
        return self.loader(batch_size, rank=0, world_size=1, **options).batch_at(epoch, step)

    def shuffle_report(self, batch_size: int = 64, *, world_size: int = 1, buffer: int = 1000) -> ShuffleReport:
        """Say what each way of shuffling would do, before a run: how well it mixes batches, and what it reads for that.

        For comparison it also tells what a shuffle buffer of so many samples over shuffled shards would do. Shards are
        asked for their lengths and sizes; no sample is read.

        >>> import shoal, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with shoal.shards.ShardWriter(f"{folder}/%d.tar", maxcount=100) as writer:
        ...     for i in range(400):
        ...         _ = writer.write({"__key__": str(i), "cls": i})
        >>> report = shoal.read_tar(f"{folder}/{{0..3}}.tar").shuffle("shards").shuffle_report(batch_size=16)
        >>> report.row("none").shards_in_batch < 1.2 < 3.5 < report.row("shards").shards_in_batch
        True
        """
        return report_on_shuffles(self._plan, Batching(batch_size, world_size, self._plan.lanes, BLOCK, buffer))

    def split(self, n: int, *, equal: bool = True, **options: Any) -> list[Any]:
        """Share the samples out to ``n`` consumers, in other processes or on Ray: an iterator for each.

        The iterators can be pickled, and nobody needs a rank or a world size. The plan is run here, in the order of
        `loader`, once an epoch, which begins when all of them ask for it; see `shoal.engines.Share`. With ``equal``
        each gets the same number of samples, and a rest nobody; without, none is left out. Options are those of
        `loader`.

        >>> import shoal
        >>> first, second = shoal.from_arrays({"x": range(5)}).split(2)
        >>> from threading import Thread
        >>> other = Thread(target=list, args=[second])
        >>> other.start()
        >>> [int(sample["x"]) for sample in first]
        [0, 1]
        """
        parts: list[Any] = registry.load("session", "split")(self, n, equal=equal, **options)
        return parts

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

    def replay(self, failure: Failure) -> list[Sample]:
        """Read a sample of a ledger again and send it through the stages in this thread, where it may fail again.

        What it raises has its own traceback, for a debugger; what does not fail is given back.
        """
        return replayed(self._plan, failure)

    def _stage_number(self) -> int:
        """Give a number that no other stage of the plan has."""
        return self._plan.depth * 1000 + len(self._plan.stages)

    def _then(self, stage: Stage) -> Dataset:
        return self._with(self._plan.then(stage))

    def _with(self, plan: Plan) -> Dataset:
        return self._of(plan)

    @classmethod
    def _of(cls, plan: Plan) -> Dataset:
        return cls(next(plan.sources()), plan=plan)


def _site(device: Any) -> Site | None:
    """Give the place that a stage asks for, if it does."""
    return None if device is None else Site.of(device)


def _pool(options: PoolOptions) -> Pool | None:
    """Give the pool that a stage asks for, if it does."""
    asked: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return Pool(**{"mode": "process" if asked.get("gpus") else "thread", **asked}) if asked else None


def mix(
    datasets: Sequence[Dataset], weights: Sequence[Any] | None = None, *, exhausted: str = "stop", ramp: bool = False
) -> Dataset:
    """Draw samples from several datasets in turn, in proportion to weights.

    ``weights`` are numbers, or a schedule over the samples drawn: ``[(0, [9, 1]), (1_000_000, [1, 1])]``, with
    ``ramp=True`` from point to point in straight lines. A dataset that has no more samples ends the mixture
    (``"stop"``), leaves it to the others (``"drop"``), or begins again (``"wrap"``). Shares are kept exactly, nothing
    is random.

    >>> import shoal, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for name in "ab":
    ...     with shoal.shards.TarWriter(f"{folder}/{name}.tar") as writer:
    ...         for i in range(4):
    ...             _ = writer.write({"__key__": f"{name}{i}", "cls": i})
    >>> a, b = (shoal.read_tar(f"{folder}/{name}.tar") for name in "ab")
    >>> [sample["__key__"] for sample in shoal.mix([a, b], [3, 1])]
    ['a0', 'a1', 'b0', 'a2', 'a3']
    """
    if not datasets:
        raise PlanError("there is nothing to mix: give at least one dataset")
    if exhausted not in _EXHAUSTED:
        raise PlanError(f"exhausted={exhausted!r}; known are {', '.join(map(repr, _EXHAUSTED))}")
    shares = Weights.of([1] * len(datasets) if weights is None else weights, ramp=ramp)
    if len(shares) != len(datasets):
        raise PlanError(f"there are {len(datasets)} datasets and {len(shares)} weights")
    plans = tuple(dataset._plan for dataset in datasets)
    parts = {plan.part for plan in plans if plan.part is not None}
    if len(parts) > 1:
        raise PlanError(
            f"these are parts of different kinds ({sorted(parts)}); mix whole datasets or the same part of all"
        )
    mixture = Plan(
        Mixture(plans, shares, exhausted), views=all(plan.views for plan in plans), part=next(iter(parts), None)
    )
    return Dataset._of(mixture)

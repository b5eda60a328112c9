"""A ``tf.data.Dataset`` as data: each of its elements goes to one worker, once an epoch.

A pipeline that reads files is run by the workers, each with some of the files, if it can be sent to them and all of
them see the files. So the work of its functions is shared out, too; rows of a step come from the files of all workers,
and whoever has run out of rows waits for the others. Any other pipeline is run where it was made, and its batches are
dealt out, so that steps are the same on any number of workers: one that calls Python functions, reads what only this
process can see, or is not about files. ``AutoShardPolicy.DATA`` lets workers run a pipeline over shares of its
elements, if they can, and ``OFF`` has every pipeline dealt out.

A shuffle without a seed gets one, for the order of a pass has to be found again when a training goes on after it was
stopped. A dataset that a function makes in each worker is run by each of them, with the same order, and each takes its
part of each batch; its files are shared out, too, where workers can meet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from shoal._optional import require
from shoal.abc import dealt
from shoal.errors import PlanError
from shoal.learn._data import Ask, Prepared, prepared
from shoal.learn._job import Batches, Rows
from shoal.learn._meeting import Guest, Join, Meeting, Ticket
from shoal.learn._parts import Part, Shared
from shoal.learn.tf2._tensorflow_data_graph import Recipe
from shoal.learn.tf2._tensorflow_data_leaves import Leaves, Told, leaves_of, rebatched
from shoal.learn.tf2._tensorflow_data_passes import Passes, PassesLoader, Place, ShareReader

__all__ = ["TensorRows", "inputs_of", "tensorflow_prepared"]

tf: Any = require("tensorflow", "tf.data")

_LOG = logging.getLogger(__name__)
_LOOKED_AT = 16  # files of which a worker makes sure that it sees them
_SHARDING = {"file": "each worker reads some of the files", "element": "each worker has some of the elements"}


def tensorflow_prepared(data: Any, ask: Ask, batch_size: int | None = None) -> Prepared:
    """Make rows of datasets and tensors of TensorFlow; all else is for `prepared`."""
    if isinstance(data, tf.data.Dataset):
        if tf.executing_eagerly():
            return _of_dataset(data, ask, batch_size)
        with ThreadPoolExecutor(1) as outside:  # a graph that is being made is that of its own thread
            return outside.submit(_of_dataset, data, ask, batch_size).result()
    return prepared(data.numpy() if tf.is_tensor(data) else data, ask)


def inputs_of(dataset: Any, features: Sequence[str] | None, batch_size: int) -> Iterator[list[Any]]:
    """Give the inputs of a dataset, in its own batches or in batches of a size."""
    told, recipe = Told.of(dataset.element_spec, Ask(features, labelled=False)), Recipe.of(dataset, 0)
    return (told.taken(leaves)[0] for leaves in leaves_of(dataset, recipe.batched, batch_size, False))


class TensorRows(Rows):
    """Elements of a pipeline."""

    def __init__(self, recipe: Recipe, told: Told, policy: str, *, endless: bool, local: Any = None) -> None:
        self._recipe, self._told, self._policy, self._endless, self._local = recipe, told, policy, endless, local
        self.batch_size = recipe.rows
        self.ticket: Ticket | None = None
        self.shared: Shared | None = None
        self.sharding, self.reason = self._planned()
        """How elements are shared out: by ``"file"``, by ``"element"``, ``"dealt"`` out here, or ``"replicated"``."""
        self._shares: dict[tuple[int, int], Passes] = {}

    def __getstate__(self) -> dict[str, Any]:
        kept = {**vars(self), "_local": None, "_shares": {}}
        return kept if not self._recipe.reason else {**kept, "_recipe": replace(self._recipe, graph=b"")}

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Make the batches of one worker."""
        steps, end = options.get("steps"), options.get("end", "pad")
        if steps is None and self._endless:
            raise PlanError("the dataset repeats for ever; say how many steps an epoch has (steps_per_epoch=)")
        size = self.batch_size or batch_size
        read = partial(self._read, size, end == "drop", rank, world_size)
        return PassesLoader(read, rank, world_size, steps, end == "wrap" and steps is not None)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs and targets of the rows."""
        return *self._told.taken(batch["items"]), batch["count"]

    def agreed(self, own: bool) -> None:
        """Hear whether all workers read for themselves."""
        kind, reason = self._planned()
        if not own and kind in _SHARDING:
            kind, reason = self._without(), "not all workers can see its files, or have one each"
        if (kind, reason) != (self.sharding, self.reason):
            self.sharding, self.reason = kind, reason
            self.report()

    def report(self) -> None:
        """Say how elements are shared out."""
        text = _SHARDING.get(self.sharding, f"batches are {self.sharding}: {self.reason}")
        _LOG.info("tf.data: %s", text)

    def _planned(self) -> tuple[str, str]:
        if self._recipe.reason:
            return self._without(), self._recipe.reason
        if self._policy in ("AUTO", "FILE") and self._recipe.files:
            return "file", ""
        if self._policy == "DATA":
            return "element", ""
        return self._without(), "it reads no files" if self._policy != "OFF" else "its options say so"

    def _without(self) -> str:
        return "replicated" if self._local is not None else "dealt"

    def _read(self, size: int, drop: bool, rank: int, world_size: int, place: Place) -> Iterator[Part]:
        """Read a pass, from a place on."""
        guest = None
        if self.ticket is not None:
            own = self._can_read(size, drop, world_size, place)
            guest = self.ticket.join(Join(rank, place.number, size, drop, own))
        try:
            if guest is not None and guest.own:
                yield from self._own(size, rank, world_size, place, guest)
                return
        finally:
            if guest is not None:
                guest.leave()
        parts = (
            self._replicated(size, drop, rank, world_size, place)
            if self.shared is None
            else self.shared(rank, world_size)
        )
        for number, part in enumerate(parts):
            if number >= place.parts:
                yield part

    def _can_read(self, size: int, drop: bool, world_size: int, place: Place) -> bool:
        """Tell whether this worker can have a share of its own."""
        if self._planned()[0] not in _SHARDING:
            return False
        files = self._recipe.files
        if place.parts:  # it goes on as it began
            return place.shares is not None and _are_seen(files)
        if size < world_size or drop or (files and len(files) < world_size):
            return False
        return _are_seen(files)

    def _own(self, size: int, rank: int, world_size: int, place: Place, guest: Guest) -> Iterator[Part]:
        """Read a share, and give rows that do not count for as long as others have some."""
        shares = [(world_size, rank, 0)] if place.shares is None else place.shares
        reader = ShareReader(self._recipe, place.number, shares, size, self._shares)
        step, place.shares, place.reader = place.parts, shares, reader
        filler: Leaves | None = None
        for leaves in rebatched(reader, max(len(dealt(size, world_size)[rank]), 1)):
            filler = leaves[:1]
            guest.has(step)
            yield leaves, len(leaves)
            step += 1
        while guest.more(step):
            if filler is None:
                filler = next(leaves_of(self._recipe.made(0), self._recipe.batched, 1, False))[:1]
            yield filler, 0
            step += 1

    def _replicated(self, size: int, drop: bool, rank: int, world_size: int, place: Place) -> Iterator[Part]:
        """Read everything, and take a part of each batch."""
        made = self._shares.setdefault((1, 0), Passes(self._recipe, self._local))
        for leaves in leaves_of(made.at(place.number), self._recipe.batched, size, drop):
            mine = dealt(len(leaves), world_size)[rank]
            yield (leaves[mine.start : mine.stop], len(mine)) if mine else (leaves[:1], 0)


class _Dealer:
    """The batches of a pipeline that is run here; what pass it is, and how large batches are, the workers say."""

    def __init__(self, recipe: Recipe, dataset: Any) -> None:
        self._dataset, self._batched = dataset, recipe.batched  # its functions live as long as it does
        self._passes = Passes(recipe, dataset)
        self.join = Join(0, 0, 1, False, False)

    def __iter__(self) -> Iterator[Leaves]:
        join = self.join
        return leaves_of(self._passes.at(join.number), self._batched, join.batch_size, join.drop)


def _of_dataset(dataset: Any, ask: Ask, batch_size: int | None) -> Prepared:
    if not tf.executing_eagerly() or tf.is_symbolic_tensor(tf.data.experimental.to_variant(dataset)):
        raise PlanError("the dataset belongs to a graph, where nobody can iterate it; make it outside of tf.Graph()")
    told, recipe = Told.of(dataset.element_spec, ask), Recipe.of(dataset, ask.shuffle or 0)
    if recipe.batched and batch_size not in (None, recipe.rows):
        text = f"batch_size={batch_size} is given beside a dataset that has batches of {recipe.rows} rows"
        raise PlanError(f"{text}; leave it out: those count the rows of a step on all workers")
    policy = dataset.options().experimental_distribute.auto_shard_policy.name
    endless = int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    rows = TensorRows(recipe, told, policy, endless=endless, local=dataset if ask.workers is None else None)
    if policy == "FILE" and rows.sharding != "file":
        why = recipe.reason or "it reads no files"
        raise PlanError(f"AutoShardPolicy.FILE asks for a dataset whose files are shared out, and {why}; leave it AUTO")
    rows.report()
    if ask.workers is None:
        rows.ticket = ask.meeting
        return Prepared(rows)
    return _met(rows, _Dealer(recipe, dataset), ask.workers)


def _met(rows: TensorRows, dealer: _Dealer, workers: int) -> Prepared:
    """Let workers meet here, and deal out to them what they cannot read for themselves."""

    def begin(join: Join, own: bool) -> None:
        dealer.join = join
        rows.agreed(own)

    meeting, rows.shared = Meeting(workers, begin), Shared(dealer, workers)
    rows.ticket, shared = meeting.ticket, rows.shared

    def undo() -> None:
        meeting.close()
        shared.close()

    return Prepared(rows, undo)


def _are_seen(files: Sequence[str]) -> bool:
    """Tell whether this process can see files; of many it looks at some."""
    every = max(len(files) // _LOOKED_AT, 1)
    return all(tf.io.gfile.exists(name) for name in files[::every])

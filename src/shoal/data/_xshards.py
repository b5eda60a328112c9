"""Python objects in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shoal.abc import Engine, Handle
from shoal.data._frame_methods import FrameMethods
from shoal.data._lazy import Chain, Recipe
from shoal.data._native_methods import NativeMethods
from shoal.data._progress import shown
from shoal.data._row_objects import check_arrays, concatenated, row_count, rows_between, splits
from shoal.data._saving import SavingMethods
from shoal.data._schema import SchemaSurprise
from shoal.data._store import StoreMethods
from shoal.engines import current
from shoal.environments import Abroad
from shoal.errors import PlanError

__all__ = ["XShards"]

T = TypeVar("T")


class XShards(FrameMethods, NativeMethods, SavingMethods, StoreMethods):
    """Python objects of one kind, each a shard that a function can treat by itself, wherever it lies.

    Nothing is done before a result is asked for; then all functions are called for a shard in one go. What is needed
    several times is kept by `cache`. Shards are in an order, which every operation keeps or says what it makes of it.

    >>> import numpy as np
    >>> shards = XShards.partition([np.arange(6), np.ones(6)], num_shards=2)
    >>> shards = shards.transform_shard(lambda data, factor: {"x": data[0] * factor, "y": data[1]}, 10)
    >>> shards.num_partitions(), [shard["x"].tolist() for shard in shards.collect()]
    (2, [[0, 10, 20], [30, 40, 50]])
    """

    def __init__(self, *recipes: Recipe, chain: Sequence[Callable[..., Any]] = ()) -> None:
        self._recipes, self._chain = recipes, tuple(chain)
        self._kept: Recipe | None = None

    @classmethod
    def partition(cls, data: Any, num_shards: int | None = None) -> XShards:
        """Cut an array, or lists, tuples and dicts of arrays, into shards by their rows.

        Each shard is of the same build, with some of the rows of each array. By default there are as many shards as
        the engine has processors, or as there are rows if these are fewer.
        """
        engine, rows = current(), check_arrays(data)
        if num_shards is None:
            num_shards = max(min(_processors(engine), rows), 1)
        if num_shards < 1:
            raise PlanError(f"the number of shards is {num_shards}; at least one is needed")
        if num_shards > max(rows, 1):
            text = f"the number of shards is {num_shards}, and there are only {rows} rows to deal out"
            raise PlanError(f"{text}; give num_shards={max(rows, 1)} or fewer")
        parts = (rows_between(data, low, high) for low, high in splits(rows, num_shards))
        return cls(Recipe.of(engine, engine.scatter(parts)))

    @classmethod
    def from_shards(cls, shards: Sequence[Any]) -> XShards:
        """Take objects as shards, as they are.

        >>> XShards.from_shards([[1, 2], [3]]).collect()
        [[1, 2], [3]]
        """
        engine = current()
        return cls(Recipe.of(engine, engine.scatter(shards)))

    def transform_shard(
        self, func: Callable[..., Any] | str, *args: Any, environment: str | Path | None = None
    ) -> XShards:
        """Call a function with each shard, and these arguments behind it; what it gives takes the shard's place.

        With ``environment`` it runs in another Python environment (`shoal.environments`), where it may be named, as in
        ``"package.module:function"``; shards cross as arrays, frames, Arrow and plain values.

        >>> XShards.from_shards([[1, 2], [3]]).transform_shard(lambda shard, n: shard * n, 2).collect()
        [[1, 2, 1, 2], [3, 3]]
        """
        call: Any = func if environment is None else Abroad(func, environment)
        return self._then(partial(_called, call, args) if args else call)

    def collect(self) -> list[Any]:
        """Bring all shards here."""
        return list(self._gathered("collect"))

    def first(self) -> Any:
        """Bring the first shard here."""
        return self.take(1)[0]

    def take(self, n: int) -> list[Any]:
        """Bring the first ``n`` shards here."""
        return self._some(range(min(n, self.num_partitions())))

    def num_partitions(self) -> int:
        """Count the shards."""
        return self._recipes[0].count

    def __len__(self) -> int:
        """Count what is in the shards: rows, items, keys of dicts; what has no length is one."""
        return sum(self._then(_length)._gathered("count"))

    def __getitem__(self, key: Any) -> XShards:
        """Take ``shard[key]`` of each shard, as in ``shards["column"]``."""
        return self._then(partial(_selected, key))

    def __iter__(self) -> Iterator[Any]:
        """Bring the shards here one after the other."""
        return iter(self._gathered("gather"))

    def cache(self) -> XShards:
        """Keep the shards once they are made, on the engine, until `uncache` or as long as somebody refers to this."""
        if self._kept is None:
            chain, recipes = self._chain, self._recipes
            self._kept = Recipe(self._engine, self.num_partitions(), lambda: _mapped(chain, recipes), parents=recipes)
        return self

    def uncache(self) -> XShards:
        """Do not keep the shards any more; they can be made again."""
        self._kept = None
        return self

    def is_cached(self) -> bool:
        """Tell whether the shards are kept."""
        return self._kept is not None

    def compute(self) -> XShards:
        """Make the shards now, and keep them."""
        for _ in self.cache()._then(_nothing)._gathered("compute"):
            pass
        return self

    def split(self) -> list[XShards]:
        """Take shards apart that are lists or tuples: one XShards of all first elements, one of all second ones, ..."""
        lengths = set(self._then(_split_length)._gathered("split"))
        if len(lengths) > 1:
            raise PlanError("Cannot split this XShards because its partitions have different split length")
        (length,) = lengths
        return [self._then(partial(_element, at)) for at in range(length)] if length > 1 else [self]

    def zip(self, other: XShards) -> XShards:
        """Put each shard together with the one of the same number of another, as a pair."""
        if not isinstance(other, XShards):
            raise PlanError(f"other should be a XShards, not a {type(other).__name__}")
        if other.num_partitions() != self.num_partitions():
            text = "other should have the same number of partitions (they must have the same number of partitions)"
            raise PlanError(f"{text}: here are {self.num_partitions()}, there {other.num_partitions()}")
        return XShards(self._whole(), other._whole(), chain=(_paired,))

    def repartition(self, num_partitions: int) -> XShards:
        """Deal the rows out anew, in their order, to so many shards of about the same number of rows.

        Frames, series, arrays, lists and dicts of arrays can be cut.
        """
        _check_partitions(num_partitions)
        counts = self._then(row_count)._gathered("count")
        if None in counts:
            kind = type(self._shard(counts.index(None))).__name__
            raise PlanError(f"shard {counts.index(None)} is a {kind}, which has no rows that could be dealt out anew")
        starts = [sum(counts[:at]) for at in range(len(counts))]
        cut = partial(_cut_rows, starts, splits(sum(counts), num_partitions))
        return self._exchanged(num_partitions, cut, _put_together, numbered=True)

    def _in_pieces(self, rows: int) -> XShards:
        """Cut shards that have more rows than that."""
        if rows < 1:
            raise PlanError(f"a shard of {rows} rows cannot be; at least 1")
        counts = self._then(row_count)._gathered("count")
        parts = [(number, low) for number, count in enumerate(counts) for low in range(0, max(count or 0, 1), rows)]
        cut = partial(_cut_pieces, parts, rows)
        return self._exchanged(len(parts), cut, _only_full, numbered=True)

    # What the methods above and the modules beside this one are made of.

    @property
    def _engine(self) -> Engine:
        return self._recipes[0].engine

    def _then(self, function: Callable[..., Any]) -> XShards:
        if self._kept is not None:
            return XShards(self._kept, chain=(function,))
        return XShards(*self._recipes, chain=(*self._chain, function))

    def _whole(self) -> Recipe:
        """Give the shards as one collection that is made once."""
        if self._kept is not None:
            return self._kept
        if len(self._recipes) == 1 and not self._chain:
            return self._recipes[0]
        chain, recipes = self._chain, self._recipes
        return Recipe(self._engine, self.num_partitions(), lambda: _mapped(chain, recipes), parents=recipes)

    def _gathered(self, what: str) -> list[Any]:
        return self._tried(lambda: list(shown(self._engine.gather(self._handle()), self.num_partitions(), what)))

    def _tried(self, action: Callable[[], T]) -> T:
        """Do something; if files turn out to hold other types than their beginnings, once more with what they hold."""
        try:
            return action()
        except SchemaSurprise:
            for recipe in self._recipes:
                recipe.relearn()
            return action()

    def _shard(self, number: int) -> Any:
        """Bring one shard here."""
        return self._some(range(number, number + 1))[0]

    def _some(self, numbers: range) -> list[Any]:
        """Bring some shards here, and make only these: what they are made of is brought here, and sent back."""
        if self._kept is not None or not self._chain:
            return list(self._engine.gather(self._handle(), numbers))

        def made() -> list[Any]:
            chosen = [self._engine.scatter(self._engine.gather(recipe.handle(), numbers)) for recipe in self._recipes]
            return list(self._engine.gather(self._engine.map(Chain(self._chain), *chosen)))

        return self._tried(made)

    def _handle(self) -> Handle:
        return self._whole().handle()

    def _exchanged(
        self, partitions: int, cut: Callable[..., Any], join: Callable[..., Any], *, numbered: bool = False
    ) -> XShards:
        """Cut shards into pieces and put those of each number together; shards tell their number if that is needed."""
        source = self._numbered() if numbered else self

        whole = source._whole()

        def make() -> Handle:
            return self._engine.exchange(cut, whole.handle(), partitions)

        return XShards(Recipe(self._engine, partitions, make, parents=[whole]), chain=(join,))

    def _numbered(self) -> XShards:
        count = self.num_partitions()
        numbers = Recipe.of(self._engine, self._engine.scatter(range(count)))
        return XShards(self._whole(), numbers, chain=(_paired,))


def _mapped(chain: Sequence[Callable[..., Any]], recipes: Sequence[Recipe]) -> Handle:
    handles = [recipe.handle() for recipe in recipes]
    return recipes[0].engine.map(Chain(tuple(chain)), *handles)


def _processors(engine: Engine) -> int:
    return max(int(sum(worker.cpus for worker in engine.describe().workers)), 1)


def _check_partitions(number: int) -> None:
    if number < 1:
        raise PlanError(f"the number of partitions is {number}; at least one is needed")


def _called(func: Callable[..., Any], args: tuple[Any, ...], shard: Any) -> Any:
    return func(shard, *args)


def _nothing(shard: Any) -> None:
    return None


def _length(shard: Any) -> int:
    return len(shard) if hasattr(shard, "__len__") else 1


def _selected(key: Any, shard: Any) -> Any:
    if not hasattr(shard, "__getitem__"):
        kind = type(shard).__name__
        raise PlanError(f"No selection operation available for this XShards: a shard is a {kind}")
    try:
        return shard[key]
    except (KeyError, IndexError, TypeError) as error:
        raise PlanError(f"Invalid key for this XShards: {key!r} ({type(error).__name__}: {error})") from error


def _split_length(shard: Any) -> int:
    return len(shard) if isinstance(shard, list | tuple) else 1


def _element(at: int, shard: Any) -> Any:
    return shard[at]


def _paired(*shards: Any) -> tuple[Any, ...]:
    return shards


def _cut_rows(starts: Sequence[int], bounds: Sequence[tuple[int, int]], numbered: tuple[Any, int]) -> list[Any]:
    """Give each partition the rows that fall into it."""
    shard, number = numbered
    start, count = starts[number], row_count(shard) or 0
    places = ((min(max(edge - start, 0), count) for edge in bound) for bound in bounds)
    return [rows_between(shard, low, high) for low, high in places]


def _put_together(pieces: list[Any]) -> Any:
    full = [piece for piece in pieces if row_count(piece)]
    return concatenated(full or pieces[:1])


def _cut_pieces(parts: Sequence[tuple[int, int]], rows: int, numbered: tuple[Any, int]) -> list[Any]:
    shard, number = numbered
    return [rows_between(shard, low, low + rows) if home == number else None for home, low in parts]


def _only_full(pieces: list[Any]) -> Any:
    return next(piece for piece in pieces if piece is not None)

"""What can be done to samples, as frozen descriptions.

A `BlockStage` looks at samples one by one, so an engine may run it on many blocks at once. A `LaneStage` makes
something of several samples, and does so inside a lane; see `shoal.pipeline.gather`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Block, Pool, Sample
from shoal.errors import MissingFieldError, PlanError, SampleError
from shoal.order import combine
from shoal.pipeline._random import keyed_generators
from shoal.pipeline._site import Site
from shoal.shards import owned
from shoal.shards.codecs import DecodeOptions, decode, is_picture

__all__ = [
    "BlockStage",
    "CallStage",
    "Decode",
    "FillStage",
    "Filter",
    "FlatMap",
    "Map",
    "On",
    "Own",
    "Select",
    "Stage",
    "leading",
]


class Stage:
    """One step of a plan.

    >>> Map(abs).keeps_count, Filter(bool).keeps_count
    (True, False)
    """

    keeps_count: ClassVar[bool] = True
    """Whether as many samples come out as go in."""

    @property
    def is_random(self) -> bool:
        """Whether it needs to know which sample it has before it."""
        return False


@dataclass(frozen=True, slots=True)
class BlockStage(Stage, ABC):
    """A stage that needs to see no more than one sample.

    >>> from dataclasses import dataclass
    >>> from shoal.pipeline.stages import BlockStage
    >>> @dataclass(frozen=True, slots=True)
    ... class Doubled(BlockStage):
    ...     def process(self, block):
    ...         return block.with_samples([{**sample, "x": 2 * sample["x"]} for sample in block.samples])
    >>> import shoal
    >>> [int(sample["x"]) for sample in shoal.from_arrays({"x": range(3)}).apply(Doubled())]
    [0, 2, 4]
    """

    shows_bytes: ClassVar[bool] = True
    """Whether it hands undecoded fields to the user's code, which expects bytes and not views into a shard."""
    counts: ClassVar[bool] = True
    """Whether statistics tell of it."""

    pool: Pool | None = field(default=None, kw_only=True)
    """Workers of its own; None to be done with its neighbours by those of the run."""

    @abstractmethod
    def process(self, block: Block) -> Block:
        """Treat the samples of a block."""

    def after(self, before: BlockStage) -> tuple[BlockStage, ...] | None:
        """Give stages that do better what ``before`` and then this one do; None to leave both as they are."""
        return None


@dataclass(frozen=True, slots=True)
class FillStage(BlockStage):
    """A stage that makes one array of known shape of each sample, and can make it where the batch will be.

    >>> from shoal.image import center_crop
    >>> isinstance(center_crop(32), FillStage)
    True
    """

    @property
    @abstractmethod
    def row(self) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
        """The shape and type of what is made of each sample; None if that depends on the sample."""

    @abstractmethod
    def fill(self, block: Block, rows: NDArray[Any] | None) -> Block:
        """Treat the samples of a block; where rows are given, sample i gets ``rows[i]``, filled, as its field."""

    def process(self, block: Block) -> Block:
        """Treat the samples of a block, each in memory of its own."""
        return self.fill(block, None)


@dataclass(frozen=True, slots=True)
class Own(BlockStage):
    """Turns views into a mapped shard into bytes.

    >>> Own().process(Block([{"__key__": "a", "txt": memoryview(b"hello")}])).samples
    [{'__key__': 'a', 'txt': b'hello'}]
    """

    shows_bytes = False

    def process(self, block: Block) -> Block:
        """Copy what is a view."""
        return block.with_samples([owned(sample) for sample in block.samples])


@dataclass(frozen=True, slots=True)
class Select(BlockStage):
    """Keeps the named fields, each under its first name; ``"jpg;jpeg"`` takes the first that is there.

    >>> block = Block([{"__key__": "a", "jpeg": b"", "cls": b"1", "txt": b""}])
    >>> Select((("jpg", "jpeg"), ("cls",))).process(block).samples
    [{'__key__': 'a', 'jpg': b'', 'cls': b'1'}]
    """

    shows_bytes = False
    fields: tuple[tuple[str, ...], ...]

    def process(self, block: Block) -> Block:
        """Pick the fields of each sample."""
        return block.with_samples([self._select(sample, block) for sample in block.samples])

    def _select(self, sample: Sample, block: Block) -> Sample:
        key = sample["__key__"]
        chosen: Sample = {"__key__": key}
        for names in self.fields:
            name = next((name for name in names if name in sample), None)
            if name is None:
                present = sorted(field for field in sample if field != "__key__")
                text = f"the sample has no such field; it has {', '.join(present) or 'none at all'}"
                raise MissingFieldError(text, key=key, field=";".join(names), shard=block.origin(key))
            chosen[names[0]] = sample[name]
        return chosen


@dataclass(frozen=True, slots=True)
class Decode(BlockStage):
    """Turns the bytes of fields into values, by extension.

    >>> Decode().process(Block([{"__key__": "a", "cls": b"7", "txt": b"hello"}])).samples
    [{'__key__': 'a', 'cls': 7, 'txt': 'hello'}]
    """

    shows_bytes = False
    options: DecodeOptions = field(default_factory=DecodeOptions)
    only: frozenset[str] | None = None
    codecs: Mapping[str, Callable[[bytes], Any]] = field(default_factory=dict)
    leaves: frozenset[tuple[str, ...]] = frozenset()
    """Pictures that a later stage decodes: of each tuple the first field that is there; no name stands for all."""

    def process(self, block: Block) -> Block:
        """Decode the fields of each sample."""
        return block.with_samples([self._decode(sample, block) for sample in block.samples])

    def without_picture(self, names: tuple[str, ...]) -> Decode | None:
        """Leave a picture, or all if none is named, to a stage that does the same to it; None if no stage could."""
        own = [name for name in self.codecs if name in names or (not names and is_picture(name))]
        if self.options.images != "rgb8" or own or names in self.leaves:
            return None
        if self.only is not None and not any(name in names if names else is_picture(name) for name in self.only):
            return None
        return replace(self, leaves=self.leaves | {names})

    def _decode(self, sample: Sample, block: Block) -> Sample:
        decoded = dict(sample)
        left = self._left(sample) if self.leaves else ()
        for name, data in sample.items():
            if name.startswith("__") or (self.only is not None and name not in self.only) or name in left:
                continue
            if isinstance(data, bytes | memoryview):
                own = self.codecs.get(name)
                with Place(self, sample, block):
                    decoded[name] = decode(name, data, self.options) if own is None else own(bytes(data))
        return decoded

    def _left(self, sample: Sample) -> list[str]:
        firsts = [next((name for name in names if name in sample), "") for names in self.leaves if names]
        return [name for name in (sample if () in self.leaves else firsts) if is_picture(name)]


@dataclass(frozen=True, slots=True)
class CallStage(BlockStage):
    """A stage that calls a function of the user's.

    >>> isinstance(Map(abs), CallStage), isinstance(Own(), CallStage)
    (True, False)
    """

    device: Site | None = field(default=None, kw_only=True)
    """Where the function finds its samples; None in the memory of the process."""


@dataclass(frozen=True, slots=True)
class On(CallStage):
    """Takes samples to a device, where they stay if no other stage follows.

    >>> import shoal
    >>> loader = shoal.from_arrays({"x": range(2)}).on("cpu").loader(2, to="torch")  # adds this stage to the plan
    >>> [batch["x"].tolist() for batch in loader]
    [[0, 1]]
    """

    @property
    def title(self) -> str:
        """How it is called."""
        return f"on({'' if self.device is None else self.device.name})"

    def process(self, block: Block) -> Block:
        """Leave the samples as they are: they are there."""
        return block


@dataclass(frozen=True, slots=True)
class Map(CallStage):
    """Turns each sample into another one.

    >>> Map(lambda sample: {"x": -sample["x"]}).process(Block([{"__key__": "a", "x": 1}])).samples
    [{'__key__': 'a', 'x': -1}]
    """

    function: Callable[..., Sample]
    random: int | None = None
    """If the function also wants a random generator: the number of the stage, so that no two draw the same."""

    @property
    def is_random(self) -> bool:
        """Whether the function wants a generator."""
        return self.random is not None

    def process(self, block: Block) -> Block:
        """Call the function on each sample."""
        if self.random is None:
            return block.with_samples([self._map(sample, block) for sample in block.samples])
        assert block.ids is not None
        generators = keyed_generators(block.ids, block.salt, self.random)
        pairs = zip(block.samples, generators, strict=True)
        return block.with_samples([self._map(sample, block, generator) for sample, generator in pairs])

    def _map(self, sample: Sample, block: Block, *generator: np.random.Generator) -> Sample:
        key = sample["__key__"]
        with Place(self, sample, block):
            return _checked(self, self.function(sample, *generator), key)


@dataclass(frozen=True, slots=True)
class Filter(CallStage):
    """Keeps the samples for which a function is true.

    >>> block = Block([{"__key__": "a", "x": 1}, {"__key__": "b", "x": 2}])
    >>> [sample["__key__"] for sample in Filter(lambda sample: sample["x"] > 1).process(block).samples]
    ['b']
    """

    keeps_count = False
    predicate: Callable[[Sample], bool]

    def process(self, block: Block) -> Block:
        """Ask the function about each sample."""
        kept = [place for place, sample in enumerate(block.samples) if self._holds(sample, block)]
        return block.pick(kept, [block.samples[place] for place in kept])

    def _holds(self, sample: Sample, block: Block) -> bool:
        with Place(self, sample, block):
            return bool(self.predicate(sample))


@dataclass(frozen=True, slots=True)
class FlatMap(CallStage):
    """Turns each sample into any number of samples.

    >>> twice = FlatMap(lambda sample: [{"x": sample["x"]}, {"x": -sample["x"]}])
    >>> [sample["x"] for sample in twice.process(Block([{"__key__": "a", "x": 1}])).samples]
    [1, -1]
    """

    keeps_count = False
    function: Callable[[Sample], Iterable[Sample]]

    def process(self, block: Block) -> Block:
        """Call the function on each sample and line up what it gives."""
        results = [self._results(sample, block) for sample in block.samples]
        places = [place for place, children in enumerate(results) for _ in children]
        made = block.pick(places, [child for children in results for child in children])
        if made.ids is None:
            return made
        numbers = np.array([number for children in results for number in range(len(children))], np.int64)
        return replace(made, ids=combine(made.ids, numbers))

    def _results(self, sample: Sample, block: Block) -> list[Sample]:
        key = sample["__key__"]
        with Place(self, sample, block):
            results = enumerate(self.function(sample))
            return [_checked(self, result, f"{key}-{number}") for number, result in results]


def leading(stages: Iterable[Stage]) -> tuple[BlockStage, ...]:
    """Give the stages before the first that needs to see more than one sample.

    >>> from shoal.pipeline.gather import Take
    >>> [type(stage).__name__ for stage in leading([Own(), Decode(), Take(3), Map(abs)])]
    ['Own', 'Decode']
    """
    found: list[BlockStage] = []
    for stage in stages:
        if not isinstance(stage, BlockStage):
            break
        found.append(stage)
    return tuple(found)


class Place:
    """Adds to an exception which stage, sample and shard it came from."""

    __slots__ = ("_block", "_sample", "_stage")

    def __init__(self, stage: Stage, sample: Sample, block: Block | None = None) -> None:
        self._stage, self._sample, self._block = stage, sample, block

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if error is None:
            return
        key = self._sample["__key__"]
        shard = None if self._block is None else self._block.origin(key)
        if isinstance(error, SampleError):
            error.key, error.shard = error.key or key, error.shard or shard
        place = "" if shard is None else f" of shard {shard}"
        error.add_note(f"in stage {describe(self._stage)}, at sample {key!r}{place}")


def describe(stage: Stage) -> str:
    """Name a stage as the user wrote it.

    >>> describe(Map(len))
    'map(len)'
    """
    title: str | None = getattr(stage, "title", None)
    if title is not None:
        return title
    function = getattr(stage, "function", None) or getattr(stage, "predicate", None)
    inner = getattr(function, "__qualname__", type(function).__name__) if function is not None else ""
    joined = getattr(stage, "joined", ())
    inner = inner or ", ".join(_snake(type(part).__name__) for part in joined)
    return f"{_snake(type(stage).__name__)}({inner})"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _checked(stage: Stage, result: Any, key: str) -> Sample:
    """Make sure that the user's function gave a sample; one without a key gets one."""
    if not isinstance(result, Mapping):
        hint = "; to drop samples use filter" if result is None else ""
        raise PlanError(f"{describe(stage)} gave a {type(result).__name__}; a sample is a dict{hint}")
    return {"__key__": key, **result} if "__key__" not in result else dict(result)

"""What can be done to samples. A stage is a frozen description that knows how to treat some samples at a time.

A `BlockStage` looks at samples one by one, so an engine may run it on many blocks at once. A `StreamStage` acts on the
whole stream in its order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from shoal.abc import Block, Sample
from shoal.errors import MissingFieldError, PlanError, SampleError
from shoal.pipeline._collate import collate
from shoal.shards.codecs import DecodeOptions, decode

__all__ = ["Batch", "BlockStage", "Decode", "Filter", "FlatMap", "Map", "Select", "Stage", "StreamStage", "Take"]


class Stage:
    """One step of a plan: a `BlockStage` or a `StreamStage`."""

    keeps_count: ClassVar[bool] = True
    """Whether as many samples come out as go in."""


class BlockStage(Stage, ABC):
    """A stage that needs to see no more than one sample."""

    shows_bytes: ClassVar[bool] = True
    """Whether it hands undecoded fields to the user's code, which expects bytes and not views into a shard."""

    @abstractmethod
    def process(self, samples: list[Sample], block: Block) -> list[Sample]:
        """Treat some samples, which came from a block or from the stage before."""


class StreamStage(Stage, ABC):
    """A stage that acts on the stream of all samples."""

    keeps_count = False

    @abstractmethod
    def flow(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Treat the stream."""


@dataclass(frozen=True, slots=True)
class Select(BlockStage):
    """Keeps the named fields, each under its first name; ``"jpg;jpeg"`` takes the first that is there."""

    shows_bytes = False
    fields: tuple[tuple[str, ...], ...]

    def process(self, samples: list[Sample], block: Block) -> list[Sample]:
        """Pick the fields of each sample."""
        return [self._select(sample, block) for sample in samples]

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
    """Turns the bytes of fields into values, by extension."""

    shows_bytes = False
    options: DecodeOptions = field(default_factory=DecodeOptions)
    only: frozenset[str] | None = None
    codecs: Mapping[str, Callable[[bytes], Any]] = field(default_factory=dict)

    def process(self, samples: list[Sample], block: Block) -> list[Sample]:
        """Decode the fields of each sample."""
        return [self._decode(sample, block) for sample in samples]

    def _decode(self, sample: Sample, block: Block) -> Sample:
        decoded = dict(sample)
        for name, data in sample.items():
            if name.startswith("__") or (self.only is not None and name not in self.only):
                continue
            if isinstance(data, bytes | memoryview):
                own = self.codecs.get(name)
                with _Place(self, sample, block):
                    decoded[name] = decode(name, data, self.options) if own is None else own(bytes(data))
        return decoded


@dataclass(frozen=True, slots=True)
class Map(BlockStage):
    """Turns each sample into another one."""

    function: Callable[[Sample], Sample]

    def process(self, samples: list[Sample], block: Block) -> list[Sample]:
        """Call the function on each sample."""
        return [self._map(sample, block) for sample in samples]

    def _map(self, sample: Sample, block: Block) -> Sample:
        key = sample["__key__"]
        with _Place(self, sample, block):
            result = self.function(sample)
            return _checked(self, result, key)


@dataclass(frozen=True, slots=True)
class Filter(BlockStage):
    """Keeps the samples for which a function is true."""

    keeps_count = False
    predicate: Callable[[Sample], bool]

    def process(self, samples: list[Sample], block: Block) -> list[Sample]:
        """Ask the function about each sample."""
        return [sample for sample in samples if self._holds(sample, block)]

    def _holds(self, sample: Sample, block: Block) -> bool:
        with _Place(self, sample, block):
            return bool(self.predicate(sample))


@dataclass(frozen=True, slots=True)
class FlatMap(BlockStage):
    """Turns each sample into any number of samples."""

    keeps_count = False
    function: Callable[[Sample], Iterable[Sample]]

    def process(self, samples: list[Sample], block: Block) -> list[Sample]:
        """Call the function on each sample and line up what it gives."""
        return [result for sample in samples for result in self._results(sample, block)]

    def _results(self, sample: Sample, block: Block) -> list[Sample]:
        key = sample["__key__"]
        with _Place(self, sample, block):
            results = enumerate(self.function(sample))
            return [_checked(self, result, f"{key}-{number}") for number, result in results]


@dataclass(frozen=True, slots=True)
class Take(StreamStage):
    """Ends the stream after some samples."""

    count: int

    def flow(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Pass the first samples on."""
        return islice(samples, self.count)


@dataclass(frozen=True, slots=True)
class Batch(StreamStage):
    """Makes one sample of several: a dict of stacked arrays, with a list of keys."""

    size: int
    partial: bool = True

    def flow(self, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Pass batches on."""
        while batch := list(islice(samples, self.size)):
            if len(batch) == self.size or self.partial:
                yield collate(batch)


class _Place:
    """Adds to an exception which stage, sample and shard it came from."""

    __slots__ = ("_block", "_sample", "_stage")

    def __init__(self, stage: Stage, sample: Sample, block: Block) -> None:
        self._stage, self._sample, self._block = stage, sample, block

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if error is None:
            return
        key = self._sample["__key__"]
        shard = self._block.origin(key)
        if isinstance(error, SampleError):
            error.key, error.shard = error.key or key, error.shard or shard
        place = "" if shard is None else f" of shard {shard}"
        error.add_note(f"in stage {describe(self._stage)}, at sample {key!r}{place}")


def describe(stage: Stage) -> str:
    """Name a stage as the user wrote it.

    >>> describe(Map(len))
    'map(len)'
    """
    function = getattr(stage, "function", None) or getattr(stage, "predicate", None)
    inner = getattr(function, "__qualname__", type(function).__name__) if function is not None else ""
    return f"{_snake(type(stage).__name__)}({inner})"


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _checked(stage: Stage, result: Any, key: str) -> Sample:
    """Make sure that the user's function gave a sample; one without a key gets one."""
    if not isinstance(result, Mapping):
        hint = "; to drop samples use filter" if result is None else ""
        raise PlanError(f"{describe(stage)} gave a {type(result).__name__}; a sample is a dict{hint}")
    return {"__key__": key, **result} if "__key__" not in result else dict(result)

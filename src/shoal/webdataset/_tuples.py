"""What the first WebDataset did to the samples of each shard: decode, associate, extract, shuffle, transform.

Each shard goes through the stages by itself, so samples of two shards never mix.
"""

from __future__ import annotations

import random as randoms
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from shoal.errors import PlanError
from shoal.shards.codecs import DecodeOptions
from shoal.webdataset._by_extension import sample_decoder, unpacked
from shoal.webdataset._filters import associated, field_names, to_tuple
from shoal.webdataset._filters import map as mapped
from shoal.webdataset._handlers import Handler
from shoal.webdataset._random import generator
from shoal.webdataset._read import ReadOptions, ShardReader
from shoal.webdataset._split import Piece
from shoal.webdataset._stage import Stage
from shoal.webdataset._stream import mixed
from shoal.webdataset._trust import trusted

__all__ = ["SampleOptions", "ShardStages"]

_CONTAINERS = ("mp", "json", "pyd", "ten")
#: Samples that the buffer holds before it gives any away, or fewer where it is smaller.
_INITIAL = 100

Transform: TypeAlias = "Callable[[Any], Any] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions:
    """What becomes of the samples of a shard."""

    extensions: str | Sequence[str | Sequence[str]] | None = None
    """The fields that make a tuple, ``"png;jpg cls"``; None leaves samples as dicts."""
    decoder: bool | str | Mapping[str, Callable[[bytes], Any]] | Callable[[Any], Any] | None = "rgb"
    """What pictures become; None or False decodes nothing; a dict of functions by extension; a function of a sample."""
    transforms: Transform | Sequence[Transform] = None
    """Functions for the places of the tuple; fewer than places go round."""
    pipeline: Stage | Sequence[Stage] | None = None
    """Stages at the end."""
    shuffle: int = 0
    """1 shuffles the shards, more is also the size of a buffer for the samples of a shard."""
    associate: Mapping[str, Any] | Callable[[str], Any] | None = None
    """What to add to a sample, by its key."""
    container: str | None = None
    """The one extension whose files are whole samples: mp, json, pyd, ten."""

    def __post_init__(self) -> None:
        if self.container not in (None, *_CONTAINERS):
            raise PlanError(f"container={self.container!r}; known are {', '.join(_CONTAINERS)}")
        if self.shuffle < 0:
            raise PlanError(f"shuffle={self.shuffle} must not be negative")
        if self.transforms is not None and self.extensions is None and self.container != "ten":
            raise PlanError("transforms are for the places of a tuple: say with extensions= what the tuple is made of")

    @property
    def fields(self) -> tuple[tuple[str, ...], ...] | None:
        """The fields of the tuple, each with what may stand in for it."""
        if self.extensions is None:
            return None
        return field_names(*([self.extensions] if isinstance(self.extensions, str) else self.extensions))

    @property
    def decodes(self) -> bool:
        """Whether fields are decoded."""
        return self.decoder not in (None, False)

    def keep(self) -> set[str] | None:
        """Name the fields to read; None for all."""
        if self.container is not None:
            return {self.container}
        return None if self.fields is None else {name for names in self.fields for name in names}


class ShardStages:
    """Reads shards and sends the samples of each through the stages of its own."""

    def __init__(self, reading: ReadOptions, options: SampleOptions, seed: int | None) -> None:
        self._reader = ShardReader(reading, keep=options.keep(), origin=False)
        self._size, self._seed, self._epoch = options.shuffle, seed, -1
        self._before = tuple(_before_shuffle(options, reading.handler, reading.trust))
        self._after = tuple(_after_shuffle(options, reading.handler))

    def __call__(self, shards: Iterable[Any]) -> Iterator[Any]:
        self._epoch += 1
        random = generator(self._seed, "samples", self._epoch)
        return self._reader.each(shards, partial(self._shard, random=random))

    def close(self) -> None:
        """Let go of what is open."""
        self._reader.close()

    def _shard(self, piece: Piece, random: randoms.Random) -> Iterator[Any]:
        stream: Iterable[Any] = self._reader.samples(piece)
        for stage in self._before:
            stream = stage(stream)
        if self._size > 1:
            stream = mixed(stream, self._size, _INITIAL, random)
        for stage in self._after:
            stream = stage(stream)
        return iter(stream)


def _before_shuffle(options: SampleOptions, handler: Handler, trust: bool) -> Iterator[Stage]:
    if options.container is not None:
        decoding = DecodeOptions(trust=trusted(trust))
        yield mapped(partial(unpacked, container=options.container, options=decoding), handler)
    if options.decodes and options.container != "ten":
        yield mapped(sample_decoder(options.decoder, trust), handler)
    if options.associate is not None:
        yield mapped(partial(associated, associator=options.associate, extra={}), handler)
    if options.fields is not None and options.container != "ten":
        yield to_tuple(*options.fields, missing_is_error=False, handler=handler)


def _after_shuffle(options: SampleOptions, handler: Handler) -> Iterator[Stage]:
    if options.transforms is not None:
        given = options.transforms
        yield mapped(partial(_transformed, transforms=(given,) if callable(given) else tuple(given)), handler)
    if options.pipeline is not None:
        yield from [options.pipeline] if callable(options.pipeline) else options.pipeline


def _transformed(sample: Sequence[Any], transforms: Sequence[Transform]) -> tuple[Any, ...]:
    around = (transforms[place % len(transforms)] for place in range(len(sample)))
    return tuple(value if function is None else function(value) for value, function in zip(sample, around, strict=True))

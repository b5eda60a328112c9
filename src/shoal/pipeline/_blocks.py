"""Blocks through the stages that look at one sample at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from shoal import registry
from shoal.abc import Block, Engine, Stream
from shoal.pipeline.stages import BlockStage, Own

__all__ = ["BLOCK", "engine", "flow", "through", "with_bytes"]

In = TypeVar("In")
Out = TypeVar("Out")

#: Samples that travel together.
BLOCK = 64


def engine() -> Engine:
    """Give the engine that runs plans here."""
    made: Engine = registry.load("engine", "local")()
    return made


def with_bytes(stages: Sequence[BlockStage], *, views: bool, to_the_end: bool) -> tuple[BlockStage, ...]:
    """Put in where views into shards become bytes: before user code sees them, or at the end if it is asked for."""
    if views:
        return tuple(stages)
    at = next((at for at, stage in enumerate(stages) if stage.shows_bytes), len(stages) if to_the_end else None)
    return tuple(stages) if at is None else (*stages[:at], Own(), *stages[at:])


def through(stages: Iterable[BlockStage], block: Block) -> Block:
    """Send a block through stages."""
    for stage in stages:
        block = stage.process(block)
    return block


def flow(stream: Stream[In, Out], blocks: Iterable[In]) -> Iterator[Out]:
    """Send all blocks through a stream, as far ahead as it can use; then close it."""
    errors: list[Exception] = []
    try:
        for block in _until_error(blocks, errors):
            stream.put(block)
            if len(stream) >= stream.capacity:
                yield stream.get()
        while len(stream):
            yield stream.get()
        for error in errors:
            raise error
    finally:
        stream.close()


def _until_error(items: Iterable[In], errors: list[Exception]) -> Iterator[In]:
    """Put an error of the source aside, so that what was read before it is delivered first, as without threads."""
    try:
        yield from items
    except Exception as error:
        errors.append(error)

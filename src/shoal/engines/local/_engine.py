"""Blocks through stages, in order, several at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

from shoal._malloc import keep_freed_memory
from shoal.abc import Block, Engine, Sample
from shoal.errors import PlanError
from shoal.pipeline.stages import BlockStage, Stage, StreamStage
from shoal.shards import owned

__all__ = ["LocalEngine"]

T = TypeVar("T")
R = TypeVar("R")


class LocalEngine(Engine):
    """Runs stages in threads: decoding, decompression and numpy let go of the interpreter's lock."""

    def stream(
        self, blocks: Iterable[Block], stages: Sequence[Stage], *, workers: int | str, views: bool = False
    ) -> Iterator[Sample]:
        """Send blocks through stages; those that see one sample at a time run in the threads."""
        threads = _threads(workers)
        keep_freed_memory()
        fused = _leading_block_stages(stages)
        samples: Iterator[Sample] = chain.from_iterable(_ordered(_fused(fused, views), blocks, threads if fused else 0))
        if not views:
            # One at a time as they leave, not in the block: the memory of the one before is still in the cache.
            samples = map(owned, samples)
        for stage in stages[len(fused) :]:
            samples = _through(stage, samples)
        return samples


def _threads(workers: int | str) -> int:
    if workers == "auto":
        return os.cpu_count() or 1
    if not isinstance(workers, int) or workers < 0:
        raise PlanError(f'workers={workers!r}; it is a number of threads, 0 for none, or "auto"')
    return workers


def _leading_block_stages(stages: Sequence[Stage]) -> list[BlockStage]:
    leading: list[BlockStage] = []
    for stage in stages:
        if not isinstance(stage, BlockStage):
            break
        leading.append(stage)
    return leading


def _fused(stages: Sequence[BlockStage], views: bool) -> Callable[[Block], list[Sample]]:
    """Make one function of several stages, so that a block crosses threads once."""

    def process(block: Block) -> list[Sample]:
        samples, are_views = block.samples, not views
        for stage in stages:
            if are_views and stage.shows_bytes:
                samples, are_views = [owned(sample) for sample in samples], False
            samples = stage.process(samples, block)
        return samples

    return process


def _through(stage: Stage, samples: Iterator[Sample]) -> Iterator[Sample]:
    if isinstance(stage, StreamStage):
        return stage.flow(samples)
    assert isinstance(stage, BlockStage)
    process = _fused([stage], views=True)
    return chain.from_iterable(process(Block([sample], ())) for sample in samples)


def _ordered(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Map in threads, at most two items a thread ahead of the consumer; results come in the order of the items."""
    if threads == 0:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="shoal")
    pending: deque[Future[R]] = deque()
    errors: list[Exception] = []
    try:
        for item in _until_error(items, errors):
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        for error in errors:
            raise error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _until_error(items: Iterable[T], errors: list[Exception]) -> Iterator[T]:
    """Put an error of the source aside, so that what was read before it is delivered first, as without threads."""
    try:
        yield from items
    except Exception as error:
        errors.append(error)

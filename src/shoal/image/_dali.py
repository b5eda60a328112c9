"""Pipelines of NVIDIA DALI as a stage: samples go in through its external sources, and come out in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._optional import require
from shoal.abc import Block, Sample
from shoal.errors import MissingFieldError, PlanError, SampleError
from shoal.image._draw import uniforms
from shoal.pipeline.stages import BlockStage, Place, describe

__all__ = ["Dali", "dali"]

# What pipelines are built with, where nothing else is said: as many samples as travel together, and as workers do it.
_USUAL = {"batch_size": 64, "num_threads": 1, "device_id": None}
# What a float32 below 1 holds exactly.
_STEPS = np.float64(2.0**24)

#: What is fed to a pipeline: for each external source a value of each sample.
Feeds = dict[str, Any]


class Lines:
    """Pipelines that are built alike, one for each thread that asks; other processes get how they are built."""

    def __init__(self, define: Callable[..., Any], sources: tuple[str, ...], options: Mapping[str, Any]) -> None:
        self._define, self._sources, self._options = define, sources, dict(options)
        self._here = threading.local()

    def __reduce__(self) -> Any:
        return Lines, (self._define, self._sources, self._options)

    def here(self) -> Any:
        """Give the pipeline of this thread."""
        if not hasattr(self._here, "line"):
            self._here.line = self._built()
        return self._here.line

    def drop(self) -> None:
        """Forget the pipeline of this thread: one that has failed is not to be used again."""
        self._here.__dict__.pop("line", None)

    def _built(self) -> Any:
        library = require("nvidia.dali", "shoal.image.dali")
        define = self._define if hasattr(self._define, "_is_pipeline_def") else library.pipeline_def(self._define)
        # Nothing is prefetched inside: several blocks are under way, each in a pipeline of its own.
        line = define(**{**_USUAL, **self._options}, prefetch_queue_depth=1)
        line.build()
        for name in self._sources:
            try:
                line.input_feed_count(name)
            except (KeyError, RuntimeError):
                text = f"the pipeline {self._define.__name__} has no fn.external_source(name={name!r}) to be fed"
                raise PlanError(text) from None
        return line


@dataclass(frozen=True, slots=True)
class Dali(BlockStage):
    """Sends samples through a pipeline of DALI's; see `dali`."""

    shows_bytes = False
    function: Callable[..., Any]
    lines: Lines
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    numbers: tuple[tuple[str, int], ...] = ()
    random: int | None = None
    """The number of the stage, so that no two draw the same."""

    @property
    def is_random(self) -> bool:
        """Whether numbers are drawn for each sample."""
        return bool(self.numbers)

    def process(self, block: Block) -> Block:
        """Send the samples through the pipeline of this thread, as many at once as it takes."""
        feeds, made, at = self._feeds(block), [], 0
        while at < len(block.samples):
            end = min(at + self.lines.here().max_batch_size, len(block.samples))
            made += self._sent(block, feeds, at, end)
            at = end
        return block.with_samples(made)

    def _feeds(self, block: Block) -> Feeds:
        feeds: Feeds = {name: [] for name, _ in self.inputs}
        for sample in block.samples:
            with Place(self, sample, block):
                for name, field in self.inputs:
                    feeds[name].append(_array(sample, field))
        for name, count in self.numbers:
            drawn = uniforms(block, self.random, f"dali: {name}", count)
            feeds[name] = (np.floor(drawn * _STEPS) / _STEPS).astype(np.float32)
        return feeds

    def _sent(self, block: Block, feeds: Feeds, at: int, end: int) -> list[Sample]:
        try:
            return self._through(block, feeds, at, end)
        except PlanError:
            raise
        except Exception as error:
            self.lines.drop()
            if end - at == 1:
                with Place(self, block.samples[at], block):
                    raise SampleError(f"DALI could not treat it: {_reason(error)}") from error
            for place in range(at, end):  # DALI does not say of which sample it is; the one to blame fails alone, too
                self._sent(block, feeds, place, place + 1)
            error.add_note(f"in stage {describe(self)}, with {end - at} samples at once, each of which passes alone")
            raise

    def _through(self, block: Block, feeds: Feeds, at: int, end: int) -> list[Sample]:
        line = self.lines.here()
        for name, values in feeds.items():
            line.feed_input(name, values[at:end])
        found = line.run()
        if len(found) != len(self.outputs):
            raise PlanError(
                f"the pipeline gives {len(found)} outputs, and {len(self.outputs)} are named: {self.outputs}"
            )
        columns = [_arrays(each, copied=not getattr(line, "exec_dynamic", False)) for each in found]
        made = (dict(zip(self.outputs, row, strict=True)) for row in zip(*columns, strict=True))
        return [{**sample, **fields} for sample, fields in zip(block.samples[at:end], made, strict=True)]


def dali(
    pipeline: Callable[..., Any],
    inputs: Mapping[str, str],
    outputs: str | Sequence[str],
    *,
    random: Mapping[str, int] | None = None,
    **options: Any,
) -> Dali:
    """Send samples through a pipeline of NVIDIA DALI's, which each worker builds for itself.

    ``pipeline`` is a function that ``pipeline_def`` has decorated, or could. ``inputs`` says which field goes to which
    ``fn.external_source``, by its name: bytes as they are, and arrays; ``"jpg;jpeg"`` takes the first that is there.
    ``outputs`` names the fields that become of what the pipeline gives; all others stay. ``random`` names external
    sources that get so many numbers from 0 up to 1 for each sample, which follow from the seed, the epoch and the
    sample. Options are those of the pipeline and the arguments of its function: ``batch_size`` is the most that it gets
    at once (64), ``num_threads`` are those of each worker (1), ``device_id`` is its graphics processor (None).

    A pipeline that draws from ``random`` alone does the same to a sample wherever and whenever it is its turn, so a run
    resumes to the last byte. What operators such as ``fn.random.uniform`` draw depends on all that the pipeline has
    done before.

    >>> def enlarged(size):
    ...     from nvidia.dali import fn
    ...     return fn.resize(fn.decoders.image(fn.external_source(name="jpegs")), size=(size, size))
    >>> stage = dali(enlarged, {"jpegs": "jpg"}, "jpg", size=224, num_threads=2)
    >>> stage.outputs, stage.is_random
    (('jpg',), False)
    """
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    numbers = dict(random or {})
    if not inputs or not names:
        raise PlanError(f"dali(inputs={dict(inputs)}, outputs={names}): at least one of each is needed")
    if twice := sorted(inputs.keys() & numbers.keys()):
        raise PlanError(f"{', '.join(twice)}: an external source is fed by inputs or by random, not by both")
    if any(not isinstance(count, int) or count < 1 for count in numbers.values()):
        raise PlanError(f"random={numbers}; it says for each external source how many numbers a sample gets")
    if "prefetch_queue_depth" in options:
        raise PlanError("prefetch_queue_depth is 1 in a stage: more is under way with more workers")
    lines = Lines(pipeline, (*inputs, *numbers), options)
    return Dali(pipeline, lines, tuple(inputs.items()), names, tuple(numbers.items()))


def _array(sample: Sample, field: str) -> NDArray[Any]:
    """Give the value of a field as DALI takes it."""
    name = next((name for name in field.split(";") if name in sample), None)
    if name is None:
        present = ", ".join(sorted(name for name in sample if name != "__key__")) or "none at all"
        raise MissingFieldError(f"the sample has no such field; it has {present}", field=field)
    value = sample[name]
    array = np.frombuffer(value, np.uint8) if isinstance(value, bytes | bytearray | memoryview) else np.asarray(value)
    if array.dtype.kind not in "biuf" or not array.size:
        seen = f"{array.dtype} {array.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise SampleError(f"DALI takes bytes, numbers and arrays of numbers that are not empty, not {seen}", field=name)
    return array


def _arrays(found: Any, *, copied: bool) -> list[NDArray[Any]]:
    """Give what a pipeline made of each sample, as arrays in its memory, if that is not used again while they live."""
    found = found.as_cpu() if "GPU" in type(found).__name__ else found
    return [np.array(each) if copied else np.asarray(each) for each in (found[at] for at in range(len(found)))]


def _reason(error: Exception) -> str:
    """Take what DALI says apart from where its pipeline was defined."""
    said = str(error).rpartition("encountered:")[2].partition("Current pipeline object")[0]
    return " ".join(said.split()) or type(error).__name__

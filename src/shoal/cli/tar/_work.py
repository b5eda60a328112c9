"""What ``tarproc`` does with one sample: files in a folder, a command, and the samples that it left there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import TracebackType
from typing import IO

from shoal.abc import Sample
from shoal.cli._tool import say
from shoal.cli.tar._commands import Commands, Outcome
from shoal.cli.tar._workplace import Layout, Workplace
from shoal.errors import SampleError

__all__ = ["Result", "Work"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a sample."""

    key: str
    shard: str | None
    """Where the sample was from."""
    samples: tuple[Sample, ...] = ()
    error: SampleError | None = None
    log: IO[bytes] | None = None
    """What the command said, until the ``with`` block of the result ends."""

    def placed(self, error: SampleError) -> SampleError:
        """Tell an error which sample it is about."""
        error.key, error.shard = error.key or self.key, self.shard
        return error

    def __enter__(self) -> Result:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.log is not None:
            self.log.close()


@dataclass(frozen=True, slots=True)
class Work:
    """Makes samples of a sample. Several threads may do it at once."""

    commands: Commands
    layout: Layout
    keeps_failed: bool = False
    """Whether what a failed command left is taken nevertheless; if it cannot be, the sample stays as it was."""
    log_field: str | None = None
    """The field that takes what the command said."""
    keeps_folders: bool = False

    def __call__(self, sample: Sample) -> Result:
        """Do it. What is wrong with the sample or with its command is in the result."""
        result = Result(sample["__key__"], sample.get("__source__"))
        try:
            place = Workplace(sample, self.layout)
        except SampleError as error:
            return self._failed(result, error, sample)
        try:
            return self._taken(result, place, sample)
        finally:
            if self.keeps_folders:
                say(f"# {sample['__key__']!r} is in {place.path}")
            else:
                place.remove()

    def _taken(self, result: Result, place: Workplace, sample: Sample) -> Result:
        """Run the command and take what it left."""
        outcome = self.commands.run(place.path)
        result = replace(result, log=outcome.log, error=_failure(outcome))
        if result.error is not None and not self.keeps_failed:
            return result
        try:
            made = place.samples()
        except SampleError as error:
            return self._failed(result, result.error or error, sample)
        if self.log_field is not None:
            made = [{**each, self.log_field: outcome.said()} for each in made]
        return replace(result, samples=tuple(made))

    def _failed(self, result: Result, error: SampleError, sample: Sample) -> Result:
        """Give back the sample as it was, if it is to be kept."""
        return replace(result, error=error, samples=(sample,) if self.keeps_failed else ())


def _failure(outcome: Outcome) -> SampleError | None:
    if outcome.failure is None:
        return None
    last = outcome.last_line()
    return SampleError(f"the command {outcome.failure}{f'; it said: {last}' if last else ''}")

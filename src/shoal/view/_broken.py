"""Samples that cannot be used: those that a run has skipped, those met on the way, and those that a check finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.errors import MissingExtraError, SampleError, TrustError
from shoal.shards.codecs import DecodeOptions, decode
from shoal.view._catalogue import Catalogue
from shoal.view._jobs import Job, Pace
from shoal.view._looks import fields_of

if TYPE_CHECKING:
    from shoal.pipeline import Failure

__all__ = ["Broken"]

_MOST = 10_000
_TOLD = 0.2


class Broken:
    """A book of failures, each once."""

    def __init__(self, catalogue: Catalogue, options: DecodeOptions, known: Iterable[Failure] = ()) -> None:
        self._catalogue, self._options = catalogue, options
        self._failures: dict[tuple[Any, ...], Failure] = {}
        self.seen = 0
        self.check: Job | None = None
        for failure in known:
            self.add(failure)

    def add(self, failure: Failure) -> None:
        """Take note of a failure."""
        if len(self._failures) < _MOST:
            self._failures.setdefault((failure.shard, str(failure.key), failure.stage), failure)

    def met(self, number: int, field: str, error: Exception) -> None:
        """Take note of a field that could not be shown."""
        from shoal.pipeline import Failure  # most pages are there sooner without

        shard, offset = self._catalogue.place(number)
        key = self._catalogue.samples([number])[0]["__key__"]
        failure = Failure.of(error, key=key, shard=shard.url, stage=f"view({field})")
        self.add(replace(failure, offset=offset, trace="", exception=None))

    def start_check(self) -> None:
        """Begin to decode every field of every sample."""
        if self.check is None or self.check.done:
            self.seen = 0
            self.check = Job(self._run)
            self.check.start()

    def stop_check(self) -> None:
        """End it."""
        if self.check is not None:
            self.check.stop()

    def described(self) -> dict[str, Any]:
        """Tell what is known by now."""
        failures = [*self._catalogue.failures, *list(self._failures.values())]
        return {
            "failures": [self._row(failure) for failure in failures],
            "running": self.check is not None and not self.check.done,
            "checked": self.check is not None,
            "stopped": self.check is not None and self.check.stopped,
            "error": "" if self.check is None else self.check.error,
            "seen": self.seen,
            "total": self._catalogue.total.samples,
        }

    def _row(self, failure: Failure) -> dict[str, Any]:
        row = {name: getattr(failure, name) for name in ("shard", "offset", "stage", "error", "message")}
        key = None if failure.key is None else str(failure.key)
        return {**row, "key": key, "number": self._catalogue.number(failure.shard, failure.offset)}

    def _run(self, job: Job) -> None:
        pace = Pace(_TOLD)
        for piece in self._catalogue.scan():
            for number, sample in enumerate(piece.samples, piece.first):
                for name in fields_of(sample):
                    self._decode(number, name, sample[name])
                self.seen = number + 1
                if pace.due():
                    job.tick()

    def _decode(self, number: int, name: str, value: Any) -> None:
        if not isinstance(value, bytes | memoryview):
            return
        try:
            decode(name, value, self._options)
        except SampleError as error:
            self.met(number, name, error)
        except (TrustError, MissingExtraError):
            return  # nothing is wrong with the sample

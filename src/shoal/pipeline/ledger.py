"""Samples that could not be used: what becomes of a run that meets one, and the book that is kept of them."""

from __future__ import annotations

import json
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from shoal.errors import ErrorBudgetError, PlanError, SampleError

__all__ = ["Failure", "Ledger", "OnError"]

#: ``"raise"``, ``"skip"``, or a function that is given the failure and says whether to skip the sample.
OnError: TypeAlias = "str | Callable[[Failure], bool]"

#: A share of the samples is only judged when so many have been seen.
_FEW = 100


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that failed: where it lies, in which stage, and why.

    >>> failure = Failure.of(ValueError("too dark"), key="0007", shard="a.tar", stage="map(brighten)")
    >>> failure.key, failure.error, failure.message
    ('0007', 'ValueError', 'too dark')
    >>> Failure.read(failure.plain()) == failure
    True
    """

    shard: str | None
    """The URL of its shard; None where it was made of several samples."""
    key: Any
    offset: int | None
    """Its place among the samples of the shard."""
    stage: str
    error: str
    """The name of the exception's class."""
    message: str
    trace: str = ""
    epoch: int = 0
    at: tuple[int, int, int] | None = None
    """The source, the number of its shard, and the pass: with the offset, what is needed to read it again."""
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """The exception itself, in the process that met it; not saved."""

    def __str__(self) -> str:
        place = "" if self.shard is None else f" of shard {self.shard}"
        where = "" if self.offset is None else f" (number {self.offset})"
        return f"sample {self.key!r}{where}{place}, in stage {self.stage}: {self.error}: {self.message}"

    @classmethod
    def of(cls, error: Exception, *, key: Any, shard: str | None, stage: str) -> Failure:
        """Describe an exception, so that it can cross to another process even if it cannot itself."""
        message = str(error)
        if isinstance(error, SampleError) and error.args:  # sample and shard are told beside it
            message = f"{'' if error.field is None else f'field {error.field!r}: '}{error.args[0]}"
        trace = "".join(traceback.format_exception(error))
        return cls(shard, key, None, stage, type(error).__name__, message, trace, exception=_portable(error))

    def plain(self) -> dict[str, Any]:
        """Give everything but the exception itself, in values that JSON has."""
        plain = asdict(replace(self, exception=None))
        del plain["exception"]
        return plain

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Failure:
        """Take what `plain` gave."""
        return cls(**{**plain, "at": None if plain["at"] is None else tuple(plain["at"])})


class Ledger:
    """The samples that a run has skipped, in the order in which it came to them.

    >>> ledger = Ledger(budget=1)
    >>> ledger.admit(Failure("a.tar", "cat", 3, "decode()", "DecodeError", "the picture ends too early"), seen=4)
    >>> print(ledger)
    1 sample skipped
    sample 'cat' (number 3) of shard a.tar, in stage decode(): DecodeError: the picture ends too early
    """

    def __init__(self, on_error: OnError = "skip", budget: float = 0.05) -> None:
        if on_error not in ("raise", "skip") and not callable(on_error):
            raise PlanError(f'on_error={on_error!r}; it is "raise", "skip", or a function of the failure')
        if isinstance(budget, bool) or budget < 0 or (isinstance(budget, float) and budget > 1):
            raise PlanError(f"error_budget={budget!r}; it is a number of samples, or a share of them below 1.0")
        self.on_error, self.budget = on_error, budget
        self.failures: list[Failure] = []

    @property
    def catches(self) -> bool:
        """Whether a failure is more than the end of the run."""
        return self.on_error != "raise"

    def __len__(self) -> int:
        return len(self.failures)

    def __iter__(self) -> Iterator[Failure]:
        return iter(self.failures)

    def __str__(self) -> str:
        count = f"{len(self)} sample{'' if len(self) == 1 else 's'} skipped"
        return "\n".join([count, *map(str, self.failures)])

    def __repr__(self) -> str:
        return f"<Ledger: {len(self)} skipped>"

    def admit(self, failure: Failure, *, seen: int) -> None:
        """Write a failure down, or raise: because it is not to be skipped, or because there are too many."""
        if callable(self.on_error) and not self.on_error(failure):
            raise failure.exception or SampleError(str(failure), key=str(failure.key), shard=failure.shard)
        self.failures.append(failure)
        share = isinstance(self.budget, float)
        if len(self) > (self.budget * seen if share else self.budget) and (seen >= _FEW or not share):
            limit = f"{self.budget:.1%} of {seen} seen" if share else f"{self.budget}"
            text = f"{len(self)} samples have failed, more than the error budget of {limit}; the last: {failure}"
            raise ErrorBudgetError(text, key=str(failure.key), shard=failure.shard) from failure.exception

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger as lines of JSON."""
        Path(path).write_text("".join(f"{json.dumps(failure.plain())}\n" for failure in self.failures))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Ledger:
        """Read a ledger that was saved; `Dataset.replay` shows what happens to each of its samples now."""
        ledger = cls()
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            try:
                ledger.failures.append(Failure.read(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise PlanError(f"line {number} of {os.fspath(path)} is not of a ledger: {error}") from error
        return ledger


def _portable(error: Exception) -> Exception | None:
    """Give the exception without the frames it came through, if it can be packed; what it says is kept anyway."""
    try:
        packed = pickle.dumps(error)
        copy: Exception = pickle.loads(packed)  # noqa: S301 - packed in the line above
    except Exception:  # whatever an exception of the user's does when it is packed
        return None
    return copy if type(copy) is type(error) else None

"""The samples whose commands failed, for the words at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shoal.errors import SampleError

__all__ = ["Failures"]

#: Failures that are named; of the others there is a number, so that a long run stays small.
_NAMED = 20


@dataclass(slots=True)
class Failures:
    """Takes note of what failed.

    >>> failures = Failures()
    >>> failures.add(SampleError("the command ended with exit code 3", key="a", shard="x.tar"))
    >>> list(failures.words(10, "left out"))
    ['1 of 10 samples failed and was left out:', "  shard x.tar, sample 'a': the command ended with exit code 3"]
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, error: SampleError) -> None:
        """Count a failure, and keep the text of the first ones."""
        self.count += 1
        if len(self.named) < _NAMED:
            self.named.append(str(error))

    def words(self, total: int, fate: str) -> Iterator[str]:
        """Say how many of all failed, what became of them, and which they were; nothing if none did."""
        if not self.count:
            return
        yield f"{self.count} of {total} samples failed and {'was' if self.count == 1 else 'were'} {fate}:"
        yield from (f"  {text}" for text in self.named)
        if self.count > len(self.named):
            yield f"  ... and {self.count - len(self.named)} more"

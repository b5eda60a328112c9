"""A command with a mark where the shard goes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shoal.errors import PlanError
from shoal.files import scheme

__all__ = ["Job"]

_OUTPUT = ("-o", "--output")


@dataclass(frozen=True, slots=True)
class Job:
    """What runs for every shard.

    >>> Job.of(["tarproc", "in-{}.tar", "-o", "out-{}.tar"]).command("0007")
    ['tarproc', 'in-0007.tar', '-o', 'out-0007.tar']
    """

    words: tuple[str, ...]
    """The command and its arguments; no shell looks at them."""
    mark: str = "{}"
    """What the text of the shard is put in place of."""
    outputs: tuple[str, ...] = ()
    """Files that are there when the command has done its work, with the mark in their names."""

    @classmethod
    def of(cls, words: Sequence[str], mark: str = "{}", outputs: Sequence[str] = ()) -> Job:
        """Check what a user wrote; without ``outputs``, those that follow ``-o`` are taken.

        >>> Job.of(["tarproc", "in-{}.tar", "-o", "out-{}.tar"]).outputs
        ('out-{}.tar',)
        """
        if not words:
            raise PlanError("no command was given; write it behind --, as in: shoal run --shards {0..9} -- echo {}")
        if not mark or not any(mark in word for word in words):
            text = f"no word of the command has {mark or 'the mark'} in it, so that it would be the same for all shards"
            raise PlanError(f"{text}; write it where the shard goes, or name another mark with --replace")
        fixed = [name for name in outputs if mark not in name]
        if fixed:
            raise PlanError(f"the output {fixed[0]} is the same for all shards; write {mark} where the shard goes")
        return cls(tuple(words), mark, tuple(outputs) or tuple(_outputs(words, mark)))

    @property
    def name(self) -> str:
        """The name of the program."""
        return os.path.basename(self.words[0]) or "command"

    @property
    def digest(self) -> str:
        """Some letters that are others for another command."""
        return hashlib.sha256(json.dumps([self.words, self.mark]).encode()).hexdigest()[:12]

    def command(self, shard: str) -> list[str]:
        """Write the shard into every word."""
        return [word.replace(self.mark, shard) for word in self.words]

    def outputs_of(self, shard: str) -> list[str]:
        """Name the files that a shard's command leaves."""
        return [name.replace(self.mark, shard) for name in self.outputs]


def _outputs(words: Sequence[str], mark: str) -> list[str]:
    following = [word for option, word in pairwise(words) if option in _OUTPUT]
    joined = [word.removeprefix("--output=") for word in words if word.startswith("--output=")]
    return [name for name in (*following, *joined) if mark in name and scheme(name) != "pipe"]

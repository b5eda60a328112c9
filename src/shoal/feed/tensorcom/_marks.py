"""Who sent a message, and whether it was the last one.

A header may be longer than its array needs: Tensorcom 0.1.0 reads as many dimensions as it is told, and no further.
There three words say that Shoal sent this, which sender, and whether it has ended. The end is the sender's last message
once more, with that word set; so whoever does not know of it gets a batch as good as any other.
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass, replace

import numpy as np

from shoal.shards.codecs import tenbin

__all__ = ["EMPTY", "Mark", "Senders", "mark_of"]

_WORDS = struct.Struct("<8sQQ")
_MAGIC = b"~Shoal1~"

#: What the end repeats if nothing was sent before: one array, without elements.
EMPTY = tenbin.encode_array(np.zeros(0, np.uint8))


@dataclass(frozen=True, slots=True)
class Mark:
    """What a message tells of its sender.

    >>> mark_of(Mark(7).on(EMPTY[0]))
    Mark(sender=7, ended=False)
    """

    sender: int
    ended: bool = False

    @classmethod
    def new(cls) -> Mark:
        """Be a sender that nobody has seen yet."""
        return cls(secrets.randbits(64))

    def end(self) -> Mark:
        """Be at the end."""
        return replace(self, ended=True)

    def on(self, header: bytes) -> bytes:
        """Put it behind the header of a message's first array."""
        return header + _WORDS.pack(_MAGIC, self.sender, self.ended)


def mark_of(header: bytes | memoryview) -> Mark | None:
    """Find the mark behind a header; other senders than Shoal's leave none.

    >>> mark_of(EMPTY[0]) is None
    True
    """
    _, _, shape = tenbin.decode_header(header)
    behind = bytes(header[tenbin.header_size(len(shape)) :])
    if len(behind) != _WORDS.size or not behind.startswith(_MAGIC):
        return None
    _, sender, ended = _WORDS.unpack(behind)
    return Mark(sender, bool(ended))


class Senders:
    """Those whom a receiver has seen. All is over when each of them has ended, and they are at least so many.

    >>> senders = Senders(1)
    >>> for mark in Mark(1), Mark(2), Mark(1, ended=True):
    ...     senders.saw(mark)
    >>> senders.ended
    False
    >>> senders.saw(Mark(2, ended=True))
    >>> senders.ended
    True
    """

    def __init__(self, least: int = 1) -> None:
        self._least = least
        self._at_work: set[int | None] = set()
        self._ended: set[int] = set()

    def saw(self, mark: Mark | None) -> None:
        """Take note of a message. One without a mark is of a sender that never says that it has ended."""
        if mark is not None and mark.ended:
            self._at_work.discard(mark.sender)
            self._ended.add(mark.sender)
        elif mark is None or mark.sender not in self._ended:
            self._at_work.add(None if mark is None else mark.sender)

    @property
    def ended(self) -> bool:
        """Whether nobody is left who might send."""
        return not self._at_work and len(self._ended) >= self._least

    def __str__(self) -> str:
        seen = len(self._ended) + len(self._at_work)
        return f"{len(self._ended)} of {seen} senders have ended" if seen else "nobody was seen who sends"

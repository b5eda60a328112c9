"""Where a CSV file can be cut: at ends of lines that are not inside quotes.

Whether a newline is inside quotes depends on all that was before it. But of a part of a file one can say how many
quotes it has, and where its first line ends in both cases; so parts are looked at in parallel, then put in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Cut", "PartLook", "cuts", "look_at"]


class LineEnd(NamedTuple):
    """Where a line ends (the place behind the newline), and how many newlines there are up to it."""

    place: int
    lines: int


class PartLook(NamedTuple):
    """What there is to know about a part of a file, whoever comes before it."""

    odd: bool
    """Whether it has an odd number of quotes."""
    lines: int
    """Newlines, wherever."""
    outside: LineEnd | None
    """The end of the first line, if the part begins outside quotes."""
    inside: LineEnd | None
    """The same if it begins inside quotes."""


class Cut(NamedTuple):
    """A place at which a record begins, and the lines before it."""

    place: int
    line: int


def look_at(part: bytes, quote: bytes = b'"') -> PartLook:
    r"""Look at a part.

    >>> look_at(b'a\nb"c\n')
    PartLook(odd=True, lines=2, outside=LineEnd(place=2, lines=1), inside=LineEnd(place=6, lines=2))
    """
    odd = bool(quote) and part.count(quote) % 2 == 1
    return PartLook(odd, part.count(b"\n"), _line_end(part, quote, False), _line_end(part, quote, True))


def cuts(starts: Sequence[int], looks: Sequence[PartLook]) -> list[Cut]:
    """Give the places at which a file can be cut, at most one for each part of it; the first is its beginning.

    >>> cuts([0, 4], [PartLook(True, 1, LineEnd(2, 1), None), PartLook(True, 2, LineEnd(1, 1), LineEnd(3, 2))])
    [Cut(place=0, line=0), Cut(place=7, line=3)]
    """
    found, inside, line = [Cut(0, 0)], False, 0
    for start, look in zip(starts, looks, strict=True):
        end = look.inside if inside else look.outside
        if start and end is not None:
            found.append(Cut(start + end.place, line + end.lines))
        inside ^= look.odd
        line += look.lines
    return found


def _line_end(part: bytes, quote: bytes, inside: bool) -> LineEnd | None:
    """Find the first newline that is outside quotes."""
    place = 0
    while True:
        if inside:
            place = part.find(quote, place) + 1
            if not place:
                return None
        newline, following = part.find(b"\n", place), part.find(quote, place) if quote else -1
        if newline < 0:
            return None
        if following < 0 or newline < following:
            return LineEnd(newline + 1, part.count(b"\n", 0, newline + 1))
        place, inside = following + 1, True

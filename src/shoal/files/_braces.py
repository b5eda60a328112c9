"""Brace patterns as bash reads them: lists, ranges, nesting, and literal text where braces do not match.

A pattern is parsed first and counted before a single name is made, so a slip of the keyboard costs a message, not the
memory of the machine.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shoal.errors import UrlError

__all__ = ["MAX_NAMES", "expand_braces"]

#: More names than any list of shards; a pattern above it is taken for a mistake.
MAX_NAMES = 10_000_000

_NUMBERS = re.compile(r"([+-]?[0-9]+)\.\.([+-]?[0-9]+)(?:\.\.([+-]?[0-9]+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.([+-]?[0-9]+))?")
_ESCAPED = re.compile(r"\\([{},])")


@dataclass(frozen=True, slots=True)
class _Range:
    """A ``{first..last..step}``; a width of 0 writes numbers as they are, None writes letters."""

    values: range
    width: int | None

    def names(self) -> Iterator[str]:
        if self.width is None:
            return map(chr, self.values)
        return (f"{value:0{self.width}d}" if self.width else str(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A ``{one,two}``, each alternative a pattern of its own."""

    alternatives: tuple[_Pattern, ...]


_Pattern: TypeAlias = "tuple[str | _Range | _Choice, ...]"


def expand_braces(text: str) -> list[str]:
    r"""Write out a brace pattern, in the order bash would.

    >>> expand_braces("{train,val}-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'val-08.tar', 'val-09.tar', 'val-10.tar']
    >>> expand_braces(r"kept\{0..9}")
    ['kept{0..9}']
    """
    if "{" not in text:
        return [text]
    pattern = _parse(text)
    count = _count(pattern)
    if count > MAX_NAMES:
        raise UrlError(f"{text!r} stands for {count} names, more than {MAX_NAMES}; is a digit too many in a range?")
    return [_ESCAPED.sub(r"\1", name) for name in _names(pattern)]


def _parse(text: str) -> _Pattern:
    parts: list[str | _Range | _Choice] = []
    start = position = 0
    while (opening := _opening(text, position, start)) is not None:
        closing = _closing(text, opening + 1)
        if closing is None:
            position = opening + 1
            continue
        parts += [text[start:opening], _group(text[opening + 1 : closing])]
        start = position = closing + 1
    return (*parts, text[start:])


def _opening(text: str, position: int, start: int) -> int | None:
    """Find the next brace that may open a group; ``${`` and a lone ``{}`` belong to shells and templates."""
    level = 0
    while position < len(text):
        here = text[position : position + 2]
        if here[0] == "\\" or here == "${":
            level += here == "${"
            position += 2
            continue
        if here[0] == "{" and level == 0 and not _lone(text, position, start):
            return position
        level = max(0, level + (here[0] == "{" and level > 0) - (here[0] == "}"))
        position += 1
    return None


def _lone(text: str, position: int, start: int) -> bool:
    before, after = text[start:position][-1:], text[position + 1 : position + 2]
    return before in ("", " ", "\t", "\n") and after in (" ", "\t", "\n", "}")


def _closing(text: str, position: int) -> int | None:
    """Find the brace that closes a group; one with neither a comma nor a range before it does not count."""
    level, separated = 0, False
    while position < len(text):
        here = text[position : position + 2]
        if here[0] == "\\" or here == "${":
            level += here == "${"
            position += 2
            continue
        if here[0] == "}" and level == 0 and separated:
            return position
        if level == 0:
            separated |= here[0] == "," or (here == ".." and text[position + 2 : position + 3] != "}")
        level = max(0, level + (here[0] == "{") - (here[0] == "}"))
        position += 1
    return None


def _group(inner: str) -> str | _Range | _Choice:
    if re.search(r"(?<!\\)(?:\\\\)*,", inner) is None:
        return _range(inner) or "{" + inner + "}"
    return _Choice(tuple(_parse(alternative) for alternative in _split(inner)))


def _range(inner: str) -> _Range | None:
    if (match := _NUMBERS.fullmatch(inner)) is not None:
        first, last = match[1], match[2]
        padded = any(re.match(r"-?0[0-9]", number) for number in (first, last))
        return _Range(_span(int(first), int(last), match[3]), max(len(first), len(last)) if padded else 0)
    if (match := _LETTERS.fullmatch(inner)) is not None:
        return _Range(_span(ord(match[1]), ord(match[2]), match[3]), None)
    return None


def _span(first: int, last: int, step: str | None) -> range:
    size = abs(int(step or 1)) or 1
    return range(first, last + 1, size) if first <= last else range(first, last - 1, -size)


def _split(inner: str) -> list[str]:
    pieces, level, start, position = [], 0, 0, 0
    while position < len(inner):
        here = inner[position : position + 2]
        if here[0] == "\\" or here == "${":
            level += here == "${"
            position += 2
            continue
        if here[0] == "," and level == 0:
            pieces.append(inner[start:position])
            start = position + 1
        level = max(0, level + (here[0] == "{") - (here[0] == "}"))
        position += 1
    return [*pieces, inner[start:]]


def _count(pattern: _Pattern) -> int:
    return math.prod(_count_part(part) for part in pattern)


def _count_part(part: str | _Range | _Choice) -> int:
    if isinstance(part, _Range):
        # len() refuses what does not fit a machine word, and such a range is exactly what is looked for here.
        values = part.values
        return (values.stop - values.start + values.step - (1 if values.step > 0 else -1)) // values.step
    return sum(map(_count, part.alternatives)) if isinstance(part, _Choice) else 1


def _names(pattern: _Pattern) -> Iterator[str]:
    return map("".join, itertools.product(*(_part_names(part) for part in pattern)))


def _part_names(part: str | _Range | _Choice) -> Sequence[str]:
    if isinstance(part, str):
        return (part,)
    if isinstance(part, _Range):
        return list(part.names())
    return [name for alternative in part.alternatives for name in _names(alternative)]

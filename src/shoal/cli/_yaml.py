"""Dicts, lists, text and numbers as YAML that any parser reads the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["scalar", "to_yaml"]

_PLAIN = re.compile(r"[A-Za-z_]\w*(?:[-./:@]\w+)*", re.ASCII)
#: Words that some parser takes for something else than text.
_OTHER = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def to_yaml(value: Any) -> str:
    """Write a document, in block style; text of several lines as it is.

    >>> print(to_yaml({"kind": "Job", "args": ["a: b", "yes"], "script": "one\\ntwo", "count": 3}), end="")
    kind: Job
    args:
      - "a: b"
      - "yes"
    script: |-
      one
      two
    count: 3
    """
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _item(f"{_text(name)}:", inner)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _item("-", inner)
    else:
        yield scalar(value)


def _item(mark: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        lines = [f"  {line}" for line in _lines(value)]
        if mark == "-":
            lines[0] = f"- {lines[0][2:]}"
            yield from lines
        else:
            yield from (mark, *lines)
    elif isinstance(value, str) and _is_block(value):
        yield from (f"{mark} |-", *(f"  {line}".rstrip(" ") for line in value.split("\n")))
    else:
        yield f"{mark} {scalar(value)}"


def scalar(value: Any) -> str:
    """Write a text, a number, a truth or nothing; text that could be taken for something else has quotes.

    >>> scalar("cls.txt"), scalar("12"), scalar(12), scalar(None)
    ('cls.txt', '"12"', '12', 'null')
    """
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _is_block(text: str) -> bool:
    """Tell whether text of several lines can be written as it is."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and plain and bool(lines[-1]) and not text.startswith((" ", "\n"))


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _OTHER:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08X}" for letter in quoted)

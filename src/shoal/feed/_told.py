"""Errors of a plan on their way from a feeder to a trainer: by name and text, for nothing is unpickled there."""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Mapping
from typing import Any

from shoal import errors
from shoal.errors import FeedError

__all__ = ["revived", "told"]

#: Attributes that say where something went wrong.
_PLACES = ("key", "field", "shard", "offset", "member", "url")
_TEXT, _TRACE = 10_000, 50_000


def told(error: BaseException) -> dict[str, Any]:
    """Say what was raised.

    >>> told(errors.DecodeError("too short", key="a", field="jpg"))["place"]
    {'key': 'a', 'field': 'jpg'}
    """
    values = {name: getattr(error, name, None) for name in _PLACES}
    return {
        "kind": type(error).__name__,
        "text": str(error.args[0] if len(error.args) == 1 else error)[:_TEXT],
        "place": {name: value for name, value in values.items() if isinstance(value, str | int)},
        "notes": [str(note)[:_TEXT] for note in getattr(error, "__notes__", ())],
        "trace": "".join(traceback.format_exception(error))[-_TRACE:],
    }


def revived(words: Mapping[str, Any], feeder: str) -> Exception:
    """Make the exception again, if it is one of ours or of Python's; any other is told by its name.

    >>> error = revived(told(ZeroDivisionError("by zero")), "grpc://a:1")
    >>> error, error.__notes__[-1].splitlines()[0]
    (ZeroDivisionError('by zero'), 'in the feeder at grpc://a:1:')
    """
    kind, text, place = str(words.get("kind")), str(words.get("text")), dict(words.get("place") or {})
    error = _made(kind, text, place)
    for note in words.get("notes", ()):
        error.add_note(str(note))
    error.add_note(f"in the feeder at {feeder}:\n{words.get('trace', '')}")
    return error


def _made(kind: str, text: str, place: dict[str, Any]) -> Exception:
    ours = getattr(errors, kind, None)
    if isinstance(ours, type) and issubclass(ours, errors.ShoalError):
        try:
            return ours(text, **place)
        except TypeError:
            return ours(text)
    theirs = getattr(builtins, kind, None)
    if isinstance(theirs, type) and issubclass(theirs, Exception):
        try:
            return theirs(text)
        except TypeError:  # such as UnicodeDecodeError, which wants more than a text
            pass
    return FeedError(f"{kind}: {text}")

"""What to do when a shard or a sample fails: functions that go on (True), stop (False) or raise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

from shoal.errors import MissingExtraError, TrustError

__all__ = [
    "Handler",
    "goes_on",
    "ignore_and_continue",
    "ignore_and_stop",
    "reraise_exception",
    "warn_and_continue",
    "warn_and_stop",
]

Handler: TypeAlias = Callable[[Exception], Any]


def reraise_exception(error: Exception) -> bool:
    """Raise the error.

    >>> reraise_exception(ValueError("a bad sample"))
    Traceback (most recent call last):
    ValueError: a bad sample
    """
    raise error


def ignore_and_continue(error: Exception) -> bool:
    """Leave out what failed and go on.

    >>> ignore_and_continue(ValueError("a bad sample"))
    True
    """
    return True


def ignore_and_stop(error: Exception) -> bool:
    """End the stream before what failed.

    >>> ignore_and_stop(ValueError("a bad sample"))
    False
    """
    return False


def warn_and_continue(error: Exception) -> bool:
    """Warn, leave out what failed and go on.

    >>> with warnings.catch_warnings(record=True, action="always") as seen:
    ...     warn_and_continue(ValueError("a bad sample")), len(seen)
    (True, 1)
    """
    warnings.warn(_text(error), stacklevel=2)
    return True


def warn_and_stop(error: Exception) -> bool:
    """Warn, and end the stream before what failed.

    >>> with warnings.catch_warnings(record=True, action="always") as seen:
    ...     warn_and_stop(ValueError("a bad sample")), len(seen)
    (False, 1)
    """
    warnings.warn(_text(error), stacklevel=2)
    return False


def goes_on(handler: Handler, error: Exception) -> bool:
    """Ask a handler about a fault of the data.

    A library that is missing and data nobody vouched for are faults of the program: every sample would be left out.

    >>> goes_on(ignore_and_continue, ValueError("a bad sample"))
    True
    """
    if isinstance(error, MissingExtraError | TrustError):
        raise error
    return bool(handler(error))


def _text(error: Exception) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])

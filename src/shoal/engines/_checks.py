"""What all engines check before they begin, and how they name a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from shoal.abc import Handle
from shoal.errors import PlanError

__all__ = ["checked", "named"]

H = TypeVar("H", bound=Handle)


def checked(kind: type[H], handles: Sequence[Handle]) -> list[H]:
    """Make sure that handles are an engine's own, and of the same length."""
    if not handles:
        raise PlanError("a map needs at least one collection of shards")
    for handle in handles:
        if not isinstance(handle, kind):
            text = f"a {type(handle).__name__} is of another engine than this one, which has {kind.__name__}s"
            raise PlanError(f"{text}; make the shards anew, or write and read them")
    lengths = {len(handle) for handle in handles}
    if len(lengths) > 1:
        raise PlanError(f"collections of {' and '.join(map(str, sorted(lengths)))} shards cannot be taken side by side")
    return [handle for handle in handles if isinstance(handle, kind)]


def named(function: Any) -> str:
    """Name a function for messages.

    >>> named(len)
    'len'
    """
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)

"""What all engines check before they begin, and how they name a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from shoal.abc import Handle, Resources
from shoal.errors import PlanError

__all__ = ["check_gang", "checked", "named"]

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


def check_gang(size: int, wanted: Resources, have: Resources, *, unit: str = "processors") -> None:
    """Refuse a gang if an engine that has so much in all cannot have so many workers at once.

    >>> check_gang(2, Resources(cpus=1), Resources(cpus=2))
    """
    if size < 1:
        raise PlanError(f"a gang of {size} workers; at least one is needed")
    for each, found, name in ((wanted.cpus, have.cpus, unit), (wanted.gpus, have.gpus, "gpus")):
        if size * each > found:
            text = f"a gang of {size} workers needs {size * each:g} {name} at once, and there are {found:g}"
            raise PlanError(f"{text}; ask for fewer workers, or for less of them")


def named(function: Any) -> str:
    """Name a function for messages.

    >>> named(len)
    'len'
    """
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)

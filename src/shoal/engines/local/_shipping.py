"""Functions on their way to other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from shoal.errors import PlanError

__all__ = ["shipped"]


def shipped(function: Callable[..., Any], name: str) -> bytes:
    """Pack a function, those of a script or notebook by value; one that cannot be packed is named.

    >>> len(shipped(len, "map(len)")) < 100
    True
    """
    try:
        packed: bytes = cloudpickle.dumps(function)
    except Exception as error:  # whatever the function refers to may refuse in its own way
        text = f"{name} cannot be sent to another process ({type(error).__name__}: {error}); "
        raise PlanError(text + 'mode="thread" can run it') from error
    return packed

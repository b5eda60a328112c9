"""What each of many does at the same time with one store; small, because fresh interpreters import it."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.store import connect

__all__ = ["COUNT", "CREW", "many", "put_get_delete"]

COUNT, CREW = 1024, 32


def put_get_delete(path: str, number: int) -> int:
    """Put an array, get it, delete it; 1 if all was right."""
    store = connect(path)
    name = store.put(np.full(1000 + 97 * number, number))
    right = (store.get(name) == number).all()
    store.delete(name)
    return int(right and not store.exists(name))


def many(path: str, number: int, results: Any) -> None:
    """Do the share of one process."""
    results.put(sum(put_get_delete(path, each) for each in range(number, COUNT, CREW)))

"""The random numbers of a worker: those of Python and numpy; frameworks have their own."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["dumped", "seeded", "taken"]

_FILE = "random.json"


def seeded(seed: int, rank: int) -> None:
    """Begin anew; each worker draws other numbers, and the same ones in each run."""
    random.seed(f"{seed} {rank}")
    np.random.seed(np.random.SeedSequence([seed, rank]).generate_state(4))


def dumped() -> dict[str, bytes]:
    """Give the state of all generators, as a file."""
    version, numbers, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    state = {
        "python": [version, list(numbers), gauss],
        "numpy": [name, np.asarray(keys).tolist(), int(place), int(has_gauss), float(cached)],
    }
    return {_FILE: json.dumps(state).encode()}


def taken(files: Mapping[str, bytes]) -> None:
    """Take what `dumped` gave."""
    if _FILE not in files:
        return
    state: dict[str, Any] = json.loads(files[_FILE])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.asarray(keys, np.uint32), *rest))

"""Small bodies that differ at every place."""

from __future__ import annotations

import random


def body(size: int, seed: int = 0) -> bytes:
    """Random bytes: a piece lost, doubled or swapped cannot go unseen."""
    return random.Random(seed).randbytes(size)

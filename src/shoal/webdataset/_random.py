"""Where the dialect's random numbers come from."""

from __future__ import annotations

import random

__all__ = ["generator"]


def generator(*key: object) -> random.Random:
    """Make a generator from a key, the same one for the same key in every process.

    Without a key, or with None in it, the generator is drawn from Python's own: `random.seed` decides, and a
    DataLoader, which seeds that one anew in each worker and epoch.

    >>> generator(17, "epoch", 0).random() == generator(17, "epoch", 0).random()
    True
    """
    if not key or None in key:
        return random.Random(random.getrandbits(64))  # noqa: S311 - an order is no secret
    return random.Random("/".join(map(str, key)))  # noqa: S311

"""What tests of estimators have in common: models that are easy to check, and data for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from shoal.learn.pytorch import Estimator
from support.engine import by_value

__all__ = ["Counting", "Sloped", "Summed", "counting", "line", "seen", "shipped", "slope", "two_inputs"]


@contextmanager
def shipped(*modules: str) -> Iterator[None]:
    """Send the functions of a test, and of this module, to workers as they are."""
    with by_value(*modules, __name__):
        yield


class Counting(nn.Module):
    """Counts which numbers it has seen: the gradient of each is one, each time."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(count))

    def forward(self, numbers: Any) -> Any:
        places = numbers.long().reshape(-1)
        return self.seen[places], places


class Summed(nn.Module):
    """The sum of what `Counting` gives; the target of a number is three times the number, and no other."""

    reduction = "sum"

    def forward(self, found: Any, targets: Any) -> Any:
        values, places = found
        if not torch.equal(targets.long().reshape(-1), places * 3):
            raise AssertionError(f"rows came apart: {places.tolist()} with {targets.tolist()}")
        return values.sum()


def counting(count: int, **options: Any) -> Estimator:
    """Make an estimator that counts the numbers below ``count``."""
    model = Counting(count)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return Estimator.from_torch(
        model=model, optimizer=optimizer, loss=Summed(), **{"workers": 2, "restarts": 0, **options}
    )


def seen(estimator: Estimator) -> list[int]:
    """Say how often each number was seen in training."""
    return [round(-value) for value in estimator.get_model().seen.tolist()]


class Sloped(nn.Module):
    """A line through nothing: for one input or more, which it adds up."""

    def __init__(self, slope: float = 0.0) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope))

    def forward(self, *inputs: Any) -> Any:
        return self.slope * sum(each.float() for each in inputs)


def slope(config: dict[str, Any]) -> nn.Module:
    return Sloped(config.get("slope", 0.0))


def line(count: int = 40) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Make inputs and twice of them."""
    x = np.linspace(-1, 1, count, dtype=np.float32)
    return x, 2 * x


def two_inputs(count: int = 40) -> tuple[tuple[Any, Any], Any]:
    x, y = line(count)
    return (x / 2, x / 2), y

"""What came of a training."""

from __future__ import annotations

from typing import Any

__all__ = ["History"]


class History(list[Any]):
    """One dict for each epoch: ``epoch``, ``num_samples``, ``batch_count``, ``train_loss``, ``val_loss``, metrics.

    After ``fit(reduce_results=False)`` it is a list for each epoch, with such a dict of each worker.

    >>> History([{"epoch": 1, "train_loss": 0.5}, {"epoch": 2, "train_loss": 0.25}]).column("train_loss")
    [0.5, 0.25]
    """

    @classmethod
    def of(cls, epochs: list[dict[str, Any]], *, each_worker: bool) -> History:
        """Make a history of what a training tells, which may have the ``workers`` of an epoch in it."""
        if each_worker:
            return cls(epoch.get("workers", [epoch]) for epoch in epochs)
        return cls({name: value for name, value in epoch.items() if name != "workers"} for epoch in epochs)

    def column(self, name: str) -> list[Any]:
        """Give one number of all epochs that have it."""
        if self and isinstance(self[0], list):
            return [[worker[name] for worker in epoch if name in worker] for epoch in self]
        return [epoch[name] for epoch in self if name in epoch]

    def __repr__(self) -> str:
        workers = (worker for epoch in self for worker in (epoch if isinstance(epoch, list) else [epoch]))
        return "\n".join(map(_line, workers)) or "<no epochs>"


def _line(epoch: dict[str, Any]) -> str:
    return "  ".join(f"{name} {f'{value:.4g}' if isinstance(value, float) else value}" for name, value in epoch.items())

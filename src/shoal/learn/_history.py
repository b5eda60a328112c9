"""What came of a training."""

from __future__ import annotations

from typing import Any

__all__ = ["History"]


class History(list[dict[str, Any]]):
    """One dict for each epoch: ``epoch``, ``num_samples``, ``batch_count``, ``train_loss``, ``val_loss``, metrics.

    >>> History([{"epoch": 1, "train_loss": 0.5}, {"epoch": 2, "train_loss": 0.25}]).column("train_loss")
    [0.5, 0.25]
    """

    def column(self, name: str) -> list[Any]:
        """Give one number of all epochs that have it."""
        return [epoch[name] for epoch in self if name in epoch]

    def __repr__(self) -> str:
        return "\n".join(_line(epoch) for epoch in self) or "<no epochs>"


def _line(epoch: dict[str, Any]) -> str:
    return "  ".join(f"{name} {f'{value:.4g}' if isinstance(value, float) else value}" for name, value in epoch.items())

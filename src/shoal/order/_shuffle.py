"""How a dataset is shuffled, as data."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import PlanError

__all__ = ["Shuffle"]

_MODES = ("shards", "full")
_CUTS = ("auto", "samples", "shards")


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A keyed permutation of an epoch.

    >>> Shuffle("shards", seed=3).window
    16
    """

    mode: str = "shards"
    """``"full"`` over all samples; ``"shards"``: the list of shards, cut into windows, and inside each window its
    samples dealt to the lanes."""
    seed: int = 0
    window: int = 16
    """Shards in a window."""
    chunk: int = 8
    """A lane reads its part of a window forward, permuted inside chunks of so many samples."""
    cut: str = "auto"
    """What a window is cut into for the lanes: its ``"samples"``, or whole ``"shards"`` where nobody can seek in them;
    ``"auto"`` asks the source."""

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise PlanError(f"there is no shuffle {self.mode!r}; known are {' and '.join(map(repr, _MODES))}")
        if self.window < 1:
            raise PlanError(f"a shuffle window has at least 1 shard, not {self.window}")
        if not 1 <= self.chunk <= 64:
            raise PlanError(f"a chunk has 1 to 64 samples, not {self.chunk}")
        if self.cut not in _CUTS:
            raise PlanError(f"cut={self.cut!r}; known are {', '.join(map(repr, _CUTS))}")
        if self.cut == "shards" and self.mode == "full":
            raise PlanError('a "full" shuffle picks single samples, so it cannot cut at whole shards')

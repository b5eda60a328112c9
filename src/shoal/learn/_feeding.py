"""Batches of a training that feeders prepare, beside the workers who train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shoal.abc import Engine
from shoal.errors import PlanError
from shoal.feed import Deployment, connect, deploy
from shoal.learn._data import Prepared
from shoal.learn._job import Batches, Rows

__all__ = ["Feeders", "fed"]

#: How many feeders to start, or the least and the most of them; feeders that were deployed; or their addresses.
Feeders = int | tuple[int, int] | Deployment | Sequence[str]


@dataclass(frozen=True, slots=True)
class FedRows(Rows):
    """Rows of a dataset that feeders run."""

    rows: Rows
    urls: tuple[str, ...]
    token: str | None
    tls_root: str | None

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Connect one worker to the feeders."""
        end = getattr(self.rows, "end", None)
        chosen = {"rank": rank, "world_size": world_size, "to": to, **options, **({} if end is None else {"end": end})}
        size = self.rows.batch_size or batch_size
        return connect(self.urls, size, token=self.token, tls_root=self.tls_root, **chosen)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs and targets of the real rows."""
        return self.rows.taken(batch)


def fed(given: Prepared, feeders: Feeders, engine: Engine, loader: dict[str, Any]) -> tuple[Prepared, dict[str, Any]]:
    """Let feeders prepare rows; give these, and the options of loaders that are left for trainers."""
    dataset = getattr(given.rows, "dataset", None)
    if dataset is None:
        text = "feeders prepare a Dataset, or what becomes one (arrays, shards, frames)"
        raise PlanError(f"{text}, and this data is read as it is: leave feeders= out")
    own = {name: loader[name] for name in ("workers", "mode") if name in loader}
    if isinstance(feeders, int | tuple):
        feed = deploy(dataset, feeders, engine=engine, **own)
        rows = FedRows(given.rows, tuple(feed.urls), feed.token, feed.tls_root)
        made = Prepared(rows, partial(_released, feed, given))
    elif isinstance(feeders, Deployment):
        rows = FedRows(given.rows, tuple(feeders.urls), feeders.token, feeders.tls_root)
        made = Prepared(rows, given.undo)
    else:
        made = Prepared(FedRows(given.rows, tuple(feeders), None, None), given.undo)
    return made, {name: value for name, value in loader.items() if name not in own}


def _released(feed: Deployment, given: Prepared) -> None:
    feed.close()
    given.release()

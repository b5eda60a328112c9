"""What is done with whole frames, shard by shard: deal rows to partitions, put them together, sort, join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from shoal.data._hashing import homes
from shoal.errors import MissingFieldError, PlanError

__all__ = [
    "Boundaries",
    "boundaries",
    "check_columns",
    "check_frame",
    "dealt",
    "in_order",
    "joined",
    "ranges",
    "sampled",
]

#: Rows of each shard that are looked at before a sort.
_SAMPLES = 512


def check_frame(shard: Any, what: str) -> pd.DataFrame:
    """Refuse what is no frame."""
    if not isinstance(shard, pd.DataFrame):
        text = f"Currently only support {what} on XShards of Pandas DataFrame"
        raise PlanError(f"{text}, and this shard is a {type(shard).__name__}")
    return shard


def check_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse columns that are not there."""
    for name in columns:
        if name not in frame.columns:
            raise MissingFieldError(
                f"there is no such column; there are {', '.join(map(str, frame.columns))}", field=name
            )


def dealt(frame: Any, columns: Sequence[str], partitions: int, what: str) -> list[pd.DataFrame]:
    """Deal rows to partitions by the values of columns; rows of one partition keep their order."""
    check_columns(check_frame(frame, what), columns)
    return _by_home(frame, homes(frame, columns, partitions), partitions)


def joined(pieces: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put frames one below the other, with a new index. Those without rows do not change the types of the others."""
    full = [piece for piece in pieces if len(piece)]
    if not full:
        return pieces[0].reset_index(drop=True)
    return pd.concat(full, ignore_index=True) if len(full) > 1 else full[0].reset_index(drop=True)


def sampled(frame: Any, columns: Sequence[str] | None) -> pd.DataFrame:
    """Take some rows, evenly spread."""
    check_frame(frame, "sort_values()")
    names = list(frame.columns if columns is None else columns)
    check_columns(frame, names)
    rows = np.unique(np.linspace(0, max(len(frame) - 1, 0), min(_SAMPLES, len(frame))).astype(np.int64))
    return frame[names].iloc[rows]


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Rows between which the partitions of a sorted collection lie, in their order."""

    rows: pd.DataFrame
    ascending: list[bool]

    @property
    def columns(self) -> list[str]:
        """What is sorted by."""
        return list(self.rows.columns)


def boundaries(samples: Sequence[pd.DataFrame], ascending: list[bool], partitions: int) -> Boundaries:
    """Choose rows that cut a collection into parts of about the same size, by some of them."""
    rows = in_order(joined(samples), list(samples[0].columns), ascending)
    places = [len(rows) * part // partitions for part in range(1, partitions)]
    return Boundaries(rows.iloc[places if len(rows) else []].drop_duplicates(ignore_index=True), ascending)


def in_order(frame: pd.DataFrame, columns: Sequence[str], ascending: list[bool]) -> pd.DataFrame:
    """Sort by columns; rows with the same values keep their order, and nothing comes last."""
    return frame.sort_values(list(columns), ascending=ascending, kind="stable", na_position="last", ignore_index=True)


def ranges(frame: Any, limits: Boundaries, partitions: int) -> list[pd.DataFrame]:
    """Deal rows to partitions by where they lie between boundaries; equal rows go to the same one."""
    columns = limits.columns
    marked = pd.concat([frame[columns], limits.rows], ignore_index=True)
    # A boundary comes before the rows that equal it, so that these are behind it.
    marked["__boundary__"] = np.r_[np.zeros(len(frame), bool), np.ones(len(limits.rows), bool)]
    order = marked.sort_values(
        [*columns, "__boundary__"], ascending=[*limits.ascending, False], kind="stable", na_position="last"
    )
    is_boundary = order["__boundary__"].to_numpy(bool)
    found = np.empty(len(marked), np.int64)
    found[order.index.to_numpy()] = np.cumsum(is_boundary)
    return _by_home(frame, found[: len(frame)], partitions)


def _by_home(frame: pd.DataFrame, found: NDArray[np.int64], partitions: int) -> list[pd.DataFrame]:
    order = np.argsort(found, kind="stable")
    ends = np.cumsum(np.bincount(found, minlength=partitions))
    dealt_out = frame.take(order)
    return [dealt_out.iloc[low:high] for low, high in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]

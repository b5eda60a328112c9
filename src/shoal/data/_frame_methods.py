"""What can be done with shards that are pandas frames, over all of them. Each is written once, on map and exchange."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from shoal._optional import require
from shoal.data._agreement import agreed
from shoal.data._base import Shards
from shoal.errors import PlanError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from shoal.data._groups import Asked
    from shoal.data._xshards import XShards

__all__ = ["FrameMethods"]


class FrameMethods(Shards):
    """Operations of `XShards` on frames."""

    def partition_by(self, cols: str | Sequence[str], num_partitions: int | None = None) -> XShards:
        """Deal rows to so many partitions by the values of columns: those with the same values share one.

        Which one follows from the values alone, on every engine and in every run. A partition keeps the order of its
        rows, has a new index, and may be empty.
        """
        frames = _frames()
        columns, count = _named(cols), num_partitions or self.num_partitions()
        if count < 1:
            raise PlanError(f"num_partitions={num_partitions}; at least one is needed")
        cut = partial(frames.dealt, columns=columns, partitions=count, what="partition_by()")
        return self._exchanged(count, cut, frames.joined)

    def unique(self) -> np.ndarray[Any, Any]:
        """List the different values of shards that are series, as in ``shards["column"].unique()``, as they come."""
        import numpy as np
        import pandas as pd

        parts = self._then(_unique)._gathered("unique")
        return np.asarray(pd.unique(pd.concat(parts, ignore_index=True)))

    def deduplicates(self) -> XShards:
        """Keep one of several rows that are the same; rows move to partitions by their values."""
        count = self.num_partitions()
        return self._exchanged(count, partial(_dealt_by_all, partitions=count), _distinct)

    def sort_values(
        self, col_names: str | Sequence[str] | None = None, ascending: bool | Sequence[bool] = True
    ) -> XShards:
        """Sort all rows, over all shards; by all columns if none are named. Rows that are equal keep their order."""
        frames, count = _frames(), self.num_partitions()
        columns = None if col_names is None else _named(col_names)
        samples = self._then(partial(frames.sampled, columns=columns))._gathered("sort")
        names = list(samples[0].columns)
        ways = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
        if len(ways) != len(names):
            raise PlanError(f"ascending names {len(ways)} ways, and there are {len(names)} columns to sort by")
        limits = frames.boundaries(samples, ways, count)
        cut = partial(frames.ranges, limits=limits, partitions=count)
        return self._exchanged(count, cut, partial(_in_order, columns=names, ascending=ways))

    def group_by(self, columns: str | Sequence[str] = (), agg: Asked = "count", join: bool = False) -> XShards:
        """Make something of each group of rows with the same values in some columns.

        ``agg`` is a function, a list of them (for all other columns), or a dict of column -> function or functions;
        ``{"*": "count"}`` counts rows. Results are named as in ``avg(price)``. With ``join`` each row gets those of its
        group. Without columns all rows are one group.
        """
        require("pandas", "group_by")
        from shoal.data import _groups as groups
        from shoal.data._regrouping import regrouped

        keys, count = _named(columns), self.num_partitions()
        if join and not keys:
            raise PlanError("join=True needs columns to join on")
        columns_there = () if isinstance(agg, Mapping) else self.get_schema()["columns"]
        wanted = groups.aggregates(agg, columns_there, keys)
        small = self._then(partial(groups.partial_groups, keys=keys, wanted=wanted))
        parts = count if keys else 1
        cut = partial(_dealt_groups, keys=keys, partitions=parts)
        made = regrouped(small, parts, cut, partial(groups.combined, keys=keys, wanted=wanted))
        made = agreed(made) if groups.is_typed_by_values(wanted) else made
        return self.merge(made, how="left", on=keys) if join else made

    def merge(self, right: XShards, how: str = "inner", on: str | Sequence[str] | None = None) -> XShards:
        """Join with the rows of another by the values of columns: those that both have, if none are named.

        ``how`` is as for `pandas.merge`, and so are the types of the result, in all of its shards: a column of whole
        numbers becomes one of floats if a row anywhere has none.
        """
        frames, count = _frames(), max(self.num_partitions(), right.num_partitions())
        keys = [name for name in self.get_schema()["columns"] if name in right.get_schema()["columns"]]
        keys = keys if on is None else _named(on)
        if not keys:
            raise PlanError("there is no column that both have, so nothing to merge on; name it: on=")
        cut = partial(frames.dealt, columns=keys, partitions=count, what="merge()")
        pair = self._exchanged(count, cut, frames.joined).zip(right._exchanged(count, cut, frames.joined))
        made = pair._then(partial(_merged, how=how, keys=keys))
        return made if how == "inner" else agreed(made)

    def sample(
        self,
        frac: float,
        replace: bool = False,
        weights: Any = None,
        random_state: int | None = None,
    ) -> XShards:
        """Take a share of the rows of each shard at random; which, follows from ``random_state`` and the shard."""
        seed = secrets.randbits(32) if random_state is None else random_state
        drawn = partial(_drawn, frac=frac, replace=replace, weights=weights, seed=seed)
        return self._numbered()._then(drawn)

    def sample_to_pdf(self, frac: float, replace: bool = False, **options: Any) -> pd.DataFrame:
        """Take a share of the rows of each shard, as one frame."""
        return self.sample(frac, replace, **options).to_pandas()

    def select(self, cols: str | Sequence[str]) -> XShards:
        """Keep some columns."""
        return self._then(partial(_select, columns=_named(cols)))

    def describe(self, cols: str | Sequence[str] | None = None) -> pd.DataFrame:
        """Give count, mean, deviation, least and most of columns, as texts, under ``summary``."""
        import pandas as pd

        names = self.get_schema()["columns"] if cols is None else _named(cols)
        asked = {name: ["count", "mean", "stddev", "min", "max"] for name in names}
        numbers = {name for name, kind in self.get_schema()["dtypes"].items() if pd.api.types.is_numeric_dtype(kind)}
        asked = {name: some if name in numbers else ["count", "min", "max"] for name, some in asked.items()}
        (made,) = self.group_by([], asked).collect()
        rows = {"count": "count", "mean": "avg", "stddev": "stddev", "min": "min", "max": "max"}
        table: dict[str, list[str | None]] = {"summary": list(rows)}
        for name in names:
            table[name] = [_written(made, f"{function}({name})") for function in rows.values()]
        return pd.DataFrame(table)

    def max_values(self, col_name: str) -> Any:
        """Give the most of a column."""
        return self._extreme(col_name, "max")

    def min_values(self, col_name: str) -> Any:
        """Give the least of a column."""
        return self._extreme(col_name, "min")

    def get_null_sum(self) -> pd.DataFrame:
        """Count what is missing in each column: a frame with ``col`` and ``total``."""
        import pandas as pd

        counts = sum(self._then(_null_counts)._gathered("count"))
        return pd.DataFrame({"col": list(counts.index), "total": counts.to_numpy()})

    def drop_missing_value(self) -> XShards:
        """Leave out the columns in which something is missing, in whatever shard."""
        counts = self.get_null_sum()
        return self.select(counts.loc[counts["total"] == 0, "col"].tolist())

    def head(self, n: int = 5) -> pd.DataFrame:
        """Give the first rows, of as many shards as it takes."""
        import pandas as pd

        found: list[Any] = []
        for number in range(self.num_partitions()):
            missing = n - sum(map(len, found))
            if missing <= 0:
                break
            found.append(self._then(partial(_head, n=missing))._shard(number))
        return pd.concat(found)

    def assembleFeatureLabelCols(  # noqa: N802  (the name that users know)
        self,
        featureCols: Sequence[str],  # noqa: N803
        labelCols: Sequence[str],  # noqa: N803
    ) -> XShards:
        """Make dicts of arrays: ``x`` (rows, features) and ``y`` (rows, labels)."""
        for name, given in (("featureCols", featureCols), ("labelCols", labelCols)):
            if not isinstance(given, list):
                raise PlanError(f"{name} is a list of columns, not {given!r}")
        return self._then(partial(_assembled, features=list(featureCols), labels=list(labelCols)))

    def stack_feature_labels(self) -> XShards:
        """Make dicts of float32 arrays ``x`` and ``y`` of shards that are lists of (features, label)."""
        return self._then(_stacked)

    def get_schema(self) -> Any:
        """Give columns and types of the first shard; None if it is no frame."""
        return self._then(_schema).first()

    def to_pandas(self) -> pd.DataFrame:
        """Bring everything here as one frame."""
        import pandas as pd

        frames = _frames()
        parts = [frames.check_frame(part, "to_pandas()") for part in self.collect()]
        return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)

    def _extreme(self, column: str, which: str) -> Any:
        (made,) = self.group_by([], {column: which}).collect()
        return made[f"{which}({column})"].iloc[0]


def _frames() -> Any:
    require("pandas", "working with frames")
    from shoal.data import _frames

    return _frames


def _named(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _unique(shard: Any) -> Any:
    import pandas as pd

    if not isinstance(shard, pd.Series):
        text = "Currently only support unique() on XShards of Pandas Series"
        raise PlanError(f'{text}, as in shards["column"].unique(); a shard is a {type(shard).__name__}')
    return shard.drop_duplicates()


def _dealt_by_all(frame: Any, partitions: int) -> Any:
    frames = _frames()
    frames.check_frame(frame, "deduplicates()")
    return frames.dealt(frame.drop_duplicates(), list(frame.columns), partitions, "deduplicates()")


def _distinct(pieces: Any) -> Any:
    return _frames().joined(pieces).drop_duplicates(ignore_index=True)


def _in_order(pieces: Any, columns: list[str], ascending: list[bool]) -> Any:
    frames = _frames()
    return frames.in_order(frames.joined(pieces), columns, ascending)


def _dealt_groups(frame: Any, keys: list[str], partitions: int) -> Any:
    return _frames().dealt(frame, keys, partitions, "group_by()") if keys else [frame]


def _merged(pair: Any, how: str, keys: list[str]) -> Any:
    left, right = pair
    return left.merge(right, how=how, on=keys)


def _drawn(numbered: Any, frac: float, replace: bool, weights: Any, seed: int) -> Any:
    frame, number = numbered
    state = (seed + 0x9E3779B9 * number) % 2**32
    return frame.sample(frac=frac, replace=replace, weights=weights, random_state=state)


def _select(frame: Any, columns: list[str]) -> Any:
    frames = _frames()
    frames.check_columns(frames.check_frame(frame, "select()"), columns)
    return frame[columns]


def _written(made: Any, name: str) -> str | None:
    if name not in made:
        return None
    value = made[name].iloc[0]
    return str(value.item() if hasattr(value, "item") else value)


def _null_counts(frame: Any) -> Any:
    return _frames().check_frame(frame, "get_null_sum()").isna().sum()


def _head(frame: Any, n: int) -> Any:
    return _frames().check_frame(frame, "head()").head(n)


def _assembled(frame: Any, features: list[str], labels: list[str]) -> Any:
    frames = _frames()
    frames.check_columns(frames.check_frame(frame, "assembleFeatureLabelCols()"), [*features, *labels])
    return {"x": frame[features].to_numpy(), "y": frame[labels].to_numpy()}


def _stacked(rows: Any) -> Any:
    import numpy as np

    features, labels = zip(*rows, strict=True)
    return {"x": np.array(features, np.float32), "y": np.array(labels, np.float32)}


def _schema(shard: Any) -> Any:
    if not hasattr(shard, "dtypes") or not hasattr(shard, "columns"):
        return None
    return {"columns": list(shard.columns), "dtypes": dict(shard.dtypes)}

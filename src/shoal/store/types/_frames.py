"""pandas: frames, series and indexes, column by column."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas._libs.internals import BlockValuesRefs

from shoal.store._contexts import BuilderContext, ResolverContext
from shoal.store._meta import Object, ObjectMeta
from shoal.store.types._columns import build_column

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

#: Labels that JSON gives back as they were.
_PLAIN = (str, int, bool, type(None))


def build_frame(
    store: BaseStore,
    value: pd.DataFrame,
    builder: BuilderContext,
    partition_index: tuple[int, int] | None = None,
    row_batch_index: int = 0,
) -> ObjectMeta:
    """Describe a frame; ``partition_index`` says which part of a larger one it is."""
    row, column = partition_index or (-1, -1)
    place = {"partition_index_row_": int(row), "partition_index_column_": int(column)}
    meta = ObjectMeta("vineyard::DataFrame", {**place, "row_batch_index_": int(row_batch_index)})
    _put_labels(store, meta, "columns_", value.columns, builder)
    meta.add_member("index_", build_index(store, value.index, builder))
    meta["__values_-size"] = value.shape[1]
    meta["shape_"] = list(value.shape)
    if value.attrs:
        meta.add_member("attrs_", builder(store, value.attrs))
    for number in range(value.shape[1]):
        column_values = value.iloc[:, number].array
        meta.add_member(f"__values_-value-{number}", build_column(store, column_values, builder))
    return meta


def resolve_frame(obj: Object, resolver: ResolverContext) -> pd.DataFrame:
    """Give a frame whose columns lie where they were put; what is written to one is copied before."""
    meta = obj.meta
    count = meta["__values_-size"]
    index = resolver(obj.member("index_"))
    parts = (resolver(obj.member(f"__values_-value-{number}")) for number in range(count))
    columns = {number: _column(part, index) for number, part in enumerate(parts)}
    made = pd.DataFrame(columns, index=index, copy=False) if columns else pd.DataFrame(index=index)
    made.columns = _labels(obj, "columns_", resolver)
    if "attrs_" in meta:
        made.attrs = resolver(obj.member("attrs_"))
    return _guarded(made)


def build_series(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe a series."""
    meta = ObjectMeta("vineyard::Series")
    _put_name(store, meta, value.name, builder)
    meta.add_member("index_", build_index(store, value.index, builder))
    meta.add_member("values_", build_column(store, value.array, builder))
    return meta


def resolve_series(obj: Object, resolver: ResolverContext) -> Any:
    """Give it back."""
    index, values = (resolver(obj.member(name)) for name in ("index_", "values_"))
    return _guarded(_column(values, index, _name(obj, resolver)))


def _column(values: Any, index: Any, name: Hashable = None) -> Any:
    """Make a series without a copy; objects stay objects, also if all of them are texts."""
    return pd.Series(values, index=index, name=name, dtype=getattr(values, "dtype", None), copy=False)


def build_index(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe an index, also one of several levels."""
    kind = type(value).__name__
    meta = ObjectMeta(f"vineyard::Index<{kind}>")
    if isinstance(value, pd.RangeIndex):
        meta["range_"] = [value.start, value.stop, value.step]
    elif isinstance(value, pd.MultiIndex):
        meta["levels_-size"] = value.nlevels
        for number, (level, codes) in enumerate(zip(value.levels, value.codes, strict=True)):
            meta.add_member(f"levels_-{number}", build_index(store, level, builder))
            meta.add_member(f"codes_-{number}", builder(store, np.asarray(codes)))
        meta.add_member("names_", builder(store, list(value.names)))
        return meta
    else:
        meta.add_member("values_", build_column(store, value.array, builder))
        if (freq := getattr(value, "freqstr", None)) is not None and not isinstance(value, pd.PeriodIndex):
            meta["freq_"] = freq
    _put_name(store, meta, value.name, builder)
    return meta


def resolve_index(obj: Object, resolver: ResolverContext) -> Any:
    """Give it back."""
    meta = obj.meta
    if "range_" in meta:
        return pd.RangeIndex(*meta["range_"], name=_name(obj, resolver))
    if "levels_-size" in meta:
        count = meta["levels_-size"]
        levels = [resolver(obj.member(f"levels_-{number}")) for number in range(count)]
        codes = [resolver(obj.member(f"codes_-{number}")) for number in range(count)]
        names = resolver(obj.member("names_"))
        return pd.MultiIndex(levels, codes, names=names, verify_integrity=False, copy=False)
    values = resolver(obj.member("values_"))
    made = pd.Index(values, name=_name(obj, resolver), copy=False, dtype=getattr(values, "dtype", None))
    if "freq_" in meta:
        made.freq = meta["freq_"]
    made._references = BlockValuesRefs()  # so that a column of the same memory is copied before it is written to
    made._references.add_index_reference(made)
    made._references.add_index_reference(_STORE)
    return made


def _put_labels(store: BaseStore, meta: ObjectMeta, key: str, labels: Any, builder: BuilderContext) -> None:
    """Keep labels as plain text and numbers where that says all, else as an index."""
    plain = labels.tolist()
    simple = not isinstance(labels, pd.MultiIndex | pd.RangeIndex) and labels.name is None
    if simple and labels.dtype in (object, "str") and all(type(label) in _PLAIN for label in plain):
        meta[key] = plain
        meta[f"{key}dtype"] = str(labels.dtype)
    else:
        meta.add_member(key, build_index(store, labels, builder))


def _labels(obj: Object, key: str, resolver: ResolverContext) -> Any:
    if key in obj.meta.keys_:
        return pd.Index(obj.meta[key], dtype=obj.meta[f"{key}dtype"])
    return resolver(obj.member(key))


def _put_name(store: BaseStore, meta: ObjectMeta, name: Hashable, builder: BuilderContext) -> None:
    if type(name) in _PLAIN:
        meta["name_"] = name
    else:
        meta.add_member("name_", builder(store, name))


def _name(obj: Object, resolver: ResolverContext) -> Any:
    return obj.meta["name_"] if "name_" in obj.meta.keys_ else resolver(obj.member("name_"))


class _Store:
    """Stands for the store where pandas looks up who else has the memory of a column."""


_STORE = _Store()


def _guarded(made: Any) -> Any:
    """Let pandas copy what is written to, as it does with what others have, too: the memory is read-only."""
    for block in made._mgr.blocks:
        block.refs.add_index_reference(_STORE)
    return made

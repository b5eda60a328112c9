"""Values on their way to a Vineyard: packed as what its own client puts, where it has a type for them.

A packed value is a dict of arrays, Arrow data and plain values, for the guest. Its ``mark`` says what Vineyard forgets
of it: that a tuple was a list, the type of texts, a range. What Vineyard has no type for, or would pickle, is described
by our builders, and goes as one object with a document.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from shoal.store._contexts import BuilderContext, get_current_builders, trusted
from shoal.store._ids import ObjectID
from shoal.store._vineyard_meta import as_packed
from shoal.store.types import default_builders

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["Packed", "pack", "pack_array"]

Packed = dict[str, Any]

_NUMERIC = frozenset("biufcmM")


def pack(store: BaseStore, value: Any, options: Mapping[str, Any]) -> Packed:
    """Pack a value; options are those of its builder."""
    if isinstance(value, ObjectID):
        return {"form": "id", "value": int(value)}
    builders, kind = get_current_builders(), type(value)
    known = builders._find(kind)
    if known is None and trusted():
        return {"form": "pickle", "value": cloudpickle.dumps(value, protocol=5)}
    if known is not None and _registered(builders, kind) == _registered(_defaults(), kind):
        known.check(f"putting a {kind.__qualname__}", options)
        packed = _native(store, value, options)
        if packed is not None:
            return packed
    return as_packed(builders.run(store, value, **options))


@cache
def _defaults() -> BuilderContext:
    return default_builders()


def _registered(builders: BuilderContext, kind: type) -> Any:
    """Tell what is registered for a type, without loading it."""
    for base in kind.__mro__:
        found = builders._builders.get(base) or builders._builders.get(f"{base.__module__}.{base.__qualname__}")
        if found is not None:
            return found
    return None


def _native(store: BaseStore, value: Any, options: Mapping[str, Any]) -> Packed | None:
    """Pack what Vineyard has a type for; None for all else."""
    if isinstance(value, np.ndarray):
        return None if isinstance(value, np.ma.MaskedArray) else pack_array(value, options.get("partition_index"))
    if isinstance(value, np.generic):
        packed = pack_array(np.asarray(value))
        return packed and {**packed, "mark": {**packed.get("mark", {}), "scalar": True}}
    if isinstance(value, tuple | list):
        return _sequence(store, value, bool(options.get("global_")))
    if isinstance(value, bytes | bytearray | memoryview):
        return {"form": "bytes", "value": value}
    library = type(value).__module__.partition(".")[0]
    if library == "pandas":
        from shoal.store._vineyard_frames import pack_pandas

        return pack_pandas(value, **options)
    return _arrow(value) if library == "pyarrow" else _scalar(value)


def _scalar(value: Any) -> Packed | None:
    if isinstance(value, float):
        return {"form": "number", "value": float(value)}
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return {"form": "value", "value": value if isinstance(value, bool) else int(value)}
    if isinstance(value, str) and _is_text(value):
        return {"form": "value", "value": str(value)}
    return None


def _sequence(store: BaseStore, value: Any, is_global: bool) -> Packed:
    items = [pack(store, item, {}) for item in value]
    mark = {"mark": {"kind": "list"}} if isinstance(value, list) else {}
    return {"form": "sequence", "items": items, "global": is_global, **mark}


def pack_array(value: np.ndarray[Any, Any], place: Any = None) -> Packed | None:
    """Pack an array; ``place`` says which part of a larger one it is."""
    more = {"place": [int(number) for number in place or ()]}
    dtype = value.dtype
    if dtype.kind == "T" and not hasattr(dtype, "na_object"):
        return _texts(value, more)
    if dtype.type.__module__.partition(".")[0] != "numpy" or dtype.names is not None:
        return None
    if dtype.kind in _NUMERIC and dtype.isnative:
        return {"form": "array", "value": value, **more}
    if dtype.kind in _NUMERIC:
        return {"form": "array", "value": value.astype(dtype.newbyteorder("=")), "mark": {"dtype": dtype.str}, **more}
    if dtype.kind == "S" and value.size and dtype.itemsize:
        raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, dtype.itemsize)
        return {"form": "array", "value": raw, "mark": {"bytes": dtype.str}, **more}
    if dtype.kind in "UO":
        return _texts(value, more)
    return None


def _texts(value: np.ndarray[Any, Any], more: Packed) -> Packed | None:
    """Pack texts, of which some may be missing; None where there is anything else among them."""
    import pyarrow as pa

    items = value.reshape(-1).tolist()
    if not all(item is None or (type(item) is str and _is_text(item)) for item in items):
        return None
    packed = {"form": "texts", "value": pa.array(items, pa.large_string())}
    mark = {} if value.dtype == object else {"dtype": "StringDType" if value.dtype.kind == "T" else value.dtype.str}
    shape = {} if value.ndim == 1 else {"shape": list(value.shape)}
    return {**packed, "mark": {**mark, **shape}, **more}


def _is_text(value: str) -> bool:
    """Tell whether UTF-8 can write a text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _arrow(value: Any) -> Packed | None:
    import pyarrow as pa

    if isinstance(value, pa.RecordBatch | pa.Table):
        if not value.num_columns or not all(map(_is_native, value.schema.types)):
            return None
        return {"form": "value", "value": value, "mark": {"schema": _schema_text(value.schema)}}
    if isinstance(value, pa.Array) and _is_native(value.type):
        return {"form": "value", "value": value, "mark": {"schema": _schema_text(pa.schema([("", value.type)]))}}
    return None


def _is_native(kind: Any) -> bool:
    """Tell whether Vineyard has a type for an Arrow array, and neither pickles nor loses it."""
    from pyarrow import types

    if types.is_list(kind):
        return _is_native(kind.value_type)
    some = (types.is_integer, types.is_float32, types.is_float64, types.is_boolean, types.is_null)
    return any(check(kind) for check in (*some, types.is_string, types.is_large_string))


def _schema_text(schema: Any) -> str:
    """Write a schema as a text."""
    return base64.b64encode(schema.serialize()).decode()

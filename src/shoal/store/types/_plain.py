"""Numbers, texts, bytes, and containers of anything."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from shoal.errors import CorruptObjectError, TrustError
from shoal.store._contexts import BuilderContext, ResolverContext, trusted
from shoal.store._ids import ObjectID
from shoal.store._meta import Object, ObjectMeta

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

_NAMES = {bool: "bool", int: "int", float: "double", str: "std::string", complex: "complex", type(None): "none"}
#: Values that JSON gives back as they were.
_PLAIN = {bool, int, float, str, type(None)}
#: Numbers beyond this are not written in decimals, of which Python and JSON allow only so many.
_MANY = 1 << 2000
_KINDS: dict[str, Any] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
_ELEMENTS = "__elements_"


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN and (type(value) is not int or -_MANY < value < _MANY)


def build_scalar(store: BaseStore, value: Any) -> ObjectMeta:
    """Describe a number, a text, a truth, or nothing."""
    kind = next(base for base in type(value).__mro__ if base in _NAMES)
    plain = [value.real, value.imag] if kind is complex else None if value is None else kind(value)
    if kind is int and not _is_plain(plain):
        return ObjectMeta("vineyard::Scalar<int>", {"hex_": hex(int(value))})
    return ObjectMeta(f"vineyard::Scalar<{_NAMES[kind]}>", {"value_": plain})


def resolve_scalar(obj: Object) -> Any:
    """Give it back."""
    if "hex_" in obj.meta:
        return int(obj.meta["hex_"], 16)
    value = obj.meta["value_"]
    return complex(*value) if obj.typename == "vineyard::Scalar<complex>" else value


def build_bytes(store: BaseStore, value: Any) -> ObjectMeta:
    """Describe bytes."""
    return ObjectMeta("vineyard::Blob", {"length": memoryview(value).nbytes}, buffer_=value)


def resolve_bytes(obj: Object) -> memoryview:
    """Give bytes as a view."""
    return obj.blob("buffer_")


def build_id(store: BaseStore, value: ObjectID) -> ObjectMeta:
    """Stand for an object that is there already."""
    return store.get_meta(value)


def build_sequence(store: BaseStore, value: Any, builder: BuilderContext, global_: bool = False) -> ObjectMeta:
    """Describe a tuple, a list or a set; ids in it are links to objects that are there already."""
    items = list(value)
    kind = next(name for name, kind in _KINDS.items() if isinstance(value, kind))
    meta = ObjectMeta("vineyard::Sequence", {"kind_": kind, f"{_ELEMENTS}-size": len(items)})
    if global_:
        meta.set_global()
    if items and all(map(_is_plain, items)):
        meta["values_"] = items
        return meta
    for number, item in enumerate(items):
        member = item if isinstance(item, ObjectID) else builder(store, item)
        meta.add_member(f"{_ELEMENTS}-{number}", member)
    return meta


def resolve_sequence(obj: Object, resolver: ResolverContext) -> Any:
    """Give back a container of the same kind."""
    make = _KINDS[obj.meta.get("kind_", "tuple")]
    if "values_" in obj.meta:
        return make(obj.meta["values_"])
    return make(resolver(member) for member in obj.members(_ELEMENTS))


def build_map(store: BaseStore, value: dict[Any, Any], builder: BuilderContext) -> ObjectMeta:
    """Describe a dict; its order is kept."""
    meta = ObjectMeta("vineyard::Map", {"ordered_": isinstance(value, OrderedDict), f"{_ELEMENTS}-size": len(value)})
    if all(type(key) is str for key in value):
        meta["keys_"] = list(value)
    else:
        meta.add_member("keys_", builder(store, list(value)))
    for number, item in enumerate(value.values()):
        member = item if isinstance(item, ObjectID) else builder(store, item)
        meta.add_member(f"{_ELEMENTS}-{number}", member)
    return meta


def resolve_map(obj: Object, resolver: ResolverContext) -> dict[Any, Any]:
    """Give back a dict."""
    keys = obj.meta["keys_"] if "keys_" in obj.meta.keys_ else resolver(obj.member("keys_"))
    values = (resolver(member) for member in obj.members(_ELEMENTS))
    return (OrderedDict if obj.meta["ordered_"] else dict)(zip(keys, values, strict=True))


def resolve_pickle(obj: Object) -> Any:
    """Unpickle, if that was allowed."""
    if not trusted():
        text = f"object {obj.id} is a pickle, which can run any code"
        raise TrustError(f"{text}; get it with trust=True if you know who put it")
    try:
        buffers = [part.view for part in obj.members("buffers_")]
        return pickle.loads(obj.blob("buffer_"), buffers=buffers)  # noqa: S301 - it was allowed
    except Exception as error:
        raise CorruptObjectError(f"object {obj.id} cannot be unpickled: {error!r}") from error

"""Descriptions of what is in a Vineyard.

An object of Vineyard's own types is a `NativeMeta`. What it has no type for is one object of ours there: its key
``shoal_document_`` is the tree of the description in JSON, its members are the blobs and links that this names by
number. Its type begins with ``shoal::`` there where it begins with ``vineyard::`` here: what is in it is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from shoal.errors import CorruptObjectError, PlanError
from shoal.store._contexts import ResolverContext
from shoal.store._ids import ObjectID
from shoal.store._meta import Blob, LazyBlob, Link, Member, Object, ObjectMeta
from shoal.store.types import default_resolvers

if TYPE_CHECKING:
    from shoal.store._vineyard import VineyardStore

__all__ = ["NativeMeta", "StoredBlob", "VineyardResolvers", "as_packed", "described", "stored_blobs", "typename_here"]

_DOCUMENT = "shoal_document_"
_HERE, _THERE = "vineyard::", "shoal::"

#: Keys that Vineyard's own types keep as JSON.
_JSON = ("shape_", "partition_shape_", "partition_index_", "columns_", "order_", "owners_")


class NativeMeta(ObjectMeta):
    """The description of an object of a type of Vineyard's, or of another program's."""

    __slots__ = ()


class StoredBlob(LazyBlob):
    """Bytes in a Vineyard."""

    __slots__ = ("_store",)

    def __init__(self, store: VineyardStore, blob_id: ObjectID, size: int) -> None:
        super().__init__(size, blob_id)
        self._store = store

    def come(self, data: Any) -> None:
        """Take the bytes, which may be followed by others."""
        self.arrive(memoryview(data).toreadonly()[: self._size])

    def _bring(self) -> None:
        self._store.bring([self])


class VineyardResolvers(ResolverContext):
    """Resolvers that leave Vineyard's own types to Vineyard, unless somebody has registered others for them."""

    def __init__(self, base: ResolverContext, fetch: Callable[[Object], Any]) -> None:
        around = base.parent_context
        super().__init__(parent=None if around is None else VineyardResolvers(around, fetch))
        self._resolvers, self._fetch = dict(base._resolvers), fetch

    def run(self, obj: Any, **options: Any) -> Any:
        """Make a value of an object."""
        native = isinstance(obj, Object) and isinstance(obj.meta, NativeMeta)
        if not native or not self._is_ours_to_fetch(obj.typename):
            return super().run(obj, **options)
        if options:
            raise PlanError(f"getting a {obj.typename} of a Vineyard takes no option {next(iter(options))!r}")
        return self._fetch(obj)

    __call__ = run

    def _is_ours_to_fetch(self, typename: str) -> bool:
        chosen = _longest(self._resolvers, typename)
        return not typename.startswith("vineyard::Global") and chosen == _longest(_defaults(), typename)


@cache
def _defaults() -> Mapping[str, Any]:
    return default_resolvers()._resolvers


def _longest(resolvers: Mapping[str, Any], typename: str) -> Any:
    found = [prefix for prefix in resolvers if typename.startswith(prefix)]
    return resolvers[max(found, key=len)] if found else None


def typename_here(typename: str) -> str:
    """Call a type of ours as it is called outside of a Vineyard."""
    return _HERE + typename.removeprefix(_THERE) if typename.startswith(_THERE) else typename


def as_packed(meta: ObjectMeta) -> dict[str, Any]:
    """Pack a description for the guest."""
    if meta.id is not None:
        return {"form": "id", "value": int(meta.id)}
    typename, links = meta.typename, [each for each in meta.members.values() if isinstance(each, Link)]
    if meta.isglobal and len(links) == len(meta.members):
        members = {name: int(link.id) for name, link in zip(meta.members, links, strict=True)}
        return {"form": "global", "typename": typename, "keys": dict(meta.keys_), "members": members}
    tree = _Tree()
    document = json.dumps(tree.node(meta))
    there = _THERE + typename.removeprefix(_HERE) if typename.startswith(_HERE) else typename
    return {"form": "tree", "typename": there, "document": document, "blobs": tree.blobs, "links": tree.links}


class _Tree:
    """Collects blobs and links while a document is made."""

    def __init__(self) -> None:
        self.blobs: list[memoryview] = []
        self.links: list[int] = []

    def node(self, meta: ObjectMeta) -> dict[str, Any]:
        members = {name: self._member(member) for name, member in meta.members.items()}
        return {"t": meta.typename, "k": dict(meta.keys_), "m": members, "g": meta.isglobal}

    def _member(self, member: Member) -> Any:
        if isinstance(member, ObjectMeta) and member.id is None:
            return self.node(member)
        if isinstance(member, Blob):
            self.blobs.append(member.view)
            return [len(self.blobs) - 1, member.nbytes]
        assert member.id is not None
        self.links.append(int(member.id))
        return len(self.links) - 1


def described(store: VineyardStore, told: Mapping[str, Any]) -> ObjectMeta:
    """Make a description of what the guest tells."""
    if "size" in told:
        blob = StoredBlob(store, ObjectID(told["id"]), told["size"])
        meta: ObjectMeta = NativeMeta.sealed(told["typename"], {"length": told["size"]}, {"buffer_": blob}, False)
    elif _DOCUMENT in told["keys"]:
        meta = _ours(store, told)
    else:
        meta = _native(store, told)
    meta.id, meta.instance_id = ObjectID(told["id"]), told["instance"]
    meta.persistent, meta.local = told["persistent"], told["local"]
    return meta


def _native(store: VineyardStore, told: Mapping[str, Any]) -> ObjectMeta:
    keys = {name: _loaded(name, value) for name, value in told["keys"].items()}
    members: dict[str, Member] = {}
    for name, member in told["members"].items():
        if "size" in member:
            members[name] = StoredBlob(store, ObjectID(member["id"]), member["size"])
        else:
            members[name] = Link(ObjectID(member["id"])) if told["global"] else described(store, member)
    if told["global"] and "partitions_-size" in keys:
        numbered = (told["members"][f"partitions_-{number}"] for number in range(keys["partitions_-size"]))
        keys["owners_"] = [member["instance"] for member in numbered]
    return NativeMeta.sealed(told["typename"], keys, members, told["global"])


def _loaded(name: str, value: Any) -> Any:
    if name not in _JSON or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value  # another program's key of this name


def _ours(store: VineyardStore, told: Mapping[str, Any]) -> ObjectMeta:
    try:
        return _node(store, json.loads(told["keys"][_DOCUMENT]), told["members"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptObjectError(f"object {ObjectID(told['id'])} cannot be read: {error!r}") from error


def _node(store: VineyardStore, node: Mapping[str, Any], found: Mapping[str, Any]) -> ObjectMeta:
    members: dict[str, Member] = {}
    for name, member in node["m"].items():
        if isinstance(member, dict):
            members[name] = _node(store, member, found)
        elif isinstance(member, list):
            number, size = member
            members[name] = StoredBlob(store, ObjectID(found[f"blob_-{number}"]["id"]), size)
        else:
            members[name] = Link(ObjectID(found[f"link_-{member}"]["id"]))
    return ObjectMeta.sealed(node["t"], node["k"], members, node["g"])


def stored_blobs(meta: ObjectMeta) -> Sequence[StoredBlob]:
    """List the blobs of a description that have not come yet."""
    found: list[StoredBlob] = []
    for member in meta.members.values():
        if isinstance(member, ObjectMeta):
            found += stored_blobs(member)
        elif isinstance(member, StoredBlob) and not member.is_here:
            found.append(member)
    return found

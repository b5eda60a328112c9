"""What else a store is asked for: descriptions, names, deleting, counting."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "blobs",
    "clear",
    "delete",
    "describe",
    "drop_name",
    "exists",
    "get_name",
    "ids",
    "instance",
    "list_names",
    "migrate",
    "persist",
    "put_name",
    "status",
]

#: Vineyard lists five of anything unless it is told how many.
_ALL = 2**62

#: The blob without bytes, which is always there.
_EMPTY = 1 << 63

_SYSTEM = frozenset(["global", "id", "instance_id", "nbytes", "signature", "transient", "typename"])


def describe(client: Any, numbers: Any) -> Any:
    """Describe objects: what they are, their keys, their members; None for those that are not there."""
    found = [_meta(client, number) for number in numbers]
    told = [None if meta is None else _described(client, meta) for meta in found]
    _tell_sizes(client, told)
    return told


def blobs(client: Any, numbers: Any) -> Any:
    """Give the bytes of blobs."""
    return [b"" if number == _EMPTY else memoryview(client.get_object(_id(number))) for number in numbers]


def exists(client: Any, number: int) -> Any:
    """Tell whether there is an object."""
    return number == _EMPTY or client.exists(_id(number))


def ids(client: Any) -> Any:
    """Give the ids and types of all objects."""
    return [(int(meta.id), meta.typename) for meta in client.list_metadatas("*", False, _ALL, True)]


def persist(client: Any, number: int) -> None:
    """Let others see an object, and let it stay."""
    client.persist(_id(number))


def migrate(client: Any, number: int) -> int:
    """Copy an object to this host."""
    return int(client.migrate(_id(number)))


def delete(client: Any, numbers: Any, force: bool, deep: bool) -> Any:
    """Delete objects and their names; gives those that are still there, because others have them for members."""
    client.delete([_id(number) for number in numbers], force, deep)
    kept = {number for number in numbers if client.exists(_id(number))}
    for name, found in client.list_names("*", False, _ALL).items():
        if not client.exists(found):
            client.drop_name(name)
    return sorted(kept)


def clear(client: Any) -> None:
    """Delete all objects and names."""
    for name in client.list_names("*", False, _ALL):
        client.drop_name(name)
    client.clear()


def put_name(client: Any, number: int, name: str) -> None:
    """Let a name stand for an object."""
    client.put_name(_id(number), name)


def get_name(client: Any, name: str) -> Any:
    """Give what a name stands for, None if it is nothing that is there."""
    try:
        found = client.get_name(name)
    except importlib.import_module("vineyard").ObjectNotExistsException:
        return None
    return int(found) if client.exists(found) else None


def list_names(client: Any) -> Any:
    """Give names and what they stand for."""
    return {name: int(found) for name, found in client.list_names("*", False, _ALL).items()}


def drop_name(client: Any, name: str) -> None:
    """Forget a name."""
    client.drop_name(name)


def instance(client: Any) -> Any:
    """Give the number of the instance that is connected."""
    return int(client.instance_id)


def status(client: Any) -> Any:
    """Count what there is."""
    told, metas = client.status, client.list_metadatas("*", False, _ALL, True)
    objects = [meta for meta in metas if not int(meta.id) >> 63]
    return {
        "instance": int(told.instance_id),
        "limit": int(told.memory_limit),
        "usage": int(told.memory_usage),
        "objects": len(objects),
        "persisted": sum(not meta["transient"] for meta in objects),
        "names": len(client.list_names("*", False, _ALL)),
    }


def _id(number: Any) -> Any:
    return importlib.import_module("vineyard").ObjectID(number)


def _meta(client: Any, number: int) -> Any:
    vineyard = importlib.import_module("vineyard")
    try:
        return client.get_meta(vineyard.ObjectID(number))
    except vineyard.ObjectNotExistsException:
        return None


def _described(client: Any, meta: Any) -> Any:
    """Describe an object and its members, which have descriptions of the same kind; a blob has its size."""
    kind = importlib.import_module("vineyard").ObjectMeta
    told = {"id": int(meta.id), "typename": meta.typename, "instance": int(meta.instance_id)}
    told["local"] = told["instance"] == client.instance_id
    told["persistent"] = not meta.get("transient", True)
    if told["id"] >> 63:
        return dict(told, size=int(meta.get("length", 0)))
    told.update({"global": bool(meta.isglobal), "keys": {}, "members": {}})
    for name, value in meta.items():
        if isinstance(value, kind):
            told["members"][name] = _described(client, value)
        elif name not in _SYSTEM:
            told["keys"][name] = value
    return told


def _tell_sizes(client: Any, told: Any) -> None:
    """Correct the sizes of blobs, which descriptions of what contains them do not always know."""
    found = [each for each in _all_blobs(told) if each["local"] and each["id"] != _EMPTY]
    if found:
        for number, blob in enumerate(client.get_blobs([_id(each["id"]) for each in found])):
            found[number]["size"] = int(blob.size)


def _all_blobs(told: Any) -> Any:
    for each in told:
        if each is not None and "size" in each:
            yield each
        elif each is not None:
            yield from _all_blobs(each["members"].values())

"""What an object is: a tree of descriptions, whose leaves are plain values and blobs.

A description is made by a builder, filled with keys and members, and sealed by a store; what a store gives back cannot
be changed any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shoal.errors import StoreError
from shoal.store._ids import ObjectID

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["Blob", "LazyBlob", "Link", "Object", "ObjectMeta"]

Member: TypeAlias = "ObjectMeta | Blob | Link"

_PLAIN = {bool, int, float, str, type(None)}


class Blob:
    """Bytes: those of a buffer that is to be stored, or read-only ones in a store.

    >>> bytes(Blob(b"abc")), Blob(b"abc").nbytes
    (b'abc', 3)
    """

    __slots__ = ("id", "view")

    def __init__(self, data: Any, blob_id: ObjectID | None = None) -> None:
        self.view = data if blob_id is not None else _flat(data)
        self.id = blob_id

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def __len__(self) -> int:
        return self.view.nbytes

    def __repr__(self) -> str:
        return f"<blob {self.id} of {self.nbytes} bytes>" if self.id else f"<{self.nbytes} bytes>"

    @property
    def nbytes(self) -> int:
        """Count the bytes."""
        return self.view.nbytes


class LazyBlob(Blob):
    """Bytes that are somewhere else, and are fetched when somebody looks at them for the first time."""

    __slots__ = ("_seen", "_size")

    def __init__(self, size: int, blob_id: ObjectID | None) -> None:
        self._size, self.id = size, blob_id
        self._seen: memoryview | None = None

    @property
    def view(self) -> memoryview:  # type: ignore[override]
        """The bytes."""
        if self._seen is None:
            self._bring()
        assert self._seen is not None
        return self._seen

    @property
    def nbytes(self) -> int:
        """Count the bytes, without fetching them."""
        return self._size

    @property
    def is_here(self) -> bool:
        """Whether the bytes have come."""
        return self._seen is not None

    def arrive(self, data: memoryview) -> None:
        """Have the bytes."""
        self._seen = data

    def _bring(self) -> None:
        """Fetch the bytes, and let them arrive."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._size


class Link:
    """Another object that is a member, and has a life of its own."""

    __slots__ = ("id",)

    def __init__(self, object_id: ObjectID) -> None:
        self.id = object_id

    def __repr__(self) -> str:
        return f"<link to {self.id}>"


class ObjectMeta:
    """The description of an object, or of a member of one.

    >>> meta = ObjectMeta("vineyard::Point")
    >>> meta["x"] = 1.5
    >>> meta.add_member("buffer_", b"abc")
    >>> meta["x"], "x" in meta, meta.nbytes, meta
    (1.5, True, 3, <vineyard::Point, 3 bytes>)
    """

    __slots__ = ("_keys", "_members", "_sealed", "global_", "id", "instance_id", "local", "persistent", "typename")

    def __init__(self, typename: str, keys: Mapping[str, Any] | None = None, **members: Any) -> None:
        self.typename = typename
        self._keys: dict[str, Any] = dict(keys) if keys else {}
        self._members: dict[str, Member] = {}
        self._sealed = False
        self.global_ = False
        self.id: ObjectID | None = None
        self.instance_id: int | None = None
        self.persistent, self.local = False, True
        for name, value in members.items():
            self.add_member(name, value)

    @classmethod
    def sealed(cls, typename: str, keys: dict[str, Any], members: dict[str, Member], global_: bool) -> ObjectMeta:
        """Make the description of what lies in a store."""
        made = cls(typename)
        made._keys, made._members, made.global_, made._sealed = keys, members, global_, True
        return made

    def __setitem__(self, key: str, value: Any) -> None:
        self._check_open(key)
        if isinstance(value, ObjectMeta | Blob | Link | Object | ObjectID):
            self.add_member(key, value)
            return
        if type(value) not in _PLAIN:
            try:
                json.dumps(value)
            except (TypeError, ValueError) as error:
                raise StoreError(f"key {key!r} of {self.typename} is {value!r}: {error}; use add_member") from None
        self._keys[key] = value

    def __getitem__(self, key: str) -> Any:
        if key in self._keys:
            return self._keys[key]
        if key in self._members:
            return self._members[key]
        raise KeyError(f"{self.typename} has no {key!r}; it has {', '.join([*self._keys, *self._members])}")

    def __contains__(self, key: str) -> bool:
        return key in self._keys or key in self._members

    def __iter__(self) -> Iterator[str]:
        yield from self._keys
        yield from self._members

    def __len__(self) -> int:
        return len(self._keys) + len(self._members)

    def __repr__(self) -> str:
        return f"<{self.typename}{f' {self.id}' if self.id is not None else ''}, {self.nbytes} bytes>"

    def add_member(self, key: str, value: Any) -> None:
        """Add another object: a description, bytes, or the id of one that is in the store already."""
        self._check_open(key)
        if isinstance(value, Object):
            value = value.meta
        if isinstance(value, ObjectMeta):
            value = Link(value.id) if value.id is not None else value
        elif isinstance(value, ObjectID):
            value = Link(value)
        elif not isinstance(value, Blob | Link):
            value = Blob(value)
        self._members[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        """Give a value or a member, or a default."""
        found = self._keys.get(key, self._members.get(key))
        return default if found is None else found

    def get_member(self, key: str) -> Member | None:
        """Give a member; None where there is none of this name."""
        if key in self._keys:
            raise StoreError(f"{key!r} of {self.typename} is a value, and no member")
        return self._members.get(key)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Give all values and members."""
        yield from self._keys.items()
        yield from self._members.items()

    @property
    def keys_(self) -> Mapping[str, Any]:
        """The plain values."""
        return self._keys

    @property
    def members(self) -> Mapping[str, Member]:
        """The members."""
        return self._members

    def set_global(self, value: bool = True) -> None:
        """Say that members may be in other stores."""
        self._check_open("global")
        self.global_ = value

    @property
    def isglobal(self) -> bool:
        """Whether members may be in other stores."""
        return self.global_

    @property
    def islocal(self) -> bool:
        """Whether all of it is in this store."""
        return self.local and not self.global_

    @property
    def nbytes(self) -> int:
        """Count the bytes of all blobs; those of linked objects are not its own."""
        return sum(member.nbytes for member in self._members.values() if not isinstance(member, Link))

    memory_usage = nbytes

    def load(self) -> None:
        """Have the bytes of all blobs, which may be on another host."""
        for member in self._members.values():
            if isinstance(member, ObjectMeta):
                member.load()
            elif isinstance(member, Blob):
                _ = member.view

    def _check_open(self, key: str) -> None:
        if self._sealed:
            raise StoreError(f"{self!r} is sealed; {key!r} cannot be changed, only be put anew")


class Object:
    """An object as it lies in a store, for resolvers to make something of.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> store.get_object(store.put(np.arange(4))).typename
    'vineyard::Tensor<int64>'
    """

    __slots__ = ("meta", "store")

    def __init__(self, meta: ObjectMeta, store: BaseStore) -> None:
        self.meta, self.store = meta, store

    def __repr__(self) -> str:
        return repr(self.meta)

    @property
    def id(self) -> ObjectID | None:
        """Its name; a member within another has none."""
        return self.meta.id

    @property
    def typename(self) -> str:
        """What it is."""
        return self.meta.typename

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.meta.nbytes

    @property
    def isglobal(self) -> bool:
        """Whether members may be in other stores."""
        return self.meta.isglobal

    @property
    def islocal(self) -> bool:
        """Whether all of it is in this store."""
        return self.meta.islocal

    def member(self, key: str) -> Any:
        """Give a member: a blob, or an object; one that is linked is looked up."""
        found = self.meta.members.get(key)
        if found is None:
            raise KeyError(f"{self.typename} has no member {key!r}; it has {', '.join(self.meta.members)}")
        if isinstance(found, Blob):
            return found
        return self.store.get_object(found.id) if isinstance(found, Link) else Object(found, self.store)

    def members(self, prefix: str) -> list[Any]:
        """Give members that are numbered: ``prefix-0``, ``prefix-1``, ... as many as ``prefix-size`` says."""
        return [self.member(f"{prefix}-{number}") for number in range(self.meta[f"{prefix}-size"])]

    def blob(self, key: str) -> memoryview:
        """Give the bytes of a member."""
        found = self.member(key)
        if not isinstance(found, Blob):
            raise StoreError(f"member {key!r} of {self.typename} is {found!r}, and no blob")
        return found.view


def _flat(data: Any) -> memoryview:
    """See bytes where there is some buffer; one that has gaps is copied."""
    if isinstance(data, np.ndarray):
        data = data if data.flags.forc else np.ascontiguousarray(data)
        data = data.reshape(-1, order="A").view(np.uint8) if data.nbytes else b""
    view = memoryview(data)
    if not view.contiguous:
        view = memoryview(view.tobytes())
    if not view.nbytes:
        return memoryview(b"")  # which has no shape that cannot be cast
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")

"""What stores of all kinds have in common: values go through builders and resolvers, and names may stand for ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from shoal.abc import ObjectStore
from shoal.errors import ObjectNotFoundError, PlanError
from shoal.store._contexts import get_current_builders, get_current_resolvers, trusting
from shoal.store._ids import ObjectID, looks_like_id
from shoal.store._meta import Object, ObjectMeta
from shoal.store._names import check_name

__all__ = ["BaseStore", "Id"]

Id: TypeAlias = "ObjectID | int | str"


class BaseStore(ObjectStore):
    """A store that can create described objects, and describe those that it has.

    >>> import tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> isinstance(store, BaseStore), [meta.typename for meta in store.list_objects()]
    (True, [])
    """

    trust = False
    """Whether pickles may be put and got."""

    @property
    @abstractmethod
    def instance_id(self) -> int:
        """The number of the store of this host among those that are joined."""

    @abstractmethod
    def create(self, meta: ObjectMeta, *, persist: bool = False) -> ObjectID:
        """Write an object that was described; it can be seen when it is complete."""

    @abstractmethod
    def get_meta(self, object_id: Id) -> ObjectMeta:
        """Describe an object; its blobs are read when they are looked at."""

    @abstractmethod
    def ids(self) -> Iterable[ObjectID]:
        """List all objects."""

    @abstractmethod
    def migrate(self, object_id: Id) -> ObjectID:
        """Copy a remote object to this host; one that is here already stays what it is."""

    @abstractmethod
    def drop_name(self, name: str) -> None:
        """Forget a name; the object stays."""

    @abstractmethod
    def clear(self) -> None:
        """Delete all objects and names."""

    def put(
        self, value: Any, *, persist: bool = False, name: str | None = None, trust: bool | None = None, **options: Any
    ) -> ObjectID:
        """Put a value; options are for the builder of its type.

        It goes when this process ends, unless it is persisted. What has a name is persisted.
        """
        if name is not None:
            check_name(name)
        with trusting(self.trust if trust is None else trust):
            made = self._placed(value, options, persist=persist or name is not None)
        if name is not None:
            self.put_name(made, name)
        return made

    def get(
        self,
        object_id: Id | None = None,
        name: str | None = None,
        *,
        fetch: bool = False,
        trust: bool | None = None,
        **options: Any,
    ) -> Any:
        """Get a value; options are for the resolver of its type. Arrays are views, which keep their memory alive.

        Instead of an id there may be a name. ``fetch`` copies a remote object to this host first.
        """
        wanted = self._id(object_id, name)
        found = self.get_object(self.migrate(wanted) if fetch else wanted)
        with trusting(self.trust if trust is None else trust):
            return self._resolved(found, options)

    def get_object(self, object_id: Id) -> Object:
        """Give an object as it is; a name may stand for its id."""
        return Object(self.get_meta(self._id(object_id, None)), self)

    def create_metadata(self, meta: ObjectMeta) -> ObjectMeta:
        """Write an object that was described, and describe it as it is now."""
        return self.get_meta(self.create(meta))

    def list_objects(self, pattern: str = "*", limit: int | None = None) -> list[ObjectMeta]:
        """Describe the objects whose type matches a pattern."""
        found: list[ObjectMeta] = []
        for object_id in self.ids():
            if limit is not None and len(found) >= limit:
                break
            with suppress(ObjectNotFoundError):
                meta = self.get_meta(object_id)
                if fnmatchcase(meta.typename, pattern):
                    found.append(meta)
        return found

    def close(self) -> None:
        """End the connection; what was put stays as long as this process lives."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _placed(self, value: Any, options: dict[str, Any], *, persist: bool) -> ObjectID:
        """Let a builder describe a value, and write it; it may stand for an object that is there already."""
        meta = get_current_builders().run(self, value, **options)
        if meta.id is None:
            return self.create(meta, persist=persist)
        if persist:
            self.persist(meta.id)
        return meta.id

    def _resolved(self, found: Object, options: dict[str, Any]) -> Any:
        """Let a resolver make a value of an object."""
        return get_current_resolvers().run(found, **options)

    def _id(self, object_id: Id | None, name: str | None) -> ObjectID:
        if object_id is None and name is None:
            raise PlanError("get() wants an id or a name")
        if object_id is None:
            return ObjectID(self.get_name(str(name)))
        if isinstance(object_id, str) and not looks_like_id(object_id):
            return ObjectID(self.get_name(object_id))
        return ObjectID(object_id)

"""Where sealed objects are kept for other programs.

An object never changes. What is put has an id; what is persisted stays when the program that put it has ended, and may
have a name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

__all__ = ["ObjectStore"]


class ObjectStore(ABC):
    """Keeps objects: in shared memory of this host, on another one, or in a store of another make.

    >>> import tempfile
    >>> from shoal import store
    >>> shelf = store.connect(tempfile.mkdtemp())
    >>> isinstance(shelf, ObjectStore)
    True
    >>> _ = shelf.put({"x": [1, 2]}, name="pair", persist=True)
    >>> shelf.get("pair")
    {'x': [1, 2]}
    """

    @abstractmethod
    def put(self, value: Any, *, persist: bool = False, name: str | None = None, **options: Any) -> Any:
        """Put a value, and give its id; options are for the builder of its type."""

    @abstractmethod
    def get(self, object_id: Any = None, name: str | None = None, *, fetch: bool = False, **options: Any) -> Any:
        """Get a value; options are for the resolver of its type. ``fetch`` copies a remote one to this host first."""

    @abstractmethod
    def get_meta(self, object_id: Any) -> Any:
        """Describe an object."""

    @abstractmethod
    def exists(self, object_id: Any) -> bool:
        """Tell whether there is an object."""

    @abstractmethod
    def persist(self, object_id: Any) -> None:
        """Let an object stay, and be seen by all who are connected."""

    @abstractmethod
    def delete(self, objects: Any | Iterable[Any], *, force: bool = False, deep: bool = True) -> None:
        """Delete objects; ``deep`` with their members, ``force`` also those that others have for members."""

    @abstractmethod
    def put_name(self, object_id: Any, name: str) -> None:
        """Give a persisted object a name, in place of whatever had it."""

    @abstractmethod
    def get_name(self, name: str, wait: bool | float = False) -> Any:
        """Give the id that a name stands for; with ``wait``, a truth or seconds, also when it comes later."""

    @abstractmethod
    def list_names(self, pattern: str = "*") -> dict[str, Any]:
        """List names and what they stand for."""

    @abstractmethod
    def status(self) -> Any:
        """Count what there is."""

"""The objects of a store, one by one, as people look at them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from shoal.errors import CorruptObjectError, ObjectNotFoundError
from shoal.store._base import BaseStore
from shoal.store._ids import ObjectID
from shoal.store._store import Store

__all__ = ["Listed", "listing"]


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of a store.

    >>> Listed("o1", "vineyard::Tensor<double>", 800, "memory", persisted=True, names=("weights",)).where
    'memory'
    """

    id: str
    type: str
    """``"damaged"`` if it cannot be read."""
    bytes: int
    where: str
    """``"memory"``, ``"disk"``, or ``"elsewhere"``: on another host."""
    persisted: bool
    names: tuple[str, ...]


def listing(store: BaseStore) -> list[Listed]:
    """Describe all objects of a store.

    >>> import tempfile, numpy as np
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> _ = store.put(np.arange(3), name="three")
    >>> [(row.bytes, row.where, row.names) for row in listing(store)]
    [(24, 'memory', ('three',))]
    """
    names: dict[ObjectID, list[str]] = {}
    for name, number in store.list_names().items():
        names.setdefault(ObjectID(number), []).append(name)
    rows = (_listed(store, number, tuple(names.get(number, ()))) for number in store.ids())
    return [row for row in rows if row is not None]


def _listed(store: BaseStore, number: ObjectID, names: tuple[str, ...]) -> Listed | None:
    """Describe an object; nothing if it is gone."""
    kind, size, persisted = "damaged", 0, False
    with suppress(CorruptObjectError):
        try:
            meta = store.get_meta(number)
        except ObjectNotFoundError:
            return None
        kind, size, persisted = meta.typename, meta.nbytes, bool(meta.persistent)
    return Listed(str(number), kind, size, _place(store, number), persisted, names)


def _place(store: BaseStore, number: ObjectID) -> str:
    if not isinstance(store, Store):
        return "elsewhere"
    here = (path for path in store.folder.places(number) if os.path.exists(path))
    return "memory" if next(here, "").startswith(f"{store.folder.path}/") else "disk"

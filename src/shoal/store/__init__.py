"""Objects in shared memory: put by one program, and mapped by the next without a copy.

>>> import numpy as np, tempfile
>>> from shoal import store
>>> shelf = store.connect(tempfile.mkdtemp(), memory="10MB")
>>> number = shelf.put(np.arange(3), name="three")
>>> shelf.get("three")
array([0, 1, 2])
>>> shelf.delete(number)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.store._base import BaseStore
    from shoal.store._connect import connect
    from shoal.store._contexts import (
        BuilderContext,
        ResolverContext,
        builder_context,
        context,
        get_current_builders,
        get_current_resolvers,
        resolver_context,
    )
    from shoal.store._folder import StoreWarning
    from shoal.store._globals import make_global_dataframe, make_global_tensor, partitions
    from shoal.store._ids import ObjectID
    from shoal.store._meta import Blob, Object, ObjectMeta
    from shoal.store._status import Holder, Status
    from shoal.store._store import Store

__all__ = [
    "BaseStore",
    "Blob",
    "BuilderContext",
    "Holder",
    "Object",
    "ObjectID",
    "ObjectMeta",
    "ResolverContext",
    "Status",
    "Store",
    "StoreWarning",
    "builder_context",
    "connect",
    "context",
    "get_current_builders",
    "get_current_resolvers",
    "make_global_dataframe",
    "make_global_tensor",
    "partitions",
    "resolver_context",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_base": ("BaseStore",),
        "_connect": ("connect",),
        "_contexts": (
            "BuilderContext",
            "ResolverContext",
            "builder_context",
            "context",
            "get_current_builders",
            "get_current_resolvers",
            "resolver_context",
        ),
        "_folder": ("StoreWarning",),
        "_globals": ("make_global_dataframe", "make_global_tensor", "partitions"),
        "_ids": ("ObjectID",),
        "_meta": ("Blob", "Object", "ObjectMeta"),
        "_status": ("Holder", "Status"),
        "_store": ("Store",),
    },
)

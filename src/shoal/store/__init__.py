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
        trusted,
    )
    from shoal.store._flight_client import RemoteStore
    from shoal.store._flight_server import StoreServer, Tls
    from shoal.store._folder import StoreWarning
    from shoal.store._globals import make_global_dataframe, make_global_tensor, partitions
    from shoal.store._ids import ObjectID
    from shoal.store._listing import Listed, listing
    from shoal.store._meta import Blob, Object, ObjectMeta
    from shoal.store._placing import Home, Placed, make_global
    from shoal.store._rows import columns, row_partitions
    from shoal.store._status import Holder, Status
    from shoal.store._store import Store

__all__ = [
    "BaseStore",
    "Blob",
    "BuilderContext",
    "Holder",
    "Home",
    "Listed",
    "Object",
    "ObjectID",
    "ObjectMeta",
    "Placed",
    "RemoteStore",
    "ResolverContext",
    "Status",
    "Store",
    "StoreServer",
    "StoreWarning",
    "Tls",
    "builder_context",
    "columns",
    "connect",
    "context",
    "get_current_builders",
    "get_current_resolvers",
    "listing",
    "make_global",
    "make_global_dataframe",
    "make_global_tensor",
    "partitions",
    "resolver_context",
    "row_partitions",
    "trusted",
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
            "trusted",
        ),
        "_flight_client": ("RemoteStore",),
        "_flight_server": ("StoreServer", "Tls"),
        "_folder": ("StoreWarning",),
        "_globals": ("make_global_dataframe", "make_global_tensor", "partitions"),
        "_ids": ("ObjectID",),
        "_listing": ("Listed", "listing"),
        "_meta": ("Blob", "Object", "ObjectMeta"),
        "_placing": ("Home", "Placed", "make_global"),
        "_rows": ("columns", "row_partitions"),
        "_status": ("Holder", "Status"),
        "_store": ("Store",),
    },
)

"""The way to a store, wherever it is."""

from __future__ import annotations

import os
from typing import Any

from shoal import settings
from shoal.errors import PlanError
from shoal.store._folder import default_folder
from shoal.store._joined import JoinedStore

__all__ = ["connect"]


def connect(
    path_or_url: str | os.PathLike[str] | None = None,
    *,
    memory: int | str | None = None,
    spill: str | bool | None = None,
    trust: bool = False,
    **options: Any,
) -> Any:
    """Connect to a store: the one of this user on this host, that of a folder, or one at a URL.

    ``memory`` is how many bytes of shared memory it may use, and ``spill`` a folder on a disk for what does not fit, or
    False for none; both stay as they are for who comes next. ``trust`` allows pickles. URLs are
    ``grpc://host:port`` and ``grpc+tls://host:port`` (`shoal store serve`), with ``token=``, a text or the `Path` of a
    file, and ``tls_root=``, the path of a certificate to trust; and ``vineyard://socket``.

    >>> import tempfile
    >>> import numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> _ = connect(folder, memory="10MB").put(np.arange(3), name="numbers", persist=True)
    >>> connect(folder).get("numbers").tolist()  # in this program, or in any other
    [0, 1, 2]
    """
    where = settings.current().store if path_or_url is None else os.fspath(path_or_url)
    scheme, _, rest = (where or "").partition("://")
    if rest and scheme == "vineyard":
        from shoal.store._vineyard import VineyardStore

        return VineyardStore(f"/{rest.lstrip('/')}", trust=trust, **options)
    if rest and scheme in ("grpc", "grpc+tls"):
        from shoal.store._flight_client import RemoteStore

        return RemoteStore(str(where), trust=trust, **options)
    if rest and scheme != "file":
        raise PlanError(f"there is no store at {where}; known are folders, grpc://host:port and vineyard://socket")
    if options:
        raise PlanError(f"connect() to a folder takes no option {next(iter(options))!r}")
    limit = None if memory is None else settings.parse_bytes(memory)
    return JoinedStore(rest or where or default_folder(), memory=limit, spill=spill, trust=trust)

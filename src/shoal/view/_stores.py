"""A store as the page sees it: its objects, its memory, and the processes that hold it."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shoal.errors import StoreError

if TYPE_CHECKING:
    from shoal.store import BaseStore

__all__ = ["StoreView", "is_store"]

_ROOMS = ("p", "t", "n")


def is_store(path: str) -> bool:
    """Tell whether a folder is that of a store, or a URL leads to one.

    >>> is_store("grpc://10.0.0.2:8816"), is_store("train.tar")
    (True, False)
    """
    if path.startswith(("grpc://", "grpc+tls://", "vineyard://")):
        return True
    has_rooms = all(os.path.isdir(os.path.join(path, room)) for room in _ROOMS)
    return has_rooms and os.path.exists(os.path.join(path, "config.json"))


class StoreView:
    """What is in a store, asked anew each time."""

    def __init__(self, where: str | None) -> None:
        from shoal.store import connect  # a page of data is there sooner without

        self._store: BaseStore = connect(where)

    @property
    def title(self) -> str:
        """Where it is."""
        return str(self._store.status().path)

    def described(self) -> dict[str, Any]:
        """Tell of objects, memory and processes."""
        from shoal.store import listing

        found = asdict(self._store.status())
        rows = [asdict(row) for row in listing(self._store)]
        viewers = found.pop("viewers")
        known = {holder["pid"] for holder in found["holders"]}
        processes = [{**holder, "looks": viewers.get(holder["pid"], 0)} for holder in found.pop("holders")]
        others = [pid for pid in sorted(viewers) if pid not in known]
        processes += [{"pid": pid, "objects": 0, "aside": 0, "alive": True, "looks": viewers[pid]} for pid in others]
        found["instance_id"] = str(found["instance_id"])
        for process in processes:
            process["command"] = _command(process["pid"])
        return {"status": found, "objects": rows, "processes": processes}

    def close(self) -> None:
        """Let go of the store."""
        try:
            self._store.close()
        except StoreError:
            return


def _command(pid: int) -> str:
    """Say what a process of this host runs, as far as its command tells."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(400).decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return " ".join(word for word in words if word)[:120]

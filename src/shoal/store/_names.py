"""Names of objects: small files, each of which says what it stands for."""

from __future__ import annotations

import difflib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from shoal.errors import CorruptObjectError, ObjectNotFoundError, StoreError
from shoal.store._folder import Folder, names_in, write_private
from shoal.store._ids import ObjectID, looks_like_id

__all__ = ["Names", "check_name", "no_name"]

_LONG = 200
_WAIT = 0.01


def check_name(name: str) -> None:
    """Refuse what cannot be a name."""
    if not isinstance(name, str) or not name:
        raise StoreError(f"{name!r} cannot be a name: it is a text, and not an empty one")
    if looks_like_id(name):
        raise StoreError(f"{name!r} cannot be a name: it looks like an id")


def no_name(name: str, known: Iterable[str], where: str) -> ObjectNotFoundError:
    """Say that there is no such name, and which ones are near it."""
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"; there is {' and '.join(map(repr, near))}" if near else ""
    return ObjectNotFoundError(f"there is no name {name!r} in {where}{hint}")


class Names:
    """The names in a store."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def put(self, name: str, object_id: ObjectID) -> None:
        """Let a name stand for an object."""
        with self._folder.lock("names"):
            write_private(self._path(name), json.dumps({"name": name, "id": str(object_id)}).encode())

    def get(self, name: str, wait: bool | float = False) -> ObjectID:
        """Give what a name stands for; wait for it if that is wanted."""
        until = time.monotonic() + (float("inf") if wait is True else float(wait))
        while (found := self._read(self._path(name))) is None:
            if time.monotonic() >= until:
                raise self._missing(name)
            time.sleep(_WAIT)
        return found[1]

    def all(self) -> dict[str, ObjectID]:
        """Give all names."""
        found = (self._read(f"{self._folder.path}/n/{name}") for name in names_in(f"{self._folder.path}/n"))
        return dict(pair for pair in found if pair is not None)

    def drop(self, name: str) -> None:
        """Forget a name."""
        try:
            os.unlink(self._path(name))
        except FileNotFoundError:
            raise self._missing(name) from None

    def forget(self, object_id: ObjectID) -> None:
        """Forget the names of an object."""
        if not names_in(f"{self._folder.path}/n"):
            return
        with self._folder.lock("names"):  # else one that is given to another object meanwhile would be lost
            for name, found in self.all().items():
                if found == object_id:
                    with suppress(ObjectNotFoundError):
                        self.drop(name)

    def _path(self, name: str) -> str:
        quoted = quote(name, safe="", errors="surrogatepass").replace(".", "%2E")
        if len(quoted) > _LONG:
            quoted = f"{quoted[:100]}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return f"{self._folder.path}/n/{quoted}"

    def _read(self, path: str) -> tuple[str, ObjectID] | None:
        try:
            found = json.loads(Path(path).read_text())
            return found["name"], ObjectID(found["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptObjectError(f"the name in {path} cannot be read: {error!r}; remove the file") from error

    def _missing(self, name: str) -> ObjectNotFoundError:
        return no_name(name, self.all(), f"the store at {self._folder.path}")

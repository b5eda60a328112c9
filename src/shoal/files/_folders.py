"""Names and what is behind them: is there something, what is in a folder, make one, remove one.

Stores of objects have no folders, only names with slashes in them: a folder is there while something lies in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from shoal.errors import UrlError, UrlNotFoundError
from shoal.files._open import local_error, stat
from shoal.files._urls import display, is_http, is_pipe, local_path

__all__ = ["exists", "is_file", "list_folder", "make_folder", "remove", "remove_folder"]

T = TypeVar("T")
_Url: TypeAlias = str | os.PathLike[str]


def exists(url: _Url) -> bool:
    """Tell whether there is a file or a folder of this name.

    >>> exists("/"), exists("/no/such/folder")
    (True, False)
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is not None:
        return os.path.exists(path)
    return _answers(url) if is_http(url) else bool(_asked(url, "look for", lambda fs, name: fs.exists(name)))


def is_file(url: _Url) -> bool:
    """Tell whether there is a file of this name.

    >>> is_file("/")
    False
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is not None:
        return os.path.isfile(path)
    return _answers(url) if is_http(url) else bool(_asked(url, "look for", lambda fs, name: fs.isfile(name)))


def list_folder(url: _Url) -> list[str]:
    """List the names in a folder, sorted; without what is in the folders in it.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "b" / "c").mkdir(parents=True), (folder / "a").touch()
    (None, None)
    >>> list_folder(folder)
    ['a', 'b']
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is not None:
        with _named(url, "list"):
            return sorted(os.listdir(path))
    return _asked(url, "list", lambda fs, name: _names(fs, name, url))


def make_folder(url: _Url) -> None:
    """Make a folder, and those it is in; one that is there already is left as it is.

    >>> import tempfile
    >>> folder = f"{tempfile.mkdtemp()}/a/b"
    >>> make_folder(folder)
    >>> exists(folder)
    True
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is None:
        _asked(url, "make", lambda fs, name: fs.makedirs(name, exist_ok=True))
        return
    with _named(url, "make"):
        os.makedirs(path, exist_ok=True)


def remove(url: _Url) -> None:
    """Remove a file; one that is not there is an error.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.txt")
    >>> path.touch()
    >>> remove(path)
    >>> path.exists()
    False
    """
    url = os.fspath(url)
    path = local_path(url)
    if path is None:
        _asked(url, "remove", lambda fs, name: fs.rm_file(name))
        return
    with _named(url, "remove"):
        os.remove(path)


def remove_folder(url: _Url, *, recursive: bool = False) -> None:
    """Remove a folder that is empty, or with ``recursive`` all that is in it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> make_folder(f"{folder}/a/b")
    >>> remove_folder(f"{folder}/a", recursive=True)
    >>> list_folder(folder)
    []
    """
    url = os.fspath(url)
    path = local_path(url)
    if not recursive and (found := list_folder(url)):
        text = f"{display(url)} is not empty: there is {found[0]!r} in it; recursive=True removes that, too"
        raise UrlError(text, url=display(url))
    if path is None:
        _asked(url, "remove", lambda fs, name: fs.rm(name, recursive=True))
        return
    with _named(url, "remove"):
        if recursive:
            shutil.rmtree(path)
        else:
            os.rmdir(path)


def _asked(url: str, verb: str, call: Callable[[Any, str], T]) -> T:
    if url == "-" or is_pipe(url) or is_http(url):
        text = f"could not {verb} {display(url)}: neither streams nor web servers have folders"
        raise UrlError(text, url=display(url))
    from shoal.files._fsspec import attempted, filesystem

    fs, path = filesystem(url)

    def asked() -> T:
        # What somebody listed an hour ago is not what is there.
        fs.invalidate_cache()
        return call(fs, path)

    return attempted(url, verb, asked)


def _names(fs: Any, path: str, url: str) -> list[str]:
    if fs.isfile(path):
        raise UrlError(f"{display(url)} is a file, not a folder", url=display(url))
    # A store may list the mark that somebody left to stand for the folder itself.
    found = (entry["name"].strip("/") for entry in fs.ls(path.rstrip("/") or path, detail=True))
    return sorted({name.rpartition("/")[2] for name in found if name != path.strip("/")})


def _answers(url: str) -> bool:
    try:
        stat(url)
    except UrlNotFoundError:
        return False
    return True


@contextmanager
def _named(url: str, verb: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise local_error(error, url, verb) from error

"""From what a user writes to a list of URLs: braces, then wildcards and folders."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from typing import Any

from shoal.errors import UrlError, UrlNotFoundError
from shoal.files._braces import expand_braces
from shoal.files._urls import display, is_http, is_pipe, local_path

__all__ = ["SHARD_SUFFIXES", "expand"]

#: What counts as a shard when only a folder is named.
SHARD_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst")


def expand(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, suffixes: Sequence[str] = SHARD_SUFFIXES
) -> list[str]:
    """Write out braces, wildcards and folders, keeping the order in which the URLs were given.

    Braces are those of bash. Wildcards (``*``, ``?``, ``[...]``, ``**``) and folders are listed and sorted, on local
    disks and in every store that can be listed; one that holds nothing is an error. A folder stands for its files that
    end in one of ``suffixes``, which are those of tar shards unless others are given. A ``pipe:`` command has braces
    only, and a file that exists under the very name written is just that file.

    >>> expand(["a-{0..1}.tar", "s3://bucket/{train,val}.tar"])
    ['a-0.tar', 'a-1.tar', 's3://bucket/train.tar', 's3://bucket/val.tar']
    """
    given = [urls] if isinstance(urls, str | os.PathLike) else urls
    return [url for text in given for url in _expand_one(os.fspath(text), tuple(suffixes))]


def _expand_one(text: str, suffixes: tuple[str, ...]) -> list[str]:
    if _is_file(text):
        return [text]
    return [url for name in expand_braces(text) for url in _listed(name, suffixes)]


def _listed(url: str, suffixes: tuple[str, ...]) -> list[str]:
    if url == "-" or is_pipe(url):
        return [url]
    if is_http(url):
        return _web(url, suffixes)
    path = local_path(url)
    return _listed_local(url, path, suffixes) if path is not None else _listed_remote(url, suffixes)


def _web(url: str, suffixes: tuple[str, ...]) -> list[str]:
    if url.endswith("/"):
        raise UrlError(
            f"{display(url)} is a folder on a web server, which cannot be listed; name the shards, as in "
            f"{display(url)}shard-{{0000..0099}}{suffixes[0]}",
            url=display(url),
        )
    return [url]


def _listed_local(url: str, path: str, suffixes: tuple[str, ...]) -> list[str]:
    if _is_file(path):
        return [url]
    if os.path.isdir(path):
        return _found(url, _shards((os.path.join(path, name) for name in os.listdir(path)), suffixes), suffixes)
    if not _has_wildcard(path):
        return [url]
    matches = glob.glob(f"{path}*" if path.endswith("/") else path, recursive=True)
    files = [match for match in matches if not os.path.isdir(match)]
    return _found(url, _shards(files, suffixes) if path.endswith("/") else files, suffixes)


def _listed_remote(url: str, suffixes: tuple[str, ...]) -> list[str]:
    head, mark, rest = url.partition("::") if "://" in url.partition("::")[0] else (url, "", "")
    wild, folder = _has_wildcard(head), head.endswith("/")
    if not wild and not folder:
        return [url]
    from shoal.files._fsspec import attempted, filesystem

    fs, path = filesystem(url)
    files = attempted(url, "list", lambda: _remote_files(fs, path, wild=wild, folder=folder))
    prefix = _prefix(head, path)
    names = _shards(files, suffixes) if folder else files
    return _found(url, [f"{prefix}{name}{mark}{rest}" for name in names], suffixes)


def _remote_files(fs: Any, path: str, *, wild: bool, folder: bool) -> list[str]:
    fs.invalidate_cache()
    if wild:
        entries = list(fs.glob(f"{path.rstrip('/')}/*" if folder else path, detail=True).values())
    else:
        entries = fs.ls(path.rstrip("/") or path, detail=True)
    return [entry["name"] for entry in entries if entry["type"] != "directory"]


def _prefix(head: str, path: str) -> str:
    """Find what stands before the path in a URL, so that the scheme and host the user wrote are kept."""
    for shown in (path, path.rstrip("/") + "/"):
        if shown and head.endswith(shown):
            return head[: -len(shown)]
    return head.partition("://")[0] + "://"


def _found(url: str, names: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    found = sorted(names)
    if not found:
        endings = suffixes[0] if len(suffixes) == 1 else f"{suffixes[0]}, ..."
        what = "matches no file" if _has_wildcard(url) else f"holds no shards (files ending in {endings})"
        raise UrlNotFoundError(f"{display(url)} {what}", url=display(url))
    return found


def _shards(paths: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """Keep what is named like a shard; a leading dot hides a file, as it does in a shell."""
    named = ((path, path.rpartition("/")[2]) for path in paths)
    return [path for path, name in named if name.endswith(suffixes) and not name.startswith(".")]


def _has_wildcard(path: str) -> bool:
    return any(character in path for character in "*?[")


def _is_file(text: str) -> bool:
    path = local_path(text)
    return path is not None and path != "-" and "\0" not in path and os.path.lexists(path) and not os.path.isdir(path)

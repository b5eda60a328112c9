"""From the URLs of the dialect to a list of shards."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from shoal import settings
from shoal.errors import SettingsError
from shoal.files import expand
from shoal.sources import Urls

__all__ = ["Urls", "shard_urls", "url_to_cache_name"]

_VARIABLE = re.compile(r"\$\{(\w+)\}")
#: A variable may name others; one that names itself must not go round for ever.
_ROUNDS = 10


def shard_urls(urls: Urls) -> list[str]:
    """List the shards: ``::`` separates, ``${NAME}`` is ``WDS_NAME`` of the environment, then braces and wildcards.

    A list is taken apart only by braces and wildcards, so chained URLs of fsspec, which hold ``::`` too, go there.

    >>> shard_urls("a-{0..1}.tar::b.tar")
    ['a-0.tar', 'a-1.tar', 'b.tar']
    """
    if isinstance(urls, str):
        return expand([part for part in _substitute(urls).split("::") if part])
    return expand(urls)


def url_to_cache_name(url: str, ndir: int = 0) -> str:
    """Name the file in which a URL might be kept: the end of its path, with ``ndir`` folders.

    >>> url_to_cache_name("http://e.com/path/to/file.txt"), url_to_cache_name("http://e.com/path/to/file.txt", ndir=1)
    ('file.txt', 'to/file.txt')
    """
    parts = urlsplit(url).path.lstrip("/").split("/")
    return "/".join(parts[-1 - ndir :])


def _substitute(text: str) -> str:
    for _ in range(_ROUNDS):
        replaced = _VARIABLE.sub(_value, text)
        if replaced == text:
            return text
        text = replaced
    raise SettingsError(f"{text!r} still names a variable after {_ROUNDS} rounds: do the variables name each other?")


def _value(match: re.Match[str]) -> str:
    value = settings.variable(f"WDS_{match[1]}")
    if value is None:
        raise SettingsError(
            f"${{{match[1]}}} in a URL stands for the environment variable WDS_{match[1]}, which is unset"
        )
    return value

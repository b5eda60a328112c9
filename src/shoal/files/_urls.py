"""What a URL is: its scheme, its local path if it has one, and how to show it without its secrets."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

__all__ = ["display", "is_http", "is_pipe", "local_path", "redact", "scheme"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)(?:://|::)")
_SHORT = re.compile(r"(pipe|file):", re.IGNORECASE)
_FILE_URL = re.compile(r"(?:file|local)://(?:localhost(?=/))?", re.IGNORECASE)
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/\s'\"]+)@")
_QUERY = re.compile(r"([?&][^=&\s]+=)[^&\s'\")]+")
_TOKEN = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE)


def scheme(url: str) -> str:
    """Name the scheme of a URL; a plain path is ``file`` and the standard streams are ``-``.

    >>> scheme("s3://bucket/a.tar"), scheme("data/a.tar"), scheme("pipe:cat a.tar"), scheme("-")
    ('s3', 'file', 'pipe', '-')
    """
    if url == "-":
        return "-"
    match = _SHORT.match(url) or _SCHEME.match(url)
    name = match[1].lower() if match else "file"
    return "file" if name == "local" else name


def is_http(url: str) -> bool:
    """Tell whether a web server answers for this URL."""
    return scheme(url) in ("http", "https")


def is_pipe(url: str) -> bool:
    """Tell whether this URL is a command to run."""
    return scheme(url) == "pipe"


def local_path(url: str | os.PathLike[str]) -> str | None:
    """Give the path of a local file, or None for everything that is elsewhere.

    Only ``file://`` is percent-decoded: in a plain path a percent sign is a percent sign.

    >>> local_path("a%20b.tar"), local_path("file:///data/a%20b.tar"), local_path("s3://bucket/a.tar")
    ('a%20b.tar', '/data/a b.tar', None)
    """
    url = os.fspath(url)
    if scheme(url) != "file":
        return None
    if (match := _FILE_URL.match(url)) is not None:
        return unquote(url[match.end() :])
    path = url[len("file:") :] if url[:5].lower() == "file:" else url
    return os.path.expanduser(path) if path.startswith("~/") else path


def display(url: str) -> str:
    """Show a URL without passwords and query values, which are often signatures.

    >>> display("https://me:secret@host/a.tar?X-Signature=abc")
    'https://***@host/a.tar?X-Signature=***'
    """
    return url if local_path(url) is not None else redact(url)


def redact(text: str) -> str:
    """Remove what looks like a secret from a text that quotes URLs."""
    return _TOKEN.sub(r"\1 ***", _QUERY.sub(r"\1***", _USER.sub(_hide_user, text)))


def _hide_user(match: re.Match[str]) -> str:
    # Without a colon it is no password, and some stores name a container there (abfs://container@account).
    secret = ":" in match[2] or match[1].lower() in ("http", "https")
    return f"{match[1]}://***@" if secret else match[0]

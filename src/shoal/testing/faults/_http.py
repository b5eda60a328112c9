"""A web server on loopback that misbehaves on purpose and remembers what it was asked."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

from shoal.testing.faults._drawing import noted
from shoal.testing.faults._mishaps import Fate, Mishap, Rule
from shoal.testing.faults._serving import send_body, served, short_answer

__all__ = ["HttpServer", "Request", "Resource", "http_server"]

_PROBE = "bytes=0-0"


@dataclass
class Resource:
    """A body and the ways in which it is served badly; a fault that is a list is used up request by request.

    Questions for one byte, by which clients find out about sizes, are not cut and not stalled.

    >>> Resource(b"123", cut_after=[1]).size
    3
    """

    body: bytes | Path = b""
    etag: str | None = '"one"'
    cut_after: list[int] = field(default_factory=list)
    """Bytes of the body after which the connection is closed, one number a request."""
    stall_after: list[int] = field(default_factory=list)
    """Bytes of the body after which nothing comes any more until the client goes away."""
    statuses: list[int] = field(default_factory=list)
    """Answers given instead of the body."""
    retry_after: str | None = None
    ignore_range: bool = False
    wrong_range: bool = False
    chunked: bool = False
    claim_length: int | None = None
    etags: list[str] = field(default_factory=list)
    """Etags of the first requests, before `etag`."""
    redirect: str | None = None
    delay: float = 0.0
    """Seconds between chunks of 64 KiB."""
    content_encoding: str | None = None

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return self.body.stat().st_size if isinstance(self.body, Path) else len(self.body)

    def part(self, first: int, last: int) -> bytes:
        """Give some bytes of the body, up to and with the last."""
        if isinstance(self.body, bytes):
            return self.body[first : last + 1]
        with self.body.open("rb") as file:
            file.seek(first)
            return file.read(last + 1 - first)

    def next_mishap(self, path: str, *, probe: bool) -> Mishap | None:
        """Use up the next of the faults that are listed."""
        if self.statuses:
            return Mishap("refuse", 0, self.statuses.pop(0), self.retry_after, path)
        if self.cut_after and not probe:
            return Mishap("cut", self.cut_after.pop(0), path=path)
        if self.stall_after and not probe:
            return Mishap("stall", self.stall_after.pop(0), path=path)
        return None


@dataclass(frozen=True)
class Request:
    """What a client asked for.

    >>> Request("/a.tar", "bytes=5-9").range
    'bytes=5-9'
    """

    path: str
    range: str | None = None
    accept_encoding: str | None = None
    authorization: str | None = None


class HttpServer(ThreadingHTTPServer):
    """A web server at a free port of loopback, with resources that are added and files of a folder.

    >>> import urllib.request
    >>> with http_server() as server:
    ...     url = server.add("/a.txt", b"hello", statuses=[])
    ...     urllib.request.urlopen(url).read()
    b'hello'
    >>> [request.path for request in server.requests]
    ['/a.txt']
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, folder: str | os.PathLike[str] | None = None, *rules: Rule, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = None if folder is None else Path(folder).resolve()
        self.fate = Fate(seed, *rules)
        """What became of answers by the rules, and what will."""
        self.resources: dict[str, Resource] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.stopping = threading.Event()
        self.guard = threading.Lock()

    def url(self, path: str = "") -> str:
        """Give the URL of a resource, or of a file by its place in the folder."""
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def urls(self, pattern: str = "*") -> list[str]:
        """Give the URLs of files of the folder, in the order of their names."""
        assert self.folder is not None, "there is no folder"
        names = sorted(path.relative_to(self.folder).as_posix() for path in self.folder.glob(pattern) if path.is_file())
        return [self.url(f"/{quote(name)}") for name in names]

    def add(self, path: str, body: bytes = b"", **faults: object) -> str:
        """Serve bytes under a path, in the way that `Resource` says, and give the URL."""
        self.resources[path] = Resource(body, **faults)  # type: ignore[arg-type]
        return self.url(path)

    def find(self, path: str) -> Resource | None:
        """Give what is served under a path, if there is something."""
        if path in self.resources or self.folder is None:
            return self.resources.get(path)
        file = (self.folder / unquote(path).lstrip("/")).resolve()
        if not file.is_relative_to(self.folder) or not file.is_file():
            return None
        known = file.stat()
        return Resource(file, f'"{known.st_size:x}-{known.st_mtime_ns:x}"')

    def ranges(self, path: str | None = None) -> list[str | None]:
        """The Range headers of the transfers, in order; questions for the size (one byte) are left out."""
        return [request.range for request in self.requests if path in (None, request.path) and request.range != _PROBE]

    def asked(self, path: str) -> int:
        """The bytes that transfers asked for, each of which must have said where it ends."""
        spans = [re.fullmatch(r"bytes=(\d+)-(\d+)", text or "") for text in self.ranges(path)]
        assert all(spans), "a transfer has no end"
        return sum(int(span[2]) - int(span[1]) + 1 for span in spans if span is not None)

    def process_request(self, request: object, client_address: object) -> None:
        """Count the connections; each of them may bring many requests."""
        self.connections += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path, headers = self.path.partition("?")[0], self.headers
        asked = Request(path, headers["Range"], headers["Accept-Encoding"], headers["Authorization"])
        with self.server.guard:
            self.server.requests.append(asked)
            resource = self.server.find(path)
            mishap = None
            if resource is not None:
                mishap = resource.next_mishap(path, probe=asked.range == _PROBE)
                resource = replace(resource, etag=resource.etags.pop(0) if resource.etags else resource.etag)
        if resource is None:
            short_answer(self, 404)
        elif mishap is not None and mishap.kind == "refuse":
            short_answer(self, mishap.status, retry_after=mishap.retry_after)
        elif resource.redirect is not None:
            short_answer(self, 302, location=resource.redirect)
        else:
            self._serve(resource, mishap)

    def _serve(self, resource: Resource, mishap: Mishap | None) -> None:
        size, asked = resource.size, self.headers["Range"]
        match = None if resource.ignore_range else re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        first, last = (int(match[1]), min(int(match[2] or size - 1), size - 1)) if match else (0, size - 1)
        if match and first >= size:
            return short_answer(self, 416, content_range=f"bytes */{size}")
        body = resource.part(first, last)
        if mishap is None and asked != _PROBE:
            mishap = self.server.fate.next("GET", self.path.partition("?")[0], len(body))
        if mishap is not None and mishap.kind == "refuse":
            return short_answer(self, mishap.status, retry_after=mishap.retry_after)
        if mishap is not None and mishap.kind == "lie" and mishap.after < 0:
            body = body[: mishap.after]
        self.send_response(206 if match else 200)
        if match:
            shift = 7 if resource.wrong_range else 0
            self.send_header("Content-Range", f"bytes {first - shift}-{last}/{resource.claim_length or size}")
        for name, value in (("ETag", resource.etag), ("Content-Encoding", resource.content_encoding)):
            if value:
                self.send_header(name, value)
        if resource.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            more = max(mishap.after, 0) if mishap is not None and mishap.kind == "lie" else 0
            claimed = len(body) + more if resource.claim_length is None else resource.claim_length - first
            self.send_header("Content-Length", str(claimed))
        self.end_headers()
        pieces = _pieces(body, resource.delay)
        send_body(self, pieces, len(body), mishap, chunked=resource.chunked, stopping=self.server.stopping)
        if resource.claim_length is not None:
            self.close_connection = True
        return None


def _pieces(body: bytes, delay: float) -> Iterator[bytes]:
    for start in range(0, len(body), 1 << 16):
        yield body[start : start + (1 << 16)]
        if delay:
            time.sleep(delay)


@contextlib.contextmanager
def http_server(folder: str | os.PathLike[str] | None = None, *rules: Rule, seed: int = 0) -> Iterator[HttpServer]:
    """Run a web server for the length of a block: files of a folder, and what is added, with ranges and etags.

    Answers with bodies have the faults that the rules say; questions for one byte are left alone.

    >>> import pathlib, tempfile, shoal
    >>> from shoal.testing import faults
    >>> folder = tempfile.mkdtemp()
    >>> with shoal.shards.TarWriter(f"{folder}/a.tar") as writer:
    ...     for i in range(100):
    ...         _ = writer.write({"__key__": str(i), "cls": i})
    >>> with faults.http_server(folder, faults.cut(times=2), seed=7) as server:
    ...     print(sum(1 for _ in shoal.read_tar(server.url("/a.tar"))), len(server.fate.happened))
    100 2
    """
    server = HttpServer(folder, *rules, seed=seed)
    with noted(lambda: str(server.fate)), served(server):
        try:
            yield server
        finally:
            server.stopping.set()

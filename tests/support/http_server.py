"""A web server on loopback that misbehaves on purpose and remembers what it was asked."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Resource:
    """A body and the ways in which it is served badly; a fault that counts is used up request by request."""

    body: bytes = b""
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


@dataclass(frozen=True)
class Request:
    path: str
    range: str | None
    accept_encoding: str | None
    authorization: str | None


class FaultyServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.resources: dict[str, Resource] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.stopping = threading.Event()
        self.guard = threading.Lock()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def add(self, path: str, body: bytes = b"", **faults: object) -> str:
        self.resources[path] = Resource(body, **faults)  # type: ignore[arg-type]
        return self.url(path)

    def ranges(self, path: str | None = None) -> list[str | None]:
        """The Range headers of the transfers, in order; questions for the size (one byte) are left out."""
        return [
            request.range for request in self.requests if path in (None, request.path) and request.range != "bytes=0-0"
        ]

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
    server: FaultyServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        headers = self.headers
        with self.server.guard:
            self.server.requests.append(
                Request(path, headers["Range"], headers["Accept-Encoding"], headers["Authorization"])
            )
            resource = self.server.resources.get(path)
            probe = headers["Range"] == "bytes=0-0"
            status = resource.statuses.pop(0) if resource and resource.statuses else None
            etag = resource.etags.pop(0) if resource and resource.etags else (resource.etag if resource else None)
            cut = resource.cut_after.pop(0) if resource and resource.cut_after and not probe else None
            stall = resource.stall_after.pop(0) if resource and resource.stall_after and not probe else None
        if resource is None:
            self._short(404)
        elif status is not None:
            self._short(status, {"Retry-After": resource.retry_after} if resource.retry_after else {})
        elif resource.redirect is not None:
            self._short(302, {"Location": resource.redirect})
        else:
            self._serve(resource, etag, cut, stall)

    def _short(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _serve(self, resource: Resource, etag: str | None, cut: int | None, stall: int | None) -> None:
        size = len(resource.body)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
        first, last = 0, size - 1
        if match and not resource.ignore_range:
            first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
            if first >= size:
                return self._short(416, {"Content-Range": f"bytes */{size}"})
            self.send_response(206)
            shift = 7 if resource.wrong_range else 0
            self.send_header("Content-Range", f"bytes {first - shift}-{last}/{resource.claim_length or size}")
        else:
            self.send_response(200)
        body = resource.body[first : last + 1]
        if etag is not None:
            self.send_header("ETag", etag)
        if resource.content_encoding:
            self.send_header("Content-Encoding", resource.content_encoding)
        if resource.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            claimed = len(body) if resource.claim_length is None else resource.claim_length - first
            self.send_header("Content-Length", str(claimed))
        self.end_headers()
        self._send(resource, body, cut, stall)
        return None

    def _send(self, resource: Resource, body: bytes, cut: int | None, stall: int | None) -> None:
        stop = len(body) if cut is None and stall is None else min(cut or 0 if stall is None else stall, len(body))
        for start in range(0, stop, 1 << 16):
            chunk = body[start : min(start + (1 << 16), stop)]
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" if resource.chunked else chunk)
            if resource.delay:
                time.sleep(resource.delay)
        self.wfile.flush()
        if stall is not None:
            self.server.stopping.wait(20)
        if stop < len(body) or resource.claim_length is not None:
            self.close_connection = True
        elif resource.chunked:
            self.wfile.write(b"0\r\n\r\n")


@contextlib.contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    """Run a server for the length of a block."""
    server = FaultyServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()

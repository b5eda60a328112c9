"""What faulty servers have in common: running for the length of a block, and sending a body badly."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler

from shoal.testing.faults._mishaps import Mishap

__all__ = ["send_body", "served", "short_answer"]

_STALLED = 20.0  # seconds; clients give up earlier


@contextlib.contextmanager
def served(server: socketserver.BaseServer) -> Iterator[None]:
    """Run a server for the length of a block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def short_answer(handler: BaseHTTPRequestHandler, status: int, **headers: str | None) -> None:
    """Answer without a body."""
    handler.send_response(status)
    for name, value in headers.items():
        if value is not None:
            handler.send_header(name.replace("_", "-").title(), value)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def send_body(
    handler: BaseHTTPRequestHandler,
    pieces: Iterable[bytes],
    size: int,
    mishap: Mishap | None,
    *,
    chunked: bool = False,
    stopping: threading.Event,
) -> None:
    """Send a body of so many bytes, after its headers, up to where something happens to it."""
    ends = mishap is not None and mishap.kind in ("cut", "stall")
    left = stop = min(mishap.after, size) if mishap is not None and ends else size
    for piece in pieces:
        part = piece[:left]
        left -= len(part)
        if part:
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if chunked else part)
        if not left:
            break
    handler.wfile.flush()
    if mishap is not None and mishap.kind == "stall":
        stopping.wait(_STALLED)
    if stop < size or (mishap is not None and mishap.kind == "lie"):
        handler.close_connection = True
    elif chunked:
        handler.wfile.write(b"0\r\n\r\n")

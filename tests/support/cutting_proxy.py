"""A proxy for TCP connections that hangs up in the middle of answers."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator


class CuttingProxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = port
        self.cut_after: list[int] = []
        """Bytes of answers after which a connection is closed, one number for each that is still to be cut."""
        self.cuts = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are part of the game."""


class _Handler(socketserver.BaseRequestHandler):
    server: CuttingProxy

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.upstream)) as upstream:
            threading.Thread(target=self._forward, args=(upstream,), daemon=True).start()
            sent = 0
            while data := upstream.recv(1 << 16):
                sent += len(data)
                if self.server.cut_after and sent > self.server.cut_after[0]:
                    self.server.cut_after.pop(0)
                    self.server.cuts += 1
                    return
                self.request.sendall(data)

    def _forward(self, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(1 << 16):
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    """Run a proxy for the length of a block."""
    server = CuttingProxy(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""Proxies on loopback that stand in front of a real server and spoil what it answers."""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from shoal.testing.faults._drawing import noted
from shoal.testing.faults._mishaps import Fate, Mishap, Rule
from shoal.testing.faults._serving import send_body, served, short_answer

__all__ = ["HttpProxy", "TcpProxy", "http_proxy", "tcp_proxy"]

_PIECE = 1 << 16
_OWN = {"connection", "content-length", "transfer-encoding", "date", "server"}


class HttpProxy(ThreadingHTTPServer):
    """Hands requests on to a server of this host; what rules say happens to answers that have a body.

    >>> with http_proxy(80) as proxy:
    ...     proxy.address.startswith("http://127.0.0.1:")
    True
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, *rules: Rule, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _HttpHandler)
        self.upstream = port
        self.fate = Fate(seed, *rules)
        self.stopping = threading.Event()

    @property
    def address(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are part of the game."""


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpProxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._hand_on()

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        with contextlib.closing(upstream):
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = upstream.getresponse()
            path, _, query = self.path.partition("?")
            size = int(answer.getheader("Content-Length") or 0)
            mishap = self.server.fate.next(self.command, path, size) if not query and answer.status < 300 else None
            if mishap is not None and mishap.kind == "refuse":
                answer.read()
                return short_answer(self, mishap.status, retry_after=mishap.retry_after)
            return self._relay(answer, mishap)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 - names of the standard library's

    def _relay(self, answer: http.client.HTTPResponse, mishap: Mishap | None) -> None:
        chunked = answer.getheader("Transfer-Encoding") == "chunked"
        size = int(answer.getheader("Content-Length") or 0)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN:
                self.send_header(name, value)
        body = answer.read() if chunked else b""
        lied = mishap.after if mishap is not None and mishap.kind == "lie" else 0
        length = len(body) if chunked else size
        self.send_header("Content-Length", str(length + lied))
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = length + min(lied, 0)
        pieces = iter([body[:sent]]) if chunked else _pieces(answer, sent)
        send_body(self, pieces, sent, mishap, stopping=self.server.stopping)


def _pieces(answer: http.client.HTTPResponse, size: int) -> Iterator[bytes]:
    while size and (piece := answer.read(min(_PIECE, size))):
        size -= len(piece)
        yield piece


class TcpProxy(socketserver.ThreadingTCPServer):
    """Hands connections on to a server of this host, whatever it speaks; a connection is one answer to the rules.

    ``cut`` closes a connection after so many bytes of answers, ``stall`` lets no more through.

    >>> with tcp_proxy(80) as proxy:
    ...     proxy.port > 0
    True
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int, *rules: Rule, seed: int = 0, host: str = "127.0.0.1") -> None:
        super().__init__(("127.0.0.1", 0), _TcpHandler)
        self.upstream = (host, port)
        self.fate = Fate(seed, *rules)
        self.stopping = threading.Event()

    @property
    def port(self) -> int:
        """The port of the proxy."""
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are part of the game."""


_ANSWER = 1 << 20  # bytes; what a connection is taken to have, for drawing where it is cut


class _TcpHandler(socketserver.BaseRequestHandler):
    server: TcpProxy

    def handle(self) -> None:
        mishap = self.server.fate.next("GET", f"port {self.server.upstream[1]}", _ANSWER)
        with socket.create_connection(self.server.upstream) as upstream:
            threading.Thread(target=self._forward, args=(upstream,), daemon=True).start()
            sent = 0
            while data := upstream.recv(_PIECE):
                if mishap is not None and sent + len(data) > mishap.after:
                    self.request.sendall(data[: mishap.after - sent])
                    if mishap.kind == "stall":
                        self.server.stopping.wait()
                    return
                sent += len(data)
                self.request.sendall(data)

    def _forward(self, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(_PIECE):
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def http_proxy(port: int, *rules: Rule, seed: int = 0) -> Iterator[HttpProxy]:
    """Stand in front of a web server of this host for the length of a block.

    >>> import urllib.request
    >>> from shoal.testing import faults
    >>> with faults.http_server() as server, faults.http_proxy(server.server_port) as proxy:
    ...     _ = server.add("/a.txt", b"hello")
    ...     urllib.request.urlopen(f"{proxy.address}/a.txt").read()
    b'hello'
    """
    server = HttpProxy(port, *rules, seed=seed)
    with noted(lambda: str(server.fate)), served(server):
        try:
            yield server
        finally:
            server.stopping.set()


@contextlib.contextmanager
def tcp_proxy(port: int, *rules: Rule, seed: int = 0, host: str = "127.0.0.1") -> Iterator[TcpProxy]:
    """Stand in front of any server of this host for the length of a block: of a feeder, a store, a database.

    >>> import urllib.request
    >>> from shoal.testing import faults
    >>> with faults.http_server() as server, faults.tcp_proxy(server.server_port) as proxy:
    ...     _ = server.add("/a.txt", b"hello")
    ...     urllib.request.urlopen(f"http://127.0.0.1:{proxy.port}/a.txt").read()
    b'hello'
    """
    server = TcpProxy(port, *rules, seed=seed, host=host)
    with noted(lambda: str(server.fate)), served(server):
        try:
            yield server
        finally:
            server.stopping.set()

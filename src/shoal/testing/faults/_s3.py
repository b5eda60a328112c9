"""A real S3-compatible server in a process of its own, and a proxy in front of it that spoils its answers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec

from shoal._optional import require
from shoal.errors import WorkerDiedError
from shoal.testing.faults._mishaps import Fate, Rule
from shoal.testing.faults._proxy import http_proxy

__all__ = ["S3Server", "s3_server"]

_SECONDS = 120.0
#: It ends with whoever holds the other end of its standard input, however that one ends.
_SERVE = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main(sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where the server is, for clients of any kind.

    >>> S3Server("http://127.0.0.1:5000", Fate(0)).options["endpoint_url"]
    'http://127.0.0.1:5000'
    """

    address: str
    """The endpoint, in front of which the faults are."""
    fate: Fate
    """What became of answers by the rules, and what will."""

    @property
    def environment(self) -> dict[str, str]:
        """Give the variables by which clients find it, in this process or in others."""
        keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        return {"AWS_ENDPOINT_URL": self.address, **keys}

    @property
    def options(self) -> dict[str, object]:
        """Give the same as options for fsspec."""
        return {"endpoint_url": self.address, "key": "test", "secret": "test"}


@contextlib.contextmanager
def s3_server(*rules: Rule, seed: int = 0) -> Iterator[S3Server]:
    """Run moto's S3 server for the length of a block, with faults in what objects are answered with.

    >>> import fsspec
    >>> from shoal.testing import faults
    >>> with faults.s3_server(faults.refuse(503, times=1), seed=7) as server:
    ...     s3 = fsspec.filesystem("s3", **server.options)
    ...     s3.mkdir("bucket")
    ...     _ = s3.pipe("bucket/a.txt", b"hello")
    ...     print(s3.cat("bucket/a.txt"), len(server.fate.happened))
    b'hello' 1
    """
    require("moto", "an S3 server for tests")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(  # noqa: S603 - a module of our own choice, at loopback
        [sys.executable, "-c", _SERVE, "-H", "127.0.0.1", "-p", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(process, f"http://127.0.0.1:{port}/moto-api/")
        with http_proxy(port, *rules, seed=seed) as proxy:
            yield S3Server(proxy.address, proxy.fate)
    finally:
        # File systems of a server that is gone are of no use, and hold connections.
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        process.terminate()
        process.communicate(timeout=10)


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    late = time.monotonic() + _SECONDS
    while time.monotonic() < late:
        if process.poll() is not None:
            raise WorkerDiedError("the S3 server ended by itself", pid=process.pid, exitcode=process.returncode)
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - at loopback
            return
        time.sleep(0.1)
    raise WorkerDiedError(f"the S3 server did not answer within {_SECONDS:g} s", pid=process.pid)

"""A real S3-compatible server in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import fsspec
import pytest


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's server for the length of a block and give its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(process, f"{address}/moto-api/")
        yield address
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def s3_bucket() -> Iterator[str]:
    """Run a server with a bucket in it, and let fsspec find it, for the length of a block; give the bucket's URL."""
    store = fsspec.get_filesystem_class("s3")
    with s3_server() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", address)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        store.clear_instance_cache()
        fsspec.filesystem("s3").mkdir("bucket")
        try:
            yield "s3://bucket"
        finally:
            store.clear_instance_cache()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        assert process.poll() is None, "the S3 server ended by itself"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.1)
    raise AssertionError("the S3 server did not start")

"""A bucket on a real S3-compatible server, which fsspec finds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import fsspec
import pytest

from shoal.testing.faults import s3_server

__all__ = ["s3_bucket"]


@contextlib.contextmanager
def s3_bucket(name: str = "bucket") -> Iterator[str]:
    """Run a server with a bucket in it, and let fsspec find it, for the length of a block; give the bucket's URL."""
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for variable, value in server.environment.items():
            patch.setenv(variable, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        fsspec.filesystem("s3").mkdir(name)
        yield f"s3://{name}"

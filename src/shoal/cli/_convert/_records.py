"""TFRecord files out of samples: a sample is an example, a field a feature."""

from __future__ import annotations

import gzip
import json
from typing import Any, BinaryIO, cast

import numpy as np

from shoal.abc import Sample
from shoal.cli._convert._fields import content
from shoal.errors import SampleError
from shoal.files import open_write
from shoal.sources import pack_example, pack_record

__all__ = ["RecordWriter"]


class RecordWriter:
    """Writes one file, compressed if its name ends in ``.gz``."""

    def __init__(self, url: str, *, trust: bool = False) -> None:
        self._target = open_write(url, trust=trust)
        # Without a name and a time in its header: the same samples give the same bytes.
        compressed = url.lower().endswith(".gz")
        self._gzip = gzip.GzipFile("", "wb", fileobj=cast("BinaryIO", self._target), mtime=0) if compressed else None

    def write(self, sample: Sample) -> int:
        """Append a record."""
        features = {name: _feature(value) for name, value in sample.items() if value is not None}
        try:
            data = pack_example({**features, "__key__": sample["__key__"].encode("utf-8", "surrogateescape")})
        except SampleError as error:
            error.key = sample["__key__"]
            raise
        (self._gzip or self._target).write(pack_record(data))
        return len(data)

    def close(self) -> None:
        """Let the file appear."""
        if self._gzip is not None:
            self._gzip.close()
        self._target.commit()

    def abort(self) -> None:
        """Throw the file away."""
        self._target.abort()


def _feature(value: Any) -> Any:
    """Write as text what no feature can hold: documents, and lists of lists."""
    value = content(value)
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, list | dict) for one in value)):
        return json.dumps(value, default=_plain)
    return (
        value if isinstance(value, bytes | str | int | float | list | tuple | np.ndarray | np.generic) else str(value)
    )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

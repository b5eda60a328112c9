"""The ``.gz`` wrapper around any other codec."""

from __future__ import annotations

import gzip
import io
from dataclasses import dataclass
from typing import Any

from shoal.errors import DecodeError
from shoal.shards.codecs._codec import Codec, Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["GzipCodec"]

_MAGIC = b"\x1f\x8b"
_STEP = 2**20


@dataclass(frozen=True, slots=True)
class GzipCodec:
    """Compress what another codec writes.

    >>> from shoal.shards.codecs import codec_for
    >>> codec = codec_for("txt.gz")
    >>> codec.decode(codec.encode("hello", EncodeOptions()), DecodeOptions())
    'hello'
    """

    inner: Codec

    @property
    def kind(self) -> str:
        """Name the wrapped kind too."""
        return f"gzip around {self.inner.kind}"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Expand, up to ``options.max_bytes``, and decode what was inside."""
        return self.inner.decode(_expand(data, options.max_bytes), options)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Encode and compress; bytes that are gzip already pass, so that undecoded fields can be written again."""
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            if data.startswith(_MAGIC):
                return data
        else:
            data = self.inner.encode(value, options)
        # With a time of zero the same value always gives the same bytes.
        return gzip.compress(data, compresslevel=6, mtime=0)


def _expand(data: Data, limit: int) -> bytes:
    if bytes(data[:2]) != _MAGIC:  # gzip reads an empty file without complaint
        raise gzip.BadGzipFile("not a gzipped file")
    parts = []
    total = 0
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while part := file.read(_STEP):
            parts.append(part)
            total += len(part)
            if total > limit:
                raise DecodeError(f"{len(data)} gzipped bytes expand to more than the {limit} of max_bytes")
    return b"".join(parts)

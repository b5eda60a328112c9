"""JSON documents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["JsonCodec"]


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """Read and write JSON in UTF-8; NaN and the infinities are written as Python writes them.

    >>> JsonCodec("json").encode({"boxes": [1, 2]}, EncodeOptions())
    b'{"boxes": [1, 2]}'
    """

    extension: str
    kind = "a JSON document"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Parse one document."""
        return json.loads(bytes(data))

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write one document in ASCII, so that any str can be written, also one with half a surrogate pair."""
        return json.dumps(value).encode()

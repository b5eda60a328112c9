"""JSON documents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shoal.errors import EncodeError
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
        """Write one document in ASCII, so that any str can be written, also one with half a surrogate pair.

        A str is a document already, as `json.dumps` makes it: quoting it again would give readers text, not data.
        """
        if not isinstance(value, str):
            return json.dumps(value).encode()
        try:
            json.loads(value)
        except ValueError as error:
            text = f"the str {value[:40]!r} is not a JSON document ({error}); pass json.dumps(text) to store text"
            raise EncodeError(text) from error
        return value.encode()

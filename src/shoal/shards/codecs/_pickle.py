"""Pickled objects, which run code when they are decoded."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from shoal.errors import TrustError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["PickleCodec", "refuse_untrusted"]


@dataclass(frozen=True, slots=True)
class PickleCodec:
    """Write any object, and read it again where the data is trusted.

    >>> data = PickleCodec("pyd").encode({1, 2}, EncodeOptions())
    >>> PickleCodec("pyd").decode(data, DecodeOptions(trust=True))
    {1, 2}
    """

    extension: str
    kind = "a pickled object"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Unpickle, only if told to trust the data."""
        refuse_untrusted(self.extension, options)
        return pickle.loads(data)  # noqa: S301 - trusted by the caller's own word

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Pickle with a fixed protocol, so that the bytes do not depend on the Python that wrote them."""
        return pickle.dumps(value, protocol=4)


def refuse_untrusted(what: str, options: DecodeOptions) -> None:
    """Raise TrustError unless the options trust the data."""
    if not options.trust:
        raise TrustError(
            f"decoding {what} unpickles objects, which can run any code; "
            "pass trust=True if you know who wrote the data, or leave the field as bytes"
        )

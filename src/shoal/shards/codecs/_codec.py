"""What a codec is."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["Codec", "Data"]

Data: TypeAlias = bytes | memoryview


class Codec(Protocol):
    """Turn the values of one extension into bytes and back.

    A codec is built with its extension and keeps nothing between calls, so threads may share it. It may let foreign
    exceptions out: `decode` and `encode` translate them, with the field's name.

    >>> from shoal.shards.codecs import codec_for
    >>> codec_for("label.cls").decode(b"7", DecodeOptions())
    7
    """

    @property
    def kind(self) -> str:
        """What the extension promises, as it reads after "not" in an error: ``"a JSON document"``."""

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Turn bytes into a value that does not look into them if they are a view."""

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Turn a value that is not bytes already into bytes, the same bytes for the same value."""

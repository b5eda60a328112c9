"""Decode and encode one field: the border where foreign exceptions become Shoal's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.errors import DecodeError, EncodeError, ShoalError
from shoal.shards.codecs._codec import Codec, Data
from shoal.shards.codecs._gzip import GzipCodec
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._table import codec_for

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["decode", "decode_with", "encode", "open_picture"]


def decode(field: str, data: Data, options: DecodeOptions | None = None) -> Any:
    """Turn the bytes of a field into its value, by the field's extension; unknown extensions give bytes.

    Raises DecodeError where the bytes are not what the extension says, TrustError where decoding could run code and
    ``options.trust`` is not set, and MissingExtraError where a library is not installed.

    >>> decode("cls", b"7"), decode("info.json", memoryview(b"[1, 2]")), decode("xyz", b"raw")
    (7, [1, 2], b'raw')
    """
    return decode_with(codec_for(field), field, data, DecodeOptions() if options is None else options)


def decode_with(codec: Codec, field: str, data: Data, options: DecodeOptions) -> Any:
    """Do what `decode` does, with a codec that is known already."""
    try:
        return codec.decode(data, options)
    except DecodeError as error:
        error.field = field
        raise
    except ShoalError:
        raise
    except Exception as error:  # hostile bytes bring any exception out of a parser, and all mean the same
        raise _decode_error(field, data, codec, error) from error


def open_picture(field: str, data: Data, max_pixels: int | None = None) -> Image:
    """Read the header of a picture: a Pillow image that has its size and mode, and decodes its pixels when asked.

    Only formats that are known to be safe are opened, by their first bytes, and none with more pixels than the
    setting allows.

    >>> open_picture("pgm", b"P5 2 3 255\\n" + bytes(6)).size
    (2, 3)
    """
    from shoal.shards.codecs import _pillow

    limit = DecodeOptions().max_pixels if max_pixels is None else max_pixels
    try:
        return _pillow.open_(data, limit)
    except DecodeError as error:
        error.field = field
        raise
    except Exception as error:
        raise _decode_error(field, data, codec_for("png"), error) from error


def encode(field: str, value: Any, options: EncodeOptions | None = None) -> bytes:
    """Turn a value into the bytes of a field, by the field's extension; equal values give equal bytes.

    Bytes pass as they are under any name, so that what was not decoded can be written again; only a ``.gz`` field is
    compressed where its bytes are not gzip yet. Raises EncodeError where the extension cannot hold the value.

    >>> encode("cls", 7), encode("txt", "seven"), encode("xyz", b"raw")
    (b'7', b'seven', b'raw')
    """
    codec = codec_for(field)
    if isinstance(value, bytes | bytearray | memoryview) and not isinstance(codec, GzipCodec):
        return bytes(value)
    try:
        return codec.encode(value, EncodeOptions() if options is None else options)
    except EncodeError as error:
        error.field = field
        raise
    except ShoalError:
        raise
    except Exception as error:
        message = f"a value of type {type(value).__name__} cannot be written as {codec.kind}: {_describe(error)}"
        raise EncodeError(message, field=field) from error


def _decode_error(field: str, data: Data, codec: Codec, error: Exception) -> DecodeError:
    head = bytes(data[:16])
    seen = f"{len(data)} bytes that begin with {head!r}" if head else "no bytes at all"
    return DecodeError(f"expected {codec.kind}, found {seen} ({_describe(error)})", field=field)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")[:300]

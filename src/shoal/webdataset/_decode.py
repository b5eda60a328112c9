"""Fields into values: a row of handlers, each of which knows some extensions.

A handler is a function of ``"." + field`` and the bytes. It gives a value, None to leave the field to the next one, or
`Continue` to hand a changed name and changed bytes on to the next one. What nobody decodes stays bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from shoal.errors import DecodeError, SampleError, ShoalError
from shoal.webdataset._filters import map as mapped
from shoal.webdataset._formats import BasicHandler, Continue, ImageHandler, gzfilter
from shoal.webdataset._handlers import Handler, reraise_exception
from shoal.webdataset._stage import Stage

__all__ = ["Decoder", "DecodingError", "FieldHandler", "decode", "handle_extension"]

FieldHandler: TypeAlias = Callable[[str, bytes], Any]


class DecodingError(DecodeError):
    """A field could not be decoded: field ``k`` of sample ``key`` in shard ``url``.

    >>> DecodingError("not a picture", url="a.tar", key="dog", k="png").k
    'png'
    """

    def __init__(self, message: str, *, url: str | None = None, key: str | None = None, k: str | None = None) -> None:
        super().__init__(message, key=key, field=k, shard=url)

    @property
    def url(self) -> str | None:
        """The shard."""
        return self.shard

    @property
    def k(self) -> str | None:
        """The field."""
        return self.field


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the fields of a sample with the first handler that knows them.

    >>> Decoder((BasicHandler(),))({"__key__": "a", "cls": b"7", "xyz": b"raw"})
    {'__key__': 'a', 'cls': 7, 'xyz': b'raw'}
    """

    handlers: tuple[FieldHandler, ...]
    only: frozenset[str] | None = None
    """The fields to decode; None for all."""
    partial: bool = False
    """Whether fields that are not bytes (any more) are left as they are."""

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        decoded = dict(sample)
        for name, data in sample.items():
            if name.startswith("__") or (self.only is not None and name not in self.only):
                continue
            if isinstance(data, bytes):
                decoded[name] = self._field(sample, name, data)
            elif not self.partial:
                text = f"it is a {type(data).__name__}, not bytes: is it decoded already? partial=True leaves it alone"
                raise DecodingError(text, url=sample.get("__url__"), key=sample.get("__key__"), k=name)
        return decoded

    def _field(self, sample: dict[str, Any], name: str, data: bytes) -> Any:
        key = f".{name}"
        try:
            for handler in self.handlers:
                result = handler(key, data)
                if isinstance(result, Continue):
                    key, data = result.key, result.data
                elif result is not None:
                    return result
            return data
        except Exception as error:
            if isinstance(error, ShoalError) and not isinstance(error, SampleError):
                raise
            text = error.args[0] if isinstance(error, SampleError) else f"{type(error).__name__}: {error}"
            raise DecodingError(text, url=sample.get("__url__"), key=sample.get("__key__"), k=name) from error


def decode(
    *handlers: str | FieldHandler,
    pre: Collection[FieldHandler] | None = None,
    post: Collection[FieldHandler] | None = None,
    only: str | Collection[str] | None = None,
    partial: bool = False,
    handler: Handler = reraise_exception,
    trust: bool = False,
) -> Stage:
    """Decode fields with these handlers; a word such as ``"pil"`` or ``"torchrgb8"`` says what pictures become.

    Before them goes ``pre`` (by default what undoes ``.gz``), after them ``post`` (by default numbers, text, json,
    arrays; and pickles with ``trust``).

    >>> list(decode()([{"__key__": "a", "cls": b"7", "txt": b"seven"}]))
    [{'__key__': 'a', 'cls': 7, 'txt': 'seven'}]
    """
    first = [gzfilter] if pre is None else list(pre)
    own = [ImageHandler(given) if isinstance(given, str) else given for given in handlers]
    last: list[FieldHandler] = [BasicHandler(trust)] if post is None else list(post)
    fields = only.split() if isinstance(only, str) else only
    chosen = None if fields is None else frozenset(fields)
    return mapped(Decoder((*first, *own, *last), chosen, partial), handler)


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> FieldHandler:
    """Make a handler that calls a function on the fields with one of these extensions.

    ``"jpg jpeg"`` are two, and ``"seg.png"`` is only what ends in both parts.

    >>> handler = handle_extension("jpg seg.png", len)
    >>> handler(".JPG", b"abc"), handler(".left.seg.png", b"abc"), handler(".png", b"abc")
    (3, 3, None)
    """
    endings = tuple(f".{extension.lower()}" for extension in extensions.split())
    return partial(_by_extension, endings=endings, function=f)


def _by_extension(key: str, data: bytes, endings: tuple[str, ...], function: Callable[[bytes], Any]) -> Any:
    return function(data) if f".{key.lower()}".endswith(endings) else None

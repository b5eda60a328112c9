"""Decoding as the first WebDataset did it: the whole sample at once, by the last extension of each field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shoal.errors import DecodeError, MissingFieldError, PlanError, SampleError
from shoal.shards.codecs import DecodeOptions, decode, extension
from shoal.webdataset._formats import BASIC, is_picture
from shoal.webdataset._trust import trusted

__all__ = ["SampleDecoder", "sample_decoder", "unpacked"]

#: Numbers, which are left as bytes where they are none.
_INTEGERS = frozenset({"cls", "cls2", "class", "count", "index", "inx", "id"})
_KNOWN = BASIC - {"pkl", "pth"}


def sample_decoder(spec: Any, trust: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Make the function that decodes samples from what was given as ``decoder``.

    >>> sample_decoder({"cls": int}, trust=False)({"__key__": "a", "cls": b"7", "txt": b"seven"})
    {'__key__': 'a', 'cls': 7, 'txt': b'seven'}
    """
    if spec is True or isinstance(spec, str):
        return SampleDecoder("rgb" if spec is True else spec, trust)
    if isinstance(spec, Mapping):
        return partial(_by_own_functions, functions=dict(spec))
    if callable(spec):
        return spec  # type: ignore[no-any-return]
    raise PlanError(f"decoder={spec!r}; it is a kind of picture, a dict of functions, a function, or None")


class SampleDecoder:
    """Decodes all fields of a sample: pictures, numbers, text, documents, arrays; the rest stays bytes.

    >>> SampleDecoder("rgb", trust=False)({"__key__": "a", "cls": b"7", "id": b"n02084071"})
    {'__key__': 'a', 'cls': 7, 'id': b'n02084071'}
    """

    def __init__(self, images: str, trust: bool) -> None:
        self._options = DecodeOptions(images=images, trust=trusted(trust))

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        try:
            return {name: self._value(name, value) for name, value in sample.items()}
        except SampleError as error:
            error.key = sample.get("__key__")
            raise

    def _value(self, name: str, value: Any) -> Any:
        if not isinstance(value, bytes):
            return value
        if name.startswith("_"):
            return value.decode()
        kind = extension(name.removesuffix(".gz"))
        if kind in _INTEGERS:
            try:
                return decode(name, value, self._options)
            except DecodeError:
                return value
        return decode(name, value, self._options) if kind in _KNOWN or is_picture(kind) else value


def unpacked(sample: dict[str, Any], container: str, options: DecodeOptions) -> Any:
    """Make a sample of the one file that holds all of it: a dict, or for ``ten`` a tuple of arrays.

    >>> unpacked({"__key__": "a", "json": b'{"x": 1}'}, "json", DecodeOptions())
    {'__key__': 'a', 'x': 1}
    """
    key = sample["__key__"]
    if container not in sample:
        raise MissingFieldError("the container is not there", key=key, field=container)
    value = decode(container, sample[container], options)
    if container == "ten":
        return tuple(value)
    if not isinstance(value, dict):
        raise SampleError(f"a sample is a dict, not a {type(value).__name__}", key=key, field=container)
    return {"__key__": key, **value}


def _by_own_functions(sample: dict[str, Any], functions: Mapping[str, Callable[[bytes], Any]]) -> dict[str, Any]:
    return {name: _own(name, value, functions) for name, value in sample.items()}


def _own(name: str, value: Any, functions: Mapping[str, Callable[[bytes], Any]]) -> Any:
    function = functions.get(name) or functions.get(extension(name))
    return value if function is None or not isinstance(value, bytes) else function(value)

"""Stages that choose fields by shell patterns, matched against the name and against a dot and the name."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from typing import Any, TypeAlias

from shoal.errors import DecodeError, SampleError, ShoalError
from shoal.shards.codecs import DecodeOptions, decode
from shoal.webdataset._handlers import Handler, reraise_exception
from shoal.webdataset._stage import Stage, each
from shoal.webdataset._trust import trusted

__all__ = ["extract_keys", "rename_keys", "xdecode"]

StreamDecoder: TypeAlias = Callable[[io.BytesIO], Any]


def extract_keys(
    *patterns: str | Sequence[str],
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
    handler: Handler = reraise_exception,
) -> Stage:
    """Turn dicts into tuples of the fields that match; ``"*.png;*.jpg"`` is one place with two patterns.

    >>> list(extract_keys("*.seg.png", "*.cls")([{"x.seg.png": "mask", "cls": 1}]))
    [('mask', 1)]
    """
    places = tuple(tuple(place.split(";") if isinstance(place, str) else place) for place in patterns)
    extract = partial(_extract, places=places, duplicate_is_error=duplicate_is_error, ignore_missing=ignore_missing)
    return partial(each, f=extract, handler=handler)


def _extract(
    sample: dict[str, Any], places: tuple[tuple[str, ...], ...], duplicate_is_error: bool, ignore_missing: bool
) -> tuple[Any, ...]:
    values = []
    for patterns in places:
        found = [name for name in sample if any(_matches(name, pattern) for pattern in patterns)]
        if len(found) > 1 and duplicate_is_error:
            raise _complaint(sample, f"{found} all match {patterns}")
        if not found and not ignore_missing:
            raise _complaint(sample, f"nothing in {sorted(sample)} matches {patterns}")
        values += [sample[name] for name in found[:1]]
    return tuple(values)


def rename_keys(
    *pairs: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **names: str,
) -> Stage:
    """Give the fields that match a pattern a new name: ``("image", "*.jpg")`` or ``image="*.jpg"``.

    >>> list(rename_keys(image="*.jpg")([{"left.jpg": "picture", "cls": 1}]))
    [{'image': 'picture'}]
    """
    rename = partial(
        _rename,
        pairs=(*pairs, *names.items()),
        keep_unselected=keep_unselected,
        must_match=must_match,
        duplicate_is_error=duplicate_is_error,
    )
    return partial(each, f=rename, handler=reraise_exception)


def _rename(
    sample: dict[str, Any],
    pairs: tuple[tuple[str, str], ...],
    keep_unselected: bool,
    must_match: bool,
    duplicate_is_error: bool,
) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    matched = set()
    for name, value in sample.items():
        hits = [(new, pattern) for new, pattern in pairs if _matches(name, pattern)]
        matched |= {pattern for _, pattern in hits}
        for new in [hits[0][0]] if hits else [name] if keep_unselected else []:
            if new in renamed and duplicate_is_error:
                raise _complaint(sample, f"more than one field would be called {new!r}")
            renamed[new] = value
    missed = [pattern for _, pattern in pairs if pattern not in matched]
    if must_match and missed:
        raise _complaint(sample, f"nothing in {sorted(sample)} matches {missed}")
    return renamed


def xdecode(
    *pairs: tuple[str, StreamDecoder],
    must_decode: bool = True,
    defaults: Mapping[str, StreamDecoder] | None = None,
    handler: Handler = reraise_exception,
    trust: bool = False,
    **functions: StreamDecoder,
) -> Stage:
    """Decode fields with functions that read a stream, chosen by pattern; the last that matches decides.

    Without ``defaults`` of one's own, ``*.bin`` gives bytes, ``*.txt`` text and, with ``trust``, ``*.pyd`` an object.

    >>> list(xdecode(cls=lambda stream: int(stream.read()))([{"__key__": "a", "cls": b"7", "txt": b"seven"}]))
    [{'__key__': 'a', 'cls': 7, 'txt': 'seven'}]
    """
    default = {f"*.{name}": _Plain(name, trust) for name in ("bin", "txt", "pyd")} if defaults is None else defaults
    decoders = (*default.items(), *pairs, *((f"*.{name}", function) for name, function in functions.items()))
    return partial(each, f=partial(_xdecode, decoders=decoders, must_decode=must_decode), handler=handler)


def _xdecode(
    sample: dict[str, Any], decoders: tuple[tuple[str, StreamDecoder], ...], must_decode: bool
) -> dict[str, Any]:
    decoded = dict(sample)
    for name, data in sample.items():
        if name.startswith("__"):
            continue
        decoder = next((function for pattern, function in reversed(decoders) if _matches(name, pattern)), None)
        if decoder is None and must_decode:
            raise _complaint(sample, f"there is no decoder for {name!r}; add one, or pass must_decode=False")
        if decoder is not None:
            decoded[name] = _decoded(sample, name, decoder, data)
    return decoded


def _decoded(sample: dict[str, Any], name: str, decoder: StreamDecoder, data: bytes) -> Any:
    try:
        return decoder(io.BytesIO(data))
    except ShoalError:
        raise
    except Exception as error:
        text = f"its decoder failed: {type(error).__name__}: {error}"
        raise DecodeError(text, key=sample.get("__key__"), field=name, shard=sample.get("__url__")) from error


class _Plain:
    """Reads a stream as a field with this extension is read."""

    def __init__(self, extension: str, trust: bool) -> None:
        self._extension = extension
        self._options = DecodeOptions(trust=trusted(trust))

    def __call__(self, stream: io.BytesIO) -> Any:
        return decode(self._extension, stream.read(), self._options)


def _matches(name: str, pattern: str) -> bool:
    return fnmatch(name, pattern) or fnmatch(f".{name}", pattern)


def _complaint(sample: dict[str, Any], text: str) -> SampleError:
    return SampleError(text, key=sample.get("__key__"), shard=sample.get("__url__"))

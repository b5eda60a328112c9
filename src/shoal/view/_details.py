"""One sample with all its fields, each described so that a page can draw it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.abc import Sample
from shoal.errors import MissingExtraError, SampleError
from shoal.shards.codecs import DecodeOptions
from shoal.view._cells import decimated
from shoal.view._looks import Look, as_json, fields_of, look_of, plain
from shoal.view._pictures import header
from shoal.view._sound import sound_of

__all__ = ["described", "details_of", "is_like_a_picture"]

_LETTERS = 50_000
_BYTES = 512
_POINTS = 480
_PEAKS = 400
_NUMBERS = 24
_COLOURS = (1, 3, 4)
_SMALLEST = 8


def details_of(sample: Sample, options: DecodeOptions) -> list[dict[str, Any]]:
    """Describe all fields of a sample."""
    return [described(look_of(name, sample[name], options)) for name in fields_of(sample)]


def described(look: Look) -> dict[str, Any]:
    """Describe a field; one that cannot be decoded says why, and shows its bytes.

    >>> described(look_of("cls", b"7", DecodeOptions()))
    {'name': 'cls', 'kind': 'number', 'size': 1, 'mask': False, 'text': '7'}
    """
    told: dict[str, Any] = {"name": look.name, "kind": look.kind, "size": look.size, "mask": look.is_mask}
    try:
        return told | _DESCRIBE[look.kind](look)
    except (SampleError, MissingExtraError) as error:
        problem = str(error.args[0] if error.args else error)
        return told | {"kind": "broken", "mask": False, "problem": problem, **_hex(look)}


def is_like_a_picture(array: NDArray[Any]) -> bool:
    """Tell whether an array has rows, columns and colours, as pictures have.

    >>> is_like_a_picture(np.zeros((32, 32, 3), np.uint8)), is_like_a_picture(np.zeros((4, 5)))
    (True, False)
    """
    if array.dtype.kind not in "uif" or not array.size:
        return False
    if array.ndim == 2:
        return array.dtype == np.uint8 and min(array.shape) >= _SMALLEST
    if array.ndim != 3 or sorted(array.shape)[1] < _SMALLEST:
        return False
    return array.shape[-1] in _COLOURS or array.shape[0] in _COLOURS


def _picture(look: Look) -> dict[str, Any]:
    width, height, form, mode = header(look.name, look.value)
    return {"width": width, "height": height, "format": form, "mode": mode}


def _sound(look: Look) -> dict[str, Any]:
    sound = sound_of(look.name, look.value)
    facts = {"seconds": sound.seconds, "rate": sound.rate, "channels": sound.channels}
    return {**facts, "peaks": sound.peaks(_PEAKS)}


def _text(look: Look) -> dict[str, Any]:
    return {"text": plain(look.value[:_LETTERS]), "whole": len(look.value) <= _LETTERS, "letters": len(look.value)}


def _json(look: Look) -> dict[str, Any]:
    value, whole = as_json(look.value, _LETTERS)
    return {"value": value, "whole": whole}


def _number(look: Look) -> dict[str, Any]:
    return {"text": str(plain(look.value))}


def _array(look: Look) -> dict[str, Any]:
    array = look.value
    told: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype), "draw": "values"}
    if array.dtype.kind not in "iufb" or not array.size:
        return told | {"text": str(plain(array.ravel()[:_NUMBERS]))}
    with np.errstate(all="ignore"):
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if finite.size:
        told |= {"least": plain(finite.min()), "greatest": plain(finite.max()), "mean": plain(float(finite.mean()))}
    told["odd"] = int(array.size - finite.size)
    if is_like_a_picture(array):
        return told | {"draw": "picture"}
    if array.ndim == 1:
        return told | {"draw": "line", "points": decimated(array, _POINTS), "first": plain(array[:_NUMBERS])}
    return told | {"draw": "heat"}


def _hex(look: Look) -> dict[str, Any]:
    return {"hex": bytes(look.value[:_BYTES]).hex() if isinstance(look.value, bytes | memoryview) else ""}


def _broken(look: Look) -> dict[str, Any]:
    return {"problem": look.problem, **_hex(look)}


def _nothing(look: Look) -> dict[str, Any]:
    return {}


_DESCRIBE = {
    "picture": _picture,
    "sound": _sound,
    "video": _nothing,
    "text": _text,
    "json": _json,
    "number": _number,
    "array": _array,
    "bytes": _hex,
    "broken": _broken,
    "none": _nothing,
}

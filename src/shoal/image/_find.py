"""Which field of a sample is the picture, and what its pixels are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shoal.abc import Sample
from shoal.errors import MissingFieldError, SampleError
from shoal.shards.codecs import is_picture
from shoal.shards.codecs.regions import rgb_pixels

__all__ = ["find_picture", "pixels_of"]


def find_picture(sample: Sample, names: tuple[str, ...]) -> str:
    """Name the field that holds the picture: the first of ``names`` that is there, or the only picture there is."""
    if names:
        for name in names:
            if name in sample:
                return name
        raise MissingFieldError(f"the sample has no such field; it has {_fields(sample)}", field=";".join(names))
    found = [name for name in sample if is_picture(name) and not name.startswith("__")]
    if not found:
        found = [name for name, value in sample.items() if _looks_like_a_picture(value)]
    if len(found) == 1:
        return found[0]
    if found:
        raise SampleError(f"which picture is meant? There are {', '.join(found)}; name one: field={found[0]!r}")
    raise SampleError(f"the sample has no picture; it has {_fields(sample)}. Name the field it is in: field=...")


def pixels_of(value: Any, field: str) -> NDArray[np.uint8]:
    """Give the pixels (height, width, 3) of a picture that was decoded before."""
    if isinstance(value, Image.Image):
        return rgb_pixels(value)
    if not isinstance(value, np.ndarray):
        kind = type(value).__name__
        raise SampleError(f"a picture is bytes, a PIL image or a uint8 array, not {kind}", field=field)
    if not _is_picture_shape(value):
        seen = f"{value.dtype} {value.shape}"
        raise SampleError(f"a picture is a uint8 array (height, width) or (height, width, 3), not {seen}", field=field)
    if value.ndim == 2:
        value = value[:, :, None]
    return value[:, :, :3] if value.shape[2] >= 3 else np.repeat(value, 3, axis=2)


def _looks_like_a_picture(value: Any) -> bool:
    return isinstance(value, Image.Image) or (isinstance(value, np.ndarray) and _is_picture_shape(value))


def _is_picture_shape(array: NDArray[Any]) -> bool:
    shaped = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
    return array.dtype == np.uint8 and shaped and 0 not in array.shape


def _fields(sample: Sample) -> str:
    return ", ".join(sorted(name for name in sample if name != "__key__")) or "none at all"

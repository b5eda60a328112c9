"""What becomes of a stored value: the features of a dataset, as far as they ask for decoding.

Features are taken as their description in JSON, which lies in every Parquet file that ``datasets`` writes; so who reads
such files, and his workers, need no ``datasets``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal._optional import require
from shoal.errors import DecodeError, UrlError
from shoal.files import open_read
from shoal.shards.codecs import DecodeOptions, decode

__all__ = ["Form", "forms_of"]


class Form(Protocol):
    """How a value is decoded."""

    def decoded(self, value: Any, name: str, options: DecodeOptions) -> Any:
        """Decode a value that is there, and has this name in messages."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, in the form that the options name; the mode of the feature is not asked."""

    def decoded(self, value: Any, name: str, options: DecodeOptions) -> Any:
        """Decode the file."""
        return _decoded("image", value, name, options)


@dataclass(frozen=True, slots=True)
class Sound:
    """Sound as a dict of ``path``, ``array`` and ``sampling_rate``; several channels come first in the array."""

    rate: int | None = None
    """The sampling rate that the feature asks for; None for the one of the file."""
    channels: int | None = 1
    """1 for the mean of all, None for all, or how many there must be; one alone is repeated for them."""

    def decoded(self, value: Any, name: str, options: DecodeOptions) -> dict[str, Any]:
        """Decode the file."""
        found = _decoded("wav", value, name, options)
        array = self._mixed(found["array"].T, name)
        rate = self.rate or found["sampling_rate"]
        return {
            "path": value["path"],
            "array": _resampled(array, found["sampling_rate"], rate),
            "sampling_rate": rate,
        }

    def _mixed(self, array: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        count = 1 if array.ndim == 1 else len(array)
        if self.channels is None or (count == 1 and self.channels == 1):
            return np.ascontiguousarray(array)
        if self.channels == 1:
            return np.asarray(array.mean(axis=0, dtype=np.float32))
        if count not in (1, self.channels):
            text = f"the sound has {count} channels, and the feature asks for {self.channels}"
            raise DecodeError(f"{text}; cast it to Audio(num_channels=1), which mixes them", field=name)
        return np.repeat(array[np.newaxis], self.channels, axis=0) if count == 1 else np.ascontiguousarray(array)


@dataclass(frozen=True, slots=True)
class Shaped:
    """Numbers in several dimensions."""

    dtype: str

    def decoded(self, value: Any, name: str, options: DecodeOptions) -> NDArray[Any]:
        """Put nested lists into one array."""
        return np.array(value, self.dtype)


@dataclass(frozen=True, slots=True)
class Each:
    """A list, all values of which have the same form."""

    form: Form

    def decoded(self, value: Any, name: str, options: DecodeOptions) -> list[Any]:
        """Decode all of them."""
        pairs = enumerate(value)
        return [None if one is None else self.form.decoded(one, f"{name}[{at}]", options) for at, one in pairs]


@dataclass(frozen=True, slots=True)
class Fields:
    """A dict, some values of which have a form."""

    forms: Mapping[str, Form]

    def decoded(self, value: Any, name: str, options: DecodeOptions) -> dict[str, Any]:
        """Decode those."""
        made = dict(value)
        for field, form in self.forms.items():
            if made.get(field) is not None:
                made[field] = form.decoded(made[field], f"{name}.{field}", options)
        return made


def forms_of(description: Mapping[str, Any]) -> dict[str, Form]:
    """Find the columns that are to be decoded, by the description of all features.

    >>> forms_of({"photo": {"_type": "Image"}, "raw": {"decode": False, "_type": "Image"}, "n": {"_type": "Value"}})
    {'photo': Picture()}
    """
    forms = {name: _form(feature) for name, feature in description.items()}
    return {name: form for name, form in forms.items() if form is not None}


def _form(feature: Any) -> Form | None:
    if isinstance(feature, list | tuple):  # as old versions write a list
        return _each(feature[0])
    kind = feature.get("_type")
    if not isinstance(kind, str):
        inner = forms_of(feature)
        return Fields(inner) if inner else None
    if kind == "Sequence" and "_type" not in feature["feature"] and isinstance(feature["feature"], Mapping):
        inner = {name: Each(form) for name, form in forms_of(feature["feature"]).items()}
        return Fields(inner) if inner else None  # old versions store lists of dicts as dicts of lists
    if kind in ("List", "LargeList", "Sequence"):
        return _each(feature["feature"])
    if kind.startswith("Array") and "shape" in feature:
        return Shaped(feature["dtype"])
    if not feature.get("decode", True):
        return None
    return Picture() if kind == "Image" else _sound(feature) if kind == "Audio" else None


def _each(feature: Any) -> Each | None:
    form = _form(feature)
    return None if form is None else Each(form)


def _sound(feature: Mapping[str, Any]) -> Sound:
    channels = feature.get("num_channels") or (1 if feature.get("mono", True) else None)
    return Sound(feature.get("sampling_rate"), channels)


def _decoded(extension: str, value: Mapping[str, Any], name: str, options: DecodeOptions) -> Any:
    try:
        return decode(extension, _content(value), options)
    except DecodeError as error:
        error.field = name
        raise


def _content(value: Mapping[str, Any]) -> bytes:
    content, path = value.get("bytes"), value.get("path")
    if content is not None:
        return bytes(content)
    if path is None:
        raise DecodeError("it has neither bytes nor the path of a file")
    try:
        with open_read(path) as file:
            return file.read()
    except UrlError as error:
        text = f"its bytes are in another file, which cannot be read: {error}"
        raise DecodeError(f"{text}; export_parquet embeds such files while they are there") from error


def _resampled(array: NDArray[np.float32], given: int, wanted: int) -> NDArray[np.float32]:
    if given == wanted:
        return array
    signal = require("scipy.signal", f"resampling sound from {given} to {wanted} samples a second")
    shared = math.gcd(given, wanted)
    made: NDArray[np.float32] = signal.resample_poly(array, wanted // shared, given // shared, axis=-1)
    return made.astype(np.float32, copy=False)

"""What a value is to somebody who looks at it: a picture, sound, text, a number, an array, or just bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal._optional import tensor_library
from shoal.abc import Sample
from shoal.errors import MissingExtraError, SampleError, TrustError
from shoal.shards.codecs import DecodeOptions, codec_for, decode, extension, is_picture
from shoal.view._pictures import is_picture_file
from shoal.view._sound import is_sound

__all__ = ["Look", "Problem", "as_array", "as_json", "fields_of", "label_of", "look_of", "plain", "values_of"]

_SOUND = ("wav", "flac", "ogg", "mp3")
_VIDEO = ("mp4", "mov", "mkv", "webm", "avi")
#: The greatest number up to which a browser knows each.
_EXACT = 2**53
_MASKS = ("mask", "seg", "label", "annot", "matte")


@dataclass(frozen=True, slots=True)
class Look:
    """A field of a sample, as far as is known without decoding pictures and sound."""

    name: str
    kind: str
    """``picture``, ``sound``, ``video``, ``text``, ``json``, ``number``, ``array``, ``bytes``, ``none``, ``broken``."""
    value: Any = field(repr=False)
    """Decoded, but for pictures, sound and video."""
    size: int | None = None
    """Bytes, where it has any."""
    problem: str = ""

    @property
    def is_mask(self) -> bool:
        """Whether it may be laid over a picture."""
        named = any(part in self.name.lower() for part in _MASKS)
        if self.kind == "array":
            return isinstance(self.value, np.ndarray) and self.value.ndim == 2 and self.value.dtype.kind in "iub"
        return self.kind == "picture" and named


@dataclass(frozen=True, slots=True)
class Problem:
    """Stands where there would be a value, had nothing gone wrong."""

    text: str


def fields_of(sample: Sample) -> list[str]:
    """Name the fields of a sample, without what is told about it."""
    return [name for name in sample if not name.startswith("__")]


def look_of(name: str, value: Any, options: DecodeOptions) -> Look:
    """Tell what a field is; its bytes are decoded by its name where that is cheap.

    >>> look_of("cls", b"7", DecodeOptions()).value, look_of("jpg", b"", DecodeOptions()).kind
    (7, 'picture')
    """
    if isinstance(value, Problem):
        return Look(name, "broken", b"", None, value.text)
    value = as_array(value)
    if isinstance(value, Mapping) and isinstance(value.get("bytes"), bytes | memoryview):
        value = value["bytes"]  # as files are kept in tables
    if isinstance(value, bytes | memoryview):
        return _look_of_bytes(name, value, options)
    return Look(name, _kind(value), value, _size(value))


def as_array(value: Any) -> Any:
    """Make an array of tensors and of pictures that Pillow holds; anything else stays what it is."""
    if tensor_library(value):
        return np.asarray(value.cpu() if hasattr(value, "cpu") else value)
    return np.asarray(value) if type(value).__module__.startswith("PIL.") else value


def _look_of_bytes(name: str, data: bytes | memoryview, options: DecodeOptions) -> Look:
    size, end = len(data), extension(name)
    if is_picture(name) or is_picture_file(data):
        return Look(name, "picture", data, size)
    if end in _SOUND or is_sound(data):
        return Look(name, "sound", data, size)
    if end in _VIDEO:
        return Look(name, "video", data, size)
    try:
        value = decode(name, data, options)
    except (SampleError, TrustError, MissingExtraError) as error:
        return Look(name, "broken", data, size, str(error.args[0] if error.args else error))
    if isinstance(value, bytes):
        return Look(name, "bytes", value, size)
    if "picture" in codec_for(name).kind:  # behind a .gz
        return Look(name, "array", np.asarray(value), size)
    return Look(name, _kind(value), value, size)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "none"
        case str():
            return "text"
        case bool() | int() | float() | np.generic():
            return "number"
        case np.ndarray():
            return "number" if value.ndim == 0 else "array"
        case {"array": _, "sampling_rate": _}:
            return "sound"
        case bytes() | memoryview():
            return "bytes"
    return "json"


def _size(value: Any) -> int | None:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    return int(value.nbytes) if isinstance(value, np.ndarray) else None


def label_of(value: Any) -> str:
    """Write a class as a word; bytes are read as text.

    >>> label_of(b"cat"), label_of(np.int64(3)), label_of(1.0)
    ('cat', '3', '1')
    """
    if isinstance(value, bytes | memoryview):
        return bytes(value[:200]).decode("utf-8", "backslashreplace").strip()
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)[:200]


def values_of(sample: Sample, names: frozenset[str] | set[str], options: DecodeOptions) -> dict[str, Any]:
    """Decode those fields that some names begin with: what a condition looks at."""
    found = {}
    for name in fields_of(sample):
        if any(asked == name or asked.startswith(f"{name}.") for asked in names):
            look = look_of(name, sample[name], options)
            if look.kind not in ("broken", "none"):
                found[name] = bytes(look.value) if isinstance(look.value, memoryview) else look.value
    return found


def plain(value: Any, depth: int = 8) -> Any:
    """Give a value as JSON has it: arrays as lists, bytes by their length, numbers that are none as text."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > _EXACT:
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes | memoryview):
        return f"<{len(value)} bytes>"
    if depth == 0:
        return "..."
    if isinstance(value, Mapping):
        return {str(name): plain(inner, depth - 1) for name, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(inner, depth - 1) for inner in value]
    return str(value)


def as_json(value: Any, most: int) -> tuple[Any, bool]:
    """Give a value for JSON, or the beginning of its text if it is long; tells whether it is whole."""
    made = plain(value)
    text = json.dumps(made)
    return (made, True) if len(text) <= most else (text[:most], False)

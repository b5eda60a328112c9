"""What becomes of a field on its way: bytes and values, and the names that tell them apart in a tar."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from shoal.abc import Sample
from shoal.errors import EncodeError, SampleError
from shoal.shards import FileField
from shoal.shards.codecs import decode, extension, is_picture

__all__ = [
    "SETTLING",
    "SETTLING_BYTES",
    "as_tar",
    "as_values",
    "beginning",
    "content",
    "is_sound",
    "single_values",
    "size_of",
]

#: Samples, and bytes of them, that are looked at before it is settled what columns or features are.
SETTLING, SETTLING_BYTES = 10_000, 32 * 2**20

#: Extensions whose values a table can hold, beside pictures and sound, which it holds as files.
_WHOLE = {"cls", "cls2", "class", "count", "index", "inx", "id"}
_TEXT = {"txt", "text", "transcript", "html", "htm", "json", "jsn"}
_SOUND = {"wav", "flac", "ogg", "mp3"}


def as_values(sample: Sample) -> Sample:
    """Turn the bytes of known fields into what a table has: numbers, text, arrays, pictures and sound as files.

    >>> as_values({"__key__": "a", "cls": b"7", "txt": b"seven", "bin": b"7"})
    {'__key__': 'a', 'cls': 7, 'txt': 'seven', 'bin': b'7'}
    """
    key = sample["__key__"]
    return {name: _value(key, name, value) for name, value in sample.items()}


def as_tar(sample: Sample) -> Sample:
    """Name fields so that a tar can hold them: what is not bytes gets the extension of its kind.

    >>> as_tar({"__key__": "a", "cls": 7, "label": 7, "image/encoded": b"x", "score": 0.5, "note": None})
    {'__key__': 'a', 'cls': 7, 'label.cls': 7, 'image.encoded': b'x', 'score.json': 0.5}
    """
    made: Sample = {"__key__": sample["__key__"]}
    for name, value in sample.items():
        value = _array(name, value if isinstance(value, FileField) else content(value))
        if value is None or name == "__key__":
            continue
        field = _named(name.replace("/", ".").lower(), value)
        if field in made:
            raise EncodeError("two fields would have this name in a tar", key=sample["__key__"], field=field)
        made[field] = _plain(sample["__key__"], field, value)
    return made


def single_values(samples: Iterator[Sample]) -> Iterator[Sample]:
    """Take values out of the lists that examples have around them.

    A feature that has one value in all of the first examples is that value; others stay lists, however long.

    >>> [sample["n"] for sample in single_values(iter([{"__key__": "a", "n": [3]}, {"__key__": "b", "n": [5]}]))]
    [3, 5]
    """
    first = beginning(samples)
    fields = {(name, _is_one(value)) for sample in first for name, value in sample.items() if name != "__key__"}
    many = {name for name, one in fields if not one} | {"__key__"}
    for sample in chain(first, samples):
        yield {name: value if name in many or not _is_one(value) else _item(value) for name, value in sample.items()}


def beginning(samples: Iterator[Sample]) -> list[Sample]:
    """Take the first samples: as many as settle what the others are like, and as memory has room for."""
    taken: list[Sample] = []
    held = 0
    while len(taken) < SETTLING and held < SETTLING_BYTES and (sample := next(samples, None)) is not None:
        taken.append(sample)
        held += sum(map(size_of, sample.values()))
    return taken


def size_of(value: Any) -> int:
    """Count the bytes of a value, about.

    >>> size_of(b"12345"), size_of([b"12", b"345"]), size_of(7)
    (5, 5, 8)
    """
    if isinstance(value, list):
        return sum(map(size_of, value))
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    found = value.get("bytes") if isinstance(value, dict) else value
    return len(found) if isinstance(found, bytes | str | FileField) else 8


def content(value: Any) -> Any:
    """Give the bytes of a file that a field stands for; what is no file is given back as it is.

    >>> content({"bytes": b"picture", "path": None}), content(7)
    (b'picture', 7)
    """
    if isinstance(value, FileField):
        return b"".join(value.pieces())
    return value["bytes"] if _is_file(value) else value


def is_sound(field: str) -> bool:
    """Tell whether the extension of a field promises sound."""
    return extension(field) in _SOUND


def _value(key: str, name: str, value: Any) -> Any:
    kind, value = extension(name), content(value)
    if not isinstance(value, bytes) or name == "__key__":
        return value
    if is_picture(name) or is_sound(name):
        return {"bytes": value, "path": None}
    if kind not in _WHOLE | _TEXT | {"npy"}:
        return value
    try:
        # Documents differ from sample to sample, and a column is of one type: they stay text.
        return decode("txt" if kind in _TEXT else name, value)
    except SampleError as error:
        error.key = key
        raise


def _item(values: Any) -> Any:
    return values[0].item() if isinstance(values, np.ndarray) else values[0]


def _is_one(value: Any) -> bool:
    return value is not None and len(value) == 1


def _array(name: str, value: Any) -> Any:
    """Put the rows of an array together, which a table has as lists in lists."""
    if extension(name) != "npy" or not isinstance(value, list):
        return value
    try:
        array = np.array(value)
    except ValueError:
        return value
    return array if array.dtype.kind in "biuf" else value


def _named(name: str, value: Any) -> str:
    if isinstance(value, bytes | FileField):
        return name
    for extensions, added, fits in (
        (_WHOLE, "cls", _is_whole(value)),
        (_TEXT, "txt", isinstance(value, str)),
        ({"npy"}, "npy", isinstance(value, np.ndarray) and value.dtype.kind in "biufc"),
    ):
        if fits:
            return name if extension(name) in extensions else f"{name}.{added}"
    return name if extension(name) in ("json", "jsn") else f"{name}.json"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"bytes", "path"} and isinstance(value["bytes"], bytes)


def _plain(key: str, field: str, value: Any) -> Any:
    """Give text as its bytes, and lists and dicts as JSON has them."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if not isinstance(value, list | tuple | dict):
        return value.item() if isinstance(value, np.generic) else value
    try:
        return json.loads(json.dumps(value, default=_written))
    except (TypeError, ValueError) as error:
        text = f"a {type(value).__name__} that holds bytes, or dicts without names, cannot be written as JSON"
        raise EncodeError(f"{text}: {error}", key=key, field=field) from error


def _written(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)

"""The WebDataset rule: consecutive files that share a name up to the first dot of the base name are one sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shoal.errors import DuplicateFieldError

__all__ = ["Entry", "duplicate", "group", "split_name"]

T = TypeVar("T")

_METADATA = re.compile(r"__[^/]*__(?:$|/)")


@dataclass(slots=True)
class Entry(Generic[T]):
    """One sample: its key, and for each field something that stands for the bytes.

    >>> Entry("000001", begin=0, fields={"jpg": (512, 100), "cls": (1536, 1)}).fields["cls"]
    (1536, 1)
    """

    key: str
    begin: int
    """Where its first header starts in the tar."""
    fields: dict[str, T] = field(default_factory=dict)


def split_name(name: str) -> tuple[str, str] | None:
    """Split a member's name into key and field; None for what belongs to no sample.

    Folders stay in the key, dots in folders do not count, the field is lower-cased. A base name that begins with a dot
    has only its folder for a key, and none if that has a dot too, as in ``./._x.jpg``.

    >>> split_name("a.b/c.seg.PNG")
    ('a.b/c', 'seg.png')
    >>> split_name("README") is None and split_name("__meta__/x.json") is None
    True
    """
    slash = name.rfind("/")
    dot = name.find(".", slash + 1)
    if dot < 1 or (name.startswith("__") and _METADATA.match(name)):
        return None
    if dot == slash + 1 and "." in name[name.rfind("/", 0, slash) + 1 : slash]:
        return None
    return name[:dot], name[dot + 1 :].lower()


def group(members: Iterable[tuple[str, int, T]], shard: str) -> Iterator[Entry[T]]:
    """Group ``(name, begin, value)`` triples into samples.

    Only neighbours are grouped: a key that comes again later starts a new sample.

    >>> [entry.fields for entry in group([("a.jpg", 0, 1), ("a.cls", 1, 2), ("b.jpg", 2, 3)], "s.tar")]
    [{'jpg': 1, 'cls': 2}, {'jpg': 3}]
    """
    entry: Entry[T] | None = None
    prefix = "\0"  # no member's name holds a NUL
    for name, begin, value in members:
        if name.startswith(prefix) and "/" not in (rest := name[len(prefix) :]):
            field_name = rest.lower()  # the common case, without taking the name apart again
        else:
            parts = split_name(name)
            if parts is None:
                continue
            key, field_name = parts
            if entry is None or key != entry.key:
                if entry is not None:
                    yield entry
                # What begins like metadata is always taken apart: "__a__.b__" is no field of "__a__".
                entry, prefix = Entry(key, begin), "\0" if key.startswith("__") else f"{key}."
        assert entry is not None
        if field_name in entry.fields or field_name == "__key__":
            raise duplicate(entry.key, field_name, shard)
        entry.fields[field_name] = value
    if entry is not None:
        yield entry


def duplicate(key: str, field_name: str, shard: str) -> DuplicateFieldError:
    """Make the error of a sample that has a field twice."""
    text = "duplicate file name in tar file: two members of the sample have this field"
    return DuplicateFieldError(text, key=key, field=field_name, shard=shard)

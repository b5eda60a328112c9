"""Samples out of plans and folders; files stay where they are until they are copied into the tar."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from shoal.cli.tar._plan import FILE, OpenPlan, Record
from shoal.errors import DuplicateFieldError, PlanError
from shoal.shards import FileField, split_name

__all__ = ["Created", "Files", "Keys", "folder_samples", "plan_samples"]

#: Of many files that cannot be read so many are named.
_NAMED = 5


class Created(NamedTuple):
    """A sample, and the place it is from."""

    place: str
    sample: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Files:
    """Where the files of a plan are, and whether they may be anywhere else, too."""

    folder: str
    anywhere: bool = False

    def field(self, name: str) -> FileField:
        """Find a file; one that lies outside of the folder, or is no file, is refused."""
        path = os.path.join(self.folder, name)
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise PlanError(f"{path} is no regular file")
        except (OSError, ValueError) as error:
            if isinstance(error, PlanError):
                raise
            raise PlanError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
        root = os.path.realpath(self.folder)
        if not self.anywhere and os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise PlanError(f"{name} lies outside of {self.folder}; allow it with --anywhere")
        return FileField.of(path)


@dataclass(frozen=True, slots=True)
class Keys:
    """How samples without a key of their own are called, by their number."""

    pattern: str

    def __post_init__(self) -> None:
        try:
            first, second = self.of(0), self.of(1)
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise PlanError(f"the pattern of keys {self.pattern!r} cannot be filled in: {error}") from error
        if first == second:
            raise PlanError(f"the pattern of keys {self.pattern!r} holds no number; write it like {{record:09d}}")

    def of(self, number: int) -> str:
        """Give the key of a sample.

        >>> Keys("{record:09d}").of(7)
        '000000007'
        """
        return self.pattern.format(number, record=number)


def plan_samples(plan: OpenPlan, files: Files, keys: Keys) -> Iterator[Created]:
    """Make the samples of a plan; all files are looked at before the first one is made."""
    if plan.may_name_files:
        _check_files(plan.records(), files)
        plan.rewind()
    for number, (place, cells) in enumerate(plan.records()):
        sample: dict[str, Any] = {"__key__": _key(cells.pop("__key__", None), number, keys, place)}
        for name, cell in cells.items():
            if name.startswith(FILE):
                sample[name.removeprefix(FILE)] = files.field(cell)
            else:
                sample[name] = _utf8(cell, place) if isinstance(cell, str) else cell
        yield Created(place, sample)


def folder_samples(files: Files, *, classes: bool, left_out: list[str]) -> Iterator[Created]:
    """Make a sample of files that have the same name up to the first dot, in the order of their names.

    With ``classes`` the first folders are classes: ``cls`` is the place of the name among all, ``class.txt`` the name.
    What belongs to no sample is put on the list ``left_out``.
    """
    if not os.path.isdir(files.folder):
        raise PlanError(f"{files.folder} is no folder; --from-folder needs one")
    known = sorted(entry.name for entry in os.scandir(files.folder) if entry.is_dir()) if classes else []
    numbers = {name: number for number, name in enumerate(known)}
    for folder, names in _walked(files):
        label = folder.partition("/")[0]
        if classes and label not in numbers:
            left_out += names
            continue
        given = {"cls": str(numbers[label]).encode(), "class.txt": os.fsencode(label)} if classes else {}
        for key, members in _grouped(folder, names, left_out):
            yield Created(os.path.join(files.folder, folder), _joined(key, members, given, files))


def _check_files(records: Iterable[Record], files: Files) -> None:
    problems, count = [], 0
    for place, cells in records:
        for name, cell in cells.items():
            if name.startswith(FILE):
                try:
                    if not isinstance(cell, str) or not cell:
                        raise PlanError(f"{cell!r} in column {name} names no file")
                    files.field(cell)
                except PlanError as error:
                    problems += [f"{place}: {error}"] if count < _NAMED else []
                    count += 1
    if problems:
        more = f"; and {count - _NAMED} more" if count > _NAMED else ""
        raise PlanError("; ".join(problems) + more)


def _key(given: Any, number: int, keys: Keys, place: str) -> str:
    if given is None:
        return keys.of(number)
    if not isinstance(given, str):
        raise PlanError(f"{place}: the key {given!r} is a {type(given).__name__}; it must be text")
    return given


def _utf8(text: str, place: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PlanError(f"{place}: half of a surrogate pair is no text: {error.object[error.start]!a}") from error


def _walked(files: Files) -> Iterator[tuple[str, list[str]]]:
    """Go through folders in the order of their names: each as a path from the first one, with its files."""
    for folder, folders, names in os.walk(files.folder, onerror=_raise, followlinks=True):
        folders.sort()
        for name in folders:
            _check_link(os.path.join(folder, name), files)
        path = os.path.relpath(folder, files.folder)
        inner = "" if path == "." else path
        yield inner, [os.path.join(inner, name) for name in sorted(names)]


def _check_link(folder: str, files: Files) -> None:
    if not os.path.islink(folder):
        return
    if not files.anywhere:
        raise PlanError(f"{folder} is a link to another folder; follow it with --anywhere")
    target = os.path.realpath(folder)
    if os.path.commonpath([target, os.path.realpath(os.path.dirname(folder))]) == target:
        raise PlanError(f"{folder} is a link that leads back to {target}, which holds it")


def _grouped(folder: str, names: list[str], left_out: list[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    parts = []
    for name in names:
        split = split_name(name)
        if split is None or os.path.dirname(split[0]) != folder:
            left_out.append(name)
        else:
            parts.append((*split, name))
    for key, members in groupby(sorted(parts), key=lambda part: part[0]):
        yield key, [(field, name) for _, field, name in members]


def _joined(key: str, members: list[tuple[str, str]], given: dict[str, bytes], files: Files) -> dict[str, Any]:
    sample: dict[str, Any] = {"__key__": key, **given}
    for field, name in members:
        if field in sample:
            text = f"{name} would be the field {field}, which there is already; rename the file"
            raise DuplicateFieldError(text, key=key, field=field)
        sample[field] = files.field(name)
    return sample


def _raise(error: OSError) -> None:
    raise error

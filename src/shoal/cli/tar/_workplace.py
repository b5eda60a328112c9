"""A sample as files in a private folder, and the samples that a command made of them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.abc import Sample
from shoal.cli._fields import first_field
from shoal.errors import EncodeError, PlanError, SampleError

__all__ = ["Layout", "Workplace"]

#: What is told about a sample beside its fields.
_TOLD = ("__key__", "__source__")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a sample lies in its folder."""

    base: str = "sample"
    """What the names of its files begin with; the field follows after a dot."""
    fields: Sequence[Sequence[str]] | None = None
    """The fields that are written, of each group the first that is there; None for all."""
    subfolders: bool = False
    """Whether each subfolder is a sample in place of the folder itself."""
    parent: str | None = None
    """Where folders are made; None for the system's place."""

    def __post_init__(self) -> None:
        if not self.base or "/" in self.base or "." in self.base or "\0" in self.base:
            raise PlanError(f"the base {self.base!r} must be a plain name without dots, such as 'sample'")

    def chosen(self, sample: Sample) -> list[str]:
        """Name the fields of a sample that are written."""
        if self.fields is None:
            return [name for name in sample if name not in _TOLD]
        found = (first_field(sample, names) for names in self.fields)
        return [field[0] for field in found if field is not None]


class Workplace:
    """A folder of its own for one sample, which nobody else can look into.

    File names come from fields, which have no slash in them; a key is only ever the content of a file.

    >>> place = Workplace({"__key__": "a/b", "txt": b"hello"}, Layout())
    >>> sorted(os.listdir(place.path))
    ['sample.__key__', 'sample.txt']
    >>> os.rename(f"{place.path}/sample.txt", f"{place.path}/sample.old.txt")
    >>> place.samples()
    [{'__key__': 'a/b', 'old.txt': b'hello'}]
    >>> place.remove()
    """

    def __init__(self, sample: Sample, layout: Layout) -> None:
        self._key: str = sample["__key__"]
        self._layout = layout
        self.path = os.path.realpath(tempfile.mkdtemp(prefix="tarproc-", dir=layout.parent))
        try:
            for name in (*_TOLD, *layout.chosen(sample)):
                if name in sample:
                    self._write(name, sample[name])
        except BaseException:
            self.remove()
            raise

    def samples(self) -> list[Sample]:
        """Read what is there now: the sample itself, then those that were made beside it."""
        if not self._layout.subfolders:
            return list(self._grouped(self.path, self._key))
        made = [sample for folder in self._subfolders() for sample in self._grouped(folder, None)]
        twice = [key for key, count in Counter(sample["__key__"] for sample in made).items() if count > 1]
        if twice:
            raise EncodeError(f"two subfolders have the key {twice[0]!r}", key=self._key)
        return made

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            pass  # a command may have done it
        except OSError:
            _make_accessible(self.path)
            shutil.rmtree(self.path)

    def _write(self, name: str, value: bytes | str) -> None:
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        try:
            with open(os.path.join(self.path, f"{self._layout.base}.{name}"), "xb") as file:
                file.write(data)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise EncodeError("the name is too long for a file", key=self._key, field=name) from error

    def _subfolders(self) -> list[str]:
        paths = [os.path.join(self.path, name) for name in self._names(self.path)]
        return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError as error:
            text = f"the command left a folder that cannot be read: {error.strerror}"
            raise SampleError(text, key=self._key) from error

    def _grouped(self, folder: str, key: str | None) -> Iterator[Sample]:
        """Make samples of a folder's files, one for each name up to the first dot."""
        found = self._files(folder)
        key = _key_in(found.get("", {}), key)
        if key is None:
            place = os.path.relpath(folder, self.path)
            raise EncodeError(f"the subfolder {place} needs a {self._layout.base}.__key__", key=self._key)
        for extra, fields in sorted(found.items()):
            sample = {"__key__": _key_in(fields, f"{key}-{extra.removeprefix('-')}" if extra else key)}
            sample.update((name, data) for name, data in fields.items() if name != "__key__")
            if len(sample) > 1:
                yield sample

    def _files(self, folder: str) -> dict[str, Sample]:
        """Read the files whose names begin with the base: by what follows it, and by field."""
        found: dict[str, Sample] = {}
        for name in self._names(folder):
            stem, _, field = name.partition(".")
            if field and field != "__source__" and stem.startswith(self._layout.base):
                data = self._read(folder, name, field)
                if data is not None:
                    found.setdefault(stem[len(self._layout.base) :], {})[field] = data
        return found

    def _read(self, folder: str, name: str, field: str) -> bytes | None:
        """Read a file; None for a folder. What is somewhere else, or no file, is refused."""
        path = os.path.join(folder, name)
        target = os.path.realpath(path)
        if not target.startswith(f"{self.path}{os.sep}"):
            raise self._refused(field, f"{name} leads out of the folder, to {target}; copy what it leads to")
        if os.path.isdir(target):
            return None
        try:
            file = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self._refused(field, f"{name} cannot be read: {error.strerror}") from error
        with open(file, "rb") as opened:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise self._refused(field, f"{name} is no regular file")
            if status.st_nlink > 1 and status.st_nlink > self._names_of(status):
                raise self._refused(field, f"{name} is a link to a file outside the folder; copy it")
            return opened.read()

    def _names_of(self, status: os.stat_result) -> int:
        """Count the names that a file has in the folder."""
        paths = (os.path.join(path, name) for path, _, names in os.walk(self.path) for name in names)
        return sum(os.path.samestat(os.lstat(path), status) for path in paths)

    def _refused(self, field: str, text: str) -> SampleError:
        return SampleError(text, key=self._key, field=field)


def _key_in(fields: Sample, otherwise: str | None) -> str | None:
    given = fields.get("__key__")
    return otherwise if given is None else bytes(given).decode("utf-8", "surrogateescape").rstrip("\r\n")


def _make_accessible(folder: str) -> None:
    """Undo what a command did to the permissions of folders; files need none to be removed."""
    os.chmod(folder, 0o700)
    for path, folders, _ in os.walk(folder):
        for name in folders:
            below = os.path.join(path, name)
            if not os.path.islink(below):
                os.chmod(below, 0o700)

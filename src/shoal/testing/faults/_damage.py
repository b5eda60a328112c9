"""Files that are damaged: cut short, or with bits that are not what they were."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from shoal.errors import PlanError
from shoal.testing.faults._drawing import drawn_below

__all__ = ["Damage", "bit_flipped", "truncated"]

_WHOLE = ".before-the-damage"


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to a file, and how to undo it; as a context, it is undone at the end of the block.

    The damaged file is a new one under the old name, so whoever has mapped the old one keeps it.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> _ = path.write_bytes(bytes(100))
    >>> with truncated(path, seed=7) as damage:
    ...     assert path.stat().st_size == damage.offsets[0] < 100
    >>> path.stat().st_size
    100
    """

    path: Path
    kind: str
    seed: int
    offsets: tuple[int, ...]
    """The bytes at which it was done."""

    def __str__(self) -> str:
        return f"{self.path.name} {self.kind} at {', '.join(map(str, self.offsets))} (seed {self.seed})"

    def undo(self) -> None:
        """Put the file back as it was."""
        os.replace(_whole(self.path), self.path)

    def __enter__(self) -> Damage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.undo()
        if error is not None:
            error.add_note(f"with faults: {self}")


def truncated(path: str | os.PathLike[str], seed: int = 0, *, at: int | None = None) -> Damage:
    """Cut a file short, at a byte that the seed chooses, or at a given one.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> _ = path.write_bytes(bytes(100))
    >>> print(truncated(path, at=40))
    a.bin truncated at 40 (seed 0)
    >>> path.stat().st_size
    40
    """
    path = Path(path)
    size = path.stat().st_size
    cut = 1 + drawn_below(max(size - 1, 1), seed, "truncated", size) if at is None else at
    if not 0 <= cut < size:
        raise PlanError(f"{path} has {size} bytes and cannot be cut at {cut}")
    _set_aside(path)
    with path.open("r+b") as file:
        file.truncate(cut)
    return Damage(path, "truncated", seed, (cut,))


def bit_flipped(
    path: str | os.PathLike[str], seed: int = 0, *, bits: int = 1, within: tuple[int, int] | None = None
) -> Damage:
    """Turn some bits of a file over, in bytes that the seed chooses, of the whole file or of a range of it.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.bin")
    >>> _ = path.write_bytes(bytes(100))
    >>> damage = bit_flipped(path, seed=7, within=(20, 30))
    >>> [number for number, byte in enumerate(path.read_bytes()) if byte] == list(damage.offsets)
    True
    """
    path = Path(path)
    size = path.stat().st_size
    first, end = within or (0, size)
    if not 0 <= first < end <= size or not 0 < bits <= end - first:
        raise PlanError(f"{path} has {size} bytes: {bits} bits cannot be turned over in the bytes {first} to {end}")
    places: dict[int, int] = {}
    draw = 0
    while len(places) < bits:
        places[first + drawn_below(end - first, seed, "flip", draw)] = 1 << drawn_below(8, seed, "bit", draw)
        draw += 1
    _set_aside(path)
    with path.open("r+b") as file:
        for offset, bit in places.items():
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ bit]))
    return Damage(path, "bit-flipped", seed, tuple(sorted(places)))


def _whole(path: Path) -> Path:
    return path.with_name(f".{path.name}{_WHOLE}")


def _set_aside(path: Path) -> None:
    """Keep the file as it is under another name, and put a copy in its place."""
    if _whole(path).exists():
        raise PlanError(f"{path} is damaged already; undo that first")
    os.rename(path, _whole(path))
    shutil.copyfile(_whole(path), path)

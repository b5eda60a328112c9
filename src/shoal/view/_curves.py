"""What trainings have left in their folders: curves in event files, and the history in checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from shoal.view._looks import plain

__all__ = ["Runs", "is_run"]

_PARTS = ("train", "validation")
_EVENTS = "events.out.tfevents."
_STEP = "step-"
_DEEPEST = 4
_POINTS = 800
#: What an epoch tells that is no curve.
_NO_CURVES = {"epoch", "num_samples", "batch_count", "val_num_samples", "last_train_loss"}

_Points: TypeAlias = "Sequence[tuple[int, float]]"


@dataclass(frozen=True, slots=True)
class _Curve:
    run: str
    tag: str
    part: str
    points: _Points
    by: str = "step"


def is_run(path: str) -> bool:
    """Tell whether a folder, or one in it, is that of a training."""
    return os.path.isdir(path) and next(_homes(path), None) is not None


class Runs:
    """Several trainings, to be laid over each other; files that have not grown are not read again."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [os.path.abspath(folder) for folder in folders]
        self._read: dict[str, tuple[Any, list[_Curve]]] = {}

    @property
    def title(self) -> str:
        """The folders."""
        return ", ".join(os.path.basename(folder) for folder in self._folders)

    def described(self) -> dict[str, Any]:
        """Give the curves of all runs, by what they measure."""
        homes = [home for folder in self._folders for home in _homes(folder)]
        curves = [curve for home in homes for curve in self._curves(home, self._name(home))]
        runs = sorted({curve.run for curve in curves} | {self._name(home) for home in homes})
        tags = sorted({(curve.tag, curve.by) for curve in curves}, key=_by_weight)
        return {
            "runs": runs,
            "charts": [
                {"tag": tag, "by": by, "curves": [_drawn(c) for c in curves if (c.tag, c.by) == (tag, by)]}
                for tag, by in tags
            ],
        }

    def _name(self, home: str) -> str:
        """Name a run as it lies below what was given; where several were given, with their names."""
        folder = next(folder for folder in self._folders if home == folder or home.startswith(f"{folder}{os.sep}"))
        below = os.path.relpath(home, folder)
        own = os.path.basename(folder)
        if below == ".":
            return own
        return below if len(self._folders) == 1 else f"{own}/{below}"

    def _curves(self, home: str, name: str) -> list[_Curve]:
        mark = _mark(home)
        known = self._read.get(home)
        if known is None or known[0] != mark:
            self._read[home] = known = mark, list(_curves(home, name))
        return known[1]


def _curves(home: str, name: str) -> Iterator[_Curve]:
    from shoal.learn import curves_of  # a page of data is there sooner without

    found = False
    for part in (*_PARTS, ""):
        folder = os.path.join(home, part) if part else home
        for tag, points in curves_of(folder).items():
            found = True
            yield _Curve(name, tag, part, points)
    if not found:
        yield from _history(home, name)


def _history(home: str, name: str) -> Iterator[_Curve]:
    """Make curves of what the last checkpoint tells of its epochs."""
    from shoal.learn import Checkpoints

    last = Checkpoints(home).latest()
    epochs = [] if last is None else [epoch for epoch in last.info.get("history", []) if isinstance(epoch, dict)]
    for column in sorted({column for epoch in epochs for column in epoch} - _NO_CURVES):
        values = ((epoch.get("epoch", at), epoch.get(column)) for at, epoch in enumerate(epochs, 1))
        points = [(int(at), float(value)) for at, value in values if isinstance(value, int | float)]
        part = "validation" if column.startswith("val_") else "train"
        tag = column.removeprefix("val_").removeprefix("train_")
        if points:
            yield _Curve(name, "Loss" if tag == "loss" else tag, part, points, "epoch")


def _homes(folder: str, depth: int = 0) -> Iterator[str]:
    """Find the folders of trainings: those with event files, or with a part that has some, or with checkpoints."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    folders = [name for name in names if os.path.isdir(os.path.join(folder, name))]
    parts = [part for part in _PARTS if part in folders and _has_events(os.path.join(folder, part))]
    steps = any(name.startswith(_STEP) and Path(folder, name, "manifest.json").exists() for name in folders)
    if parts or steps or any(name.startswith(_EVENTS) for name in names):
        yield folder
    if depth < _DEEPEST:
        for name in folders:
            if name not in parts and not name.startswith(_STEP):
                yield from _homes(os.path.join(folder, name), depth + 1)


def _has_events(folder: str) -> bool:
    return any(name.startswith(_EVENTS) for name in os.listdir(folder))


def _mark(home: str) -> tuple[Any, ...]:
    """Tell what would change if a training wrote more."""
    files = [path for part in ("", *_PARTS) for path in Path(home, part).glob(f"{_EVENTS}*")]
    steps = sorted(path.name for path in Path(home).glob(f"{_STEP}*"))
    return (*sorted((str(path), path.stat().st_size) for path in files), *steps)


def _by_weight(tag: tuple[str, str]) -> tuple[int, str, str]:
    """Put the loss first, what tells how well it learns next, and the pace last."""
    last = ("Throughput", "LearningRate")
    return 0 if tag[0] == "Loss" else 2 if tag[0] in last else 1, *tag


def _drawn(curve: _Curve) -> dict[str, Any]:
    step = max(-(-len(curve.points) // _POINTS), 1)
    points = [*curve.points[::step], *curve.points[-1:]] if step > 1 else curve.points
    return {"run": curve.run, "part": curve.part, "points": [[at, plain(value)] for at, value in points]}

"""Datasets that are made by Python programs, as commands name them: ``pipeline.py:dataset``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from shoal.errors import PlanError
from shoal.pipeline import Dataset

__all__ = ["dataset_named", "names_dataset"]


def names_dataset(what: str) -> bool:
    """Tell whether an argument names a dataset of a program, and not data.

    >>> names_dataset("pipeline.py:dataset"), names_dataset("package.module:train"), names_dataset("s3://data/a.tar")
    (True, True, False)
    """
    place, colon, name = what.rpartition(":")
    is_place = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    return bool(colon) and name.isidentifier() and is_place and not Path(what).exists()


def dataset_named(what: str) -> Dataset:
    """Find a dataset by the file or module it is in, and its name there."""
    place, _, name = what.rpartition(":")
    if not place or not name:
        raise PlanError(f"{what}: name a dataset as in pipeline.py:dataset, or package.module:dataset")
    module = _file(place) if place.endswith(".py") else _module(place)
    found: Any = getattr(module, name, None)
    found = found() if callable(found) and not isinstance(found, Dataset) else found
    if not isinstance(found, Dataset):
        seen = "not there" if found is None else f"of type {type(found).__name__}"
        raise PlanError(f"{name} of {place} is {seen}; it has to be a Dataset, or a function that makes one")
    return found


def _file(path: str) -> Any:
    """Import a file by the name of its module, so that worker processes find its functions, too."""
    file = Path(path).resolve()
    if not file.exists():
        raise PlanError(f"there is no file {path}")
    sys.path.insert(0, str(file.parent))
    return _module(file.stem)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        raise PlanError(f"there is no module {name}") from None

"""Names of a package that are imported from its modules when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal._optional import EXTRAS, missing_extra
from shoal.errors import MissingExtraError

__all__ = ["attach"]


def attach(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a package's ``__getattr__`` and ``__dir__`` from a table of module -> names.

    An empty list of names stands for the module itself.

    >>> getter, _ = attach("json", {"decoder": ["JSONDecoder"]})
    >>> getter("JSONDecoder").__name__
    'JSONDecoder'
    """
    modules = {name: module for module, names in homes.items() for name in names or [module]}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(f"{package}.{modules[name]}")
        except MissingExtraError:
            raise
        except ModuleNotFoundError as error:
            if (missing := (error.name or "").partition(".")[0]) not in EXTRAS:
                raise
            raise missing_extra(missing, f"{package}.{name}") from error
        return getattr(module, name) if homes[modules[name]] else module

    def list_names() -> list[str]:
        return sorted({*vars(importlib.import_module(package)), *modules})

    return get, list_names

"""Engines of the tests: Ray and Spark take long to start, so a process of tests starts them once and keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import shoal
from shoal import registry
from shoal.abc import Engine
from shoal.engines import Session

__all__ = ["close", "running"]

_STAY = ("ray", "spark")


class _Kept:
    """What runs at the moment, by name: the engine, and what it was started with."""

    engines: dict[str, tuple[Engine, dict[str, Any]]] = {}


@contextmanager
def running(name: str, workers: int = 2, **options: Any) -> Iterator[Session]:
    """Choose an engine; one that stays is found running, with just these workers and options."""
    if name in _STAY:
        _start(name, {"workers": workers, **options})
    with shoal.init(name, workers=workers, **({} if name in _STAY else options)) as session:
        yield session


def _start(name: str, options: dict[str, Any]) -> None:
    engine, known = _Kept.engines.get(name, (None, None))
    if known != options:
        if engine is not None:
            engine.close()
        _Kept.engines[name] = registry.load("engine", name)(**options), options


def close() -> None:
    """End what stayed."""
    for engine, _ in _Kept.engines.values():
        engine.close()
    _Kept.engines.clear()

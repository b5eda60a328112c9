"""The engine of this process: chosen once, by one word, and local without it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from shoal import registry
from shoal._ending import ends_with_program
from shoal.abc import Engine, EngineInfo
from shoal.errors import PlanError
from shoal.settings import parse_bytes

__all__ = ["Session", "current", "engine", "init", "native", "shutdown"]


class Session:
    """An engine that was chosen, and what it was chosen with; as a context it ends with the block.

    >>> with init("local", workers=1) as session:
    ...     print(session)
    local at this process, 1 processors
      threads, and processes where these are better on localhost, 1 processors
    """

    def __init__(self, name: str, engine: Engine, asked: dict[str, Any], *, chosen: bool = True) -> None:
        self.name, self.engine, self.asked, self.chosen = name, engine, asked, chosen

    def __str__(self) -> str:
        return str(self.engine.describe())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End it, if it is still the one that runs."""
        with _CHOICE.lock:
            mine = _CHOICE.session is self
        if mine:
            shutdown()


class _Choice:
    """Which engine runs: there is one for the whole process, as there is one Ray and one Spark in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.session: Session | None = None
        self.beside: dict[str, Session] = {}
        """Engines that were not chosen: somebody brought a collection of theirs, or used one before he chose."""


_CHOICE = _Choice()


def init(
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    memory: int | str | None = None,
    **options: Any,
) -> Session:
    """Choose who runs things from here on: ``"local"``, ``"ray"``, ``"spark"`` or ``"dask"``.

    One that is running already (Ray, a Spark session, a Dask client) is used, and left running by `shutdown`. Without
    an address, one is started on this machine, with so many workers and so much memory. Options go to the engine as
    they are; a dot in the name of a Spark option is written as two underscores.

    >>> with init(workers=2):
    ...     print(current().describe().name)
    local
    """
    asked = {"address": address, "workers": workers, "memory": memory, **options}
    if workers is not None and workers < 1:
        raise PlanError(f"workers={workers}; at least one is needed")
    with _CHOICE.lock:
        running = _CHOICE.session
        if running is not None and not running.chosen:
            _CHOICE.beside[""], running = running, None  # what it holds stays, until all is shut down
        if running is not None:
            if (running.name, running.asked) == (engine, asked):
                return running
            raise PlanError(f"{running.name} is running already; call shoal.shutdown() before another is chosen")
        size = None if memory is None else parse_bytes(memory)
        made = registry.load("engine", engine)(address, workers=workers, memory=size, **options)
        _CHOICE.session = Session(engine, made, asked)
        ends_with_program(_CHOICE.session)
        return _CHOICE.session


def shutdown() -> None:
    """End the engine that was chosen, and what it holds; those that follow are run by this process again.

    >>> session = init(workers=1)
    >>> shutdown()
    >>> current().describe().name  # this process again
    'local'
    """
    with _CHOICE.lock:
        sessions = [*([] if _CHOICE.session is None else [_CHOICE.session]), *_CHOICE.beside.values()]
        _CHOICE.session = None
        _CHOICE.beside.clear()
    for session in sessions:
        session.engine.close()


def current() -> Engine:
    """Give the engine that runs things now; the local one is started if none was chosen.

    >>> engine = current()
    >>> list(engine.gather(engine.map(len, engine.scatter(["a", "bc"]))))
    [1, 2]
    """
    with _CHOICE.lock:
        if _CHOICE.session is None:
            init().chosen = False
        assert _CHOICE.session is not None
        return _CHOICE.session.engine


def native(name: str) -> Engine:
    """Give the engine of that name, to work with collections of its own kind: the chosen one, or one beside it.

    >>> with init("local", workers=1) as session:
    ...     native("local") is session.engine
    True
    """
    with _CHOICE.lock:
        if _CHOICE.session is not None and _CHOICE.session.name == name:
            return _CHOICE.session.engine
        if name not in _CHOICE.beside:
            _CHOICE.beside[name] = Session(name, registry.load("engine", name)(), {})
            ends_with_program(_CHOICE.beside[name].engine)
        return _CHOICE.beside[name].engine


def engine() -> EngineInfo:
    """Tell what runs where.

    >>> engine().name
    'local'
    """
    return current().describe()

"""Where BigDL is: a guest with a Spark of its own, which stays from call to call."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import Any, Self

from shoal.engines import current
from shoal.environments import Guest, find
from shoal.errors import PlanError, WorkerDiedError
from shoal.learn._abroad import AbroadFramework
from shoal.learn.bigdl._bigdl_driver import BigDLDriver
from shoal.settings import processors

__all__ = ["Session"]


class Session:
    """A process of the environment ``bigdl`` with Spark in it, for one estimator or for several, one after the other.

    It starts when it is needed, and ends with `close`, or with the program. ``cores`` are by default as many as the
    engine has on this machine, and ``memory`` is what Java may take.

    >>> Session(cores=2)
    <Session of BigDL with 2 cores, not started>
    """

    def __init__(self, *, cores: int | None = None, memory: str = "2g") -> None:
        if cores is not None and cores < 1:
            raise PlanError(f"cores={cores}; at least one is needed")
        self._cores, self._memory = cores, memory
        self._there: _Driving | None = None
        self.lock = threading.RLock()
        """Held by whoever asks several things that belong together."""

    @property
    def cores(self) -> int:
        """The cores that BigDL has."""
        if self._cores is None:
            engine = int(sum(worker.cpus for worker in current().describe().workers))
            self._cores = max(min(engine, processors()), 1)
        return self._cores

    @property
    def guest(self) -> Guest | None:
        """The process, while there is one."""
        guest = None if self._there is None else self._there.guest
        return guest if guest is not None and guest.is_alive else None

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the driver over there; there has to be one."""
        with self.lock:
            if self._there is None or self.guest is None:
                self._there = self._started()
            try:
                return self._there.ask(method, *arguments)
            except WorkerDiedError as error:
                self.close()
                text = f"BigDL is gone: {error}"
                raise WorkerDiedError(
                    f"{text}; fit(resume=True) goes on from the last checkpoint in model_dir"
                ) from None

    def close(self) -> None:
        """End the process and its Java; whoever asks again starts another one."""
        with self.lock:
            is_alive = self.guest is not None
            there, self._there = self._there, None
        if there is not None:
            with suppress(WorkerDiedError):
                there.leave(is_alive)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _again, (self._cores, self._memory)  # in another process it is another one

    def __repr__(self) -> str:
        state = "not started" if self.guest is None else f"process {self.guest.pid}"
        return f"<Session of BigDL with {self._cores or 'all'} cores, {state}>"

    def _started(self) -> _Driving:
        folder = tempfile.mkdtemp(prefix="shoal-bigdl-")
        maker: Any = partial(BigDLDriver, self.cores, self._memory, folder)
        made = _Driving(maker, find("bigdl"))
        weakref.finalize(made, shutil.rmtree, folder, ignore_errors=True)
        made.start()
        return made


class _Driving(AbroadFramework):
    """The line to a driver, which is no framework by itself."""

    def start(self) -> None:
        self._start()

    def ask(self, method: str, *arguments: Any) -> Any:
        return self._ask(method, *arguments)


def _again(cores: int | None, memory: str) -> Session:
    return Session(cores=cores, memory=memory)

"""A framework that lives in another environment: each worker has a guest there, and the model is in the guest.

A guest that dies is a worker that died: its host ends, too, so that the gang begins again from the last checkpoint.
An error of the model is raised here as what it is over there, if that is an exception of Python or of Shoal.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import pickle
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import cloudpickle

import shoal
from shoal import errors
from shoal.abc import Framework, Member
from shoal.environments import Environment, Guest, Kept
from shoal.errors import GuestError, PlanError, StateError, WorkerDiedError
from shoal.learn._resident import PeersLost, Resident

__all__ = ["AbroadFramework"]

#: Seconds to wait before it is told that others are gone: one of them knows why, and is to be heard first.
_PATIENCE = 2.0
#: Seconds that the guest of a failed worker stays: were it gone at once, the others would complain of that.
_STAY = 5.0
_LOOK_MS = 500
#: Where exceptions are that can be made again of their text, by their module.
_HOMES: Mapping[str, Any] = {"": builtins, "shoal.errors": errors}


class AbroadFramework(Framework):
    """A framework whose model is in a guest of another environment.

    ``maker`` makes the `Resident` over there, and is pickled for that. Arrays cross as they are; a framework with other
    values overrides `_outgoing` and `_incoming`, and so does its resident.
    """

    format: ClassVar[str] = "numpy"

    def __init__(self, maker: Callable[[], Resident], environment: Environment) -> None:
        if environment.minor != sys.version_info[:2]:
            ours, theirs = "{}.{}".format(*sys.version_info), "{}.{}".format(*environment.minor)
            text = f"models are sent as code of Python {ours}, and the environment {environment.name!r} has {theirs}"
            raise PlanError(f"{text}; run this program with {theirs}, or build the environment with {ours}")
        self.environment = environment
        self.files: Mapping[str, bytes] = {}
        self._maker: Callable[[], Resident] | bytes = maker
        self._there: _Line | None = None
        self._rate: float | None = None

    @property
    def guest(self) -> Guest | None:
        """The process that has the model, while there is one."""
        return None if self._there is None else self._there.guest

    @property
    def learning_rate(self) -> float | None:
        """How fast it learns now."""
        if self._rate is None and self._there is not None:
            self._rate = self._there.ask("rate")
        return self._rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._ask("set_rate", float(rate))
        self._rate = float(rate)

    def build(self) -> None:
        """Start a guest, and build the model there."""
        self._start().ask("build", dict(self.files))

    def join(self, member: Member) -> None:
        """Start a guest, and let it meet those of the others."""
        there = self._start()
        there.watch()
        try:
            told = member.all_gather(there.ask("offer", member.rank, member.size, member.attempt, member.host))
            there.ask("join", told, dict(self.files))
        except BaseException:
            self.leave(False)
            raise

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows."""
        given = self._outgoing(list(features)), self._outgoing(list(labels))
        loss, self._rate = self._ask("train", *given, float(weight), bool(last))
        return float(loss)

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, and their loss."""
        found, loss = self._ask("evaluate", self._outgoing(list(features)), self._outgoing(list(labels)))
        return self._incoming(found), loss

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions as arrays."""
        return self._ask("predict", self._outgoing(list(features)))

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers."""
        found: list[float] = self._ask("total", [float(each) for each in numbers])
        return found

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do over there what is done once an epoch."""
        self._rate = None
        found: dict[str, Any] = self._ask("end_epoch", dict(stats))
        return found

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give what is needed to go on."""
        found: dict[str, bytes] = self._ask("dump", parts)
        return found

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave."""
        self._rate = None
        self._ask("load", dict(files))

    def leave(self, done: bool) -> None:
        """Part from the others, and end the guest."""
        there, self._there = self._there, None
        if there is not None:
            there.end(done)

    def _outgoing(self, values: Any) -> Any:
        """Make arrays of what loaders give."""
        return values

    def _incoming(self, values: Any) -> Any:
        """Make of arrays what metrics take."""
        return values

    def _ask(self, method: str, *arguments: Any) -> Any:
        if self._there is None:
            raise StateError(f"there is no guest of {self.environment.name} to do {method}: build or join comes first")
        return self._there.ask(method, *arguments)

    def _start(self) -> _Line:
        if self._there is not None:
            self._there.end(False)
        self._there = _Line(self.environment, self._sent())
        return self._there

    def _sent(self) -> bytes:
        """Pack what makes the resident; who got it from another process sends it on as it came."""
        packed: bytes = self._maker if isinstance(self._maker, bytes) else cloudpickle.dumps(self._maker)
        return packed

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _there=None, _rate=None)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maker": self._sent(), "_there": None, "_rate": None}


class _Line:
    """A guest with its resident, and whoever looks after them."""

    def __init__(self, environment: Environment, packed: bytes) -> None:
        self.guest = Guest(environment)
        self._lock, self._is_over, self._is_watched = threading.RLock(), False, False
        try:
            self.guest.call(_doorway(str(Path(shoal.__file__).parent)))
            self._resident: Kept = self.guest.keep(lambda: pickle.loads(packed)())  # noqa: S301  (of this program)
        except GuestError as error:
            self.guest.close()
            raise _itself(error) from None

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the resident."""
        with self._lock:
            try:
                return self._resident.call(method, *arguments)
            except GuestError as error:
                if error.kind == f"{PeersLost.__module__}.{PeersLost.__qualname__}":
                    time.sleep(_PATIENCE)
                raise _itself(error) from None
            except WorkerDiedError as error:
                if self._is_watched:
                    _die(str(error))
                raise
            finally:
                self._is_over = self._is_over or not self.guest.is_alive

    def watch(self) -> None:
        """End this process as soon as the guest is gone, also if nobody is calling it then."""
        self._is_watched = True
        try:
            exit_file = os.pidfd_open(self.guest.pid)
        except OSError:  # the system cannot tell, and the next call will
            return
        threading.Thread(target=self._watch, args=(exit_file,), name="shoal-guest-watch", daemon=True).start()

    def end(self, done: bool) -> None:
        """Let the resident part from the others if all went well, and end the guest."""
        try:
            if done:
                self.ask("leave", True)
        finally:
            with self._lock:
                self._is_over = True
            if done or not self._is_watched:
                self.guest.close()
            else:
                later = threading.Timer(_STAY, self.guest.close)
                later.daemon = True
                later.start()

    def _watch(self, exit_file: int) -> None:
        poll = select.poll()
        poll.register(exit_file, select.POLLIN)
        try:
            while not self._is_over:
                if poll.poll(_LOOK_MS):
                    with self._lock:  # a call that is under way sees it by itself
                        if not self._is_over:
                            _die(f"the guest {self.guest.pid} of {self.guest.environment.name} is gone")
        finally:
            os.close(exit_file)


def _die(why: str) -> None:
    """End this process, whose guest has died: members who are gone are replaced, and those who fail are not."""
    sys.stderr.write(f"{why}; its worker ends, too\n")
    sys.stderr.flush()
    os._exit(1)


def _itself(error: GuestError) -> Exception:
    """Give the exception that was raised over there, if it is one that is known here and has a text alone."""
    module, _, name = (error.kind or "").rpartition(".")
    found = getattr(_HOMES.get(module), name, None)
    if error.traceback is None or not (isinstance(found, type) and issubclass(found, Exception)):
        return error
    try:
        made = found(str(error).partition(f" raised {error.kind}: ")[2])
    except TypeError:
        return error
    for note in error.__notes__:
        made.add_note(note)
    return made


def _doorway(home: str) -> Callable[[], None]:
    """Make a function that lets a guest import Shoal from a folder, and nothing else that lies beside it there."""

    def let_in() -> None:
        place = os.path.join(home, "__init__.py")
        spec = importlib.util.spec_from_file_location("shoal", place, submodule_search_locations=[home])
        assert spec is not None
        assert spec.loader is not None
        sys.modules["shoal"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

    return let_in

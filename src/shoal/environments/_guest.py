"""A process of another Python environment at our service."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import cloudpickle

from shoal._ending import ends_with_program
from shoal.environments._environment import Environment, find
from shoal.environments._inside.channel import Garbage, Lost, Message
from shoal.environments._inside.codec import Decoder, Encoder, Malformed, Unsendable
from shoal.environments._kept import Kept
from shoal.environments._process import Elapsed, Process
from shoal.errors import (
    GuestError,
    GuestTimeoutError,
    PlanError,
    StateError,
    WorkerDiedError,
    WorkerEnvironmentError,
)

__all__ = ["Guest"]

#: Seconds in which a guest must have started; a cold disk and a busy machine are slow.
_START = 120.0

#: Seconds in which it must end in order, once nothing more comes.
_END = 5.0

#: Libraries whose values cross as what they are, if both sides have them.
_LIBRARIES = ("numpy", "pandas", "pyarrow")


class Guest:
    """A process of another environment that does what it is called for; any thread may call, one at a time.

    ``environment`` is a name, a path, or an `Environment`. Modules in the folders of ``path`` can be imported there.
    What a function of the guest keeps in its module stays for the next call.

    >>> with Guest(sys.executable) as guest:
    ...     guest.call("math:hypot", 3, 4)
    5.0
    """

    def __init__(
        self,
        environment: Environment | str | Path,
        *,
        path: Sequence[str | Path] = (),
        variables: Mapping[str, str] | None = None,
        timeout: float | None = None,
        quiet: bool = False,
    ) -> None:
        self.environment = find(environment)
        """Where it runs."""
        self.timeout = timeout
        """Seconds that a call may take; None for as long as it takes."""
        self._home, self._closed, self._doing = os.getpid(), False, "starting"
        self._lock = threading.Lock()
        self._released: deque[int] = deque()
        self._made = 0
        self._libraries: frozenset[str] = frozenset()
        self._version = self.environment.minor
        self._process = Process(self.environment, dict(variables or {}), quiet=quiet)
        self._finalizer = weakref.finalize(self, self._process.end, 0.0)
        ends_with_program(self)
        self._begin(path)

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be called."""
        return not self._closed and os.getpid() == self._home

    def call(self, function: str | Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function over there, and give its result.

        A string such as ``"package.module:function"`` names it. A function itself can be sent if both sides run
        the same version of Python. What it raises is raised here as a `GuestError` with its traceback.
        """
        return self.call_within(self.timeout, function, *arguments, **options)

    def call_within(
        self, seconds: float | None, function: str | Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Call a function that may take so many seconds. The guest is ended if it takes longer."""
        return self._ask(seconds, _named(function), self._function(function), arguments, options)["result"]

    def keep(self, function: str | Callable[..., Any], *arguments: Any, **options: Any) -> Kept:
        """Call a function, and keep its result over there: a client, a model, whatever cannot cross.

        >>> with Guest(sys.executable) as guest:
        ...     counter = guest.keep("collections:Counter", "banana")
        ...     counter.call("most_common", 1), guest.call("builtins:len", counter)
        ([('a', 3)], 3)
        """
        self._made += 1
        number = self._made
        more = {"keep": number}
        answer = self._ask(self.timeout, _named(function), self._function(function), arguments, options, more)
        return Kept(self, number, str(answer["kept"]), self._released)

    def close(self) -> None:
        """End the process: in order if it has nothing to do, and else at once."""
        if os.getpid() != self._home or self._closed:
            return
        if not self._lock.acquire(blocking=False):
            self._closed = True
            self._process.kill()  # the call under way ends with an error, and sees to the rest
            return
        try:
            self._closed = True
            self._process.let_go()
            self._finish(_END)
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"process {self.pid}" if self.is_alive else "ended"
        return f"<Guest of {self.environment.name}, Python {self.environment.version}, {state}>"

    def __reduce__(self) -> Any:
        raise PlanError("a guest cannot be sent to another process; send its environment, and start one there")

    def _begin(self, path: Sequence[str | Path]) -> None:
        folders = [os.path.abspath(folder) for folder in path]
        hello = {"path": folders, "libraries": [name for name in _LIBRARIES if find_spec(name) is not None]}
        try:
            answer = self._exchange(_START, "starting", {"hello": hello}, [])
            told = answer.tree["result"]
            self._libraries = frozenset(map(str, told["libraries"]))
            self._version = int(told["version"][0]), int(told["version"][1])
        except (WorkerDiedError, GuestTimeoutError) as error:
            raise WorkerEnvironmentError(f"the environment {self.environment.name!r} is broken: {error}") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self._garbage(error) from None

    def _function(self, function: str | Callable[..., Any]) -> dict[str, Any]:
        if isinstance(function, str):
            module, _, name = function.partition(":")
            if not module or not name:
                raise PlanError(f"{function!r} names no function; write it as in 'package.module:function'")
            return {"name": function}
        if self._version != sys.version_info[:2]:
            ours, theirs = "{}.{}".format(*sys.version_info), "{}.{}".format(*self._version)
            text = f"{_named(function)} cannot be sent from Python {ours} to {theirs}; name it as 'module:function'"
            raise PlanError(f"{text}, with path=[folder of the module]")
        try:
            packed = cloudpickle.dumps(function)
        except Exception as error:  # whatever the function refers to may refuse in its own way
            text = f"{_named(function)} cannot be sent to a guest ({type(error).__name__}: {error})"
            raise PlanError(f"{text}; name it as 'module:function', with path=[folder of the module]") from error
        folder = os.path.dirname(os.path.abspath(cloudpickle.__file__))
        return {"pickle": packed, "cloudpickle": folder, "version": cloudpickle.__version__}

    def _ask(
        self,
        seconds: float | None,
        doing: str,
        function: dict[str, Any],
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        more: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a call, and take its answer."""
        encoder = Encoder(tuple(self._libraries))
        if "pickle" in function:
            encoder.buffers.append(memoryview(function["pickle"]))
            function = {**function, "pickle": 0}
        try:
            given = [self._argument(encoder, value) for value in arguments]
            named = [[name, self._argument(encoder, value)] for name, value in options.items()]
        except Unsendable as error:
            raise PlanError(f"{doing} in {self.environment.name}: {error}") from None
        request = {"function": function, "arguments": given, "options": named, **(more or {})}
        answer = self._exchange(seconds, doing, request, encoder.buffers)
        return self._opened(doing, answer)

    def _argument(self, encoder: Encoder, value: Any) -> Any:
        if not isinstance(value, Kept):
            return encoder.encode(value)
        if value.guest is not self:
            raise Unsendable("an object that another guest keeps does not cross")
        return {"k": "kept", "v": value.number}

    def _opened(self, doing: str, answer: Message) -> dict[str, Any]:
        tree = answer.tree
        if not isinstance(tree, dict):
            raise self._garbage(f"a {type(tree).__name__}")
        if "error" in tree:
            raise self._raised(doing, tree["error"])
        if "kept" in tree:
            return tree
        try:
            return {"result": Decoder(answer.buffers, is_shared=answer.is_shared).decode(tree["result"])}
        except (Malformed, KeyError) as error:
            raise self._garbage(error) from None

    def _raised(self, doing: str, told: Any) -> GuestError:
        try:
            kind, text, trace = (str(told[name]) for name in ("kind", "text", "traceback"))
        except (KeyError, TypeError) as wrong:
            return self._garbage(wrong)
        if kind == "_shoal_guest_codec.Unsendable":
            return GuestError(f"{doing} in {self.environment.name}: its result cannot come back: {text}", kind=kind)
        error = GuestError(f"{doing} in {self.environment.name} raised {kind}: {text}", kind=kind, traceback=trace)
        error.add_note(f"in the guest:\n{trace}")
        return error

    def _exchange(self, seconds: float | None, doing: str, request: Any, buffers: Sequence[memoryview]) -> Message:
        if os.getpid() != self._home:
            text = f"a guest of {self.environment.name} belongs to the process {self._home}, and this is a fork of it"
            raise StateError(f"{text}; start one here")
        with self._lock, self._watched(seconds, doing):
            channel = self._process.channel
            channel.deadline = None if seconds is None else time.monotonic() + seconds
            released = [self._released.popleft() for _ in range(len(self._released))]
            channel.send({**request, "release": released}, buffers)
            return channel.receive()

    @contextmanager
    def _watched(self, seconds: float | None, doing: str) -> Iterator[None]:
        """Tell what happened to a guest that does not answer; one that owes an answer is of no use any more."""
        if self._closed:
            raise StateError(f"the guest of {self.environment.name} has ended; start another one")
        try:
            yield
        except Lost:
            raise self._died(doing) from None
        except Elapsed:
            self._process.kill()
            self._finish()
            text = f"{doing} in {self.environment.name} took longer than {seconds:g} s, and the guest was ended"
            raise GuestTimeoutError(text) from None
        except Garbage as error:
            raise self._garbage(error) from None
        except BaseException:
            self._process.kill()
            self._finish()
            raise

    def _died(self, doing: str) -> WorkerDiedError | StateError:
        was_closed = self._closed
        code = self._finish()
        if was_closed:
            return StateError(f"the guest of {self.environment.name} was closed while it did {doing}")
        error = WorkerDiedError("", pid=self.pid, exitcode=code)
        how = f"by {error.signal}" if error.signal else f"with exit code {code}"
        said = self._process.output.tail()
        last = f"; it last said: {said.splitlines()[-1]}" if said else ""
        error.args = (f"{doing} in {self.environment.name}: the guest {self.pid} ended {how}{last}",)
        if said:
            error.add_note(f"it said:\n{said}")
        return error

    def _garbage(self, found: object) -> GuestError:
        self._process.kill()
        self._finish()
        text = f"the guest of {self.environment.name} sent what is no answer ({found}), and was ended"
        return GuestError(f"{text}; does something in it write to descriptors that are not its own?")

    def _finish(self, patience: float = 1.0) -> int:
        self._closed = True
        self._finalizer.detach()
        return self._process.end(patience)


def _named(function: str | Callable[..., Any]) -> str:
    return function if isinstance(function, str) else getattr(function, "__qualname__", repr(function))

"""What a guest does: one call after the other, until the process it serves is gone.

It is run as ``python -I serve.py SOCKET LIFELINE``, with descriptors of a socket and of a pipe that nobody writes to.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import os
import select
import signal
import socket
import sys
import traceback
import types
from typing import Any

__all__ = ["main"]

_LIBRARIES = ("cloudpickle", "numpy", "pandas", "pyarrow")


def main(descriptor: int, lifeline: int) -> None:
    """Serve the process at the other end; returns when it has let go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that is served, which decides
    _end_with(lifeline)
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    os.register_at_fork(after_in_child=end.close)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    channel, codec = _neighbour("channel"), _neighbour("codec")
    server = _Server(channel.Channel(end), codec)
    while True:
        try:
            server.answer()
        except channel.Lost:
            return


class _Server:
    """Calls functions, and keeps what they are told to keep."""

    def __init__(self, channel: Any, codec: Any) -> None:
        self._channel, self._codec = channel, codec
        self._theirs: tuple[str, ...] = ()
        self._kept: dict[int, Any] = {}

    def answer(self) -> None:
        """Do what the next message asks for. Nothing refers to its arrays when the answer leaves."""
        tree, buffers = self._outcome()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, nobody reads, it is closed
                stream.flush()
        self._channel.send(tree, buffers)

    def _outcome(self) -> tuple[Any, Any]:
        message = self._channel.receive()
        encoder = self._codec.Encoder(self._theirs)
        try:
            tree = self._done(message, encoder)
        except BaseException as error:  # an exit or interrupt too: somebody waits for an answer
            return {"error": _told(error)}, []
        return tree, encoder.buffers

    def _done(self, message: Any, encoder: Any) -> Any:
        request, decoder = message.tree, self._codec.Decoder(message.buffers, is_shared=message.is_shared)
        for number in request.get("release", ()):
            self._kept.pop(number, None)
        if "hello" in request:
            return self._hello(request["hello"])
        arguments = [self._argument(decoder, tree) for tree in request["arguments"]]
        options = {name: self._argument(decoder, tree) for name, tree in request["options"]}
        result = self._function(request["function"], message.buffers)(*arguments, **options)
        if "keep" in request:
            self._kept[request["keep"]] = result
            return {"kept": f"{type(result).__module__}.{type(result).__qualname__}"}
        return {"result": encoder.encode(result)}

    def _hello(self, request: dict[str, Any]) -> Any:
        sys.path[:0] = request["path"]
        self._theirs = tuple(request["libraries"])
        found = [name for name in _LIBRARIES if importlib.util.find_spec(name) is not None]
        return {"result": {"version": list(sys.version_info[:3]), "libraries": found}}

    def _argument(self, decoder: Any, tree: Any) -> Any:
        if isinstance(tree, dict) and tree.get("k") == "kept":
            return self._held(tree["v"])
        return decoder.decode(tree)

    def _held(self, number: int) -> Any:
        if number not in self._kept:
            raise LookupError("the object was let go of before")
        return self._kept[number]

    def _function(self, request: dict[str, Any], buffers: Any) -> Any:
        if "pickle" in request:
            return _cloudpickle(request["cloudpickle"], request["version"]).loads(buffers[request["pickle"]])
        if "kept" in request:
            return getattr(self._held(request["kept"]), request["name"])
        module, _, name = request["name"].partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found


def _end_with(lifeline: int) -> None:
    """Be killed by the system when the other end of a pipe is closed, in the middle of whatever is being done.

    A thread that waits for it could not act while a library holds the interpreter's lock.
    """
    os.set_inheritable(lifeline, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, 10, signal.SIGKILL)  # F_SETSIG, which has a name in newer Pythons only
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):  # it was closed before the system was asked
        os._exit(1)


def _told(error: BaseException) -> dict[str, str]:
    kind, trace = type(error), error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = str(error)
    except Exception:  # the text of an error is made by code of its class
        text = "(its text cannot be made)"
    return {"kind": name, "text": text, "traceback": "".join(traceback.format_exception(kind, error, trace))}


def _cloudpickle(folder: str, version: str) -> Any:
    """Give the cloudpickle that can read what was sent: one of the same version, or the one that is lent."""
    with contextlib.suppress(ImportError):
        own = importlib.import_module("cloudpickle")
        if own.__version__ == version:
            return own
    for name in [name for name in sys.modules if name.partition(".")[0] == "cloudpickle"]:
        del sys.modules[name]
    return _loaded("cloudpickle", os.path.join(folder, "__init__.py"), [folder])


def _neighbour(name: str) -> Any:
    return _loaded(f"_shoal_guest_{name}", os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py"))


def _loaded(name: str, place: str, folders: Any = None) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=folders)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""The server of the page, in a thread of its own, on this machine alone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterable
from threading import Thread
from typing import TYPE_CHECKING, Any

from shoal._ending import ends_with_program
from shoal._optional import require
from shoal.errors import PlanError
from shoal.view._guard import Guard
from shoal.view._subject import Options, subject_of

if TYPE_CHECKING:
    from shoal.pipeline import Failure

__all__ = ["View", "serve"]

#: How often, and how many seconds apart, the server looks whether all connections are closed when it ends.
_TURNS, _TURN = 100, 0.01


class View:
    """A page that is being served; see `serve`.

    >>> import shoal
    >>> with serve(shoal.from_arrays({"x": range(5)})) as view:
    ...     view.subject.parts
    ['samples', 'plan']
    """

    def __init__(self, subject: Any, port: int) -> None:
        uvicorn = require("uvicorn", "the viewer")
        require("starlette", "the viewer")
        from shoal.view._app import application

        self.subject = subject
        self._socket = _bound(port)
        self.port = int(self._socket.getsockname()[1])
        self._guard = Guard(application(subject), self.port)
        config = uvicorn.Config(
            self._guard, log_level="critical", access_log=False, lifespan="off", ws="none", server_header=False,
            date_header=False, timeout_graceful_shutdown=1, timeout_keep_alive=60,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="shoal-view", daemon=True)
        self._thread.start()
        ends_with_program(self)

    @property
    def url(self) -> str:
        """The link that opens the page, once."""
        return self._guard.link

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        await self._server.serve([self._socket])
        await _let_go(self._server.server_state.connections)

    def close(self) -> None:
        """End the server, and all that runs for it."""
        if self._thread.is_alive():
            self._server.should_exit = True
            self._thread.join(5.0)
        self.subject.close()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def serve(
    *what: object,
    port: int = 0,
    class_field: str | None = None,
    failures: Iterable[Failure] = (),
    trust: bool = False,
) -> View:
    """Show data in the browser: give the page of URLs, a `Dataset`, folders of trainings, a store, or several of these.

    The page is for this machine and for whoever opens its ``url``, which works once. ``class_field`` names the field
    with the class, ``failures`` are samples that are known to be broken, as a `Ledger` has them, and ``trust`` lets
    formats be decoded that can run code.

    >>> import shoal.view
    >>> with shoal.view.serve(shoal.from_arrays({"x": range(5)})) as view:
    ...     view.url.startswith("http://127.0.0.1:")
    True
    """
    return View(subject_of(what, Options(class_field, tuple(failures), trust)), port)


async def _let_go(connections: Collection[Any]) -> None:
    """Close connections that came, or were being answered, while the server ended; it takes some turns of the loop."""
    for _ in range(_TURNS):
        for connection in list(connections):
            connection.transport.abort()
        await asyncio.sleep(_TURN)
        if not connections and len(asyncio.all_tasks()) == 1:
            return


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen(128)  # from now on whoever has the link waits for the server, and is not refused
    except OSError as error:
        bound.close()
        raise PlanError(f"port {port} cannot be had ({error.strerror}); choose another, or 0 for any") from None
    return bound

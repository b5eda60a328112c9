"""A function that runs in another environment, wherever it is called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from shoal.environments._environment import Environment, find
from shoal.environments._guest import Guest

__all__ = ["Abroad"]


class Abroad:
    """Calls a function in another environment; it can be sent to any process, and each thread has a guest for it.

    ``function`` is one of this program, if both sides run the same version of Python, or is named, as in
    ``"package.module:function"``. A class is built once by each guest, with ``arguments``, and then called.

    >>> import sys
    >>> Abroad("math:hypot", sys.executable)(3, 4)
    5.0
    """

    def __init__(
        self,
        function: str | Callable[..., Any],
        environment: Environment | str | Path,
        *,
        arguments: Mapping[str, Any] | None = None,
        path: Sequence[str | Path] = (),
    ) -> None:
        self.environment = find(environment)
        self._function, self._arguments, self._path = function, arguments, tuple(map(str, path))
        self._number = uuid4().int  # the same in every copy, so that a guest has the function once
        self.__name__ = function if isinstance(function, str) else getattr(function, "__name__", repr(function))

    def __repr__(self) -> str:
        return f"<{self.__name__} in {self.environment.name}>"

    def __call__(self, *values: Any, **options: Any) -> Any:
        """Call it."""
        guests = cast("dict[Any, Any]", _GUESTS.__dict__)
        place = self.environment.python, self._path
        guest = guests.get(place)
        if guest is None or not guest.is_alive:
            guest = guests[place] = Guest(self.environment, path=self._path)
        if isinstance(self._function, str) and self._arguments is None:
            return guest.call(self._function, *values, **options)
        made = guests.get(self._number)
        if made is None or made.guest is not guest:
            made = guests[self._number] = self._built(guest)
        return made.call("__call__", *values, **options)

    @staticmethod
    def close() -> None:
        """End the guests of this thread; they end with it anyway."""
        guests = cast("dict[Any, Any]", _GUESTS.__dict__)
        for guest in [each for each in guests.values() if isinstance(each, Guest)]:
            guest.close()
        guests.clear()

    def _built(self, guest: Guest) -> Any:
        """Send a function once, or build what is called of a class."""
        function = self._function
        if self._arguments is not None or isinstance(function, type):
            return guest.keep(function, **(self._arguments or {}))
        return guest.keep(lambda: function)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.environment = self.environment.here()


_GUESTS = threading.local()

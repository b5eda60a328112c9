"""Stages that have something to keep: a class that each worker builds once, and calls from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal import registry
from shoal.errors import PlanError

__all__ = ["Built", "function_of"]


class Built:
    """Calls what is built of a class, once in each thread; it goes to other processes as the class.

    If what is built has a ``device``, samples are taken there as torch tensors, and results back as arrays.

    >>> class Counter:
    ...     def __init__(self, start):
    ...         self.count = start
    ...     def __call__(self, sample):
    ...         self.count += 1
    ...         return {"count": self.count}
    >>> counter = Built(Counter, {"start": 10})
    >>> counter({}), counter({})
    ({'count': 11}, {'count': 12})
    """

    def __init__(self, kind: type[Any], arguments: Mapping[str, Any]) -> None:
        self._kind, self._arguments = kind, dict(arguments)
        self.__qualname__ = kind.__qualname__
        self._here = threading.local()

    def __reduce__(self) -> Any:
        return Built, (self._kind, self._arguments)

    def __call__(self, sample: Any, *more: Any) -> Any:
        """Call what this thread has built."""
        call = getattr(self._here, "call", None)
        if call is None:
            call = self._here.call = _with_device(self._kind(**self._arguments))
        return call(sample, *more)


def function_of(
    function: Any, arguments: Mapping[str, Any] | None, environment: str | Path | None = None
) -> Callable[..., Any]:
    """Give what a stage calls: a function as it is, a class whose instances can be called as what workers build of it.

    >>> function_of(dict, None)
    <class 'dict'>
    """
    if environment is not None:
        from shoal.environments import Abroad

        return Abroad(function, environment, arguments=arguments)
    if isinstance(function, type) and any("__call__" in vars(base) for base in function.__mro__):
        return Built(function, arguments or {})
    if arguments is not None:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise PlanError(f"arguments= are for a class with a __call__, and {name} is none; use functools.partial")
    made: Callable[..., Any] = function
    return made


def _with_device(built: Any) -> Any:
    if getattr(built, "device", None) is None:
        return built
    device = registry.load("device", "torch")(built.device)

    def call(sample: Any, *more: Any) -> Any:
        made = built(device.there(sample), *more)
        if isinstance(made, Mapping):
            return device.back(made)
        return made if made is None or not hasattr(made, "__iter__") else map(device.back, made)

    return call

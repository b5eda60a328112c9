"""Stages that have something to keep: a class that each worker builds once, and calls from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from shoal._optional import tensor_library
from shoal.abc import Device
from shoal.errors import PlanError
from shoal.pipeline._site import Site

__all__ = ["Built", "function_of"]


class Built:
    """Calls what is built of a class, once in each thread; it goes to other processes as the class.

    Where the stage asks for a device, it is built there, and given what is there. Without, if what is built has a
    ``device`` itself, each sample is taken there when it is its turn, and the result back.

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

    def __init__(self, kind: type[Any], arguments: Mapping[str, Any], site: Site | None = None) -> None:
        self._kind, self._arguments, self._site = kind, dict(arguments), site
        self.__qualname__ = kind.__qualname__
        self._here = threading.local()

    def __reduce__(self) -> Any:
        return Built, (self._kind, self._arguments, self._site)

    def __call__(self, sample: Any, *more: Any) -> Any:
        """Call what this thread has built."""
        if not hasattr(self._here, "call"):
            self._here.call = self._built()
        return self._here.call(sample, *more)

    def _built(self) -> Any:
        if self._site is not None:
            return self._site.find(self.__qualname__).built(lambda: self._kind(**self._arguments))
        built = self._kind(**self._arguments)
        wanted = getattr(built, "device", None)
        return built if wanted is None else partial(_visiting, built, Site.of(wanted).find(self.__qualname__))


def function_of(
    function: Any,
    arguments: Mapping[str, Any] | None,
    environment: str | Path | None = None,
    site: Site | None = None,
) -> Callable[..., Any]:
    """Give what a stage calls: a function as it is, a class whose instances can be called as what workers build of it.

    >>> function_of(dict, None)
    <class 'dict'>
    """
    if environment is not None:
        if site is not None:
            raise PlanError("device= and environment= do not go together: what is on a device stays in this process")
        from shoal.environments import Abroad

        return Abroad(function, environment, arguments=arguments)
    if isinstance(function, type) and any("__call__" in vars(base) for base in function.__mro__):
        return Built(function, arguments or {}, site)
    if arguments is not None:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise PlanError(f"arguments= are for a class with a __call__, and {name} is none; use functools.partial")
    made: Callable[..., Any] = function
    return made


def _visiting(built: Any, device: Device, sample: Any, *more: Any) -> Any:
    """Call what computes on a device, with the way there and back."""
    made = built(device.ready(device.there(sample)), *more)
    if isinstance(made, Mapping) or tensor_library(made) is not None or not hasattr(made, "__iter__"):
        return _brought_back(device, made)
    return (_brought_back(device, each) for each in made)


def _brought_back(device: Device, made: Any) -> Any:
    """Bring a sample back; what is none is for the stage to judge."""
    return device.back(device.made(dict(made))) if isinstance(made, Mapping) else made

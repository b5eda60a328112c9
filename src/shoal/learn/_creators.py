"""Data that a function makes, in each worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from shoal.errors import PlanError
from shoal.learn._data import Prepared
from shoal.learn._job import Batches, Rows

__all__ = ["CreatedRows"]


class CreatedRows(Rows):
    """Rows that a function makes where they are needed; what all workers make is shared out among them.

    The function is called with a config and a batch size, or with a config that has the batch size in it.
    """

    def __init__(
        self, function: Callable[..., Any], config: Mapping[str, Any], prepare: Callable[[Any], Prepared]
    ) -> None:
        self._function, self._config, self._prepare = function, dict(config), prepare
        self._made: Rows | None = None

    def loader(self, batch_size: int, rank: int, world_size: int, to: str, **options: Any) -> Batches:
        """Call the function, and make the batches of one worker."""
        self._made = self._prepare(self._call(batch_size)).rows
        self.batch_size = self._made.batch_size
        return self._made.loader(batch_size, rank, world_size, to, **options)

    def taken(self, batch: dict[str, Any]) -> tuple[list[Any], list[Any], int]:
        """Give inputs and targets of the real rows."""
        assert self._made is not None, "a loader is made first"
        return self._made.taken(batch)

    def _call(self, batch_size: int) -> Any:
        config = {**self._config, "batch_size": batch_size}
        made = self._function(*([config, batch_size][: _arity(self._function)]))
        if made is None or inspect.isroutine(made):
            name = getattr(self._function, "__name__", repr(self._function))
            raise PlanError(f"{name} makes {made!r} and no data; it should return a loader, a dataset, arrays, ...")
        return made


def _arity(function: Callable[..., Any]) -> int:
    """Say with how many of config and batch size a function wants to be called."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(each.kind is each.VAR_POSITIONAL for each in given):
        return 2
    return min(sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in given), 2)

"""What is done besides, while a model is trained: on every worker, in the order in which it was given."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.abc import Framework
from shoal.errors import PlanError

__all__ = ["Callback", "Callbacks", "Run", "checked"]

#: How the files of callbacks begin, among those of a checkpoint.
_FILES = "callbacks/"


class Run:
    """A training, as callbacks see it."""

    def __init__(self, rank: int, size: int, attempt: int, framework: Framework) -> None:
        self.rank = rank
        """Which worker this is; what is printed or written is the first one's business."""
        self.size = size
        self.attempt = attempt
        """How often the workers began before, because one of them was lost."""
        self.framework = framework
        self.validates = False
        """Whether there is data to evaluate the model with, after an epoch or after some of them."""
        self.epoch = 0
        """Epochs that are done, since the model began to learn."""
        self.step = 0
        """Steps that are done, since the model began to learn."""
        self.rows = 0
        """Rows that all workers have learnt from, since this began."""
        self.stopped = False
        self.reason = ""

    def stop(self, reason: str = "") -> None:
        """End the training after this epoch, on all workers."""
        self.stopped, self.reason = True, reason


class Callback:
    """Called at these moments; override those that matter.

    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def after_step(self, step, loss):
    ...         self.seen.append(loss)
    >>> losses = Losses()
    >>> losses.after_step(1, 0.5)  # `fit(callbacks=[losses])` calls it after each step
    >>> losses.seen
    [0.5]
    """

    run: Run

    def before_run(self) -> None:
        """Training begins."""

    def after_run(self) -> None:
        """Training has ended."""

    def before_epoch(self, epoch: int) -> None:
        """An epoch begins; the first is 1. It is called again where workers go on in the middle of an epoch."""

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """An epoch has ended; ``stats`` are those of all workers."""

    def before_step(self, step: int) -> None:
        """A step begins; the first is 1."""

    def after_step(self, step: int, loss: float) -> None:
        """A step has ended; ``loss`` is that of this worker's rows."""

    def before_validation(self) -> None:
        """The model is about to be evaluated: after an epoch, or because of `evaluate`."""

    def after_validation(self, stats: Mapping[str, Any]) -> None:
        """The model was evaluated; ``stats`` are those of all workers."""

    def state_dict(self) -> dict[str, Any]:
        """Give what has to be known to go on from a checkpoint: plain values as JSON has them, and bytes.

        That of the first worker is kept, and all take it.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, given: Iterable[Any], run: Run) -> None:
        self._callbacks = checked(given)
        for each in self._callbacks:
            each.run = run

    def before_run(self) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.before_run()

    def after_run(self) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.after_run()

    def before_epoch(self, epoch: int) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.before_epoch(epoch)

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.after_epoch(epoch, stats)

    def before_step(self, step: int) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.before_step(step)

    def after_step(self, step: int, loss: float) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.after_step(step, loss)

    def before_validation(self) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.before_validation()

    def after_validation(self, stats: Mapping[str, Any]) -> None:
        """Tell all."""
        for each in self._callbacks:
            each.after_validation(stats)

    def kept(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Give what all have to know to go on: plain values, by the names of classes, and files."""
        states: dict[str, Any] = {}
        files: dict[str, bytes] = {}
        for each in self._callbacks:
            kind = type(each).__name__
            several = states.setdefault(kind, [])
            state = each.state_dict()
            begin = f"{_FILES}{kind}.{len(several)}."
            files |= {f"{begin}{key}": value for key, value in state.items() if isinstance(value, bytes)}
            several.append(_plain(kind, {key: value for key, value in state.items() if not isinstance(value, bytes)}))
        return states, files

    def take(self, states: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """Let each go on from what was kept of one of its class; files that are not theirs are nothing to them."""
        seen: dict[str, int] = {}
        for each in self._callbacks:
            kind = type(each).__name__
            number = seen[kind] = seen.get(kind, -1) + 1
            begin = f"{_FILES}{kind}.{number}."
            state = dict(states.get(kind, [])[number]) if number < len(states.get(kind, [])) else {}
            state |= {name.removeprefix(begin): data for name, data in files.items() if name.startswith(begin)}
            if state:
                each.load_state_dict(state)


def checked(given: Iterable[Any]) -> list[Callback]:
    """Refuse what is no callback."""
    found = list(given)
    for each in found:
        if not isinstance(each, Callback):
            raise PlanError(f"{each!r} is no callback; derive it from shoal.learn.Callback")
    return found


def _plain(kind: str, state: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(state)
    except (TypeError, ValueError) as error:
        text = f"state_dict of {kind} has to give numbers, texts, lists, dicts or bytes"
        raise PlanError(f"{text}: {error}") from None
    return state

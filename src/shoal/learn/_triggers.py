"""When something is done that is not done at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.errors import PlanError

__all__ = ["EveryEpoch", "SeveralIteration", "Trigger", "trigger_of"]


class Trigger(Protocol):
    """Tells when."""

    def __call__(self, step: int, epoch_ended: bool) -> bool:
        """Tell whether it is time, after so many steps since training began."""


@dataclass(frozen=True, slots=True)
class EveryEpoch:
    """After every epoch.

    >>> EveryEpoch()(step=7, epoch_ended=False), EveryEpoch()(step=8, epoch_ended=True)
    (False, True)
    """

    def __call__(self, step: int, epoch_ended: bool) -> bool:
        """Tell whether it is time."""
        return epoch_ended


@dataclass(frozen=True, slots=True)
class SeveralIteration:
    """After every so many steps.

    >>> [step for step in range(1, 10) if SeveralIteration(4)(step, False)]
    [4, 8]
    """

    interval: int

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise PlanError(f"SeveralIteration({self.interval}); it takes at least 1 step")

    def __call__(self, step: int, epoch_ended: bool) -> bool:
        """Tell whether it is time."""
        return step % self.interval == 0


def trigger_of(given: Trigger | str | int | None) -> Trigger | None:
    """Make a trigger of what a user gives: one of these, ``"everyepoch"``, or a number of steps."""
    if given is None or (callable(given) and not isinstance(given, type)):
        return given
    if isinstance(given, str) and given.replace("_", "").lower() == "everyepoch":
        return EveryEpoch()
    if isinstance(given, int) and not isinstance(given, bool):
        return SeveralIteration(given)
    raise PlanError(f'{given!r} does not say when; give EveryEpoch(), SeveralIteration(n), "everyepoch" or a number')

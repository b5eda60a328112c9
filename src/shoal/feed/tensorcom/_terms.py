"""What a connection is told beyond what Tensorcom knows of."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import PlanError

__all__ = ["Terms", "milliseconds"]

#: The longest time that ZeroMQ can wait for, 24 days.
_LONGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Terms:
    """How long to wait, for whom, and how much may lie about.

    >>> Terms(linger=-1)
    Traceback (most recent call last):
        ...
    shoal.errors.PlanError: linger=-1 is less than 0
    """

    timeout: float | None = None
    """Seconds without a message after which a receiver gives up; None for never."""
    senders: int = 1
    """How many senders have to end, at least, before a receiver takes the stream for ended."""
    marks: bool = True
    """Whether messages say who sent them, and the last one that it was."""
    linger: float = 30.0
    """Seconds in which something has to be taken, after a sender was closed, for it to wait on."""
    hwm: int | None = None
    """How many messages ZeroMQ keeps at this end for each of the others; 1,000 if not said, and 0 for any number."""

    def __post_init__(self) -> None:
        least = {"timeout": 0, "senders": 1, "linger": 0, "hwm": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and not value >= lowest:
                raise PlanError(f"{name}={value} is less than {lowest}")


def milliseconds(seconds: float) -> int:
    """Give a time as ZeroMQ takes it.

    >>> milliseconds(0.25), milliseconds(float("inf"))
    (250, 2147483647)
    """
    return int(min(seconds * 1000, _LONGEST))

"""Workers that belong together: so many at once, who meet, and who begin again together when one of them is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

__all__ = ["Gang", "Member", "Resources", "dealt"]


@dataclass(frozen=True, slots=True)
class Resources:
    """What each worker is to have.

    >>> Resources(cpus=2, gpus=1)
    Resources(cpus=2, gpus=1, modules=())
    """

    cpus: float = 1.0
    gpus: float = 0.0
    modules: tuple[str, ...] = ()
    """Modules to import before it begins, where an engine can do that once for all; they have to bear a fork."""


class Member(ABC):
    """What a function is called with in each worker of a gang.

    When several members fail, the first failure is raised. One whose error makes others fail while it still puts things
    away says when it happened, with an attribute ``raised_at`` of the exception (`time.time`).

    >>> from shoal.engines import current
    >>> def meet(member):
    ...     return member.rank, member.all_gather(member.rank * 10)
    >>> with current().gang(meet, 2) as gang:
    ...     gang.results()
    [(0, [0, 10]), (1, [0, 10])]
    """

    rank: int
    size: int
    """How many members there are."""
    attempt: int
    """How often the gang began before."""
    host: str
    """The address at which other members reach this one's ports."""
    shards: Sequence[Any]
    """Those of the shards that were given to the gang which are this member's; see `dealt`."""

    @abstractmethod
    def all_gather(self, value: Any) -> list[Any]:
        """Wait until every member is here, and give what each of them brought, by rank."""

    @abstractmethod
    def report(self, value: Any) -> None:
        """Tell something to whoever started the gang."""


class Gang(ABC):
    """Members at work. As a context, it ends with the block.

    >>> from shoal.engines import current
    >>> with current().gang(lambda member: member.report("here"), 1) as gang:
    ...     list(gang.reports())
    [(0, 'here')]
    """

    @abstractmethod
    def results(self) -> list[Any]:
        """Wait for all members, and give what they returned, by rank; raise what one of them raised."""

    @abstractmethod
    def reports(self) -> Iterator[tuple[int, Any]]:
        """Give what members tell, each with the rank of who does, as it comes and until they are done."""

    @abstractmethod
    def close(self) -> None:
        """End all members, whatever they are doing."""

    def __enter__(self) -> Gang:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def dealt(shards: int, members: int) -> list[range]:
    """Share out shards, in their order: the same number to all, and one more to each of the first if some are left.

    >>> [len(some) for some in dealt(4, 3)], [len(some) for some in dealt(4, 6)]
    ([2, 1, 1], [1, 1, 1, 1, 0, 0])
    """
    least, more = divmod(shards, members)
    ends = [rank * least + min(rank, more) for rank in range(members + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]

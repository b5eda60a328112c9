"""Work that goes through several steps, each with workers of its own, in an order that is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypedDict, TypeVar

from shoal.errors import PlanError
from shoal.settings import gpus, processors

__all__ = ["Parcel", "Pool", "PoolOptions", "PoolReading", "Step", "Stream", "Workers"]

In = TypeVar("In", bound="Parcel")
Out = TypeVar("Out", bound="Parcel")

#: A number, the least and the most of them, or "auto".
Workers: TypeAlias = "int | tuple[int, int] | str"


class PoolOptions(TypedDict, total=False):
    """What can be said of who does a stage; see `Pool`.

    >>> import shoal
    >>> options: PoolOptions = {"workers": (1, 4), "mode": "thread"}
    >>> dataset = shoal.from_arrays({"x": range(3)}).map(lambda sample: {"x": -sample["x"]}, **options)
    >>> [int(sample["x"]) for sample in dataset]
    [0, -1, -2]
    """

    workers: Workers
    mode: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Pool:
    """Who does a stage: so many threads or processes.

    >>> Pool((1, 4)).bounds
    (1, 4)
    """

    workers: Workers = "auto"
    """A number; the least and the most of them, between which the run goes by how full its queues are; or
    ``"auto"``, as many as there are processors for."""
    mode: str = "thread"
    cpus: float | None = None
    """Processors that each worker uses; None is one, about."""
    gpus: float = 0.0
    """Graphics processors that each worker uses."""

    def __post_init__(self) -> None:
        if self.cpus is not None and self.cpus < 0:
            raise PlanError(f"cpus={self.cpus}; a worker uses no less than 0")
        if self.gpus < 0:
            raise PlanError(f"gpus={self.gpus}; a worker uses no less than 0")
        low, high = self.bounds
        if not 0 <= low <= high or (low == 0 and high > 0):
            raise PlanError(f'workers={self.workers!r}; it is a number, a range like (1, 4), or "auto"; 0 is none')
        if self.mode not in ("thread", "process"):
            raise PlanError(f'mode={self.mode!r}; known are "thread" and "process"')

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most workers."""
        match self.workers:
            case "auto":
                return (self._as_many_as_fit(),) * 2
            case bool():
                return -1, -1
            case int(number):
                return number, number
            case (int(low), int(high)) if not isinstance(low, bool):
                return low, high
        return -1, -1

    def _as_many_as_fit(self) -> int:
        fit = int(processors() / (self.cpus or 1))
        return max(min(fit, int(len(gpus()) / self.gpus)) if self.gpus else fit, 1)


class Parcel(Protocol):
    """What travels through a stream: some samples, with an address for messages.

    >>> class Letter:
    ...     nbytes, address = 100, "letters.tar"
    >>> parcel: Parcel = Letter()
    >>> parcel.address
    'letters.tar'
    """

    @property
    def nbytes(self) -> int:
        """The memory that it holds, about."""

    @property
    def address(self) -> str:
        """Where its samples come from, as a message says it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do with each parcel, and who does it.

    >>> Step("double", lambda parcel: parcel, Pool(2)).name
    'double'
    """

    name: str
    work: Callable[[Any], Any]
    pool: Pool
    rescue: Callable[[Callable[[Any], Any], Any, Exception], Any] | None = None
    """Called with the work, a parcel and the error when worker processes died of it, more than once; gives what is
    to go on, or raises."""
    room: int | None = None
    """Parcels that its workers may have in hand or leave waiting for those of the next step; None for any number."""


@dataclass(frozen=True, slots=True)
class PoolReading:
    """How the workers of a step are doing, since the stream began.

    >>> PoolReading("decode", "thread", workers=2, waiting=3, done=40, busy=1.5).waiting
    3
    """

    name: str
    mode: str
    workers: int
    waiting: int
    """Parcels that wait for them."""
    done: int
    """Parcels that they are through with."""
    busy: float
    """Seconds that they worked, added up."""
    deaths: int = 0
    """Processes that were started anew."""


class Stream(ABC, Generic[In, Out]):
    """Work that goes in as parcels and comes out in the same order, some of it being done meanwhile.

    >>> from shoal.engines import current
    >>> class Word(str):
    ...     nbytes, address = 10, "a text"
    >>> stream = current().stream([Step("shout", lambda word: Word(word.upper()), Pool(1))], memory=2**20)
    >>> stream.put(Word("first")), stream.put(Word("second"))
    (None, None)
    >>> str(stream.get()), str(stream.get())
    ('FIRST', 'SECOND')
    >>> stream.close()
    """

    capacity: int
    """Parcels that may be under way at most; more would only wait."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the parcels that were put in and did not come out yet."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether another parcel would be one too many, or take too much memory."""

    @abstractmethod
    def put(self, parcel: In) -> None:
        """Hand over a parcel."""

    @abstractmethod
    def get(self) -> Out:
        """Wait for the oldest parcel and give what became of it, or raise what went wrong with it."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way and let go of all workers."""

    @abstractmethod
    def readings(self) -> Sequence[PoolReading]:
        """Tell how each step is doing."""

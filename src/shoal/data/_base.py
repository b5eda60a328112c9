"""What the operations on shards are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.abc import Engine, Handle
from shoal.data._lazy import Recipe

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["Shards"]

T = TypeVar("T")


class Shards(ABC):
    """Shards that are made when somebody wants them, and the steps that operations take."""

    @abstractmethod
    def num_partitions(self) -> int:
        """Count the shards."""

    @abstractmethod
    def collect(self) -> list[Any]:
        """Bring all shards here."""

    @property
    @abstractmethod
    def _engine(self) -> Engine:
        """Give the engine that has them."""

    @abstractmethod
    def _then(self, function: Callable[..., Any]) -> XShards:
        """Call a function with each shard."""

    @abstractmethod
    def _exchanged(
        self, partitions: int, cut: Callable[..., Any], join: Callable[..., Any], *, numbered: bool = False
    ) -> XShards:
        """Cut shards into pieces and put those of each number together; shards tell their number if that is needed."""

    @abstractmethod
    def _numbered(self) -> XShards:
        """Put each shard together with its number."""

    @abstractmethod
    def _gathered(self, what: str) -> list[Any]:
        """Bring all shards here, and show how far that is."""

    @abstractmethod
    def _tried(self, action: Callable[[], T]) -> T:
        """Do something; once more, if what was known of the files turns out to be wrong."""

    @abstractmethod
    def _handle(self) -> Handle:
        """Let the engine make the shards."""

    @abstractmethod
    def _whole(self) -> Recipe:
        """Give the shards as one collection that is made once."""

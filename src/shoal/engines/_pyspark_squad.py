"""The members of a gang as the tasks of a stage of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from pyspark import InheritableThread, SparkContext

from shoal.abc import dealt
from shoal.engines._gang import Squad
from shoal.engines._member import Call, leave, serve

__all__ = ["SparkSquad"]

_PATIENCE = 20.0  # seconds


class SparkSquad(Squad):
    """Members as the tasks of a barrier stage, which Spark starts together or not at all."""

    def __init__(self, context: SparkContext, rdd: Any, count: int) -> None:
        self._context, self._rdd, self._count = context, rdd, count
        self._job: InheritableThread | None = None
        self._group, self._error = "", ""

    def start(self, call: Call) -> None:
        """Begin the stage; a thread waits for its end."""
        self._group, self._error = f"shoal-gang-{uuid4()}", ""
        rows = self._context.parallelize(range(call.size), call.size) if self._rdd is None else self._dealt(call.size)
        stage = rows.barrier().mapPartitionsWithIndex(_server(call, self._rdd is not None))
        self._job = InheritableThread(target=self._run, args=(stage, call.name), daemon=True)
        self._job.start()

    def missing(self) -> str | None:
        """Tell what Spark says of the stage."""
        return self._error or None

    def stop(self) -> None:
        """Cancel the stage."""
        self._context.cancelJobGroup(self._group)
        if self._job is not None:
            self._job.join(_PATIENCE)

    def _run(self, stage: Any, name: str) -> None:
        self._context.setJobGroup(self._group, name, interruptOnCancel=True)
        try:
            stage.collect()
        except Exception as error:  # whatever Spark says, in Java's words
            self._error = f"Spark ended the stage: {str(error).strip().splitlines()[0]}"

    def _dealt(self, size: int) -> Any:
        """Bring the shards of each member into one partition."""
        owner = {number: rank for rank, mine in enumerate(dealt(self._count, size)) for number in mine}
        return self._rdd.mapPartitionsWithIndex(_owned(owner)).partitionBy(size, _itself)


def _owned(owner: dict[int, int]) -> Callable[[int, Iterator[Any]], Iterator[tuple[int, tuple[int, bytes]]]]:
    return lambda number, messages: ((owner[number], (number, bytes(message))) for message in messages)


def _server(call: Call, has_shards: bool) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    def be_member(rank: int, rows: Iterator[Any]) -> Iterator[Any]:
        pieces = sorted((row[1] for row in rows), key=_first) if has_shards else []
        serve(call, rank, [message for _, message in pieces], leave)
        return iter(())

    return be_member


def _itself(number: int) -> int:
    return number


def _first(pair: tuple[int, bytes]) -> int:
    return pair[0]

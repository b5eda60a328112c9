"""Samples shared out to several consumers in other processes: each has an iterator, and knows nothing of the others.

The plan is run by the process that made the iterators, once an epoch. What comes out is dealt to the consumers in turn,
so many samples to each, and sent to them when they are ready for it: who is slow holds the others back.
"""

from __future__ import annotations

import queue
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from shoal import registry, settings
from shoal._ending import ends_with_program
from shoal.abc import Sample
from shoal.engines._batch_parts import cut, rebatched, rows
from shoal.engines._current import current
from shoal.engines._message import pack, unpack
from shoal.engines._task import Caught
from shoal.engines._wire import Door, Kind, Lost, Wire
from shoal.errors import PlanError, StallWarning, StateError
from shoal.pipeline import Dataset, Loader

__all__ = ["Share", "split"]

#: Samples that a consumer gets at once.
PART = 32
#: Parts that wait for a consumer, at most.
_AHEAD = 2
#: Seconds for somebody who leaves a share to have left it.
_PATIENCE = 1.0


def split(dataset: Dataset, n: int, *, equal: bool = True, part: int = PART, **options: Any) -> list[Share]:
    """Make an iterator for each of ``n`` consumers, who get ``part`` samples at once; see `Dataset.split`.

    >>> import shoal
    >>> one, two = split(shoal.from_arrays({"x": range(8)}), 2, part=2)
    >>> import concurrent.futures
    >>> with concurrent.futures.ThreadPoolExecutor(2) as threads:  # consumers are other processes, most of the time
    ...     [[int(row["x"]) for row in rows] for rows in threads.map(list, (one, two))]
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    >>> one.close()
    """
    if n < 1:
        raise PlanError(f"split({n}); at least one consumer is needed")
    server = _Server(dataset.loader(n * part, rank=0, world_size=1, **options), n, equal, part)
    return [Share(server.door.address, server.door.token, number, n, server) for number in range(n)]


class Share:
    """The share of one consumer. It can be pickled, and read in another process, once an epoch.

    An epoch begins when all consumers have asked for it.

    >>> import shoal
    >>> (share,) = split(shoal.from_arrays({"x": range(4)}), 1)
    >>> [batch["x"].tolist() for batch in share.iter_batches(3)]
    [[0, 1, 2], [3]]
    >>> share.close()
    """

    def __init__(
        self, address: tuple[str, int], token: bytes, number: int, count: int, server: _Server | None = None
    ) -> None:
        self._address, self._token, self._number, self._count = address, token, number, count
        self._server = server
        if server is not None:
            weakref.finalize(self, server.forgotten)

    def __repr__(self) -> str:
        return f"<share {self._number} of {self._count}>"

    def __reduce__(self) -> Any:
        return Share, (self._address, self._token, self._number, self._count)

    def __iter__(self) -> Iterator[Sample]:
        return self.iter_rows()

    def iter_rows(self) -> Iterator[Sample]:
        """Yield the samples of an epoch."""
        for part in self._parts():
            yield from rows(part)

    def iter_batches(self, batch_size: int = 256, *, drop_last: bool = False, to: str = "numpy") -> Iterator[Sample]:
        """Yield batches of an epoch, in a format that loaders know; the last may be short."""
        if batch_size < 1:
            raise PlanError(f"batch_size={batch_size}; a batch has at least one sample")
        convert = registry.load("format", to)
        return map(convert, rebatched(self._parts(), batch_size, drop_last=drop_last))

    def iter_torch_batches(self, batch_size: int = 256, *, drop_last: bool = False) -> Iterator[Sample]:
        """Yield batches of torch tensors."""
        return self.iter_batches(batch_size, drop_last=drop_last, to="torch")

    def close(self) -> None:
        """End the run that all iterators share; only in the process that made them."""
        if self._server is None:
            raise StateError("only the process that made the iterators can end their run")
        self._server.close()

    def _parts(self) -> Iterator[Sample]:
        try:
            wire = Wire.to(self._address, self._token)
        except Lost as error:
            raise StateError("the process that shares the samples out has ended, or its run was closed") from error
        try:
            wire.send(Kind.JOIN, self._number)
            self._await(wire)
            while (part := _opened(wire)) is not None:
                yield part
        except Lost as error:
            raise StateError("the process that shares the samples out has ended in the middle of an epoch") from error
        finally:
            wire.close()

    def _await(self, wire: Wire) -> None:
        stall = settings.current().stall
        if stall and not wire.ready(stall):
            text = f"share {self._number} of {self._count} has waited {stall:g} s for the first sample"
            warnings.warn(f"{text}: an epoch begins when all have asked for it", StallWarning, stacklevel=3)


class _Server:
    """Runs the epochs of a loader for several consumers."""

    def __init__(self, loader: Loader, count: int, equal: bool, part: int) -> None:
        self._loader, self._count, self._equal, self._part = loader, count, equal, part
        self._lock = threading.Condition()
        self._coming: dict[int, _Consumer] = {}
        """Who waits for the next epoch."""
        self._reading: dict[int, _Consumer] = {}
        """Who is in the one that is under way."""
        self._seen: set[int] = set()
        self._held, self._closed = count, False
        self.door = Door(getattr(current(), "here", "127.0.0.1"), count, self._admit)
        threading.Thread(target=self._run, name="shoal-shares", daemon=True).start()
        ends_with_program(self)
        _OPEN.add(self)

    def forgotten(self) -> None:
        """Hear that an iterator is not held any more in this process; copies may be read elsewhere."""
        with self._lock:
            self._held -= 1
            self._lock.notify_all()

    def close(self) -> None:
        """End the run, and tell who waits."""
        with self._lock:
            self._closed = True
            consumers = [*self._coming.values(), *self._reading.values()]
            self._lock.notify_all()
        self.door.close()
        for consumer in consumers:
            consumer.close()
        _OPEN.discard(self)

    def _admit(self, wire: Wire) -> None:
        with suppress(Lost):
            number = int(wire.value(Kind.JOIN))
            with self._lock:
                if not self._lock.wait_for(lambda: self._is_free(number), _PATIENCE):
                    text = f"share {number} of {self._count} is being read by somebody else, or was not read to its end"
                    wire.send(Kind.ERROR, Caught.of(StateError(f"{text}; each has one reader, once an epoch")))
                    wire.close()
                    return
                self._coming[number] = _Consumer(wire, self._lock)
                self._seen.add(number)
                self._lock.notify_all()

    def _is_free(self, number: int) -> bool:
        """Tell whether nobody reads a share, or waits for it; who has just hung up may not be seen to have gone yet."""
        reader = self._reading.get(number)
        return number not in self._coming and (reader is None or reader.done)

    def _run(self) -> None:
        while self._everybody():
            consumers, failure = list(self._reading.values()), None
            try:
                for parts in self._dealt():
                    for consumer, part in zip(consumers, parts, strict=True):
                        consumer.put(part)
                    if all(consumer.done for consumer in consumers):
                        break
            except BaseException as error:  # whatever went wrong is for those who wait for samples
                failure = Caught.of(error)
            for consumer in consumers:
                consumer.end(failure)
        self.close()

    def _everybody(self) -> bool:
        """Wait until all consumers have come; tell whether there will be another epoch."""
        with self._lock:
            while len(self._coming) < self._count:
                read = len(self._seen) == self._count and all(consumer.done for consumer in self._reading.values())
                if self._closed or (self._held <= 0 and read and not self._coming):
                    return False
                self._lock.wait(0.5)
            self._reading = dict(sorted(self._coming.items()))
            self._coming.clear()
        return not self._closed

    def _dealt(self) -> Iterator[list[Sample | None]]:
        for batch in self._loader:
            if self._closed:
                raise StateError("the run that shares the samples out was closed")
            yield cut(batch, self._count, self._part, equal=self._equal)


#: Servers whose iterators may be in other processes only: somebody has to hold them.
_OPEN: set[_Server] = set()


class _Consumer:
    """One who reads an epoch; a thread sends him what there is."""

    def __init__(self, wire: Wire, lock: threading.Condition) -> None:
        self._wire, self._lock = wire, lock
        self._queue: queue.Queue[tuple[Kind, Any]] = queue.Queue(_AHEAD)
        self.done = False
        """Whether he has all that there is for him, or has gone."""
        for work in (self._send, self._listen):
            threading.Thread(target=work, name="shoal-share", daemon=True).start()

    def put(self, part: Sample | None) -> None:
        """Send a part as soon as there is room for it; not to one who has gone."""
        if part is not None:
            self._offer(Kind.REPORT, part)

    def end(self, error: Caught | None = None) -> None:
        """Say that there is no more, or what went wrong."""
        self._offer(*((Kind.RESULT, None) if error is None else (Kind.ERROR, error)))

    def close(self) -> None:
        """Hang up."""
        self.done = True
        self._wire.close()

    def _offer(self, kind: Kind, value: Any) -> None:
        while not self.done:
            with suppress(queue.Full):
                self._queue.put((kind, value), timeout=0.2)
                return

    def _send(self) -> None:
        kind = Kind.REPORT
        try:
            while kind is Kind.REPORT and not self.done:
                with suppress(queue.Empty):
                    kind, value = self._queue.get(timeout=0.2)
                    self._wire.send_packed(kind, pack(value))
        except Lost:
            pass
        finally:
            self._leave()

    def _listen(self) -> None:
        with suppress(Lost):
            self._wire.receive()  # he never says anything, and this ends when he hangs up
        self._wire.close()
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self.done = True
            self._lock.notify_all()


def _opened(wire: Wire) -> Sample | None:
    kind, message = wire.receive()
    value: Any = unpack(message)
    if kind is Kind.ERROR:
        raise value.revived()
    part: Sample | None = value
    return part

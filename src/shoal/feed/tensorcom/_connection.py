"""Sending and receiving lists of arrays."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from shoal.errors import PlanError, StallWarning, StreamEndedError
from shoal.feed.tensorcom._arrays import checked, decode_list, encode_list
from shoal.feed.tensorcom._batches import arrays_of, check_types, chosen
from shoal.feed.tensorcom._converters import Functions, functions, transformed
from shoal.feed.tensorcom._receiving import Receiving
from shoal.feed.tensorcom._sending import Sending
from shoal.feed.tensorcom._statistics import Reports, Statistics
from shoal.feed.tensorcom._terms import Terms
from shoal.feed.tensorcom._urls import Address, addresses, one_kind
from shoal.feed.tensorcom._wire import Wire

__all__ = ["Connection"]


class Connection:
    """Sends or receives lists of arrays over a socket of ZeroMQ, as its URLs say; for one thread of one process.

    Several URLs are one socket, bound or connected to all of them. What a receiver gets goes through
    ``batch_transforms`` and then ``converters``: a function, a name (``"torch"``, ``"torch_cuda"``, ``"numpy"``), or a
    list by place. Iterating gives messages until ``total`` samples have come, or all who send have ended. ``infos`` are
    names of arrays, ``epoch`` is what ``len`` says, and ``report`` after how many samples standard error gets a line.

    A receiver raises after ``timeout`` seconds of silence, and ends when at least ``senders`` have. A sender that is
    closed waits as long as something is taken within ``linger`` seconds, and says that it has ended unless ``marks`` is
    False. ``hwm`` is how many messages ZeroMQ keeps for each of the others.

    >>> import numpy as np
    >>> trainer = Connection("zpull://127.0.0.1:*", converters="torch")
    >>> with Connection(trainer.urls[0].replace("pull", "push")) as loader:
    ...     loader.serve([[np.zeros((2, 4, 4, 3), "u1"), np.arange(2, dtype="i4")]])
    >>> [(tuple(xs.shape), ys.tolist()) for xs, ys in trainer]
    [((2, 3, 4, 4), [0, 1])]
    >>> trainer.close()
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        epoch: int = 100000,
        total: int = -1,
        multipart: bool = True,
        infos: bool | Sequence[str] | None = None,
        device: str | None = None,
        allow64: bool = False,
        raw: bool = False,
        batch_transforms: Functions = None,
        batch_count: bool = True,
        converters: Functions = None,
        report: int = -1,
        stats_horizon: int = 1000,
        noexpand: bool = False,
        *,
        timeout: float | None = None,
        senders: int = 1,
        marks: bool = True,
        linger: float = 30.0,
        hwm: int | None = None,
    ) -> None:
        self.epoch, self.total, self.report = epoch, total, report
        self.multipart, self.infos, self.raw = multipart, infos, raw
        self.device, self.allow64, self.batch_count = device, allow64, batch_count
        self.batch_transforms = functions(batch_transforms)
        self.converters = functions(converters, device)
        self.noexpand = noexpand
        self.terms = Terms(timeout, senders, marks, linger, hwm)
        self.stats = Statistics(stats_horizon)
        self.count = 0
        """Samples that came so far, or messages without ``batch_count``."""
        self.batch_size: int | None = None
        """Rows of the message that came last."""
        self.sampler = self.batch_sampler = None
        self._addresses: list[Address] = []
        self._wire: Wire | None = None
        self._end: Sending | Receiving | None = None
        if url is not None:
            try:
                self.connect(url)
            except BaseException:
                self._drop()
                raise

    @property
    def urls(self) -> list[str]:
        """Where it is bound or connected, with the ports that the system chose."""
        return [address.url for address in self._addresses]

    def connect(self, url: str | Sequence[str], topic: str | None = None) -> None:
        """Bind or connect to URLs, beside those that there are; the topic is what follows ``#``, unless given here."""
        wanted = addresses(url, expand=not self.noexpand)
        kind = one_kind([*self._addresses, *wanted])
        if self._wire is None:
            self._open(kind)
        assert self._wire is not None
        for address in wanted:
            self._addresses.append(self._wire.attach(address, topic))
            if isinstance(self._end, Sending):
                self._end.attached(address)

    def send(self, data: Any, *, allow64: bool = False) -> None:
        """Send a list of arrays; what has 64 bits only if that is said here, or was when this was made."""
        arrays = arrays_of(data)
        check_types(arrays, allow64=allow64 or self.allow64)
        names = None if isinstance(self.infos, bool) else self.infos
        self._sending().send(encode_list(arrays, names))
        self.stats.add(sum(array.nbytes for array in arrays))

    def write(self, data: Any, *, allow64: bool = False) -> None:
        """Send a list of arrays."""
        self.send(data, allow64=allow64)

    def recv(self) -> Any:
        """Receive a list of arrays, which are yours to change; with ``infos=True`` their names, too.

        With ``raw`` it is the parts of the message as bytes. `StreamEndedError` says that nothing more will come.
        """
        parts = self._receiving().receive()
        self.stats.add(sum(len(part) for part in parts[1::2]))
        if self.raw:
            return [bytes(part) for part in parts]
        arrays, names = decode_list(parts, infos=True)
        checked(arrays, names, self.infos)
        self.batch_size = self.batchsize(arrays)
        made = transformed(transformed(arrays, self.batch_transforms), self.converters)
        return (made, names) if self.infos is True else made

    def serve(self, source: Iterable[Any], report: int = -1, *, fields: str | Sequence[str] | None = None) -> None:
        """Send everything that an iterable gives: lists of arrays, or batches of a loader.

        Batches are dicts; ``fields`` says which of their fields are sent, in which order.
        """
        self._sending().begin()
        reports = Reports(self.stats, report if report > 0 else self.report)
        for batch in source:
            arrays = arrays_of(chosen(batch, fields))
            self.send(arrays)
            reports.add(self.batchsize(arrays))

    def items(self, report: int = -1) -> Iterator[Any]:
        """Receive messages, until all have come."""
        reports = Reports(self.stats, report if report > 0 else self.report)
        while self.total <= 0 or self.count < self.total:
            try:
                message = self.recv()
            except StreamEndedError:
                return
            samples = 1 if self.raw else self.batch_size or 0
            self.count += samples
            reports.add(samples)
            yield message

    def batchsize(self, xs: Sequence[Any]) -> int:
        """Count the samples of a message: the rows of its first array."""
        return len(xs[0]) if self.batch_count and np.ndim(xs[0]) else 1

    def close(self) -> None:
        """Tell receivers of the end when all that was sent has been taken, and close the socket.

        What nobody takes for ``linger`` seconds is lost, with a warning.
        """
        lost, urls = 0, self.urls
        try:
            if isinstance(self._end, Sending):
                lost = self._end.close(self.terms.linger)
        finally:
            self._drop()
        if lost:
            text = f"{lost} messages for {', '.join(urls)} were not taken within {self.terms.linger:g} s and are lost"
            warnings.warn(f"{text}; does anybody receive them?", StallWarning, stacklevel=2)

    def __iter__(self) -> Iterator[Any]:
        return self.items()

    def __len__(self) -> int:
        return self.epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error nobody is told that all has been sent, and nothing is waited for."""
        if kind is None:
            self.close()
        else:
            self._drop()

    def _open(self, kind: str) -> None:
        self._wire = Wire(kind, self.terms)
        if kind in ("PUSH", "PUB"):
            self._end = Sending(self._wire, self.terms, multipart=self.multipart)
        else:
            self._end = Receiving(self._wire, self.terms)

    def _drop(self) -> None:
        wire, self._wire, self._end, self._addresses = self._wire, None, None, []
        if wire is not None:
            wire.close(0)

    def _sending(self) -> Sending:
        if not isinstance(self._end, Sending):
            raise PlanError(self._not_for("send", "zpush, zrpush, zpub, zrpub"))
        return self._end

    def _receiving(self) -> Receiving:
        if not isinstance(self._end, Receiving):
            raise PlanError(self._not_for("receive", "zpull, zrpull, zsub, zrsub"))
        return self._end

    def _not_for(self, what: str, schemes: str) -> str:
        if self._end is None:
            return f"this connection is not open; give it a URL to {what} with ({schemes})"
        return f"{self.urls[0]} does not {what}; URLs that do begin with {schemes}"

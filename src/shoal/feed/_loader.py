"""The loader of a trainer that is fed from other hosts."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shoal._flight import certificate_text, secret_text
from shoal.errors import PlanError
from shoal.feed._crew import Crew
from shoal.feed._feeder import kept_token
from shoal.feed._origin import FedOrigin, Wishes
from shoal.pipeline import Loader
from shoal.pipeline.runs import LoaderOptions

__all__ = ["FeedLoader", "FeederInfo", "connect"]


@dataclass(frozen=True, slots=True)
class FeederInfo:
    """A feeder, as a trainer knows it.

    >>> FeederInfo("grpc://10.0.0.2:8817", at_work=False, why="it is busy").why
    'it is busy'
    """

    url: str
    at_work: bool
    why: str = ""
    """Why it is not at work."""


class FeedLoader(Loader):
    """Yields batches that feeders prepare; everything else is as with `Loader`.

    States are those of a loader of the dataset itself: a training can go on with feeders, without, or with others.

    >>> import shoal
    >>> with shoal.feed.serve(shoal.from_arrays({"x": range(4)})) as feeder:
    ...     loader = connect(feeder.url, batch_size=2)
    ...     [batch["x"].tolist() for batch in loader], [each.at_work for each in loader.feeders()]
    ([[0, 1], [2, 3]], [True])
    """

    def __init__(self, crew: Crew, wishes: Wishes, options: LoaderOptions) -> None:
        self._crew, self._wishes = crew, wishes
        super().__init__(FedOrigin(crew, wishes), options)
        self._seen = time.monotonic(), 0.0
        crew.waiting = _waiting(weakref.ref(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._crew.waiting = _waiting(weakref.ref(self))

    def feeders(self) -> list[FeederInfo]:
        """List the feeders that are known, and say which of them are at work."""
        return [
            FeederInfo(member.url, member.hello is not None, "" if member.hello else member.why)
            for member in self._crew.members()
        ]

    def disconnect(self) -> None:
        """End what is under way, and look for feeders no more."""
        self.close()
        self._crew.close()

    def waited(self) -> float:
        """Say which share of the time the user waited for batches, since this was asked last."""
        now, waited = time.monotonic(), 0.0 if self._meter is None else self._meter.waited
        (then, before), self._seen = self._seen, (now, waited)
        return min(max(waited - before, 0.0) / max(now - then, 1e-9), 1.0)


def _waiting(loader: weakref.ref[FeedLoader]) -> Callable[[], float]:
    def waiting() -> float:
        found = loader()
        return 0.0 if found is None else found.waited()

    return waiting


def connect(
    urls: str | Sequence[str],
    batch_size: int | None = None,
    *,
    token: str | os.PathLike[str] | None = None,
    tls_root: str | os.PathLike[str] | None = None,
    compression: str | None = None,
    shared_memory: bool = True,
    timeout: float | None = None,
    share: str | None = None,
    jobs: int = 1,
    **options: Any,
) -> FeedLoader:
    """Load batches that feeders prepare: the same as those of `Dataset.loader`, in the same order.

    ``urls`` are addresses of feeders (``"host:8817"``); those that they know are found, too. Feeders may come and go:
    each makes the samples of some lanes, and others go on where one is lost. ``batch_size`` and all further options are
    those of `Dataset.loader`, without ``workers`` and ``mode``, which are the feeders' own.

    ``token`` is what the feeders want to hear, as text or as the path of a file; without, it is that of this user.
    ``tls_root`` is the certificate by which those of feeders are checked. Arrays can be sent in ``compression``
    (``"lz4"``, ``"zstd"``). A feeder on this host shares its memory, unless ``shared_memory`` is false. One that sends
    nothing for ``timeout`` seconds, while it is waited for, is left alone (without: the setting ``stall``).

    With ``share``, a name, several jobs (``jobs`` of them) get the same batches, each of which is prepared once; who is
    ahead waits for the others.

    >>> import shoal
    >>> with shoal.feed.serve(shoal.from_arrays({"x": range(4)})) as feeder:
    ...     loader = connect(feeder.url, batch_size=2)
    ...     [batch["x"].tolist() for batch in loader]
    [[0, 1], [2, 3]]
    """
    for name in ("workers", "mode"):
        if name in options:
            raise PlanError(f"{name}= is for feeders, who do the work: give it to shoal.feed.serve, or `shoal serve`")
    addresses = [urls] if isinstance(urls, str) else list(urls)
    crew = Crew(addresses, secret_text(token) or kept_token(), certificate_text(tls_root))
    size = batch_size or crew.meet()["batch_size"]
    if size is None:
        raise PlanError("the feeders name no batch_size: give one to connect, or to those who serve")
    wishes = Wishes(timeout, shared_memory, compression, share, jobs)
    return FeedLoader(crew, wishes, LoaderOptions(size, **options))

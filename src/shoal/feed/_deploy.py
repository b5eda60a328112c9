"""Feeders on an engine: each is a worker of its own, which may be lost and started anew without the others."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from shoal import settings
from shoal._ending import ends_with_program
from shoal._flight import Tls
from shoal.abc import Engine, Gang, Member, Resources, Workers
from shoal.engines import current
from shoal.errors import FeedError, ShoalError
from shoal.feed._feeder import serve
from shoal.feed._line import Line
from shoal.feed._loader import FeedLoader, connect
from shoal.feed._scaling import Bounds, Pressure, bounds_of
from shoal.pipeline import Dataset

__all__ = ["Deployment", "deploy"]

#: Seconds between two looks at how long trainers wait.
_LOOK = 2.0
#: Seconds for feeders to begin, and for one that is not needed any more to hand its lanes over.
_BEGIN, _LEAVE = 180.0, 10.0
_RESTARTS = 1000
_TICK = 0.2


def deploy(
    dataset: Dataset,
    feeders: int | tuple[int, int] = 1,
    *,
    workers: Workers = "auto",
    mode: str = "thread",
    cpus: float = 1.0,
    gpus: float = 0.0,
    tls: Tls | None = None,
    engine: Engine | None = None,
) -> Deployment:
    """Start feeders on the current engine (local processes, Ray, Spark, Dask), and wait until they answer.

    ``feeders`` is a number, or the least and the most of them, between which it goes by how long trainers wait. Each
    has so many ``cpus`` and ``gpus`` of the engine, and ``workers`` for stages that have none of their own; see
    `shoal.feed.serve`. A feeder whose worker is lost is started anew.

    >>> import shoal
    >>> with deploy(shoal.from_arrays({"x": range(4)}), feeders=1) as feed:
    ...     [batch["x"].tolist() for batch in feed.loader(2)]
    [[0, 1], [2, 3]]
    """
    job = _Job(dataset, secrets.token_urlsafe(32), workers, mode, tls)
    made = Deployment(job, bounds_of(feeders), Resources(cpus, gpus), engine or current())
    try:
        made.wait()
    except BaseException:
        made.close()
        raise
    return made


@dataclass(frozen=True, slots=True)
class _Job:
    """What each feeder is told."""

    dataset: Dataset
    token: str
    workers: Workers
    mode: str
    tls: Tls | None

    def __call__(self, member: Member) -> None:
        """Be a feeder, until nobody wants it any more."""
        feeder = serve(
            self.dataset, host=member.host, workers=self.workers, mode=self.mode, token=self.token, tls=self.tls
        )
        with feeder:
            member.report(feeder.url)
            while not feeder.is_closed:
                time.sleep(_TICK)  # awake now and then: some engines interrupt a member, which takes that


class _Post:
    """One feeder on the engine, at whatever address it is now."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.url: str | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._listen, name="shoal-feed-post", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for _, url in self.gang.reports():
            self.url = url  # another one after each loss
        self.url = None
        try:
            self.gang.results()
        except BaseException as error:
            self.error = error


class Deployment:
    """Feeders on an engine; as a context, they end with the block.

    >>> import shoal
    >>> from shoal.feed import deploy
    >>> with deploy(shoal.from_arrays({"x": range(4)}), feeders=1) as feed:
    ...     len(feed.urls), feed.loader(4).feeders()[0].url == feed.urls[0]
    (1, True)
    """

    def __init__(self, job: _Job, bounds: Bounds, resources: Resources, engine: Engine) -> None:
        self._job, self._bounds, self._resources, self._engine = job, bounds, resources, engine
        self._posts: list[_Post] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pressure = Pressure(bounds.least)
        self.scale(bounds.least)
        self._introduced: set[str] = set()
        ends_with_program(self)
        threading.Thread(target=self._watch, name="shoal-feed-deployment", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{len(self._posts)} feeders at {', '.join(self.urls) or 'no address yet'}>"

    @property
    def urls(self) -> list[str]:
        """Where the feeders are that answer now."""
        with self._lock:
            return [post.url for post in self._posts if post.url is not None]

    @property
    def token(self) -> str:
        """What trainers must know."""
        return self._job.token

    @property
    def tls_root(self) -> str | None:
        """The certificate by which those of the feeders are checked."""
        return None if self._job.tls is None else self._job.tls.root or self._job.tls.certificate

    def wait(self) -> None:
        """Wait until all feeders that were started answer."""
        late = time.monotonic() + _BEGIN
        while len(self.urls) < len(self._posts):
            failed = next((post.error for post in self._posts if post.error is not None), None)
            if failed is not None:
                raise failed
            if time.monotonic() > late:
                raise FeedError(f"{len(self.urls)} of {len(self._posts)} feeders began within {_BEGIN:g} seconds")
            time.sleep(0.05)
        self._introduce()

    def loader(self, batch_size: int, **options: Any) -> FeedLoader:
        """Load batches that these feeders prepare; options are those of `connect`."""
        return connect(self.urls, batch_size, token=self.token, tls_root=self.tls_root, **options)

    def scale(self, feeders: int) -> None:
        """Have so many feeders; those that are not needed any more hand their lanes over first."""
        if feeders < 1:
            raise FeedError(f"scale({feeders}); at least one feeder is needed")
        with self._lock:
            spare, self._posts = self._posts[feeders:], self._posts[:feeders]
            missing = feeders - len(self._posts)
            self._posts += [_Post(self._started()) for _ in range(missing)]
        for post in spare:
            self._dismiss(post)

    def close(self) -> None:
        """End all feeders."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            posts, self._posts = self._posts, []
        for post in posts:
            post.gang.close()

    def _started(self) -> Gang:
        return self._engine.gang(self._job, 1, resources=self._resources, restarts=_RESTARTS)

    def _dismiss(self, post: _Post) -> None:
        with suppress(ShoalError):
            if post.url is not None:
                self._line(post.url).ask("leave", _LEAVE + 5, patience=_LEAVE)
        post.gang.close()

    def _introduce(self) -> None:
        """Let feeders know of each other, so that trainers who know one learn of all."""
        urls = self.urls
        if set(urls) == self._introduced:
            return
        self._introduced = set(urls)
        for url in urls:
            with suppress(ShoalError):  # one that is lost will be started anew, and introduced then
                self._line(url).ask("know", settings.current().timeout, urls=urls)

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK):
            if self._bounds.most > self._bounds.least:
                self._adapt()
            self._introduce()

    def _adapt(self) -> None:
        """Start or dismiss feeders, if trainers have waited long enough, or not at all."""
        self._pressure = self._pressure.after(self._waiting(), self._bounds)
        if self._pressure.wanted != len(self._posts):
            with suppress(ShoalError):  # the engine may have no room for another one
                self.scale(self._pressure.wanted)

    def _waiting(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for url in self.urls:
            with suppress(ShoalError):
                found |= self._line(url).hello(_LOOK)["trainers"]
        return found

    def _line(self, url: str) -> Line:
        return Line(url, self.token, self.tls_root)

"""The feeders that a trainer knows: which of them answer, and who comes later."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shoal import settings
from shoal.errors import FeederLostError, FeedError
from shoal.feed._line import Line, full_url
from shoal.pipeline.runs import differences

__all__ = ["Crew", "Member"]

#: Seconds between two looks for feeders who come, and for one of them to answer.
_LOOK, _ANSWER = 1.0, 3.0
#: Seconds for which a feeder that got stuck is left alone the first time; then twice as long.
_REST = 30.0


class Member:
    """A feeder by its address, and what it last said of itself."""

    def __init__(self, url: str, token: str | None, tls_root: str | None) -> None:
        self.url = url
        self.line = Line(url, token, tls_root if url.startswith("grpc+tls") else None)
        self.hello: dict[str, Any] | None = None
        """What it said; None while it does not answer."""
        self.why = "it was not asked yet"
        """Why it is not at work."""
        self.rests_until = 0.0
        self.stuck = 0

    @property
    def name(self) -> str:
        """Its own name, which another one at the same address does not have."""
        return "" if self.hello is None else str(self.hello["name"])


class Crew:
    """The feeders of a trainer; a thread looks after those who do not answer, and for new ones."""

    def __init__(self, urls: Sequence[str], token: str | None, tls_root: str | None) -> None:
        if not urls:
            raise FeedError("there is no feeder to connect to: give at least one address")
        self._token, self._tls_root = token, tls_root
        self._named = frozenset(map(full_url, urls))
        self._members = {url: Member(url, token, tls_root) for url in map(full_url, urls)}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.generation = 0
        """Grows whenever somebody comes."""
        self.trainer = secrets.token_hex(8)
        self.waiting: Callable[[], float] = lambda: 0.0
        """Says which share of its time the trainer waits; feeders are told."""
        self.notices: deque[str] = deque()
        """What a thread found out that the user should hear of."""
        self._plan: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return Crew, (sorted(self._named), self._token, self._tls_root)

    def meet(self) -> dict[str, Any]:
        """Wait until a feeder answers, and give what it says; those who serve another plan are refused."""
        patience, begun = settings.current().timeout, time.monotonic()
        while not self.alive():
            for member in self.members():
                self._ask(member, is_new=True)
            if not self.alive():
                if time.monotonic() - begun > patience:
                    raise FeederLostError(f"no feeder answers: {self.story()}; start one with `shoal serve`")
                self._closed.wait(0.2)
        hello = self.alive()[0].hello
        assert hello is not None
        self._look_after()
        return hello

    def members(self) -> list[Member]:
        """List all that are known."""
        with self._lock:
            return list(self._members.values())

    def alive(self) -> list[Member]:
        """List those who answer."""
        return [member for member in self.members() if member.hello is not None]

    def member(self, url: str) -> Member:
        """Find a feeder by its address."""
        return self._members[url]

    def lose(self, member: Member, why: str, *, stuck: bool = False) -> None:
        """Hear that a feeder does not do its work any more; one that got stuck is left alone for a while."""
        with self._lock:
            member.hello, member.why = None, why
            if stuck:
                member.rests_until = time.monotonic() + _REST * 2**member.stuck
                member.stuck += 1

    def retire(self, member: Member) -> None:
        """Hear that a feeder is about to go: others get its lanes, if there are any."""
        with self._lock:
            if any(other.hello for other in self._members.values() if other is not member):
                member.hello, member.why = None, "it has gone, as it said that it would"
                member.rests_until = time.monotonic() + _REST
                self.generation += 1

    def story(self) -> str:
        """Say how each feeder is doing."""
        return "; ".join(f"{each.url}: {'at work' if each.hello else each.why}" for each in self.members())

    def close(self) -> None:
        """Look after nobody any more."""
        self._closed.set()

    def _look_after(self) -> None:
        with self._lock:
            if self._thread is None:
                watch = weakref.ref(self)
                self._thread = threading.Thread(
                    target=_watch, args=(watch, self._closed), name="shoal-feed-crew", daemon=True
                )
                self._thread.start()

    def look(self) -> None:
        """Ask those who did not answer, and one who does whom it knows."""
        now = time.monotonic()
        for member in self.members():
            if member.hello is None and member.rests_until <= now:
                self._ask(member, is_new=False)
        for member in self.alive()[:1]:
            try:
                found = member.line.hello(_ANSWER, trainer=self.trainer, waiting=self.waiting())
            except FeedError:
                continue  # whoever needs it will notice
            self._learn(found["peers"])

    def _learn(self, urls: Sequence[str]) -> None:
        """Hear whom a feeder knows; who is neither known there nor answers is forgotten, unless the user named him."""
        told = list(map(full_url, urls))
        with self._lock:
            kept = {
                url: member
                for url, member in self._members.items()
                if url in told or url in self._named or member.hello is not None
            }
            new = [url for url in told if url not in kept]
            self._members = kept | {url: Member(url, self._token, self._tls_root) for url in new}

    def _ask(self, member: Member, *, is_new: bool) -> None:
        """Ask a feeder who it is; one that serves another plan cannot help."""
        try:
            hello = member.line.hello(_ANSWER)
        except FeederLostError as error:
            member.why = str(error)
            return
        except FeedError as error:
            if is_new:
                raise
            member.why = str(error)
            return
        if hello.get("leaving") and self.alive():
            member.why = "it is about to go"
            return
        changed = differences(self._plan, hello["plan"]) if self._plan else []
        if changed:
            member.why = f"it serves another plan: {'; '.join(changed)}"
            if is_new:
                raise FeedError(f"the feeder at {member.url} is of no use here: {member.why}")
            member.rests_until = float("inf")
            self.notices.append(f"the feeder at {member.url} is of no use here: {member.why}")
            return
        with self._lock:
            self._plan = self._plan or hello["plan"]
            member.hello = hello
            self.generation += 1


def _watch(crew: weakref.ref[Crew], closed: threading.Event) -> None:
    while not closed.wait(_LOOK):
        found = crew()
        if found is None:
            return
        found.look()
        del found

"""A feeder: runs a plan on this host and serves the rows of its lanes to trainers."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

from shoal import settings
from shoal._ending import ends_with_program
from shoal._flight import MESSAGE, Gate, Tls, batch_of, flight, is_loopback, pack, schema, secret_text, url_of
from shoal._slabs import Slabs
from shoal.abc import Pool, Workers
from shoal.errors import FeederLostError, FeedError
from shoal.feed._dealing import share_of
from shoal.feed._line import Line, full_url
from shoal.feed._pieces import SMALL, Piece, pieces
from shoal.feed._shared_memory import SharedDoor, Words, machine, send_course
from shoal.feed._sharing import SharedRuns
from shoal.feed._ticket import DIALECT, VERSION, Ticket
from shoal.feed._told import told
from shoal.pipeline import Dataset
from shoal.pipeline.runs import Origin, differences, origin_of

__all__ = ["Feeder", "Listening", "Load", "kept_token", "serve"]

_PATIENCE = 5.0
_COMPRESSIONS = ("lz4", "zstd")
#: Seconds after which what a trainer said of itself is old.
_OLD = 10.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a feeder listens, and who may come."""

    host: str
    port: int
    token: str
    tls: Tls | None = None
    advertise: str | None = None
    """The address by which others reach this host, if it is another."""

    def url(self, port: int) -> str:
        """Say where trainers find it."""
        host = self.advertise or (socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host)  # noqa: S104
        return url_of(host, port, self.tls)


def serve(
    dataset: Dataset,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    workers: Workers = "auto",
    mode: str = "thread",
    batch_size: int | None = None,
    token: str | os.PathLike[str] | None = None,
    tls: Tls | None = None,
    advertise: str | None = None,
    join: Sequence[str] = (),
) -> Feeder:
    """Serve the batches of a dataset to trainers, until the feeder is closed; see `shoal.feed.connect`.

    Stages that have no workers of their own are done by so many ``workers``, threads or processes (``mode``), which the
    ranks of a training share. ``batch_size`` is for trainers who do not say another. ``token`` is what they must know,
    as text or as the path of a file; without, it is one that is made and kept for this user. ``join`` names feeders of
    the same dataset: trainers who know one of them learn of all.

    >>> import shoal
    >>> dataset = shoal.from_arrays({"x": range(6)})
    >>> with serve(dataset, batch_size=4) as feeder:
    ...     [batch["x"].tolist() for batch in shoal.feed.connect([feeder.url], end="drop")]
    [[0, 1, 2, 3]]
    """
    listening = Listening(host, port, secret_text(token) or kept_token(), tls, advertise)
    feeder = Feeder(origin_of(dataset), Pool(workers, mode), listening, batch_size)
    try:
        feeder.join(join)
    except BaseException:
        feeder.close()
        raise
    return feeder


@dataclass(frozen=True, slots=True)
class Load:
    """What a feeder does at the moment."""

    courses: int
    """Trainers, or parts of what they are fed with, that are under way."""
    samples_per_second: float
    megabytes_per_second: float


class Feeder:
    """Serves a plan, from when it is made until it is closed.

    >>> import shoal
    >>> with serve(shoal.from_arrays({"x": range(4)})) as feeder:
    ...     feeder.url.startswith("grpc://127.0.0.1:"), feeder.is_exposed, feeder.peers == [feeder.url]
    (True, False, True)
    """

    def __init__(self, origin: Origin, pool: Pool, listening: Listening, batch_size: int | None = None) -> None:
        self._origin, self._pool, self._listening, self._batch_size = origin, pool, listening, batch_size
        self.name = secrets.token_hex(8)
        """A name of its own; one that is started anew at the same address has another."""
        self._ended, self._lock = threading.Event(), threading.Condition()
        self._leaving = False
        self._peers: dict[str, None] = {}
        self._trainers: dict[str, tuple[float, float]] = {}
        self._courses = self._samples = self._bytes = 0
        self._seen = time.monotonic(), 0, 0
        self._shared = SharedRuns(lambda ticket: self._pieces(ticket, Slabs()))
        self._ways = origin.ways()
        self._service = self._started()
        self.port = int(self._service.port)
        self._door = SharedDoor(listening.token, self._attend)
        ends_with_program(self)

    def __repr__(self) -> str:
        return f"<feeder at {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where trainers find it."""
        return self._listening.url(self.port)

    @property
    def token(self) -> str:
        """What trainers must know."""
        return self._listening.token

    @property
    def is_exposed(self) -> bool:
        """Whether others can listen in on what is sent: it is not on loopback, and has no TLS."""
        return self._listening.tls is None and not is_loopback(self._listening.host)

    @property
    def peers(self) -> list[str]:
        """The feeders that are known here, this one first."""
        with self._lock:
            return [self.url, *self._peers]

    def join(self, urls: Sequence[str]) -> None:
        """Tell other feeders of this one, and learn of those that they know."""
        tls = self._listening.tls
        root = None if tls is None else tls.root or tls.certificate
        told: set[str] = {self.url}
        todo = [full_url(url) for url in urls]
        while todo:
            url = todo.pop()
            if url not in told:
                told.add(url)
                answer = Line(url, self.token, root if url.startswith("grpc+tls") else None).ask(
                    "join", settings.current().timeout, urls=self.peers, plan=self._description(wrap=False, skips=False)
                )
                todo += self.learn(answer["peers"])

    def learn(self, urls: Sequence[Any]) -> list[str]:
        """Hear of other feeders; give those that are new."""
        known = [full_url(str(url)) for url in urls]
        with self._lock:
            new = [url for url in known if url not in self._peers and url != self.url]
            self._peers |= dict.fromkeys(new)
        return new

    def hello(self, words: dict[str, Any]) -> dict[str, Any]:
        """Say who this is, and what it serves; a trainer says how long it waits."""
        if isinstance(name := words.get("trainer"), str):
            with self._lock:
                self._trainers[name] = float(words.get("waiting", 0.0)), time.monotonic()
        origin = self._origin
        return {
            "version": VERSION,
            "name": self.name,
            "plan": self._description(wrap=False, skips=False),
            "lanes": origin.lanes,
            "endless": origin.endless,
            "part": origin.part,
            "ways": self._ways,
            "weights": origin.weights(),
            "straight": origin.is_straight(("samples",)),
            "counted": origin.counted,
            "batch_size": self._batch_size,
            "machine": machine(),
            "door": self._door.name,
            "peers": self.peers,
            "courses": self._courses,
            "leaving": self._leaving,
            "trainers": self._waiting(),
        }

    def course(self, ticket: Ticket, slabs: Slabs) -> Iterator[Piece]:
        """Begin what a trainer asks for; refuse it if it means another plan."""
        own = self._description(wrap=ticket.wrap, skips=ticket.skips, ways=ticket.position.ways)
        changed = differences(ticket.plan, own)
        if changed:
            raise FeedError(f"the feeder at {self.url} serves another plan than is asked for: {'; '.join(changed)}")
        if ticket.compression not in (None, *_COMPRESSIONS):
            known = ", ".join(map(repr, _COMPRESSIONS))
            raise FeedError(f"compression={ticket.compression!r:.40}; known are None, {known}")
        if ticket.job is not None:
            return self._counted(self._shared.course(ticket))
        return self._counted(self._pieces(ticket, slabs))

    def load(self) -> Load:
        """Say what it does, on the average since this was asked last."""
        with self._lock:
            (then, samples, bytes_), now = self._seen, time.monotonic()
            self._seen = now, self._samples, self._bytes
            seconds = max(now - then, 1e-9)
            rates = (self._samples - samples) / seconds, (self._bytes - bytes_) / seconds / 1e6
            return Load(self._courses, *rates)

    def close(self) -> None:
        """End all courses, and serve no more."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._door.close()
        ending = threading.Thread(target=self._service.shutdown, daemon=True, name="shoal-feed-shutdown")
        ending.start()
        ending.join(_PATIENCE)  # for those who are in the middle of something

    @property
    def is_closed(self) -> bool:
        """Whether it serves no more."""
        return self._ended.is_set()

    def leave(self, seconds: float) -> None:
        """Let trainers hand its lanes to others, for so long at most; nobody takes it for a feeder any more."""
        self._leaving = True
        with self._lock:
            self._lock.wait_for(lambda: not self._courses, seconds)

    def know(self, urls: Sequence[Any]) -> None:
        """Take others, and no more than these, for feeders of the same plan."""
        with self._lock:
            self._peers = dict.fromkeys(url for url in map(full_url, map(str, urls)) if url != self.url)

    def _pieces(self, ticket: Ticket, slabs: Slabs) -> Iterator[Piece]:
        return pieces(self._origin, ticket, share_of(self._pool, ticket.part.world_size), slabs)

    def _description(self, *, wrap: bool, skips: bool, ways: Sequence[str] | None = None) -> dict[str, Any]:
        origin = self._origin.skipping() if skips else self._origin
        return origin.description(self._ways if ways is None else ways, wrap=wrap)

    def _counted(self, made: Iterator[Piece]) -> Iterator[Piece]:
        with self._lock:
            self._courses += 1
        try:
            for piece in made:
                if self._ended.is_set():
                    raise FeederLostError(f"the feeder at {self.url} was closed")
                with self._lock:
                    self._samples += piece.rows
                    self._bytes += piece.nbytes
                yield replace(piece, leaving=True) if self._leaving else piece
                del piece
        finally:
            made.close()  # type: ignore[attr-defined]
            with self._lock:
                self._courses -= 1
                self._lock.notify_all()

    def _waiting(self) -> dict[str, float]:
        """Say how long each trainer waits, as it said itself lately."""
        now = time.monotonic()
        with self._lock:
            self._trainers = {name: told for name, told in self._trainers.items() if now - told[1] < _OLD}
            return {name: share for name, (share, _) in self._trainers.items()}

    def _attend(self, words: Words) -> None:
        """Serve a trainer on this host."""
        with suppress(OSError):  # he may go before he has said what he wants
            asked, *_ = words.receive()
            send_course(words, lambda slabs: self.course(Ticket.told(asked), slabs))

    def _started(self) -> Any:
        listening = self._listening
        location = url_of("[::]" if listening.host == "::" else listening.host, listening.port, listening.tls)
        options: dict[str, Any] = {"middleware": {"token": Gate(listening.token, FeedError)}}
        if listening.tls is not None:
            options["tls_certificates"] = [(listening.tls.certificate, listening.tls.key)]
        try:
            return _Service(self, location, **options)
        except Exception as error:
            text = f"{location} cannot be served: {str(error).partition('. Detail')[0]}"
            raise FeedError(f"{text}; is the port taken, or the address another host's?") from error


class _Service(flight.FlightServerBase):  # type: ignore[misc, name-defined]
    """What Flight calls, in threads of its own."""

    def __init__(self, feeder: Feeder, location: str, **options: Any) -> None:
        self._feeder = feeder
        super().__init__(location, **options)

    def do_action(self, context: Any, action: Any) -> list[Any]:
        with DIALECT.telling():
            answer = self._answer(action.type, DIALECT.unpack(action.body.to_pybytes()))
            return [flight.Result(pack(answer))]

    def do_get(self, context: Any, ticket: Any) -> Any:
        with DIALECT.telling():
            import pyarrow as pa

            asked = Ticket.told(DIALECT.unpack(ticket.ticket))
            course = self._feeder.course(asked, Slabs())
            options = pa.ipc.IpcWriteOptions(compression=asked.compression)
            return flight.GeneratorStream(schema(), _messages(course), options)

    def _answer(self, verb: str, words: dict[str, Any]) -> dict[str, Any]:
        feeder = self._feeder
        match verb:
            case "hello":
                return feeder.hello(words)
            case "ways":
                return {"ways": feeder._origin.ways(words.get("before", ()))}
            case "describe":
                ways, flags = words.get("ways"), {name: bool(words.get(name)) for name in ("wrap", "skips")}
                return {"plan": feeder._description(**flags, ways=ways)}
            case "slots":
                return {"slots": feeder._origin.slots()}
            case "join":
                changed = differences(words.get("plan"), feeder._description(wrap=False, skips=False))
                if changed:
                    raise FeedError(f"the feeder at {feeder.url} serves another plan: {'; '.join(changed)}")
                feeder.learn(words.get("urls", ()))
                return {"peers": feeder.peers}
            case "know":
                feeder.know(words.get("urls", ()))
                return {}
            case "leave":
                feeder.leave(float(words.get("patience", 0.0)))
                return {}
        raise FeedError(f"a feeder does not know {verb!r:.40}; it may be of another version")


def _messages(course: Iterator[Piece]) -> Iterator[Any]:
    """Send pieces: what is small together with what is told of them, the rest in messages of some megabytes."""
    try:
        for piece in course:
            words, buffers = piece.packed()
            yield batch_of(b"".join(each for each in buffers if len(each) < SMALL)), pack(words)
            for buffer in buffers:
                if len(buffer) >= SMALL:
                    for at in range(0, len(buffer), MESSAGE):
                        yield batch_of(buffer[at : at + MESSAGE])
            del piece, buffers
        yield batch_of(b""), pack({"end": True})
    except Exception as error:
        yield batch_of(b""), pack({"error": told(error)})
    finally:
        course.close()  # type: ignore[attr-defined]


def kept_token() -> str:
    """Read the token of this user, or make one that stays."""
    path = settings.current().cache / "feed" / "token"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # which nobody else may read
            file.write(secrets.token_urlsafe(32))
            file.flush()
            with suppress(FileExistsError):  # somebody was quicker
                os.link(file.name, path)
    return path.read_text().strip()

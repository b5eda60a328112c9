"""What a URL of Tensorcom says: the kind of socket, who waits for whom, where, and which messages are wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shoal.errors import PlanError
from shoal.files import expand_braces

__all__ = ["Address", "addresses", "one_kind"]

#: Scheme -> the kind of socket, and whether it binds: others then connect to it.
_SCHEMES = {
    "zpush": ("PUSH", False),
    "zpull": ("PULL", True),
    "zpub": ("PUB", True),
    "zsub": ("SUB", False),
    "zrpush": ("PUSH", True),
    "zrpull": ("PULL", False),
    "zrpub": ("PUB", False),
    "zrsub": ("SUB", True),
}

_URL = re.compile(r"([a-z]+)(?:\+([a-z]+))?://([^#]*)(?:#(.*))?", re.DOTALL)
_TCP = re.compile(r"(.+:(?:\d+|\*))/?")


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a connection.

    >>> Address.of("zsub://127.0.0.1:7880#f4").location
    'tcp://127.0.0.1:7880'
    >>> Address.of("zpush+ipc://sockets/feed").location
    'ipc://sockets/feed'
    """

    scheme: str
    transport: str
    place: str
    topic: str = ""

    @classmethod
    def of(cls, url: str) -> Address:
        """Take a URL apart, or say what is wrong with it."""
        match = _URL.fullmatch(url)
        if match is None or match[1] not in _SCHEMES:
            raise PlanError(f"{url!r} is no URL of Tensorcom, such as zpush://host:7880; it begins with {_known()}")
        transport = match[2] or "tcp"
        if transport not in ("tcp", "ipc"):
            raise PlanError(f"{url!r} is neither tcp nor ipc; write {match[1]}://host:7880 or {match[1]}+ipc://path")
        place = _TCP.fullmatch(match[3]) if transport == "tcp" else None
        if (transport == "tcp" and place is None) or not match[3]:
            raise PlanError(f"{url!r} does not say where: {match[1]}://host:7880 or {match[1]}+ipc://path")
        address = cls(match[1], transport, place[1] if place else match[3], match[4] or "")
        if address.place.endswith(":*") and not address.binds:
            raise PlanError(f"{url!r} connects, and has to know the port; * is for those who bind ({_binding()})")
        return address

    @property
    def kind(self) -> str:
        """The kind of socket: PUSH, PULL, PUB or SUB."""
        return _SCHEMES[self.scheme][0]

    @property
    def binds(self) -> bool:
        """Whether others connect to it."""
        return _SCHEMES[self.scheme][1]

    @property
    def location(self) -> str:
        """Where it is, as ZeroMQ has it."""
        return f"{self.transport}://{self.place}"

    @property
    def url(self) -> str:
        """The URL again."""
        transport = "" if self.transport == "tcp" else f"+{self.transport}"
        return f"{self.scheme}{transport}://{self.place}" + (f"#{self.topic}" if self.topic else "")

    def bound_to(self, endpoint: str) -> Address:
        """Be at the port that the system has chosen."""
        return replace(self, place=endpoint.partition("://")[2])


def addresses(urls: str | Sequence[str], *, expand: bool = True) -> list[Address]:
    """Take URLs apart, each of which may be a pattern of braces.

    >>> [address.place for address in addresses("zsub://host:788{0..2}")]
    ['host:7880', 'host:7881', 'host:7882']
    """
    given = [urls] if isinstance(urls, str) else urls
    return [Address.of(url) for pattern in given for url in (expand_braces(pattern) if expand else [pattern])]


def one_kind(given: Sequence[Address]) -> str:
    """Name the kind of socket that all URLs are of; one socket cannot be two.

    >>> one_kind(addresses(["zsub://a:1", "zrsub://b:2"]))
    'SUB'
    """
    kinds = {address.kind: address.url for address in given}
    if not kinds:
        raise PlanError("there is no URL to connect to")
    if len(kinds) > 1:
        named = " and ".join(f"{url} is a {kind} socket" for kind, url in kinds.items())
        raise PlanError(f"one connection has one kind of socket, but {named}; open a Connection for each kind")
    return next(iter(kinds))


def _known() -> str:
    return ", ".join(_SCHEMES)


def _binding() -> str:
    return ", ".join(scheme for scheme, (_, binds) in _SCHEMES.items() if binds)

"""Who may see the page: whoever opens the link that was printed, once; and only this machine.

The link has a token that is good for one visit, and is exchanged for a cookie that no script can read and no other
site can send. The name that a browser knows the server by is checked, too: a page from elsewhere whose name was made
to lead here (DNS rebinding) knows neither.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qs

__all__ = ["Guard"]

_Message: TypeAlias = "dict[str, Any]"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_PAGE = """<!doctype html><meta charset="utf-8"><title>Shoal</title>
<h1>This link does not work</h1>
<p>{text}</p>
"""
_USED = "A link opens the page once, in one browser. Start <code>shoal view</code> again for a new one."
_HOST = "The page is for this machine alone, by the address that <code>shoal view</code> printed."


class Guard:
    """Stands before an application, and lets those through who know the token or have been here."""

    def __init__(self, app: Any, port: int) -> None:
        self._app, self._port = app, port
        self._token: str | None = secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"shoal-view-{port}"
        """Cookies are shared by all ports of a host."""
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    @property
    def link(self) -> str:
        """The address with the token."""
        return f"http://127.0.0.1:{self._port}/?token={self._token}"

    async def __call__(self, scope: _Message, receive: Any, send: Any) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get("host", "") not in self._hosts:
            await _refuse(send, 421, _HOST)
        elif scope["path"] == "/" and (given := parse_qs(scope["query_string"].decode("latin-1")).get("token")):
            await self._admit(send, given[0], known=self._knows(headers.get("cookie", "")))
        elif not self._knows(headers.get("cookie", "")):
            await _refuse(send, 403, _USED)
        elif scope["method"] not in ("GET", "HEAD") and headers.get("origin", "") not in self._origins():
            await _refuse(send, 403, _HOST)
        else:
            await self._app(scope, receive, _guarded(send))

    async def _admit(self, send: Any, token: str, *, known: bool) -> None:
        if known:  # who follows the link once more, in the same browser
            await _answer(send, 303, b"", [(b"location", b"/")])
            return
        if self._token is None or not secrets.compare_digest(token.encode(), self._token.encode()):
            await _refuse(send, 403, _USED)
            return
        self._token = None
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        await _answer(send, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie.encode())])

    def _knows(self, header: str) -> bool:
        try:
            found = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._session.encode())

    def _origins(self) -> set[str]:
        return {f"http://{host}" for host in self._hosts}


def _guarded(send: Any) -> Any:
    async def sending(message: _Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    return sending


async def _refuse(send: Any, status: int, text: str) -> None:
    await _answer(send, status, _PAGE.format(text=text).encode(), [(b"content-type", b"text/html; charset=utf-8")])


async def _answer(send: Any, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    more = [*headers, *_HEADERS, (b"cache-control", b"no-store"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": more})
    await send({"type": "http.response.body", "body": body})

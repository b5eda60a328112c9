"""Objects behind a web server."""

from __future__ import annotations

import email.utils
import http.client
import re
import time
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from shoal.errors import UrlError, UrlNotFoundError
from shoal.files._remote import Part, UrlInfo
from shoal.files._retry import Broken, safe_cause
from shoal.files._urls import display, redact
from shoal.settings import current

__all__ = ["HttpRemote", "retry_after"]

_TRY_AGAIN = {408, 425, 429}
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class HttpRemote:
    """An object that is read with GET and Range; proxies, netrc and certificates are what requests makes of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = requests.Session()
        self._timeout = current().timeout or None

    def connect(self, offset: int, stop: int | None = None) -> Part:
        """Ask for the bytes from ``offset`` on, or for those before ``stop``."""
        response = self._get(_span(offset, stop))
        try:
            return self._part(response, offset)
        except BaseException:
            response.close()
            raise

    def info(self) -> UrlInfo:
        """Ask for one byte: unlike HEAD, this is allowed to whoever holds a signed URL."""
        response = self._get("bytes=0-0")
        try:
            return self._part(response, 0).info
        finally:
            _finish(response, left=1)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _get(self, span: str | None) -> requests.Response:
        # A body compressed on the way has other offsets than the object; so none is asked for, and none undone.
        headers = {"Accept-Encoding": "identity"}
        if span is not None:
            headers["Range"] = span
        try:
            response = self._session.get(self.url, headers=headers, stream=True, timeout=self._timeout)
        except requests.RequestException as error:
            raise self._translated(error) from safe_cause(error)
        if response.status_code in (200, 206, 416):
            return response
        with response:
            raise self._refused(response)

    def _part(self, response: requests.Response, offset: int) -> Part:
        first, size = _place(response)
        if response.status_code == 416:
            return Part(offset, UrlInfo(size), lambda view: 0, response.close)
        if response.status_code == 206 and first != offset:
            raise self._error(
                UrlError,
                f"was asked for the bytes from {offset} on and answered with a part from byte {first} on; "
                "its ranges cannot be relied on",
            )
        version = response.headers.get("ETag") or response.headers.get("Last-Modified")
        info = UrlInfo(size, version)
        return Part(first or 0, info, lambda view: self._readinto(response, view), lambda: _finish(response))

    def _readinto(self, response: requests.Response, view: memoryview) -> int:
        raw: Any = response.raw
        # read1 gives what has arrived; read would throw it away when the rest does not come in time.
        read = getattr(raw, "read1", raw.read)
        try:
            data = read(len(view), decode_content=False)
        except (HTTPError, http.client.HTTPException, OSError) as error:
            raise Broken(f"{type(error).__name__}: {redact(str(error))}") from safe_cause(error)
        view[: len(data)] = data
        return len(data)

    def _translated(self, error: requests.RequestException) -> Exception:
        text = f"{type(error).__name__}: {redact(str(error))}"
        hopeless = isinstance(error, ValueError | requests.TooManyRedirects) or "CERTIFICATE_VERIFY_FAILED" in text
        return self._error(UrlError, f"cannot be reached: {text}") if hopeless else Broken(text)

    def _refused(self, response: requests.Response) -> Exception:
        status = f"{response.status_code} {response.reason}".strip()
        if response.status_code in (404, 410):
            return self._error(UrlNotFoundError, f"does not exist: the server answered {status}")
        if response.status_code in (401, 403):
            return self._error(
                UrlError,
                f"may not be read: the server answered {status}; check the credentials, or whether a signed "
                "URL has expired",
            )
        if response.status_code in _TRY_AGAIN or response.status_code >= 500:
            return Broken(f"the server answered {status}", wait=retry_after(response.headers.get("Retry-After")))
        return self._error(UrlError, f"cannot be read: the server answered {status}")

    def _error(self, kind: type[UrlError], what: str) -> UrlError:
        return kind(f"{display(self.url)} {what}", url=display(self.url))


def retry_after(value: str | None) -> float:
    """Read a Retry-After header, in seconds or as a date.

    >>> retry_after("7"), retry_after(None), retry_after("Thu, 01 Jan 1970 00:00:00 GMT")
    (7.0, 0.0, 0.0)
    """
    if not value:
        return 0.0
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def _span(offset: int, stop: int | None) -> str | None:
    """Write the Range header.

    >>> _span(0, None), _span(7, None), _span(0, 10)
    (None, 'bytes=7-', 'bytes=0-9')
    """
    if stop is not None:
        return f"bytes={offset}-{stop - 1}"
    return f"bytes={offset}-" if offset else None


def _finish(response: requests.Response, left: int = 0) -> None:
    """Let go of a response; its connection serves the next one if no more than so many bytes of the body are left."""
    raw: Any = response.raw
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length) - raw.tell() <= left:
        raw.drain_conn()
    response.close()


def _place(response: requests.Response) -> tuple[int | None, int | None]:
    """Read where the body starts in the object and how long the object is."""
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        chunked = "chunked" in response.headers.get("Transfer-Encoding", "")
        return 0, int(length) if length.isdigit() and not chunked else None
    match = _RANGE.match(response.headers.get("Content-Range", ""))
    if match is None:
        return None, None
    return int(match[1]) if match[1] else None, int(match[3]) if match[3] != "*" else None

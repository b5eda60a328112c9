"""A web server may cut, stall, refuse and lie: the bytes are right, or there is an error that says why."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UrlChangedError, UrlError, UrlNotFoundError
from shoal.files import UrlInfo, open_read, stat
from shoal.files._http import retry_after
from shoal.files._retry import pause
from shoal.testing.faults import HttpServer, http_server
from support.files import body

BODY = body(600_000)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.001")
    monkeypatch.setenv("SHOAL_TIMEOUT", "10")


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as running:
        yield running


def read(url: str, offset: int = 0) -> bytes:
    with open_read(url, offset=offset) as file:
        return file.read()


def test_a_whole_body_takes_one_request(server: HttpServer) -> None:
    assert read(server.add("/a.tar", BODY)) == BODY
    assert server.ranges() == [None]
    assert server.requests[0].accept_encoding == "identity"


def test_reading_from_an_offset_asks_for_the_rest_only(server: HttpServer) -> None:
    assert read(server.add("/a.tar", BODY), offset=1000) == BODY[1000:]
    assert server.ranges() == ["bytes=1000-"]


def test_an_offset_at_or_past_the_end_gives_nothing(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY)
    assert read(url, offset=len(BODY)) == b""
    assert read(url, offset=len(BODY) + 5) == b""
    assert read(server.add("/empty.tar", b"")) == b""


def test_a_cut_transfer_goes_on_at_the_byte_where_it_broke(server: HttpServer) -> None:
    assert read(server.add("/a.tar", BODY, cut_after=[100_000, 0, 250_000])) == BODY
    assert server.ranges() == [None, "bytes=100000-", "bytes=100000-", "bytes=350000-"]


def test_a_stalled_transfer_goes_on_with_nothing_lost(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TIMEOUT", "0.2")
    assert read(server.add("/a.tar", BODY, stall_after=[70_000, 10])) == BODY
    assert server.ranges() == [None, "bytes=70000-", "bytes=70010-"]


def test_a_chunked_body_that_breaks_goes_on(server: HttpServer) -> None:
    assert read(server.add("/a.tar", BODY, chunked=True, cut_after=[65_536])) == BODY
    assert server.ranges() == [None, "bytes=65536-"]


def test_progress_resets_the_count_of_failures(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "1")
    assert read(server.add("/a.tar", BODY, cut_after=[20_000] * 20)) == BODY
    assert len(server.ranges()) == 21


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_busy_server_is_asked_again(server: HttpServer, status: int) -> None:
    assert read(server.add("/a.tar", BODY, statuses=[status] * 3)) == BODY
    assert len(server.requests) == 4


def test_the_server_may_say_how_long_to_wait(server: HttpServer) -> None:
    assert read(server.add("/a.tar", BODY, statuses=[503], retry_after="0")) == BODY
    later = datetime.now(UTC) + timedelta(seconds=100)
    assert 90 < retry_after(format_datetime(later, usegmt=True)) <= 100
    assert retry_after("nonsense") == 0
    assert pause(1, 0.25, wait=10**6) == 60, "but not any length of time"


def test_giving_up_tells_url_place_cause_and_attempts(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "3")
    url = server.add("/a.tar", BODY, cut_after=[50_000, 0, 0, 0, 0])
    with pytest.raises(UrlError, match=r"/a\.tar at byte 50000: gave up after 4 attempts .*IncompleteRead") as caught:
        read(url)
    assert server.ranges() == [None, "bytes=50000-", "bytes=50000-", "bytes=50000-"]
    assert pickle.loads(pickle.dumps(caught.value)).url == url


@pytest.mark.parametrize(("status", "kind"), [(404, UrlNotFoundError), (410, UrlNotFoundError)])
def test_what_is_not_there_fails_at_once(server: HttpServer, status: int, kind: type[Exception]) -> None:
    url = server.add("/gone.tar", statuses=[status])
    with pytest.raises(kind, match=rf"/gone\.tar does not exist.*{status}"):
        read(url)
    assert len(server.requests) == 1
    with pytest.raises(FileNotFoundError):
        stat(server.url("/never.tar"))


@pytest.mark.parametrize("status", [401, 403])
def test_what_is_forbidden_fails_at_once(server: HttpServer, status: int) -> None:
    url = server.add("/secret.tar", statuses=[status])
    with pytest.raises(UrlError, match=rf"may not be read.*{status}.*credentials"):
        read(url)
    assert len(server.requests) == 1


def test_any_other_refusal_fails_at_once(server: HttpServer) -> None:
    with pytest.raises(UrlError, match="418"):
        read(server.add("/a.tar", statuses=[418]))


def test_a_server_without_ranges_is_read_over(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY, ignore_range=True, cut_after=[200_000, 300_000])
    assert read(url) == BODY
    assert server.ranges() == [None, "bytes=200000-", "bytes=300000-"]
    assert read(url, offset=500_000) == BODY[500_000:]


def test_a_part_from_the_wrong_place_is_an_error(server: HttpServer) -> None:
    with pytest.raises(UrlError, match="asked for the bytes from 100 on and answered with a part from byte 93"):
        read(server.add("/a.tar", BODY, wrong_range=True), offset=100)


def test_an_object_that_changes_midway_is_an_error(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY, cut_after=[1000], etags=['"one"'], etag='"two"')
    with pytest.raises(UrlChangedError, match=r'at byte 1000.*version was "one" and is now "two"'):
        read(url)


def test_an_object_that_shrinks_midway_is_an_error(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY, etag=None, cut_after=[1000])
    with open_read(url) as file:
        assert file.read1(10) == BODY[:10]
        server.add("/a.tar", BODY[:-1], etag=None)
        with pytest.raises(UrlChangedError, match="size was 600000 and is now 599999"):
            file.read()


def test_a_length_that_is_a_lie_is_an_error(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY, claim_length=len(BODY) + 100)
    with pytest.raises(UrlError, match=r"/a\.tar"):
        read(url)


def test_redirects_are_followed_and_resumed(server: HttpServer) -> None:
    server.add("/there.tar", BODY, cut_after=[300])
    assert read(server.add("/here.tar", redirect="/there.tar")) == BODY
    assert server.ranges("/there.tar") == [None, "bytes=300-"]


def test_a_redirect_in_circles_is_an_error(server: HttpServer) -> None:
    with pytest.raises(UrlError, match="TooManyRedirects"):
        read(server.add("/a.tar", redirect="/a.tar"))


def test_compressed_objects_stay_compressed(server: HttpServer) -> None:
    assert read(server.add("/a.tar.gz", BODY, content_encoding="gzip", cut_after=[1000])) == BODY


def test_stat_asks_for_one_byte(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY, statuses=[503])
    assert stat(url) == UrlInfo(len(BODY), '"one"')
    assert [request.range for request in server.requests] == ["bytes=0-0"] * 2
    assert stat(server.add("/plain.tar", BODY, ignore_range=True)).size == len(BODY)
    assert stat(server.add("/empty.tar", b"")).size == 0
    assert stat(server.add("/chunked.tar", BODY, ignore_range=True, chunked=True)).size is None


def test_only_the_expected_object_is_read(server: HttpServer) -> None:
    url = server.add("/a.tar", BODY)
    with open_read(url, expect=stat(url)) as file:
        assert file.read() == BODY
    with pytest.raises(UrlChangedError):
        open_read(url, expect=UrlInfo(len(BODY), '"other"'))


def test_a_password_is_sent_and_never_shown(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "1")
    url = server.add("/a.tar", BODY, statuses=[404]).replace("//", "//me:hunter2@") + "?signature=hunter3"
    with pytest.raises(UrlNotFoundError) as caught:
        read(url)
    assert server.requests[0].authorization is not None
    assert "hunter" not in str(caught.value) + repr(caught.value) + str(caught.value.url)


def test_a_server_that_is_not_there_is_an_error_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    import traceback

    monkeypatch.setenv("SHOAL_RETRIES", "1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://me:hunter2@127.0.0.1:{probe.getsockname()[1]}/a.tar?signature=hunter3"
        with pytest.raises(UrlError, match="gave up after 2 attempts") as caught:
            read(url)
    assert "hunter" not in "".join(line for line in traceback.format_exception(caught.value) if "url = " not in line)


@given(st.lists(st.integers(0, 40_000), max_size=12), st.integers(0, 90_000), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_bytes_are_right_wherever_it_breaks(cuts: list[int], offset: int, chunked: bool, ranges: bool) -> None:
    data = BODY[:90_001]
    with pytest.MonkeyPatch.context() as patch, http_server() as server:
        patch.setenv("SHOAL_BACKOFF", "0")
        patch.setenv("SHOAL_RETRIES", "20")
        url = server.add("/a.tar", data, cut_after=list(cuts), chunked=chunked, ignore_range=not ranges)
        assert read(url, offset) == data[offset:]

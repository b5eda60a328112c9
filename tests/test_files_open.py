"""Reading local files, the standard streams and commands."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import psutil
import pytest

from shoal.errors import TrustError, UrlError, UrlNotFoundError
from shoal.files import open_read, stat
from support.files import body

BODY = body(700_000)


def test_a_local_file_is_read_from_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "a b.bin"
    path.write_bytes(BODY)
    for url in (path, str(path), f"file:{path}", f"file://{str(path).replace(' ', '%20')}"):
        with open_read(url, offset=123) as file:
            assert file.read() == BODY[123:]
    with open_read(path, offset=10**9) as file:
        assert file.read() == b""


def test_a_missing_local_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UrlNotFoundError, match=r"gone\.tar"):
        open_read(tmp_path / "gone.tar")
    with pytest.raises(UrlNotFoundError, match=r"gone\.tar"):
        stat(tmp_path / "gone.tar")
    with pytest.raises(UrlError, match="folder"):
        stat(tmp_path)
    with pytest.raises(ValueError, match="negative"):
        open_read(tmp_path / "gone.tar", offset=-1)


def test_the_version_of_a_local_file_changes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    before = stat(path)
    os.utime(path, ns=(0, 5))
    assert before.size == stat(path).size == 3
    assert before.version != stat(path).version


def test_standard_input_is_read_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(BODY))
    monkeypatch.setattr(sys, "stdin", stream)
    with open_read("-", offset=5) as file:
        assert file.read() == BODY[5:]
    assert not stream.buffer.closed


def test_a_command_runs_only_with_trust(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="trust=True"):
        open_read(f"pipe:touch {tmp_path}/ran")
    assert not (tmp_path / "ran").exists()


def test_the_output_of_a_command_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    with open_read(f"pipe:cat {tmp_path}/a | cat", trust=True, offset=300_000) as file:
        assert file.read() == BODY[300_000:]


def test_a_command_that_fails_after_its_output_is_an_error() -> None:
    with open_read("pipe:printf abc; exit 7", trust=True) as file:
        assert file.read(3) == b"abc"
        with pytest.raises(UrlError, match=r"exit 7.*status 7"):
            file.read()


@pytest.mark.parametrize("how", ["exit 141", "kill -PIPE $$"])
def test_a_command_that_was_cut_off_is_no_error(how: str) -> None:
    with open_read(f"pipe:printf abc; {how}", trust=True) as file:
        assert file.read() == b"abc"


def children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_closing_early_ends_the_command_and_its_children() -> None:
    others = children()  # multiprocessing keeps helpers of its own
    file = open_read("pipe:sleep 1000 & sleep 1001 & yes", trust=True)
    file.read(10)
    started = children() - others
    assert len(started) >= 3
    file.close()
    assert psutil.wait_procs(list(started), timeout=20)[1] == []
    assert children() <= others


def test_an_unread_command_that_is_dropped_is_ended() -> None:
    others = children()
    file = open_read("pipe:sleep 1000", trust=True)
    started = children() - others
    assert started
    del file
    gone, _ = psutil.wait_procs(started, timeout=20)  # a shell, and what it started
    assert set(gone) == started

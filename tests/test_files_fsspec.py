"""Filesystems whose files break, vanish or change while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from shoal.errors import UrlChangedError, UrlError, UrlNotFoundError
from shoal.files import open_read, open_seekable, open_write, stat
from support.files import body

BODY = body(1_000_000)


class BreakingFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Keeps objects in memory and hangs up at given bytes."""

    protocol = "breaking"
    store: ClassVar[dict[str, Any]] = {}
    breaks: ClassVar[list[int]] = []
    offsets: ClassVar[list[int]] = []
    failures: ClassVar[list[Exception]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("breaking://")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        file = super()._open(path, mode, **options)
        return _BreakingFile(file) if mode == "rb" else file

    def put_file(self, *args: Any, **options: Any) -> None:
        if self.failures:
            raise self.failures.pop(0)
        super().put_file(*args, **options)


class _BreakingFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def seek(self, offset: int) -> None:
        BreakingFileSystem.offsets.append(offset)
        self._file.seek(offset)

    def read(self, size: int) -> bytes:
        breaks = BreakingFileSystem.breaks
        if breaks and self._file.tell() >= breaks[0]:
            breaks.pop(0)
            raise ConnectionResetError("the peer hung up")
        limit = min(size, breaks[0] - self._file.tell()) if breaks else size
        return bytes(self._file.read(limit))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[BreakingFileSystem]]:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.001")
    fsspec.register_implementation("breaking", BreakingFileSystem, clobber=True)
    fsspec.filesystem("breaking").pipe_file("/a.tar", BODY)
    yield BreakingFileSystem
    for kept in (BreakingFileSystem.breaks, BreakingFileSystem.offsets, BreakingFileSystem.failures):
        kept.clear()


def test_a_broken_range_goes_on_at_its_byte(store: type[BreakingFileSystem]) -> None:
    store.breaks[:] = [200_000, 200_000, 700_000]
    with open_seekable("breaking://a.tar") as file:
        for begin, end in [(100_000, 300_000), (600_000, 800_000), (0, 100_000)]:
            file.seek(begin)
            assert file.read(end - begin) == BODY[begin:end]
    assert store.offsets == [100_000, 200_000, 200_000, 600_000, 700_000, 0]


def test_a_broken_read_goes_on_at_its_byte(store: type[BreakingFileSystem]) -> None:
    store.breaks[:] = [10, 300_000, 300_000, 900_000]
    with open_read("breaking://a.tar", offset=5) as file:
        assert file.read() == BODY[5:]
    assert store.offsets == [5, 10, 300_000, 300_000, 900_000]


def test_giving_up_chains_what_the_library_said(
    store: type[BreakingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "2")
    store.breaks[:] = [1000] * 9
    with open_read("breaking://a.tar") as file, pytest.raises(UrlError, match=r"at byte 1000.*peer hung up") as caught:
        file.read()
    assert isinstance(caught.value.__cause__, ConnectionResetError)


def test_an_object_that_changes_midway_is_an_error(store: type[BreakingFileSystem]) -> None:
    store.breaks[:] = [1000]
    with open_read("breaking://a.tar") as file:
        file.read1(10)
        fsspec.filesystem("breaking").pipe_file("/a.tar", BODY[::-1])
        with pytest.raises(UrlChangedError, match="version was"):
            file.read()


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (FileNotFoundError("gone"), UrlNotFoundError, "does not exist"),
        (PermissionError("no"), UrlError, "credentials"),
        (ValueError("odd"), UrlError, "odd"),
    ],
)
def test_what_will_not_get_better_fails_at_once(
    store: type[BreakingFileSystem], error: Exception, kind: type[Exception], text: str
) -> None:
    store.failures[:] = [error, RuntimeError("a second attempt was made")]
    with pytest.raises(kind, match=text) as caught:
        open_read("breaking://a.tar")
    assert caught.value.__cause__ is error
    assert len(store.failures) == 1


def test_secrets_in_foreign_errors_are_not_shown(store: type[BreakingFileSystem]) -> None:
    store.failures[:] = [PermissionError("https://me:hunter2@host/x?sig=hunter3 refused")]
    with pytest.raises(UrlError) as caught:
        open_read("breaking://a.tar")
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_upload_is_tried_again(store: type[BreakingFileSystem], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.files._write._APPEAR_WHOLE", {"breaking"})
    store.failures[:] = [ConnectionResetError("the peer hung up"), TimeoutError("late")]
    with open_write("breaking://b.tar") as target:
        target.write(BODY)
    assert stat("breaking://b.tar").size == len(BODY)
    assert open_read("breaking://b.tar").read() == BODY


def test_an_upload_that_never_works_is_an_error(
    store: type[BreakingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "1")
    store.failures[:] = [ConnectionResetError("the peer hung up")] * 9
    with (
        pytest.raises(UrlError, match=r"could not write breaking://c\.tar: gave up after 2 attempts"),
        open_write("breaking://c.tar") as target,
    ):
        target.write(BODY)
    store.failures.clear()
    with pytest.raises(UrlNotFoundError):
        stat("breaking://c.tar")

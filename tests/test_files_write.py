"""A write appears whole or not at all."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from shoal.errors import TrustError, UrlError
from shoal.files import open_read, open_write
from shoal.testing.faults import full_disk
from support.files import body

BODY = body(3_000_000)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_in_pieces(url: str | Path, size: int = 70_001) -> None:
    with open_write(url) as target:
        for start in range(0, len(BODY), size):
            target.write(BODY[start : start + size])
        assert target.tell() == len(BODY)


def write_and_fail(url: str | Path) -> None:
    with open_write(url, trust=True) as target:
        target.write(BODY[::-1])
        target.flush()
        raise ZeroDivisionError


@pytest.mark.parametrize("size", [997, 70_001, 2_000_000, len(BODY)])
def test_a_file_appears_when_it_is_complete(tmp_path: Path, size: int) -> None:
    path = tmp_path / "new" / "a.tar"
    with open_write(path) as target:
        for start in range(0, len(BODY), size):
            target.write(memoryview(BODY)[start : start + size])
            assert not path.exists()
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["a.tar"]


def test_the_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_in_pieces(tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError):
        write_and_fail(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_dropped_target_is_never_committed(tmp_path: Path) -> None:
    target = open_write(tmp_path / "a")
    target.write(BODY)
    del target
    gc.collect()
    assert names(tmp_path) == []


def test_commit_and_abort_have_the_first_word(tmp_path: Path) -> None:
    target = open_write(tmp_path / "a")
    target.write(b"abc")
    target.commit()
    target.commit()
    target.abort()
    assert (tmp_path / "a").read_bytes() == b"abc"
    with pytest.raises(ValueError, match="already committed"):
        target.write(b"d")
    other = open_write(tmp_path / "b")
    other.abort()
    with pytest.raises(ValueError, match="already aborted"):
        other.commit()
    assert names(tmp_path) == ["a"]


def test_two_writers_do_not_meet_and_the_last_one_wins(tmp_path: Path) -> None:
    one, two = open_write(tmp_path / "a"), open_write(tmp_path / "a")
    one.write(b"one")
    two.write(b"two")
    one.commit()
    assert (tmp_path / "a").read_bytes() == b"one"
    two.commit()
    assert (tmp_path / "a").read_bytes() == b"two"
    assert names(tmp_path) == ["a"]


def test_a_link_is_followed_and_a_device_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_in_pieces(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == BODY
    write_in_pieces("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_folder_cannot_be_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UrlError, match=str(tmp_path)):
        open_write(tmp_path)


def test_a_forked_child_neither_finishes_nor_undoes_it(tmp_path: Path) -> None:
    script = f"""
import os
from shoal.files import open_write
target = open_write({str(tmp_path / "a")!r})
target.write(b"x" * 100)
child = os.fork()
if child == 0:
    del target
    import gc; gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
target.commit()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "a").read_bytes() == b"x" * 100


WRITER = """
import sys, time
from shoal.files import open_write
target = open_write(sys.argv[1])
while True:
    target.write(b"x" * 100_000)
    target.flush()
    print("wrote", flush=True)
"""


def test_a_killed_writer_leaves_nothing_for_long(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # A live writer's part is not touched by another writer to the same name.
        write_in_pieces(path)
        assert len(names(tmp_path)) == 2
        path.unlink()
        process.send_signal(signal.SIGKILL)
    assert [name for name in names(tmp_path) if not name.endswith(".part")] == []
    assert len(names(tmp_path)) == 1
    write_in_pieces(tmp_path / "b.tar")
    assert len(names(tmp_path)) == 2, "parts of other names are none of our business"
    write_in_pieces(path)
    assert names(tmp_path) == ["a.tar", "b.tar"]
    assert path.read_bytes() == BODY


def test_a_full_disk_is_an_error_that_names_the_target(tmp_path: Path) -> None:
    target = tmp_path / "a.tar"
    with (
        full_disk(500_000),
        pytest.raises(UrlError, match=f"could not write {target}: File too large") as caught,
        open_write(str(target)) as file,
    ):
        file.write(b"x" * 1_200_000)
    assert isinstance(caught.value.__cause__, OSError)
    assert names(tmp_path) == []
    with pytest.raises(UrlError, match="/dev/full: No space left"):
        write_in_pieces("/dev/full")


def test_an_object_in_a_store_appears_when_it_is_complete() -> None:
    fs = fsspec.filesystem("memory")
    with open_write("memory://written/a.tar") as target:
        target.write(BODY)
        assert not fs.exists("/written/a.tar")
    assert open_read("memory://written/a.tar").read() == BODY
    with pytest.raises(ZeroDivisionError):
        write_and_fail("memory://written/b.tar")
    assert fs.ls("/written", detail=False) == ["/written/a.tar"]


def test_a_store_that_shows_half_objects_gets_a_rename(tmp_path: Path) -> None:
    # For fsspec `dir::` is a store like any other; being a folder, it shows files while they are written.
    url = f"dir::file://{tmp_path}/new/a.tar"
    write_in_pieces(url)
    assert open_read(url).read() == BODY
    assert names(tmp_path / "new") == ["a.tar"]
    with pytest.raises(ZeroDivisionError):
        write_and_fail(url)
    assert open_read(url).read() == BODY


def test_standard_output_is_written_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stream)
    write_in_pieces("-")
    assert stream.buffer.getvalue() == BODY  # type: ignore[attr-defined]
    assert not stream.buffer.closed


def test_a_command_takes_the_bytes(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="trust=True"):
        open_write(f"pipe:cat > {tmp_path}/a")
    with open_write(f"pipe:cat > {tmp_path}/a", trust=True) as target:
        target.write(BODY)
    assert (tmp_path / "a").read_bytes() == BODY


def test_a_command_that_fails_is_an_error_of_commit() -> None:
    with pytest.raises(UrlError, match="status 3"), open_write("pipe:cat > /dev/null; exit 3", trust=True) as target:
        target.write(BODY)
    with pytest.raises(UrlError, match="ended before"), open_write("pipe:exit 0", trust=True) as target:
        target.write(BODY * 10)


def test_aborting_ends_the_command_before_it_believes_that_was_all(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_and_fail(f"pipe:cat > /dev/null && touch {tmp_path}/done")
    assert names(tmp_path) == []

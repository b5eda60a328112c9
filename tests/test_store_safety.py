"""The store: who may see it, and what becomes of damaged files."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shoal.errors import CorruptObjectError, StoreError
from shoal.store import ObjectID, Store, connect
from shoal.store._folder import default_folder
from support.store import array, own_store, running, used


@pytest.fixture
def store() -> Iterator[Store]:
    with own_store() as made:
        yield made


def test_files_are_private(store: Store, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with own_store("4MB", spill=str(tmp_path / "disk")) as store:
            for number in range(4):
                store.put([store.put(array(1.5, number)), store.get(store.put(array(0.1)))], name=f"n{number}")
            for root in store.folder.roots:
                for path in Path(root).rglob("*"):
                    mode = stat.S_IMODE(path.lstat().st_mode)
                    assert mode == (0o700 if path.is_dir() else 0o600), f"{path} {mode:o}"
                assert stat.S_IMODE(os.stat(root).st_mode) == 0o700
            assert store.status().spilled > 0
    finally:
        os.umask(old)


def test_a_folder_that_others_can_read_or_own_or_a_link_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o755)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(private)
    plain = tmp_path / "file"
    plain.write_text("")
    for folder in (open_to_all, link, plain):
        with pytest.raises(StoreError, match="not a folder that only this user can read; remove it, or connect"):
            connect(folder)
    assert list(private.iterdir()) == []
    if os.getuid() == 0:
        os.chown(private, 12345, -1)
        with pytest.raises(StoreError, match="not a folder that only this user can read"):
            connect(private)


def test_another_user_has_a_store_of_his_own_and_cannot_see_this_one(store: Store) -> None:
    name = store.put(np.arange(10**5), persist=True)
    assert default_folder().endswith(f"-{os.getuid()}")
    assert stat.S_IMODE(os.stat(store.folder.path).st_mode) == 0o700
    if os.getuid() != 0:
        return  # only root can be somebody else; who is not has seen what keeps others out
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgid(54321)
            os.setuid(54321)
            code = _as_somebody_else(store, int(name))
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get(name)[-1] == 10**5 - 1


def _as_somebody_else(store: Store, name: int) -> int:
    try:
        store.get(name)
        return 2
    except PermissionError:
        pass
    try:
        connect(store.folder.path)
        return 3
    except (StoreError, PermissionError):
        pass
    folder = default_folder()
    if not folder.endswith("-54321"):
        return 4
    own = connect(folder, memory="1MB", spill=False)
    try:
        return 0 if own.get(own.put([1, 2])) == [1, 2] and own.ids() else 5
    finally:
        shutil.rmtree(folder)


def damaged(store: Store, what: str, drawn: random.Random, path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    if what == "flipped":
        data[drawn.randrange(200)] ^= 1 << drawn.randrange(8)
    elif what == "cut":
        del data[drawn.randrange(len(data) - 100) :]
    elif what == "empty":
        data.clear()
    else:
        data = bytearray(drawn.randbytes(len(data)))
    os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, data)
    os.close(fd)


@pytest.mark.parametrize("what", ["flipped", "cut", "empty", "random"])
@pytest.mark.parametrize("size", [100, 10**5], ids=["small", "large"])
def test_a_damaged_object_is_an_error_with_its_name_and_can_be_deleted(store: Store, what: str, size: int) -> None:
    drawn = random.Random(what)
    for _ in range(40):
        name = store.put({"x": np.arange(size), "y": [1, 2]}, persist=True)
        damaged(store, what, drawn, store.folder.persisted(name))
        with pytest.raises(CorruptObjectError, match=str(name)):
            store.get(name)
        assert [*store.list_names(), store.status().objects] == [1]
        store.delete(name)
        assert store.ids() == []


def test_a_damaged_object_with_members_does_not_keep_anybody_from_connecting(store: Store) -> None:
    with running(store, "say(int(store.put([store.put(np.arange(5))]))); sys.stdin.read()") as other:
        assert other.stdout is not None
        name = ObjectID(int(other.stdout.readline()))
        path = store.folder.transient(name)
        Path(path).write_bytes(Path(path).read_bytes()[:40])
    connect(store.folder.path)
    assert used(store) == 0


def test_damaged_settings_and_names_are_errors_that_say_which_file(store: Store) -> None:
    store.put(1, name="one")
    next(Path(store.folder.path, "n").iterdir()).write_text("{")
    with pytest.raises(CorruptObjectError, match=r"/n/one cannot be read"):
        store.get("one")
    Path(store.folder.path, "config.json").write_text("[]")
    with pytest.raises(StoreError, match=r"config\.json does not say"):
        connect(store.folder.path)


def test_files_of_others_in_the_folder_are_left_alone(store: Store) -> None:
    note = Path(store.folder.path, "p", "README")
    note.write_text("hello")
    name = store.put([store.put(1)])
    assert connect(store.folder.path).get(name) == [1]
    store.clear()
    assert note.read_text() == "hello"

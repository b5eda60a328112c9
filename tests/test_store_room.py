"""The store: how much fits in, and what goes to the disk."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shoal.errors import StoreFullError
from shoal.store import Store
from shoal.testing.faults import on_small_disk
from support.engine import wait_until
from support.store import MB, array, environment, files, finished, own_store, program, running, used, where


@pytest.fixture
def store() -> Iterator[Store]:
    with own_store() as made:
        yield made


def test_an_object_that_does_not_fit_is_refused_and_the_error_says_what_holds_the_memory() -> None:
    with own_store("10MB") as store:
        kept = store.put(array(3), persist=True)
        mine = store.put(array(4))
        view = store.get(mine)
        store.delete(mine)
        store.put(array(1))
        with pytest.raises(StoreFullError, match=r"5 MB do not fit .* which may use 10 MB and holds ") as caught:
            store.put(array(5))
        text = str(caught.value)
        for words in (
            "3 MB persisted",
            "1 MB of running programs",
            "4 MB deleted, but still looked at",
            "no folder on",
        ):
            assert words in text
        assert isinstance(caught.value, MemoryError)
        del view
        assert store.get(store.put(array(5))).nbytes == 5 * MB
        assert store.exists(kept)


def test_memory_that_another_process_has_set_aside_is_not_given_twice() -> None:
    with own_store("64MB") as store:
        with running(store, "store.put(b'x'); say(store.status().aside); sys.stdin.read()") as other:
            assert other.stdout is not None
            assert int(other.stdout.readline()) > 0
            limit = store.status().memory_limit - store.status().aside - 2**16
            with pytest.raises(StoreFullError, match="set aside by other processes"):
                store.put(np.zeros(limit + 2**17, np.uint8))
        assert wait_until(lambda: used(store) == 0)
        assert store.put(np.zeros(limit + 2**17, np.uint8))


def test_what_is_deleted_and_put_again_and_again_needs_no_more_memory() -> None:
    with own_store("20MB") as store:
        for number in range(50):
            name = store.put(array(4 + number % 3, number))
            assert store.get(name)[-1] == number
            store.delete(name)
        store.put(array(18))
        assert store.status().memory_usage < 19 * MB


def test_the_limit_is_the_same_for_all_and_may_be_changed() -> None:
    with own_store("10MB") as store:
        assert finished(store, "say(store.config.memory)") == ["10000000"]
        finished(store, "connect(sys.argv[1], memory='30MB')")
        assert store.status().memory_limit == 30 * MB
        assert store.exists(store.put(array(20)))


def test_a_full_file_system_is_an_error_and_nothing_is_left_of_the_object(store: Store) -> None:
    told = finished(
        store,
        """
        from shoal.errors import StoreFullError
        from shoal.testing.faults import full_disk
        try:
            with full_disk(2**20):
                store.put(np.zeros(2**22, np.uint8))
        except StoreFullError as error:
            say("full" if "is full" in str(error) else error)
        say(store.get(store.put(np.arange(10))).sum(), len(store.ids()), store.status().aside < 2**22)
        """,
    )
    assert told == ["full", "45", "1", "True"]
    assert used(store) == 0


def test_a_small_file_system_that_others_fill_is_an_error(tmp_path: Path) -> None:
    """Such as the 64 MiB that containers have, of which the store believed that it may use more."""
    text = """
        from pathlib import Path
        (Path(sys.argv[1]).parent / "other").write_bytes(bytes(5 << 20))
        from shoal.errors import StoreFullError
        store = connect(sys.argv[1], memory="100MB", spill=False)
        for number in range(20):
            try:
                store.put(np.full(2**20, number, np.uint8))
            except StoreFullError as error:
                say(len(store.ids()), all(store.get(each)[0] == n for n, each in enumerate(store.ids())))
                break
    """
    command = on_small_disk(program(text, tmp_path / "store"), tmp_path, "8MiB")
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.stdout.split() == ["2", "True"], done.stderr


def test_cold_objects_go_to_the_disk_and_are_read_there(tmp_path: Path) -> None:
    with own_store("10MB", spill=str(tmp_path / "disk")) as store:
        names = [store.put(array(2, number), persist=number % 2 == 0) for number in range(20)]
        status = store.status()
        assert status.memory_usage <= 10 * MB
        assert status.spilled >= 15
        assert status.objects == 20
        assert status.persisted == 10
        for number, name in enumerate(names):
            assert (store.get(name) == number).all()
        disk = where(store.get(names[0]))
        assert disk.startswith(str(tmp_path / "disk"))
        store.delete(names)
        status = store.status()
        assert (status.objects, status.spilled, status.spilled_bytes) == (0, 0, 0)
        assert files(tmp_path / "disk") == []


def test_what_was_asked_for_last_stays_in_memory(tmp_path: Path) -> None:
    with own_store("10MB", spill=str(tmp_path)) as store:
        names = [store.put(array(2, number)) for number in range(4)]
        time.sleep(0.05)  # the clock of files ticks seldom
        store.get(names[0])
        store.put(array(5))
        assert where(store.get(names[0])).startswith(store.folder.path)
        assert where(store.get(names[1])).startswith(str(tmp_path))


def test_views_stay_what_they_are_while_everything_else_is_moved(tmp_path: Path) -> None:
    with own_store("12MB", spill=str(tmp_path)) as store:
        first = [store.put(array(2, number)) for number in range(2)]
        views = [store.get(name) for name in first]
        wrong: list[int] = []
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                wrong.extend(number for number, view in enumerate(views) if not (view == number).all())

        watcher = threading.Thread(target=look)
        watcher.start()
        for number in range(30):
            store.put(array(2, number))
        over.set()
        watcher.join()
        assert wrong == []
        assert all(where(view).startswith(store.folder.path) for view in views)
        assert store.status().spilled >= 20


def test_a_spilled_object_that_is_deleted_while_somebody_looks_stays_for_him(tmp_path: Path) -> None:
    with own_store("10MB", spill=str(tmp_path)) as store:
        name = store.put(array(4, 7))
        for number in range(4):
            store.put(array(4, number))
        view = store.get(name)
        assert where(view).startswith(str(tmp_path))
        store.delete(name)
        assert (view == 7).all()
        assert not store.exists(name)


def test_the_second_blob_fails_while_the_first_is_in_use_and_fits_when_it_is_not(tmp_path: Path) -> None:
    with own_store("10MB", spill=str(tmp_path)) as store:
        first = store.put(bytes(8 * MB))
        view = store.get(first)
        with pytest.raises(StoreFullError, match="nothing of that can be moved to the disk"):
            store.put(bytes(8 * MB))
        del view
        second = store.put(bytes(8 * MB))
        assert store.get(first).nbytes == store.get(second).nbytes == 8 * MB


def test_a_full_disk_leaves_objects_where_they_are(tmp_path: Path) -> None:
    with own_store("10MB", spill=str(tmp_path)) as store:
        told = finished(
            store,
            """
            from shoal.errors import StoreFullError
            from shoal.testing.faults import full_disk
            first = store.put(np.full(3 * 10**6, 7, np.uint8))
            second = store.put(np.full(3 * 10**6, 8, np.uint8))
            try:
                with full_disk(2**20):
                    store.put(np.zeros(5 * 10**6, np.uint8))
            except StoreFullError:
                say("full", (store.get(first) == 7).all(), (store.get(second) == 8).all(), store.status().spilled)
            """,
        )
        assert told == ["full", "True", "True", "0"]
        store.collect()
        assert files(tmp_path) == []


def test_a_persisted_object_stays_persisted_on_the_disk(tmp_path: Path) -> None:
    with own_store("10MB", spill=str(tmp_path)) as store:
        told = finished(
            store,
            """
            name = store.put(np.full(4 * 10**6, 7, np.uint8))
            for number in range(3):
                store.put(np.zeros(4 * 10**6, np.uint8))
            store.persist(name)
            say(int(name))
            """,
        )
        assert used(store) <= 10 * MB
        assert store.status().objects == 1
        assert (store.get(int(told[0])) == 7).all()

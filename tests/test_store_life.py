"""The store: how long objects stay, and what is left of those whose processes die."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal.errors import ObjectNotFoundError, StoreError, StoreFullError
from shoal.store import Store, connect
from support.engine import wait_until
from support.store import MB, array, files, finished, own_store, running, used, where
from support.store_crowd import COUNT, CREW, many, put_get_delete


@pytest.fixture
def store() -> Iterator[Store]:
    with own_store() as made:
        yield made


def test_what_a_process_put_goes_when_it_ends_and_what_it_persisted_stays(store: Store) -> None:
    told = finished(
        store,
        """
        kept, gone = store.put(np.arange(10**6), persist=True), store.put(np.arange(10**6))
        later = store.put("later")
        store.persist(later)
        say(int(kept), int(gone), int(later))
        """,
    )
    kept, gone, later = map(int, told)
    assert store.get(kept).sum() == sum(range(10**6))
    assert store.get(later) == "later"
    with pytest.raises(ObjectNotFoundError, match="never persisted and its process has ended"):
        store.get(gone)
    store.delete([kept, later])
    assert used(store) == 0
    assert store.status().holders == ()


def test_what_a_killed_process_put_is_collected_by_who_comes_next(store: Store) -> None:
    with running(store, "say(int(store.put(np.arange(10**6)))); sys.stdin.read()") as other:
        assert other.stdout is not None
        name = int(other.stdout.readline())
        assert store.get(name)[-1] == 10**6 - 1
        assert [(holder.pid, holder.objects, holder.alive) for holder in store.status().holders] == [
            (other.pid, 1, True)
        ]
        other.kill()
        other.wait()
        assert [holder.alive for holder in store.status().holders] == [False]
        assert store.collect() >= 8 * 10**6
        assert not store.exists(name)
        assert used(store) == 0


def test_a_forked_child_has_a_lease_of_its_own(store: Store) -> None:
    told = finished(
        store,
        """
        mine = store.put(np.arange(10**5))
        child = os.fork()
        if not child:
            own = store.put(np.arange(10**5) + 1)
            say(int(own), store.get(mine)[-1], len(store.status().holders))
            os._exit(0)
        os.waitpid(child, 0)
        store.collect()
        say(store.get(mine)[-1], len(store.ids()))
        """,
    )
    assert told[1:] == ["99999", "2", "99999", "1"]
    assert not store.exists(int(told[0]))


def test_a_forked_child_that_outlives_its_parent_keeps_its_own_objects_and_not_those_of_the_parent(
    store: Store,
) -> None:
    text = """
        mine = store.put(np.arange(10**5))
        child = os.fork()
        if not child:
            own = store.put(np.arange(10**5) + 1)
            say(int(mine), int(own))
            time.sleep(600)
            os._exit(0)
        time.sleep(600)
    """
    with running(store, text) as parent:
        assert parent.stdout is not None
        mine, own = map(int, parent.stdout.readline().split())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        store.collect()
        assert not store.exists(mine)
        assert store.get(own)[-1] == 10**5
        os.killpg(parent.pid, signal.SIGKILL)
        assert wait_until(lambda: used(store) == 0)


def test_a_child_that_was_forked_with_views_keeps_them_when_the_object_is_deleted(store: Store) -> None:
    text = """
        mine = store.put(np.arange(10**5))
        view = store.get(mine)
        child = os.fork()
        if not child:
            del store
            sys.stdin.read()
            say(view.sum())
            os._exit(0)
        say("there")
        os._exit(0)
    """
    with running(store, text) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == "there\n"
        parent.wait()
        assert wait_until(lambda: used(store) > 0 and store.ids() == [])
        assert store.status().zombies == 1
        parent.stdin.close()
        assert int(parent.stdout.readline()) == sum(range(10**5))
        assert wait_until(lambda: used(store) == 0)


def all_are_complete(store: Store) -> None:
    for name in store.ids():
        with suppress(ObjectNotFoundError):
            seen = store.get(name)
            assert seen.size == 3 * 10**6
            assert (seen == seen[0]).all()


def test_a_writer_that_is_killed_at_any_moment_leaves_nothing_and_no_half_object(store: Store) -> None:
    text = """
        say("begun")
        number = 0
        while True:
            number += 1
            names = [store.put(np.full(3 * 10**6, number % 251, np.uint8), persist=number % 3 == 0) for _ in range(3)]
            store.delete(names)
    """
    drawn = random.Random(0)
    for _ in range(12):
        with running(store, text) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            end = time.monotonic() + drawn.uniform(0.005, 0.2)
            while time.monotonic() < end:
                all_are_complete(store)
            writer.kill()
            writer.wait()
        store.delete([name for name in store.ids() if store.get_meta(name).persistent])
        assert used(store) == 0
        status = store.status()
        assert (status.objects, status.zombies, status.aside, status.holders) == (0, 0, 0, ())
        assert [path for path in files(store.folder.path) if "/.new-" not in path] == []


def test_an_object_that_is_deleted_counts_until_nobody_looks_at_it(store: Store) -> None:
    name = store.put(array(5))
    view = store.get(name)[1000:2000]
    store.delete(name)
    assert not store.exists(name)
    status = store.status()
    assert (status.objects, status.zombies, status.viewers) == (0, 1, {os.getpid(): 1})
    assert used(store) >= 5 * MB
    assert (view == 1).all()
    del view
    gc.collect()
    assert store.collect() >= 5 * MB
    assert (store.status().zombies, store.status().viewers, used(store)) == (0, {}, 0)


def test_viewers_are_told_by_their_processes(store: Store) -> None:
    name = store.put(array(5), persist=True)
    with running(store, "view = store.get(int(sys.argv[2])); say(view[0]); sys.stdin.read()", int(name)) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert store.status().viewers == {other.pid: 1}
        store.delete(name)
        assert store.status().viewers == {other.pid: 1}
    assert used(store) == 0


def test_a_deleted_object_takes_its_members_with_it_unless_others_have_them(store: Store) -> None:
    shared, single = store.put(array(1)), store.put(array(1, 2))
    one, other = store.put([shared, single]), store.put({"again": shared})
    store.delete(one)
    assert (store.exists(single), store.exists(shared)) == (False, True)
    assert store.get(other)["again"][0] == 1
    store.delete(other)
    assert used(store) == 0


def test_shallow_deletion_leaves_members_and_force_takes_shared_ones(store: Store) -> None:
    member = store.put(array(1))
    one, other = store.put([member]), store.put([member])
    store.delete(one, deep=False)
    assert store.exists(member)
    one = store.put([member])
    store.delete(one, force=True)
    assert not store.exists(member)
    with pytest.raises(ObjectNotFoundError, match=str(member)):
        store.get(other)


def test_a_persisted_object_persists_its_members(store: Store) -> None:
    told = finished(
        store,
        """
        inner = store.put(np.arange(1000))
        outer = store.put({"inner": store.put([inner]), "n": 1})
        store.persist(outer)
        say(int(outer))
        """,
    )
    assert store.get(int(told[0]))["inner"][0].sum() == sum(range(1000))
    assert all(store.get_meta(name).persistent for name in store.ids())


def test_an_object_that_could_not_be_put_leaves_no_note_of_its_members() -> None:
    with own_store("10MB") as store:
        member = store.put(array(6))
        view = store.get(member)
        with pytest.raises(StoreFullError):
            store.put([member, array(8)])
        with pytest.raises(StoreFullError):
            store.put([view, array(8)])
        del view
        store.delete(member)
        assert used(store) == 0
        assert files(store.folder.path) == [f"{store.folder.path}/t/{member.lease:010x}/.lease"]


def test_a_frame_that_is_put_again_with_another_column_shares_what_it_had(store: Store) -> None:
    first = store.put(pd.DataFrame({"a": np.arange(10**6)}))
    frame = store.get(first)
    frame["b"] = 1.5
    before = used(store)
    second = store.put(frame)
    blobs = [store.get_meta(name)["__values_-value-0"]["buffer_"].id for name in (first, second)]
    assert blobs[0] == blobs[1]
    assert used(store) - before < 9 * MB
    del frame
    store.delete(first)
    assert store.get(second)["a"].sum() == sum(range(10**6))
    store.delete(second)
    assert used(store) == 0


def test_what_shares_bytes_of_a_dead_process_keeps_them(store: Store) -> None:
    with running(store, "say(int(store.put(np.arange(10**6)))); sys.stdin.read()") as other:
        assert other.stdout is not None
        mine = store.put([store.get(int(other.stdout.readline()))])
    store.collect()
    assert store.get(mine)[0].sum() == sum(range(10**6))
    store.delete(mine)
    assert used(store) == 0


def test_a_folder_on_a_disk_is_a_store_as_well(tmp_path: Path) -> None:
    store = connect(tmp_path / "store", memory="50MB", spill=False)
    name = store.put(array(3, 5), name="five")
    assert (store.get("five") == 5).all()
    assert where(store.get(name)).startswith(str(tmp_path))
    assert finished(store, "say(store.get('five')[0])") == ["5"]
    store.delete(name)
    assert used(store) == 0


def test_where_files_need_names_they_have_private_ones_until_they_are_complete(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on file systems that have no files without a name; the flag is one that these do not know."""
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_RDONLY)
    name = store.put(array(2, 3))
    assert (store.get(name) == 3).all()
    assert used(store) >= 2 * MB
    store.delete(name)
    assert used(store) == 0


def test_a_connection_travels_by_pickle(store: Store) -> None:
    name = store.put(np.arange(10**5))
    other = pickle.loads(pickle.dumps(store))
    assert other.folder.path == store.folder.path
    assert other.get(name)[-1] == 10**5 - 1
    assert other.instance_id == store.instance_id


def test_what_is_sealed_cannot_be_changed(store: Store) -> None:
    name = store.put(np.arange(10**5))
    with pytest.raises(ValueError, match="read-only"):
        store.get(name)[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        store.get(name).flags.writeable = True
    with pytest.raises(StoreError, match="is sealed"):
        store.get_meta(name)["x"] = 1
    with pytest.raises(TypeError):
        store.get(store.put(bytes(10**5)))[0] = 1


def test_many_threads_at_once_never_fail(store: Store) -> None:
    with ThreadPoolExecutor(CREW) as pool:
        assert sum(pool.map(put_get_delete, [store.folder.path] * COUNT, range(COUNT))) == COUNT
    assert used(store) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_many_processes_at_once_never_fail(store: Store, how: Any) -> None:
    context = get_context(how)
    results = context.Queue()
    crew = [context.Process(target=many, args=(store.folder.path, number, results)) for number in range(CREW)]
    for process in crew:
        process.start()
    assert sum(results.get(timeout=240) for _ in crew) == COUNT
    for process in crew:
        process.join()
        assert process.exitcode == 0
    assert used(store) == 0
    assert store.status().objects == 0

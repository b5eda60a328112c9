"""The store: names of objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ObjectNotFoundError, StoreError
from shoal.store import ObjectID, Store
from shoal.store._ids import looks_like_id
from support.store import finished, own_store, running, used


@pytest.fixture
def store() -> Iterator[Store]:
    with own_store() as made:
        yield made


def test_what_has_a_name_is_persisted_and_can_be_had_by_it(store: Store) -> None:
    finished(store, "store.put(np.arange(5), name='five')")
    assert store.get("five").sum() == store.get(name="five").sum() == 10
    assert store.get_meta(store.get_name("five")).persistent
    assert store.list_names() == {"five": store.get_name("five")}


def test_an_object_may_have_several_names_and_patterns_choose_some(store: Store) -> None:
    first, second = store.put(1, name="train/a"), store.put(2, name="train/b")
    store.put_name(first, "best")
    assert store.list_names("train/*") == {"train/a": first, "train/b": second}
    assert store.list_names("nothing*") == {}
    assert store.list_names()["best"] == first


def test_a_name_that_is_given_again_stands_for_the_new_object_and_the_old_one_stays(store: Store) -> None:
    old, new = store.put("old", name="x"), store.put("new", name="x")
    assert store.get("x") == "new"
    assert store.get(old) == "old"
    store.delete(old)
    assert store.get_name("x") == new


def test_a_dropped_name_is_gone_and_its_object_is_not(store: Store) -> None:
    name = store.put(7, name="seven")
    store.drop_name("seven")
    with pytest.raises(ObjectNotFoundError, match="there is no name 'seven'"):
        store.get_name("seven")
    with pytest.raises(ObjectNotFoundError, match="there is no name 'seven'"):
        store.drop_name("seven")
    assert store.get(name) == 7


def test_names_go_with_their_object(store: Store) -> None:
    name = store.put(7, name="seven")
    store.put_name(name, "also seven")
    store.put(8, name="eight")
    store.delete(name)
    assert list(store.list_names()) == ["eight"]


def test_a_name_that_is_not_there_is_told_with_those_that_are_near(store: Store) -> None:
    store.put(1, name="validation")
    store.put(2, name="training")
    with pytest.raises(ObjectNotFoundError, match=r"there is no name 'trainign' .*; there is 'training'"):
        store.get("trainign")


def test_only_persisted_objects_can_have_names(store: Store) -> None:
    transient, blob = store.put([1]), store.put(b"abc", persist=True)
    with pytest.raises(StoreError, match=f"{transient} goes when its process ends; persist it before"):
        store.put_name(transient, "x")
    with pytest.raises(StoreError, match=f"{blob} is a blob, which cannot have a name"):
        store.put_name(blob, "x")
    with pytest.raises(ObjectNotFoundError, match="o000000000000002a"):
        store.put_name(42, "x")
    assert store.list_names() == {}


def test_ids_and_nothing_are_no_names(store: Store) -> None:
    with pytest.raises(StoreError, match="it looks like an id"):
        store.put(1, name="o0123456789abcdef")
    with pytest.raises(StoreError, match="not an empty one"):
        store.put(1, name="")
    assert store.ids() == []
    store.put(1, name="observations_2024")  # as long as an id, and begins like one
    assert store.get("observations_2024") == 1


def test_names_may_be_long_and_odd(store: Store) -> None:
    odd = [
        "../../etc/passwd",
        ".",
        "..",
        ".hidden",
        "a b\n\t",
        "ümläut/ñ",
        "x" * 5000,
        "x" * 5001,
        "%2E",
        "\udc80",
        "-",
        "\0",
    ]
    for number, name in enumerate(odd):
        store.put(number, name=name)
    assert [store.get(name=name) for name in odd] == list(range(len(odd)))
    assert sorted(store.list_names()) == sorted(odd)
    store.clear()
    assert store.list_names() == {}
    assert used(store) == 0


def test_any_text_is_a_name() -> None:
    with own_store() as store:

        @given(st.text(st.characters(), min_size=1))
        def holds(name: str) -> None:
            if not looks_like_id(name):
                made = store.put(name, name=name)
                assert store.get_name(name) == made
                assert store.get(name=name) == name

        holds()


def test_waiting_for_a_name_that_another_process_gives(store: Store) -> None:
    with running(store, "say('up'); sys.stdin.readline(); store.put('late', name='late'); say('put')") as other:
        assert other.stdout is not None
        assert other.stdin is not None
        other.stdout.readline()
        found: list[ObjectID] = []
        waiter = threading.Thread(target=lambda: found.append(store.get_name("late", wait=True)))
        waiter.start()
        with pytest.raises(ObjectNotFoundError):
            store.get_name("late")
        other.stdin.write("go\n")
        other.stdin.flush()
        waiter.join(60)
        assert store.get(found[0]) == "late"


def test_waiting_ends_when_its_time_is_over(store: Store) -> None:
    begin = time.monotonic()
    with pytest.raises(ObjectNotFoundError, match="there is no name 'never'"):
        store.get_name("never", wait=0.2)
    assert time.monotonic() - begin >= 0.2


def test_names_that_threads_give_at_the_same_time_stand_for_one_of_their_objects(store: Store) -> None:
    ids = [store.put(np.array(number), persist=True) for number in range(8)]
    threads = [
        threading.Thread(target=lambda number=number: [store.put_name(number, "x") for _ in range(20)])
        for number in ids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get_name("x") in ids
    assert len(store.list_names()) == 1

"""The store: builders and resolvers, and the contexts in which they hold."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.errors import PlanError, StoreError, TrustError
from shoal.store import (
    Blob,
    Object,
    ObjectMeta,
    Store,
    builder_context,
    context,
    get_current_builders,
    get_current_resolvers,
    resolver_context,
)
from support.store import own_store


@pytest.fixture
def store() -> Iterator[Store]:
    with own_store() as made:
        yield made


class Point:
    """Something that the store knows nothing of."""

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y


class Place(Point):
    """Something derived from it."""


def build_point(store: Store, value: Point, scale: float = 1.0) -> ObjectMeta:
    return ObjectMeta("test::Point", {"x": value.x * scale, "y": value.y * scale})


def resolve_point(obj: Object) -> Point:
    return Point(obj.meta["x"], obj.meta["y"])


def test_a_type_that_nobody_knows_is_refused_and_the_error_says_what_to_do(store: Store) -> None:
    with pytest.raises(StoreError, match=r"no builder for .*\.Point; register one, or put it with trust=True"):
        store.put(Point(1, 2))
    with pytest.raises(StoreError, match=r"no builder for .*\.Point"):
        store.put([1, {"deep": Point(1, 2)}])
    assert store.ids() == []


def test_registered_functions_hold_inside_a_context_and_nowhere_else(store: Store) -> None:
    with context() as (builders, resolvers):
        builders.register(Point, build_point)
        resolvers.register("test::Point", resolve_point)
        name = store.put(Place(1, 2))
        assert store.get(name).y == 2
        nested = store.put({"all": [Point(3, 4)]})
        assert store.get(nested)["all"][0].x == 3
    assert isinstance(store.get(name), Object)
    assert store.get(name).meta["x"] == 1
    with pytest.raises(StoreError):
        store.put(Point(1, 2))


def test_sequences_are_something_else_inside_a_context(store: Store) -> None:
    name = store.put((1, "2", 3.5))
    assert store.get(name) == (1, "2", 3.5)
    with resolver_context() as resolvers:
        resolvers.register("vineyard::Sequence", lambda obj: len(obj.meta["values_"]))
        assert store.get(name) == 3
    assert store.get(name) == (1, "2", 3.5)
    with resolver_context({"vineyard::Sequence": lambda obj: "given as a dict"}):
        assert store.get(name) == "given as a dict"
    assert store.get(name) == (1, "2", 3.5)


def test_contexts_are_inside_each_other(store: Store) -> None:
    name = store.put(1.5)
    with resolver_context({"vineyard::Scalar": lambda obj: "outer"}) as outer:
        with resolver_context({"vineyard::Scalar<double>": lambda obj: "inner"}) as inner:
            assert store.get(name) == "inner"
            assert store.get(store.put(1)) == "outer"
            assert inner.parent_context is outer
        assert store.get(name) == "outer"
        assert get_current_resolvers() is outer
    assert store.get(name) == 1.5


def test_a_context_ends_also_by_an_error(store: Store) -> None:
    before = get_current_resolvers(), get_current_builders()
    with pytest.raises(KeyError), context():
        raise KeyError
    assert (get_current_resolvers(), get_current_builders()) == before


def test_each_thread_has_contexts_of_its_own(store: Store) -> None:
    name = store.put(1.5)
    found: list[Any] = []
    with resolver_context({"vineyard::Scalar": lambda obj: "here"}):
        thread = threading.Thread(target=lambda: found.append(store.get(name)))
        thread.start()
        thread.join()
        assert store.get(name) == "here"
    assert found == [1.5]


def test_the_longest_prefix_wins(store: Store) -> None:
    made = {prefix: lambda obj, prefix=prefix: prefix for prefix in ("", "test::", "test::P", "test::Point<int")}
    with resolver_context(made):
        for typename, expected in {
            "test::Point<int>": "test::Point<int",
            "test::Point<double>": "test::P",
            "test::Other": "test::",
            "other": "",
        }.items():
            assert store.get(store.create(ObjectMeta(typename))) == expected


def test_a_base_is_what_a_context_begins_with(store: Store) -> None:
    name = store.put(np.arange(3))
    plain = get_current_resolvers()
    with resolver_context({"vineyard::Tensor": lambda obj: "tensor"}):
        with resolver_context(base=plain) as inner:
            assert store.get(name).tolist() == [0, 1, 2]
            assert inner.parent_context is plain
        assert store.get(name) == "tensor"
    builders = get_current_builders()
    with builder_context({int: lambda store, value: ObjectMeta("test::Int")}):
        assert store.get_meta(store.put(1)).typename == "test::Int"
        with builder_context(base=builders):
            assert store.get_meta(store.put(1)).typename == "vineyard::Scalar<int>"


def test_a_resolver_may_use_the_context_around_it(store: Store) -> None:
    def doubled(obj: Object, resolver: Any) -> Any:
        return 2 * resolver.parent_context(obj)

    name = store.put([1.5, np.arange(3)])
    with resolver_context({"vineyard::Tensor": doubled}):
        assert store.get(name)[1].tolist() == [0, 2, 4]


def test_options_reach_the_function_of_the_type_and_unknown_ones_are_refused_by_name(store: Store) -> None:
    with builder_context({Point: build_point}), resolver_context({"test::Point": resolve_point}):
        name = store.put(Point(1, 2), scale=3.0)
        assert store.get(name).y == 6
        with pytest.raises(PlanError, match="putting a Point takes no option 'scal'; it takes scale"):
            store.put(Point(1, 2), scal=3.0)
        with pytest.raises(PlanError, match="getting a test::Point takes no option 'scale', nor any other"):
            store.get(name, scale=3.0)
    with pytest.raises(PlanError, match="there is no resolver for test::Point that could take 'scale'"):
        store.get(name, scale=3.0)
    with pytest.raises(PlanError, match="putting a ndarray takes no option 'persits'"):
        store.put(np.arange(3), persits=True)


def test_all_options_reach_a_function_that_takes_any(store: Store) -> None:
    def build(store: Store, value: Point, builder: Any, **options: Any) -> ObjectMeta:
        return ObjectMeta("test::Any", {"options": sorted(options)}, inner=builder(store, value.x))

    with builder_context({Point: build}):
        name = store.put(Point(1, 2), b=1, a=2)
    assert store.get(name).meta["options"] == ["a", "b"]
    assert store.get(name).member("inner").meta["value_"] == 1


def test_builders_are_found_by_the_name_of_a_type_and_functions_by_theirs(store: Store) -> None:
    with builder_context({f"{Point.__module__}.Point": build_point}):
        assert store.get_meta(store.put(Place(1, 2))).typename == "test::Point"
    with resolver_context({"vineyard::Scalar": "builtins:repr"}):
        name = store.put(1)
        assert store.get(name) == f"<vineyard::Scalar<int> {name}, 0 bytes>"


def test_a_builder_may_give_an_object_or_an_id(store: Store) -> None:
    there = store.put("there")
    with builder_context({Point: lambda store, value: there}):
        assert store.put(Point(1, 2)) == there
    with builder_context({Point: lambda store, value: store.get_object(there)}):
        assert store.get(store.put([Point(1, 2)])) == ["there"]
    with builder_context({Point: lambda store, value: 5}), pytest.raises(StoreError, match="a builder gave 5"):
        store.put(Point(1, 2))


def test_descriptions_are_made_by_hand_and_given_as_they_are(store: Store) -> None:
    meta = ObjectMeta("test::Thing", {"plain": [1, {"a": None}]})
    meta["text"] = "abc"
    meta["member"] = ObjectMeta("vineyard::Scalar<int>", {"value_": 5})
    meta.add_member("bytes", b"0123456789abc")
    meta.add_member("link", store.put("linked"))
    with pytest.raises(StoreError, match="key 'wrong' of test::Thing is"):
        meta["wrong"] = {1, 2}
    found = store.create_metadata(meta)
    assert found.id in store.ids()
    assert (found["plain"], found["text"], found.get("nothing", 7)) == ([1, {"a": None}], "abc", 7)
    assert isinstance(found.get_member("bytes"), Blob)
    assert found.get_member("nothing") is None
    with pytest.raises(StoreError, match="is a value, and no member"):
        found.get_member("text")
    assert found.nbytes == len(found["bytes"]) == 13
    obj = store.get_object(found.id)
    assert bytes(obj.blob("bytes")) == b"0123456789abc"
    assert obj.member("member").meta["value_"] == 5
    assert obj.member("link").meta["value_"] == "linked"
    with pytest.raises(KeyError, match="has no member 'nothing'"):
        obj.member("nothing")
    with pytest.raises(KeyError, match="has no 'nothing'; it has plain, text"):
        found["nothing"]


def test_objects_are_listed_by_a_pattern_of_their_types(store: Store) -> None:
    arrays = [store.put(np.arange(3)), store.put(np.arange(3.0))]
    store.put("text")
    assert [meta.id for meta in store.list_objects("vineyard::Tensor*")] == arrays
    assert [meta.typename for meta in store.list_objects("*double*")] == ["vineyard::Tensor<double>"]
    assert len(store.list_objects(limit=2)) == 2


class Loud:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_pickles_are_put_and_got_with_trust_only(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    name = store.put({"x": Loud(folder), "y": np.arange(3)}, trust=True)
    with pytest.raises(TrustError, match="is a pickle, which can run any code; get it with trust=True"):
        store.get(name)
    assert not folder.exists()
    assert store.get(name, trust=True)["y"].tolist() == [0, 1, 2]
    assert folder.exists()
    with pytest.raises(TrustError):
        store.get(name)


def test_a_connection_may_be_made_with_trust() -> None:
    with own_store(trust=True) as store:
        value = store.get(store.put({"range": range(3), "large": Holder(np.arange(10**5))}))
        assert value["range"] == range(3)
        assert value["large"].array.sum() == sum(range(10**5))
        with pytest.raises(StoreError, match="no builder for"):
            store.put(range(3), trust=False)


class Holder:
    """Something with an array."""

    def __init__(self, array: Any) -> None:
        self.array = array

"""Names of libraries that are elsewhere: what is written with them here is done where it is sent."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from typing import Any

import cloudpickle
import pytest

from shoal.environments import StandIn, stand_in
from shoal.errors import PlanError


def sent(value: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(value))


def test_a_module_and_its_names_are_themselves_over_there() -> None:
    import os.path

    assert sent(stand_in("os.path")) is os.path
    assert sent(stand_in("os").path.join) is os.path.join


def test_a_function_has_the_library_where_it_is_called() -> None:
    json = stand_in("json")

    def written(value: Any) -> str:
        text: str = json.dumps(value)  # type: ignore[assignment]
        return text

    assert sent(written)([1]) == "[1]"


@pytest.mark.parametrize("chained", [True, False])
def test_methods_are_called_in_their_order_whoever_is_sent(chained: bool) -> None:
    """A list that gives itself back, as layers do which are added to a model."""
    fluent = stand_in("support.fluent")
    made = fluent.Fluent("first")
    last = made.add("second").add("third") if chained else made
    if not chained:
        made.add("second")
        made.add("third")
    for each in (made, last):
        found = sent(each)
        assert found.items == ["first", "second", "third"]


def test_what_is_used_twice_is_one_thing_over_there() -> None:
    fluent = stand_in("support.fluent")
    shared = fluent.Fluent("shared")
    one, other = sent([fluent.Fluent(shared).add(shared), shared])
    assert one.items[0] is one.items[1] is other


def test_results_of_methods_can_be_used_further() -> None:
    counts = stand_in("collections").Counter("banana")
    best = counts.most_common(1)
    counts.update("nnnnn")
    assert sent([best, counts.most_common(1)]) == [[("a", 3)], [("n", 7)]]


def test_a_part_of_itself_is_refused() -> None:
    made = stand_in("support.fluent").Fluent("first")
    with pytest.raises(PlanError, match="a part of itself"):
        made.add(made.add("second"))


def test_it_is_no_more_than_a_name_here() -> None:
    name = stand_in("mxnet").gluon.nn.Dense
    assert isinstance(name(3), StandIn)
    assert repr(name) == "<mxnet.gluon.nn.Dense, which is made where it is sent>"
    assert copy(name) is name
    assert deepcopy([name])[0] is name
    assert not hasattr(name, "__array__")
    with pytest.raises(TypeError):
        iter(name)


def test_no_class_is_derived_from_it() -> None:
    gluon = stand_in("mxnet.gluon")
    with pytest.raises(PlanError, match="define it inside the function that is sent there"):

        class Net(gluon.Block):  # type: ignore[name-defined,misc]
            pass

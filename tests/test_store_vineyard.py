"""A real Vineyard behind the interface of a store: types, names, trust, and another program at the same instance."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from shoal.environments import Environment, Guest, build
from shoal.errors import (
    ObjectNotFoundError,
    PlanError,
    StoreError,
    StoreFullError,
    TrustError,
    WorkerDiedError,
    WorkerEnvironmentError,
)
from shoal.store import (
    ObjectID,
    ObjectMeta,
    builder_context,
    connect,
    make_global_dataframe,
    make_global_tensor,
    resolver_context,
)
from support.engine import held, held_again, wait_until
from support.guests import module

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="session")
def environment() -> Iterator[Environment]:
    """The one in the user's cache, which is built if it is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SHOAL_ENVIRONMENTS", raising=False)
        yield build("vineyard")


class Daemon:
    """A vineyardd of our own."""

    def __init__(self, environment: Environment) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vineyard-"))  # the path of a socket must be short
        self.socket, self.environment = self.folder / "socket", environment
        self.start()

    def start(self) -> None:
        words = [f"--socket={self.socket}", "--meta=local", "--size=256Mi", "--rpc=false"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [Path(self.environment.python).parent / "vineyardd", *words], stdout=log, stderr=log, cwd=self.folder
            )
        assert wait_until(self.socket.exists, 60), (self.folder / "log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def daemon(environment: Environment) -> Iterator[Daemon]:
    made = Daemon(environment)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shelf(daemon: Daemon, environment: Environment) -> Iterator[Any]:
    with connect(f"vineyard://{daemon.socket}", environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def other(daemon: Daemon, environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """Another program, which knows Vineyard's own client only."""
    folder = module(tmp_path_factory.mktemp("other"), """
        import numpy as np
        import pandas as pd
        import pyarrow as pa
        import vineyard
        from vineyard.data.dataframe import make_global_dataframe

        state = {}

        def connect(socket):
            state["client"] = vineyard.connect(socket)

        def put(code, **options):
            return int(state["client"].put(eval(code), **options))

        def get(number):
            found = state["client"].get(vineyard.ObjectID(number))
            if isinstance(found, np.ndarray):
                return list(found) if found.dtype == object else np.array(found)
            if isinstance(found, memoryview):
                return bytes(found)
            return str(found) if type(found).__name__ == "Fraction" else found

        def text(number):
            return repr(state["client"].get(vineyard.ObjectID(number)))

        def typename(number):
            return state["client"].get_meta(vineyard.ObjectID(number)).typename

        def column(number, name):
            found = np.asarray(state["client"].get(vineyard.ObjectID(number))[name].array)
            return found.tolist() if found.dtype == object else found

        def global_frame(numbers):
            client = state["client"]
            return int(make_global_dataframe(client, [vineyard.ObjectID(number) for number in numbers]).id)

        def name(number, name):
            client, number = state["client"], vineyard.ObjectID(number)
            client.persist(number)
            client.put_name(number, name)
        """)  # fmt: skip
    with Guest(environment, path=[folder], quiet=True) as guest:
        guest.call("over_there:connect", str(daemon.socket))
        yield guest


def same(one: Any, two: Any) -> bool:
    """Compare values, their types and what they are made of."""
    if type(one) is not type(two):
        return False
    if isinstance(one, np.ndarray):
        alike = one.dtype == two.dtype and one.shape == two.shape and one.flags.f_contiguous == two.flags.f_contiguous
        return alike and (one.tolist() == two.tolist() if one.dtype.hasobject else one.tobytes() == two.tobytes())
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, two, check_index_type=True, check_column_type=True)
        return type(one.index) is type(two.index) and type(one.columns) is type(two.columns)
    if isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, two, check_index_type=True)
        return type(one.index) is type(two.index)
    if isinstance(one, pd.Index):
        pd.testing.assert_index_equal(one, two, exact=True)
        return True
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, pa.Table | pa.RecordBatch):
        return bool(one.equals(two, check_metadata=True))
    return repr(one) == repr(two) if isinstance(one, float | np.generic) else bool(one == two)


DATES = pd.to_datetime(["2020-01-01", None])
SCALARS = [3, -(2**63), True, 0.1, 1e300, -float("inf"), float("nan"), 0.5, "a\0bü", ""]
ODD_SCALARS = [2**70, None, 1 + 2j, "\ud800"]
NESTED = [(), [], (1, "a", (2.5, [True, None])), [np.arange(3), {"a": (1,)}, {2, 3}], {"a": np.arange(3.0), 1: ["x"]}]
NUMBERS = [np.arange(4).astype(letter) for letter in "?bBhHiIqQefdgFD"]
ARRAYS = [
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(20).reshape(4, 5)[::2, 1:3],
    np.array(3.5),
    np.zeros((0, 3)),
    np.array(["2020-01-01", "NaT"], "M8[D]"),
    np.array([3], "m8[s]"),
    np.array(["a", "bcd", ""]),
    np.array([["a", "bcd"]]),
    np.array("abc"),
    np.array([[b"a", b"bcd"]]),
    np.array(["a", None], object),
    np.array([["a", "b"], ["c", None]], object),
    np.array(["a", "bb"], np.dtypes.StringDType()),
    np.arange(3, dtype=">i4"),
]
ODD_ARRAYS = [
    np.zeros(2, [("a", "i4"), ("b", "S3")]),
    np.array([], "S3"),
    np.array(["a", 3, None], object),
]
GENERICS = [np.float32(0.1), np.int8(3), np.str_("abc"), np.datetime64("2020-01-01")]
FRAMES = [
    pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan], "c": [True, False], "d": np.array([1, 2], "f4")}),
    pd.DataFrame(np.arange(4).reshape(2, 2)),
    pd.DataFrame({"a": ["x", None], "b": [1, 2]}),
    pd.DataFrame({"a": pd.Series(["x", None], [7, 7], object)}),
    pd.DataFrame({"a": pd.array(["x", None], "string")}),
    pd.DataFrame({"a": DATES, "b": pd.to_timedelta([3, None], unit="s")}),
    pd.DataFrame({"a": [1]}, index=pd.Index([7], name="n")),
    pd.DataFrame({"a": [1]}, index=["q"]),
    pd.DataFrame({"a": [1, 2]}, index=DATES),
    pd.DataFrame(),
    pd.DataFrame({"a": [1]}).iloc[:0],
    pd.DataFrame([[1, 2.0]], columns=["a", "a"]),
    pd.Series([1, 2], name="s"),
    pd.Series(["a", None], index=[3, 4]),
    pd.Index(["a", "b"], name="i"),
    pd.RangeIndex(1, 9, 2),
    DATES,
]
ODD_FRAMES = [
    pd.DataFrame({"a": DATES.tz_localize("UTC")}),
    pd.DataFrame({"a": pd.Categorical(["x", "y"])}),
    pd.DataFrame({"a": pd.array([1, None], "Int64")}),
    pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])),
    pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2020", periods=2)),
    pd.MultiIndex.from_tuples([(1, 2)]),
    pd.Series(["\ud800"], dtype=object),
]
ARROW = [
    pa.record_batch({"a": [1, 2], "b": ["x", None]}),
    pa.table({"a": pa.array([1.5, None], pa.float32()), "b": [[1], None], "c": [True, None], "d": pa.nulls(2)}),
    pa.table({"a": pa.array([], pa.string())}),
    pa.table([pa.array([1])], pa.schema([pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"})])),
    pa.table({"a": [True, False, None, True], "b": ["w", "x", "y", "z"]}).slice(1, 2),
    pa.array(["a", None]),
    pa.array([1, 2, 3, 4]).slice(1, 2),
]
ODD_ARROW = [
    pa.table({"t": pa.array([1, 2], pa.timestamp("us")), "d": [Decimal("1.5"), None], "b": [b"x", None]}),
    pa.table({"x": [1]}).select([]),
    pa.array(["a", "b"]).dictionary_encode(),
    pa.chunked_array([[1], [2]]),
    pa.schema([("a", pa.int64())]),
]
NATIVE = {
    "scalars": SCALARS,
    "numbers": NUMBERS,
    "arrays": ARRAYS,
    "generics": GENERICS,
    "pandas": FRAMES,
    "arrow": ARROW,
}
ODD = {"scalars": ODD_SCALARS, "arrays": ODD_ARRAYS, "pandas": ODD_FRAMES, "arrow": ODD_ARROW}


@pytest.mark.parametrize("kind", NATIVE)
def test_values_come_back_as_they_were_and_are_vineyards_own(kind: str, shelf: Any, other: Guest) -> None:
    for value in NATIVE[kind]:
        number = shelf.put(value)
        assert same(value, shelf.get(number)), value
        assert other.call("over_there:typename", int(number)).startswith("vineyard::"), value


@pytest.mark.parametrize("kind", ODD)
def test_what_vineyard_has_no_type_for_comes_back_and_is_no_pickle(kind: str, shelf: Any, other: Guest) -> None:
    for value in ODD[kind]:
        number = shelf.put(value)
        assert same(value, shelf.get(number)), value
        assert other.call("over_there:typename", int(number)).startswith("shoal::"), value


def test_containers_hold_values_of_both_kinds(shelf: Any) -> None:
    for value in NESTED:
        assert same(value, shelf.get(shelf.put(value))), value
    first = shelf.put(np.arange(5))
    assert same(shelf.get(shelf.put([first, "x"])), [np.arange(5), "x"]), "an id is a link"
    assert same(shelf.get(shelf.put({"there": first})), {"there": np.arange(5)})


def test_bytes_are_blobs_that_can_neither_be_persisted_nor_named(shelf: Any) -> None:
    number = shelf.put(b"abc")
    assert number.is_blob
    assert (bytes(shelf.get(number)), bytes(shelf.get(shelf.put(bytearray())))) == (b"abc", b"")
    assert [bytes(item) for item in shelf.get(shelf.put((b"x", b"")))] == [b"x", b""]
    assert shelf.get_meta(number).nbytes == 3
    for wrong in (
        lambda: shelf.put(b"abc", persist=True),
        lambda: shelf.put(b"abc", name="bytes"),
        lambda: shelf.persist(number),
        lambda: shelf.put_name(number, "bytes"),
    ):
        with pytest.raises(StoreError, match="neither be persisted nor have a name; put it in a tuple, or as an array"):
            wrong()


def test_another_program_sees_what_its_own_client_would_have_put(shelf: Any, other: Guest) -> None:
    seen: list[tuple[Any, str, Any]] = [
        (0.1, "vineyard::Scalar<double>", 0.1),
        (float("inf"), "vineyard::Scalar<double>", float("inf")),
        (7, "vineyard::Scalar<int>", 7),
        ("ü", "vineyard::Scalar<std::string>", "ü"),
        ([1, "a"], "vineyard::Sequence", (1, "a")),
        (np.arange(3.0), "vineyard::Tensor<double>", np.arange(3.0)),
        (np.arange(3, dtype=">i4"), "vineyard::Tensor<int>", np.arange(3, dtype="i4")),
        (np.array(["a", "bcd"]), "vineyard::Tensor<std::string>", ["a", "bcd"]),
        (np.array([b"ab"]), "vineyard::Tensor<uint8>", np.array([[97, 98]], "u1")),
        (np.float32(0.5), "vineyard::Tensor<float>", np.array(0.5, "f4")),
        (pd.DataFrame({"a": [1, 2]}), "vineyard::DataFrame", pd.DataFrame({"a": [1, 2]}, index=pd.Index([0, 1]))),
        (pa.record_batch({"a": [1, 2]}), "vineyard::RecordBatch", pa.record_batch({"a": [1, 2]})),
        (pa.table({"a": ["x"]}), "vineyard::Table", pa.table({"a": pa.array(["x"], pa.large_string())})),
    ]
    for value, typename, expected in seen:
        number = int(shelf.put(value))
        assert other.call("over_there:typename", number) == typename
        assert same(other.call("over_there:get", number), expected), value
    number = int(shelf.put(b"abc"))
    assert other.call("over_there:get", number) == b"abc"


def test_frames_of_texts_and_dates_can_be_read_by_other_programs(shelf: Any, other: Guest) -> None:
    frame = pd.DataFrame({"t": ["x", "y"], "d": pd.to_datetime(["2020-01-01", "2021-01-01"])}, index=["p", "q"])
    number = int(shelf.put(frame))
    assert other.call("over_there:column", number, "t") == ["x", "y"]
    assert other.call("over_there:column", number, "d").tolist() == frame["d"].to_numpy().tolist()
    assert other.call("over_there:text", int(shelf.put(frame[["t"]]))) == "   t\np  x\nq  y"


def test_what_another_program_puts_is_read(shelf: Any, other: Guest) -> None:
    put = {
        "3": 3,
        "True": True,
        "0.5": 0.5,
        "'abc'": "abc",
        "(1, 'a', [2.5])": (1, "a", (2.5,)),
        "np.arange(6.0).reshape(2, 3)": np.arange(6.0).reshape(2, 3),
        "np.asfortranarray(np.arange(6).reshape(2, 3))": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "np.array(['a', 'bcd'])": np.array(["a", "bcd"], object),
        "np.array([['a', 'bcd']])": np.array([["a", "bcd"]]),
        "np.array([b'a', b'bcd'])": np.array([b"a", b"bcd"]),
        "pd.DataFrame({'a': [1, 2], 'b': [.5, 1]})": pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}, index=pd.Index([0, 1])),
        "pd.DataFrame({0: pd.Series(['x', None], [5, 6], object)})": pd.DataFrame(
            {0: pd.Series(["x", None], [5, 6], object)}
        ),
        "pd.Series([1, 2], index=[3, 4], name='s')": pd.Series([1, 2], [3, 4], name="s"),
        "pd.Index([1, 2], name='i')": pd.Index([1, 2], name="i"),
        "pa.table({'a': [1, None], 'f': pa.array([1.5, None], pa.float32())})": pa.table(
            {"a": [1, None], "f": pa.array([1.5, None], pa.float32())}
        ),
        "pa.record_batch({'s': ['x', None], 'l': [[1], None]})": pa.record_batch(
            {"s": pa.array(["x", None], pa.large_string()), "l": pa.array([[1], None], pa.large_list(pa.int64()))}
        ),
        "pa.record_batch({'t': pa.array([1], pa.timestamp('us')), 'b': pa.array([b'x'], pa.large_binary())})": (
            pa.record_batch({"t": pa.array([1], pa.timestamp("us")), "b": pa.array([b"x"], pa.large_binary())})
        ),
        "pa.array([True, None])": pa.array([True, None]),
    }
    for code, expected in put.items():
        assert same(shelf.get(other.call("over_there:put", code)), expected), code
    assert bytes(shelf.get(other.call("over_there:put", "b'abc'"))) == b"abc"
    number = other.call("over_there:put", "np.arange(3)")
    other.call("over_there:name", number, "theirs")
    assert (shelf.get_name("theirs"), shelf.get("theirs").tolist()) == (ObjectID(number), [0, 1, 2])
    shelf.drop_name("theirs")


def test_types_that_nobody_knows_are_given_as_objects(shelf: Any, other: Guest) -> None:
    code = "pd.DataFrame({'a': pd.arrays.SparseArray([0, 0, 1])})['a'].array"
    found = shelf.get(other.call("over_there:put", code))
    assert found.typename == "vineyard::SparseArray<Sparse[int64, 0]>"
    assert found.member("sp_values").typename.startswith("vineyard::Tensor<int64>")
    frame = other.call("over_there:put", "pd.DataFrame({'a': pd.arrays.SparseArray([0, 0, 1])})")
    with pytest.raises(StoreError, match=r"has a column of vineyard::SparseArray.*, which cannot be read here"):
        shelf.get(frame)


def test_a_description_tells_what_vineyard_tells(shelf: Any) -> None:
    number = shelf.put(np.arange(6).reshape(2, 3), partition_index=(1, 0))
    meta = shelf.get_meta(number)
    assert (meta.id, meta.typename, meta.nbytes, meta.instance_id) == (number, "vineyard::Tensor<int64>", 48, 0)
    assert (meta.persistent, meta.isglobal, meta.islocal) == (False, False, True)
    assert (meta["shape_"], meta["order_"], meta["partition_index_"]) == ([2, 3], "C", [1, 0])
    assert np.frombuffer(meta["buffer_"].view, "i8").tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(StoreError, match="is sealed"):
        meta["shape_"] = [6]
    shelf.persist(number)
    assert shelf.get_meta(number).persistent
    frame = shelf.get_meta(shelf.put(pd.DataFrame({"a": [1]}), partition_index=(3, 0), row_batch_index=2))
    assert (frame["partition_index_row_"], frame["row_batch_index_"], frame["columns_"]) == (3, 2, ["a"])
    assert frame["__values_-value-0"].typename == "vineyard::Tensor<int64>"
    assert shelf.get(frame["__values_-value-0"].id).tolist() == [1]
    assert shelf.get_meta(shelf.put({"a": b"12345"})).nbytes == 5


def test_names(shelf: Any) -> None:
    number = shelf.put(np.arange(3))
    with pytest.raises(StoreError, match=f"{number} is not persisted; persist it before it gets the name 'three'"):
        shelf.put_name(number, "three")
    shelf.persist(number)
    shelf.put_name(number, "three")
    shelf.put_name(number, "drei/ü")
    assert shelf.list_names() == {"three": number, "drei/ü": number}
    assert shelf.list_names("t*") == {"three": number}
    assert shelf.get("three").tolist() == shelf.get(name="drei/ü").tolist() == [0, 1, 2]
    second = shelf.put("other", name="three")
    assert shelf.get_name("three") == second
    assert shelf.get_meta(second).persistent
    with pytest.raises(ObjectNotFoundError, match=r"no name 'thre' in the Vineyard at .*; there is 'three'"):
        shelf.get("thre")
    with pytest.raises(ObjectNotFoundError, match="no name 'thre'"):
        shelf.drop_name("thre")
    with pytest.raises(ObjectNotFoundError, match="there is no object o0000000000000abc"):
        shelf.put_name(0xABC, "nothing")
    with pytest.raises(StoreError, match="it looks like an id"):
        shelf.put(1, name="o0123456789abcdef")
    shelf.delete(second)
    assert shelf.list_names() == {"drei/ü": number}, "a name goes with its object"
    shelf.drop_name("drei/ü")
    assert (shelf.list_names(), shelf.exists(number)) == ({}, True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shelf.get_name, "late", wait=60)
        late = shelf.put(1, name="late")
        assert waiting.result(60) == late
    shelf.drop_name("late")


def test_deleting(shelf: Any) -> None:
    used = shelf.status().memory_usage
    number = shelf.put((np.zeros(1000), {"a": np.zeros(1000)}))
    members = [meta.id for meta in shelf.get_meta(number).members.values()]
    assert shelf.status().memory_usage >= used + 16000
    shelf.delete(number)
    assert [shelf.exists(each) for each in [number, *members]] == [False, False, False]
    assert shelf.status().memory_usage == used
    inside = shelf.put(np.arange(3))
    parent = shelf.put((inside,))
    with pytest.raises(StoreError, match=f"{inside} is a member of another object, and Vineyard keeps it; delete that"):
        shelf.delete(inside)
    shelf.delete(parent, deep=False)
    assert (shelf.exists(parent), shelf.get(inside).tolist()) == (False, [0, 1, 2])
    shelf.put((inside,))
    shelf.delete([inside, shelf.put(b"abc")], force=True)
    assert not shelf.exists(inside)
    for call in (shelf.get, shelf.get_meta, shelf.delete, shelf.persist, shelf.migrate):
        with pytest.raises(ObjectNotFoundError, match=f"there is no object {inside} in the Vineyard at "):
            call(inside)


def test_listing_counting_and_clearing(environment: Environment) -> None:
    daemon = Daemon(environment)
    with connect(f"vineyard://{daemon.socket}", environment=environment) as shelf:
        assert (shelf.ids(), shelf.list_objects()) == ([], [])
        array, mapping = shelf.put(np.arange(10.0), persist=True, name="array"), shelf.put({"a": 1})
        assert {array, mapping} < set(shelf.ids())
        assert [meta.id for meta in shelf.list_objects("vineyard::Tensor*")] == [array]
        assert [meta.id for meta in shelf.list_objects("vineyard::Map")] == [mapping]
        many = [shelf.put(number) for number in range(9)]
        assert [meta.id for meta in shelf.list_objects("vineyard::Scalar*")] == sorted(many)
        assert len(shelf.list_objects(limit=4)) == 4
        status = shelf.status()
        assert (status.path, status.instance_id, status.memory_limit) == (str(daemon.socket), 0, 2**28)
        assert (status.objects, status.persisted, status.names, status.memory_usage) == (11, 1, 1, 80)
        assert shelf.instance_id == 0
        assert shelf.migrate(array) == array
        assert shelf.get(array, fetch=True).sum() == 45
        shelf.clear()
        assert (shelf.ids(), shelf.list_names(), shelf.status().memory_usage) == ([], {}, 0)
    daemon.close()


class Point(NamedTuple):
    x: float
    y: float


class Odd:
    """Something that only a pickle can hold."""

    def __init__(self, number: int) -> None:
        self.number = number


def test_pickles_need_trust(shelf: Any, other: Guest) -> None:
    with pytest.raises(StoreError, match=r"there is no builder for .*Odd; register one, or put it with trust=True"):
        shelf.put(Odd(3))
    with pytest.raises(StoreError, match="there is no builder for"):
        shelf.put([1, Odd(3)])
    number = shelf.put(Odd(3), trust=True)
    assert other.call("over_there:typename", int(number)) == "vineyard::PickleBuffer"
    with pytest.raises(
        TrustError, match=f"object {number} is a pickle, which can run any code; get it with trust=True"
    ):
        shelf.get(number)
    assert shelf.get(number, trust=True).number == 3
    with connect(f"vineyard://{shelf.socket}", environment=shelf._line.environment, trust=True) as trusting:
        assert trusting.get(trusting.put(Odd(5))).number == 5
    nested = shelf.put((1, [Odd(4)]), trust=True)
    with pytest.raises(TrustError, match="is a pickle"):
        shelf.get(nested)
    assert shelf.get(nested, trust=True)[1][0].number == 4
    theirs = {
        "{'a': 1}": {"a": 1},
        "np.array(['a', 3], object)": np.array(["a", 3], object),
        "(1, {2})": (1, {2}),
        "pd.DataFrame({'a': pd.to_datetime(['2020-01-01'])})": pd.DataFrame(
            {"a": pd.to_datetime(["2020-01-01"])}, index=pd.Index([0])
        ),
        "pa.record_batch({'a': [{'b': 1}]})": pa.record_batch({"a": [{"b": 1}]}),
    }
    for code, expected in theirs.items():
        number = other.call("over_there:put", code)
        with pytest.raises(TrustError, match="is a pickle"):
            shelf.get(number)
        assert same(shelf.get(number, trust=True), expected), code
    assert other.call("over_there:get", int(shelf.put(Fraction(1, 3), trust=True))) == "1/3"


def test_nothing_that_is_put_without_trust_is_a_pickle(shelf: Any) -> None:
    shelf.clear()
    for values in [*NATIVE.values(), *ODD.values(), NESTED]:
        for value in values:
            shelf.put(value)
    assert len(shelf.list_objects()) > 200
    assert shelf.list_objects("vineyard::PickleBuffer") == []
    assert all("items_" in meta for meta in shelf.list_objects("vineyard::Tensor<object>*")), "one by one"


def test_builders_and_resolvers_of_the_user_are_honoured(shelf: Any) -> None:
    def build_point(store: Any, value: Point, builder: Any) -> ObjectMeta:
        return ObjectMeta("mine::Point", {"x": value.x}, y=builder(store, np.array([value.y])))

    def resolve_point(obj: Any, resolver: Any, scale: int = 1) -> Point:
        return Point(obj.meta["x"] * scale, float(resolver(obj.member("y"))[0]) * scale)

    with builder_context({Point: build_point}):
        number = shelf.put(Point(0.1, 2.5))
        inside = shelf.put([Point(1.5, 3.0), 1])
    assert shelf.get(number).typename == "mine::Point"
    with resolver_context({"mine::Point": resolve_point}):
        assert shelf.get(number) == Point(0.1, 2.5)
        assert shelf.get(number, scale=2) == Point(0.2, 5.0)
        assert shelf.get(inside) == [Point(1.5, 3.0), 1]
    array = shelf.put(np.arange(3))
    with resolver_context(
        {"vineyard::Tensor": lambda obj: (obj.typename, obj.meta["shape_"], len(obj.blob("buffer_")))}
    ):
        assert shelf.get(array) == ("vineyard::Tensor<int64>", [3], 24)
    assert shelf.get(array).tolist() == [0, 1, 2]


def test_options_that_nobody_takes_are_refused(shelf: Any, daemon: Daemon) -> None:
    with pytest.raises(PlanError, match="putting a ndarray takes no option 'colour'"):
        shelf.put(np.arange(3), colour="red")
    with pytest.raises(PlanError, match=r"getting a vineyard::Tensor<int64> of a Vineyard takes no option 'colour'"):
        shelf.get(shelf.put(np.arange(3)), colour="red")
    with pytest.raises(TypeError, match="colour"):
        connect(f"vineyard://{daemon.socket}", colour="red")


def test_objects_in_partitions_are_vineyards_own(shelf: Any, other: Guest) -> None:
    blocks = [shelf.put(np.full((2, 3), number), partition_index=(number, 0)) for number in range(3)]
    made = make_global_tensor(shelf, blocks, shape=(6, 3), partition_shape=(2, 3))
    assert (made.typename, made.isglobal, made["shape_"], made["owners_"]) == (
        "vineyard::GlobalTensor", True, [6, 3], [0, 0, 0]
    )  # fmt: skip
    assert shelf.get_meta(blocks[0]).persistent
    assert [part[0, 0] for part in shelf.get(made.id)] == [0, 1, 2]
    assert shelf.get(made.id, partitions="all", to="numpy").shape == (6, 3)
    assert other.call("over_there:typename", int(made.id)) == "vineyard::GlobalTensor"
    frames = [shelf.put(pd.DataFrame({"a": [number]})) for number in range(2)]
    whole = make_global_dataframe(shelf, frames)
    assert "   a\n0  1" in other.call("over_there:text", int(whole.id))
    theirs = other.call("over_there:global_frame", [int(number) for number in frames])
    assert [frame["a"].tolist() for frame in shelf.get(theirs)] == [[0], [1]]
    assert shelf.get(theirs, to="pandas")["a"].tolist() == [0, 1]


def test_the_example_of_the_page_runs(daemon: Daemon) -> None:
    page = (Path(__file__).parents[1] / "docs" / "store-vineyard.md").read_text()
    example = re.search(r"^```text\n(from shoal.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert example is not None
    code = example[1].replace("/run/vineyard.sock", str(daemon.socket))
    assert str(daemon.socket) in code
    exec(compile(code, "store-vineyard.md", "exec"), {})


def test_threads_share_a_store(shelf: Any) -> None:
    def work(number: int) -> bool:
        array = np.full(200, number)
        made = shelf.put({"array": array, "number": number}) if number % 2 else shelf.put(array)
        found = shelf.get(made)
        shelf.delete(made)
        return same(found["array"] if number % 2 else found, array) and not shelf.exists(made)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_a_store_can_be_sent_and_is_a_forks_own(shelf: Any) -> None:
    number = shelf.put(np.arange(5))
    with pickle.loads(pickle.dumps(shelf)) as again:
        assert again.get(number).tolist() == [0, 1, 2, 3, 4]
        assert again.socket == shelf.socket
    child = os.fork()
    if not child:
        try:
            right = shelf.get(number).tolist() == [0, 1, 2, 3, 4]
            shelf.close()
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert shelf.get(number).tolist() == [0, 1, 2, 3, 4]


def test_what_does_not_fit_leaves_nothing_behind(shelf: Any) -> None:
    shelf.clear()
    with pytest.raises(StoreFullError, match=r"there is no room in the Vineyard at .*; delete some"):
        shelf.put([np.zeros(10**6), {"a": np.zeros(10**6)}, pd.DataFrame({"a": [1], "b": ["x"]}), np.zeros(4 * 10**7)])
    assert (shelf.ids(), shelf.status().memory_usage) == ([], 0)
    number = shelf.put(np.arange(3))
    with pytest.raises(StoreFullError):
        shelf.put([number, (number, {"a": number}), np.zeros(4 * 10**7)])
    assert shelf.get(number).tolist() == [0, 1, 2], "what was there before stays"
    assert shelf.status().memory_usage == 24


def test_processes_that_die_are_replaced(daemon: Daemon, environment: Environment) -> None:
    before = held()
    with connect(f"vineyard://{daemon.socket}", environment=environment) as shelf:
        number = shelf.put(np.arange(3))
        os.kill(shelf._line._guest.pid, signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="ended by SIGKILL"):
            shelf.get(number)
        assert shelf.get(number).tolist() == [0, 1, 2]
        shelf.close()
        assert shelf.get(number).tolist() == [0, 1, 2]
    assert held_again(before)


def test_a_vineyard_that_goes_away_is_named_and_found_again(environment: Environment) -> None:
    daemon = Daemon(environment)
    with connect(f"vineyard://{daemon.socket}", environment=environment) as shelf:
        number = shelf.put(np.arange(3))
        daemon.kill()
        for _ in range(2):
            with pytest.raises(
                StoreError, match=rf"the Vineyard at {daemon.socket} does not answer \(.*\); is vineyardd running\?"
            ):
                shelf.get(number)
        daemon.socket.unlink()
        daemon.start()
        assert not shelf.exists(number)
        assert shelf.get(shelf.put(np.arange(3))).tolist() == [0, 1, 2]
    daemon.close()


def test_a_vineyard_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(StoreError) as caught:
            connect(f"vineyard://{tmp_path}/{name}")
        path = f"{tmp_path}/{name}"
        start = f"start one with `vineyardd --socket={path}`, or name another"
        assert str(caught.value) == f"there is no Vineyard at {path}: no such socket; {start}"


def test_something_else_at_a_socket_is_not_waited_for(environment: Environment) -> None:
    with tempfile.TemporaryDirectory(prefix="vineyard-") as folder, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{folder}/socket")
        silent.listen()
        with connect(f"vineyard://{folder}/socket", environment=environment, timeout=1) as shelf:
            for _ in range(2):
                with pytest.raises(StoreError, match=f"listens at {folder}/socket does not answer as a Vineyard does"):
                    shelf.put(1)


def test_an_environment_without_vineyard_says_so(daemon: Daemon) -> None:
    shelf = connect(f"vineyard://{daemon.socket}", environment=sys.executable)
    with pytest.raises(WorkerEnvironmentError, match=r"no Vineyard that works \(.*No module named 'vineyard'\)"):
        shelf.put(1)


def test_a_missing_environment_says_how_to_build_it(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path))
    shelf = connect(f"vineyard://{daemon.socket}")
    with pytest.raises(WorkerEnvironmentError, match="`shoal env create vineyard` builds it"):
        shelf.put(1)


def test_the_page_shows_what_works(daemon: Daemon) -> None:
    page = (Path(__file__).parents[1] / "docs" / "store-vineyard.md").read_text()
    (block,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(block.replace("/run/vineyard.sock", str(daemon.socket)), {})

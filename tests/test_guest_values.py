"""What crosses between a program and its guest, also where versions differ."""

from __future__ import annotations

import ast
import gc
import math
import os
import signal
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

import shoal.environments
from shoal.environments import (
    Environment,
    Guest,
    Install,
    Recipe,
    build,
)
from shoal.environments._inside.codec import Decoder, Encoder, Malformed
from shoal.errors import (
    GuestError,
    PlanError,
)
from support.engine import held, held_again, same
from support.guests import back, module

INSIDE = Path(shoal.environments.__file__).parent / "_inside"


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    """One of our own environment, which has everything."""
    with Guest(sys.executable, quiet=True) as started:
        yield started


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment whose libraries are years older than ours."""
    pins = (
        "numpy==1.26.4",
        "pandas==1.5.3",
        "pyarrow==14.0.2",
        "python-dateutil==2.9.0.post0",
        "pytz==2024.1",
        "six==1.17.0",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path_factory.mktemp("old")))
        return build(Recipe("old", installs=(Install(pins),), imports=("numpy", "pandas", "pyarrow")))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=40)
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(
            st.text(max_size=5) | st.integers() | st.tuples(st.integers(), st.booleans()), inner, max_size=4
        )
        | st.sets(st.integers() | st.text(max_size=3), max_size=4)
        | st.frozensets(st.integers(), max_size=3)
        | st.binary(max_size=9).map(bytearray)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(guest: Guest, value: Any) -> None:
    assert same(back(guest, value), value)


def test_numbers_at_the_edges_come_back(guest: Guest) -> None:
    edges = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**6000, -0.0, math.inf, -math.inf, 5e-324]
    assert same(back(guest, edges), edges)
    assert math.copysign(1, back(guest, -0.0)) == -1
    assert math.isnan(back(guest, math.nan))


DTYPES = [
    "?", "i1", "u2", "<i4", ">i4", "i8", "u8", "f2", "f4", ">f8", "g", "c8", "c16", "S5", "U3", ">U2", "V7",
    "M8[ns]", "M8[D]", "<m8[us]", [("a", "i4"), ("b", "f8", (2, 3)), ("c", [("d", "U2"), ("e", "M8[s]")])],
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (7,), (3, 4), (2, 0, 5), (30, 40, 50)])
def test_arrays_of_every_type_and_shape_come_back(guest: Guest, dtype: Any, shape: tuple[int, ...]) -> None:
    kind = np.dtype(dtype)
    raw = np.random.default_rng(0).integers(32, 120, int(np.prod(shape)) * kind.itemsize, dtype=np.uint8)
    if kind.kind == "U" or kind.names:
        raw[:] = 0
    array = np.frombuffer(raw.tobytes(), kind).reshape(shape) if raw.size else np.zeros(shape, kind)
    got = back(guest, array)
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.tobytes() == array.tobytes()
    assert got.flags.writeable


def test_structures_keep_their_offsets(guest: Guest) -> None:
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [3, 8], "itemsize": 24})
    array = np.zeros(4, dtype)
    array["b"] = [1, 2, 3, 4]
    got = back(guest, array)
    assert got.dtype == dtype
    assert got["b"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("size", [3, 300])
def test_order_in_memory_is_kept_and_strides_are_not(guest: Guest, size: int) -> None:
    fortran = np.asfortranarray(np.arange(size * size * 2).reshape(size, size, 2))
    got = back(guest, fortran)
    assert got.flags.f_contiguous
    assert not got.flags.c_contiguous
    assert (got == fortran).all()
    every_other = np.arange(size * 4)[::-2]
    assert back(guest, every_other).tolist() == every_other.tolist()


def test_scalars_of_numpy_stay_scalars(guest: Guest) -> None:
    record = np.array([(1, 2.5)], [("a", "i4"), ("b", "f4")])[0]
    for scalar in [
        np.float64(1.5),
        np.int8(-3),
        np.bool_(True),
        np.str_("ä"),
        np.datetime64("2020-02-03", "D"),
        record,
    ]:
        got = back(guest, scalar)
        assert type(got) is type(scalar)
        assert got.dtype == scalar.dtype
        assert got == scalar


def test_subclasses_arrive_as_what_they_are_of(guest: Guest) -> None:
    pair = namedtuple("pair", "a b")
    assert same(back(guest, pair(1, [2])), (1, [2]))
    assert same(back(guest, OrderedDict(a=signal.SIGKILL)), {"a": 9})


def test_a_large_array_is_used_where_it_lies(guest: Guest) -> None:
    """Arrays come in a file of memory that is mapped, and given back when nothing refers to it."""
    before = held()
    arrays = [guest.call("numpy:full", 200_000, float(number)) for number in range(5)]
    maps = Path("/proc/self/maps").read_text().count("memfd:shoal-guest")
    assert maps >= 5
    assert len(os.listdir("/proc/self/fd")) <= before.descriptors + 1, "no array holds a descriptor"
    arrays[0][:] = 7  # ours to change
    assert [array[-1] for array in arrays] == [7, 1, 2, 3, 4]
    view = arrays[4][10:12]
    del arrays
    gc.collect()
    assert view.tolist() == [4, 4]
    del view
    assert held_again(before)


def test_a_small_array_does_not_keep_the_large_one_it_came_with(guest: Guest) -> None:
    before = held()
    small = guest.call("builtins:dict", small=np.arange(3), large=np.zeros(10**6))["small"]
    assert held_again(before)
    assert small.tolist() == [0, 1, 2]


FRAMES = [
    pd.DataFrame({"i": [1, 2, 3], "s": ["a", None, "c"], "f": [1.5, np.nan, 3]}),
    pd.DataFrame({"c": pd.Categorical(["x", "y", "x"]), "n": pd.array([1, None, 3], "Int64")}, index=["p", "q", "r"]),
    pd.DataFrame({1: [1, 2], 2: [3, 4]}),
    pd.DataFrame({"i": np.arange(100_000)}),
    pd.Series([1, 2], name=("a", 1)),
    pd.Series(["a", "b"], index=[5, 6]),
]
TABLES = [
    pa.table({"a": [1, None], "s": ["x", "y"]}),
    pa.table({"a": pa.array([], pa.string())}),
    pa.table({"a": pa.chunked_array([[1], [2, 3]]), "l": [[1], [], None]}).replace_schema_metadata({"k": "v"}),
    pa.record_batch({"a": [1, 2]}),
    pa.array(["a", None]),
    pa.array([], pa.int8()),
    pa.chunked_array([[1], [2, 3]]),
    pa.chunked_array([], pa.int8()),
]


def arrived(got: Any, value: Any) -> bool:
    return type(got) is type(value) and bool(got.equals(value))


@pytest.mark.parametrize("value", [*FRAMES, *TABLES], ids=lambda value: type(value).__name__)
def test_frames_and_arrow_come_back(guest: Guest, value: Any) -> None:
    got = back(guest, value)
    assert arrived(got, value)
    assert getattr(got, "name", None) == getattr(value, "name", None)


def test_without_arrow_tables_of_plain_columns_are_dicts_of_arrays(tmp_path: Path) -> None:
    """Here the other side says that it has numpy alone."""
    frame = pd.DataFrame({"i": [1, 2], "s": ["a", "bc"], "f": [0.5, np.nan]})
    for value in (frame, pa.table({"i": [1, 2], "s": ["a", "bc"], "f": [0.5, math.nan]})):
        encoder = Encoder(["numpy"])
        tree = encoder.encode(value)
        assert tree["k"] == "columns"
        columns = Decoder(encoder.buffers).decode(tree)
        assert [str(columns[name].dtype.kind) for name in columns] == ["i", columns["s"].dtype.kind, "f"]
        assert list(columns["s"]) == ["a", "bc"]
    for refused, why in [
        (frame.set_index("s"), "reset_index"),
        (pd.DataFrame({"n": pd.array([1, None], "Int64")}), "column 'n'"),
        (pa.table({"n": [1, None]}), "column 'n'.*missing"),
    ]:
        with pytest.raises(TypeError, match=why):
            Encoder(["numpy"]).encode(refused)


def test_what_does_not_cross_is_named_with_its_place(guest: Guest) -> None:
    holds_itself: list[Any] = []
    holds_itself.append(holds_itself)
    for value, words in [
        ({"a": [1, object()]}, r"builtins:id in .*: a builtins\.object \(at \['a'\]\[1\]\) does not cross"),
        (np.array([None]), "an array of type object"),
        (np.ma.masked_array([1, 2], [True, False]), "send its data and its mask"),
        (holds_itself, "nested deeper than 100 levels, or holds itself"),
        (pd.DataFrame({"a": [object()]}), "Arrow cannot hold it"),
    ]:
        with pytest.raises(PlanError, match=words):
            guest.call("builtins:id", value)
    with pytest.raises(GuestError, match=r"its result cannot come back: a builtins\.object does not cross"):
        guest.call("builtins:object")
    assert guest.call("builtins:abs", -1) == 1


def test_a_type_of_another_library_is_not_taken_for_bytes(guest: Guest) -> None:
    with pytest.raises(PlanError, match="an array of type bfloat16"):
        guest.call("builtins:id", np.zeros(2, ml_dtypes.bfloat16))


FIELDS = {"names": ["a"], "formats": ["<i8"], "offsets": [0], "size": 8}


@pytest.mark.parametrize(
    "tree",
    [
        {"k": "array", "dtype": "|O", "shape": [1], "order": "C", "b": 0},
        {"k": "array", "dtype": "<i8", "shape": [10**12], "order": "C", "b": 0},
        {"k": "array", "dtype": "<i8", "shape": [-1], "order": "C", "b": 0},
        {"k": "array", "dtype": "<i8", "shape": [1], "order": "C", "b": 9},
        {"k": "array", "dtype": {**FIELDS, "formats": ["|O"]}, "shape": [1], "order": "C", "b": 0},
        {"k": "array", "dtype": {**FIELDS, "offsets": [90]}, "shape": [1], "order": "C", "b": 0},
        {"k": "arrow", "form": "table", "chunked": True, "b": 0},
        {"k": "dict", "v": [[[1], 2]]},
        {"k": "__import__", "v": "os"},
        {"v": 1},
        {"k": "int", "v": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_trees_that_no_encoder_makes_are_refused(tree: Any) -> None:
    with pytest.raises(Malformed):
        Decoder([memoryview(b"12345678")]).decode(tree)


@pytest.mark.slow
def test_libraries_of_other_versions_understand_each_other(old: Environment) -> None:
    assert old.packages["numpy"] == "1.26.4" != np.__version__
    with Guest(old) as guest:
        assert guest.call("numpy:__version__.__str__") == "1.26.4"
        assert guest.call("pandas:__version__.__str__") == "1.5.3"
        for value in [*FRAMES, *TABLES]:
            assert arrived(back(guest, value), value), f"{value}"
        array = np.asfortranarray(np.random.default_rng(0).normal(size=(500, 600)))
        assert same(guest.call("numpy:multiply", array, 2), array * 2)
        assert guest.call("numpy:float64", 1.5) == np.float64(1.5)


@pytest.mark.slow
def test_a_frame_is_a_frame_to_the_functions_of_the_guest(old: Environment, tmp_path: Path) -> None:
    folder = module(tmp_path, "def means(frame):\n    return frame.groupby('k', as_index=False).mean()\n")
    with Guest(old, path=[folder]) as guest:
        got = guest.call("over_there:means", pd.DataFrame({"k": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]}))
    assert got.to_dict("list") == {"k": ["a", "b"], "x": [2.0, 2.0]}


def test_an_environment_without_numpy_takes_plain_values_only(bare: Path) -> None:
    with Guest(bare) as guest:
        assert guest.call("builtins:sorted", [3, 1, 2]) == [1, 2, 3]
        with pytest.raises(PlanError, match="arrays does not cross: the other side has no numpy"):
            guest.call("builtins:len", np.zeros(3))


def test_files_of_the_guest_are_old_python() -> None:
    for path in INSIDE.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
        tops = {name.partition(".")[0] for name in imports(path)}
        assert tops <= set(sys.stdlib_module_names), f"{path.name} imports {tops}"


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)

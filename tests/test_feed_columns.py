"""Fields of samples on their way to another host: whatever is sent, putting it together gives what it gives here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shoal.errors import FeedError, MissingFieldError
from shoal.feed._assembly import Assembly, FedRows, Received, placed
from shoal.feed._columns import columns_of, decoded, encoded
from shoal.feed._pieces import Outline, Piece
from shoal.pipeline.runs import SampleRows
from support.engine import same

DTYPES = hnp.scalar_dtypes().filter(lambda dtype: dtype.kind not in "OV")


def values() -> st.SearchStrategy[list[Any]]:
    """Give what one field may be in several samples."""
    count = st.shared(st.integers(1, 9), key="count")
    kinds: list[st.SearchStrategy[Any]] = [
        st.integers(-5, 5),
        st.integers(2**62, 2**64),
        st.floats(),
        st.booleans(),
        st.complex_numbers(allow_nan=False),
        st.text(max_size=4),
        st.binary(max_size=9),
        st.none(),
        st.lists(st.integers() | st.text(max_size=2), max_size=3),
        st.dictionaries(st.text(max_size=2), st.integers() | st.floats(allow_nan=False), max_size=2),
        hnp.arrays(np.float32, (2, 3)),
        hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=3)),
        hnp.arrays(np.dtype(">i2"), (2,)),
        hnp.arrays(np.uint8, ()),
        st.integers(0, 9).map(np.int32),
        st.integers(0, 9).map(np.uint64),
        st.floats(width=32).map(np.float32),
        st.integers(0, 9).map(lambda day: np.datetime64(day, "D")),
        st.integers(0, 9).map(lambda second: np.datetime64(second, "s")),
        hnp.arrays(np.float32, (2,), elements=st.floats(-9, 9, width=32)).map(torch.from_numpy),
        hnp.arrays(np.int64, hnp.array_shapes(max_dims=1, max_side=3)).map(torch.from_numpy),
        st.integers(0, 5).map(lambda number: np.array([number], ml_dtypes.bfloat16)),
    ]
    one = st.sampled_from(kinds).flatmap(lambda kind: count.flatmap(lambda n: st.lists(kind, min_size=n, max_size=n)))
    some = count.flatmap(lambda n: st.lists(st.one_of(kinds), min_size=n, max_size=n))
    return one | some


def sent(samples: Sequence[Any], places: Sequence[int], assembly: Assembly, *, keep: bool) -> Received:
    """Send samples to places of a batch, as they go over a wire; arrays go into the batch's own, unless kept."""
    columns = {}
    for name, column in columns_of(SampleRows(list(samples)), None).items():
        head, buffers = encoded(name, column)
        got = decoded(head, [bytes(buffer) for buffer in buffers])
        columns[name] = got if keep else placed(name, got, assembly, np.array(places, np.int64))
    outline = Outline.told(Piece(len(places)).packed()[0])
    return Received(np.array(places, np.int64), columns, b"", outline)


@given(st.data())
def test_samples_of_several_feeders_make_the_batch_that_they_make_together(data: st.DataObject) -> None:
    fields = data.draw(st.lists(values(), min_size=1, max_size=3))
    samples = [
        {"__key__": str(number), **{f"f{at}": field[number] for at, field in enumerate(fields)}}
        for number in range(len(fields[0]))
    ]
    owners = data.draw(st.lists(st.integers(0, 2), min_size=len(samples), max_size=len(samples)))
    assembly = Assembly(len(samples), np.empty)
    for owner in data.draw(st.permutations(sorted(set(owners)))):
        places = [place for place, each in enumerate(owners) if each == owner]
        assembly.place(sent([samples[place] for place in places], places, assembly, keep=data.draw(st.booleans())))
    expected = SampleRows(list(samples)).batch(len(samples), None, None)
    assert same(FedRows(assembly).batch(len(samples), None, np.empty), expected)
    more, rows = len(samples) + 2, FedRows(assembly)
    padded = SampleRows(list(samples)).batch(more, samples[-1], None)
    assert same(rows.batch(more, rows.samples()[-1], np.empty), padded)


def test_samples_that_differ_in_their_fields_are_refused_as_they_are_here() -> None:
    assembly = Assembly(2, np.empty)
    assembly.place(sent([{"__key__": "a", "x": 1}], [0], assembly, keep=False))
    assembly.place(sent([{"__key__": "b", "y": 1}], [1], assembly, keep=False))
    with pytest.raises(MissingFieldError, match="sample 'b'"):
        FedRows(assembly).batch(2, None, np.empty)


def test_batches_that_are_samples_come_as_they_are() -> None:
    batches = [{"__key__": ["a", "b"], "x": torch.zeros(2, 3)}, {"__key__": ["c"], "x": torch.ones(1, 3)}]
    assembly = Assembly(2, np.empty)
    assembly.place(sent(batches[1:], [1], assembly, keep=False))
    assembly.place(sent(batches[:1], [0], assembly, keep=False))
    assert same(FedRows(assembly).batch(2, None, np.empty), SampleRows(list(batches)).batch(2, None, np.empty))


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(FeedError, match=r"field 'picture': a builtins\.object .* does not cross"):
        encoded("picture", columns_of(SampleRows([{"__key__": "a", "picture": object()}]), None)["picture"])


def test_arrays_are_not_copied_on_their_way_out() -> None:
    column = columns_of(SampleRows([{"__key__": "a", "x": np.arange(6.0)}]), None)["x"]
    _, (buffer,) = encoded("x", column)
    assert np.shares_memory(np.frombuffer(buffer), column.values)


@given(
    st.binary(max_size=60), st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda each: st.lists(each))
)
def test_what_makes_no_sense_is_refused_in_words(data: bytes, head: Any) -> None:
    heads = [head, ["int", "<i8", [3]], ["bytes", 2], ["values", {"k": "array"}], ["rows", "O", [1]], ["text", 3]]
    for each in heads:
        with pytest.raises(FeedError, match=r"no column|no buffer"):
            decoded(each if isinstance(each, list) else [each], [data[:7], data])


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"slots": -1, "columns": [], "marks": 0, "alive": True},
        {"slots": 1, "columns": [["x"]], "marks": 0, "alive": True},
        {"slots": 1, "columns": [["x", ["int", "<i8", [1]], [-8]]], "marks": 0, "alive": True},
        {"slots": 1, "columns": [], "marks": 0, "alive": True, "places": [1]},
        {"slots": 1, "columns": [], "marks": 0, "alive": True, "stages": [{"name": "x"}]},
    ],
)
def test_an_outline_that_makes_no_sense_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match="makes no sense"):
        Outline.told(words)

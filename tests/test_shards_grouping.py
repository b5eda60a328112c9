"""Which members make a sample: neighbours that share their name up to the first dot of the base name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.errors import DuplicateFieldError, SampleError
from shoal.shards import group, split_name
from support.grouping import grouped, split
from support.tars import END, member, pack, read_both, samples_of, write_shard

TABLE = {
    "a/b.png": ("a/b", "png"),
    "a.b/c.png": ("a.b/c", "png"),
    "1.0/img.jpg": ("1.0/img", "jpg"),
    "img.v1.0.jpg": ("img", "v1.0.jpg"),
    "x.seg.png": ("x", "seg.png"),
    "a.b/c.d/e.f.g": ("a.b/c.d/e", "f.g"),
    "./000.jpg": ("./000", "jpg"),
    "X.JPG": ("X", "jpg"),
    "a.": ("a", ""),
    "README": None,
    "a.b/c": None,
    ".hidden.png": None,
    "dir/.hidden": ("dir/", "hidden"),
    "__meta__": None,
    "__x__/foo.json": None,
    "sub/__x__": None,
    "a/__x__.json": ("a/__x__", "json"),
    # What the regular expression makes of names that begin with a dot in a folder that has one, too: macOS leaves
    # such files beside every real one.
    "./._000.jpg": None,
    "a.b/.hidden": None,
    "a.b/c/.hidden": ("a.b/c/", "hidden"),
    "__x__.json": ("__x__", "json"),
    "__x__.y__": None,
    "__.y": ("__", "y"),
    "a/": None,
    "a.b/": None,
    "": None,
    "/": None,
    "/a.b": ("/a", "b"),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_name_is_split_at_the_first_dot_of_its_base_name(name: str) -> None:
    assert split_name(name) == TABLE[name]
    assert split(name) == TABLE[name]


@pytest.mark.parametrize("name", [name for name in TABLE if name])
def test_names_in_a_tar_are_split_the_same_way(name: str) -> None:
    parts = TABLE[name]
    assert samples_of(member(name, b"1") + END) == ([] if parts is None else [(parts[0], {parts[1]: b"1"})])


def test_only_neighbours_are_grouped() -> None:
    assert samples_of(pack([("a.png", b"1"), ("b.png", b"2"), ("a.cls", b"3")])) == [
        ("a", {"png": b"1"}),
        ("b", {"png": b"2"}),
        ("a", {"cls": b"3"}),
    ]


@pytest.mark.parametrize("second", ["b.jpg", "b.JPG", "b.Jpg"])
def test_the_same_field_twice_is_an_error_that_names_it(second: str) -> None:
    outcome = read_both(pack([("a.x", b"0"), ("b.jpg", b"1"), (second, b"2"), ("c.jpg", b"3")]), "s.tar")
    error = outcome.error
    assert outcome.plain == [("a", {"x": b"0"})]
    assert isinstance(error, DuplicateFieldError)
    assert isinstance(error, ValueError)
    assert (error.shard, error.key, error.field) == ("s.tar", "b", "jpg")
    assert all(word in str(error) for word in ("s.tar", "'b'", "'jpg'", "duplicate file name in tar file"))


def test_a_field_cannot_take_the_place_of_the_key() -> None:
    outcome = read_both(pack([("a.x", b"0"), ("b.__key__", b"other"), ("c.x", b"1")]))
    assert outcome.plain == [("a", {"x": b"0"})]
    assert isinstance(outcome.error, SampleError)


def test_equal_keys_in_neighbouring_shards_stay_apart(tmp_path: Path) -> None:
    shards = [write_shard(tmp_path / f"{number}.tar", [("k", {field: b"1"})]) for number, field in enumerate("xy")]
    assert list(shoal.read_tar(shards)) == [{"__key__": "k", "x": b"1"}, {"__key__": "k", "y": b"1"}]


def test_metadata_between_members_splits_no_sample() -> None:
    members = ["a.png", "__meta__", "__info__/x.json", "a.cls", "README", "a.txt", "b.png"]
    assert samples_of(pack([(name, b"") for name in members])) == [
        ("a", {"png": b"", "cls": b"", "txt": b""}),
        ("b", {"png": b""}),
    ]


def test_metadata_named_like_a_field_of_a_sample_is_still_metadata() -> None:
    members = [("__a__.json", b"1"), ("__a__.b__", b"2"), ("__a__.txt", b"3")]
    assert samples_of(pack(members)) == [("__a__", {"json": b"1", "txt": b"3"})]


PIECES = st.sampled_from(["a", "b", "__", "A", ".", "..", "/", "./", "x", "\u0130", "\u00e4", " ", "\n", "key"])
NAMES = st.lists(PIECES, min_size=1, max_size=7).map("".join)


@settings(max_examples=2000, deadline=None)
@given(name=NAMES)
def test_any_name_is_split_as_the_expression_says(name: str) -> None:
    assert split_name(name) == split(name)


@settings(max_examples=1000, deadline=None)
@given(
    names=st.lists(st.one_of(NAMES, st.sampled_from(["a.x", "a.y", "a.X", "b.x", "__a__.b", "__a__.b__"])), max_size=9)
)
def test_any_row_of_names_is_grouped_as_the_rule_says(names: list[str]) -> None:
    expected, collision = grouped((name, number) for number, name in enumerate(names))
    found = []
    failed = None
    try:
        for entry in group(((name, number, number) for number, name in enumerate(names)), "s.tar"):
            assert entry.begin == next(iter(entry.fields.values()))
            found.append((entry.key, entry.fields))
    except DuplicateFieldError as error:
        failed = error
    assert found == expected
    assert (failed is None) == (collision is None)

"""Brace patterns mean what they mean in bash."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UrlError
from shoal.files._braces import expand_braces


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("a{b,c}d", ["abd", "acd"]),
        ("{0000..0002}", ["0000", "0001", "0002"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{10..0..5}", ["10", "5", "0"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{c..a}", ["c", "b", "a"]),
        ("{a,b{1..2},}", ["a", "b1", "b2", ""]),
        ("{a}", ["{a}"]),
        ("{}", ["{}"]),
        ("{a,b", ["{a,b"]),
        ("a,b}", ["a,b}"]),
        ("{{a,b}", ["{a", "{b"]),
        ("{a,b}}", ["a}", "b}"]),
        ("{1..x}", ["{1..x}"]),
        (r"\{a,b}", ["{a,b}"]),
        (r"{a\,b,c}", ["a,b", "c"]),
        ("${HOME}/{a,b}", ["${HOME}/a", "${HOME}/b"]),
        ("pipe:awk '{ print }' {a,b}", ["pipe:awk '{ print }' a", "pipe:awk '{ print }' b"]),
    ],
)
def test_a_pattern_stands_for_these_names(pattern: str, names: list[str]) -> None:
    assert expand_braces(pattern) == names


def test_the_first_group_turns_slowest() -> None:
    assert expand_braces("{a,b}{0..1}") == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize("pattern", ["{0..999999999999}", "{0..9999}{0..9999}", "{0..99999999999999999999999}"])
def test_a_pattern_for_too_many_names_is_an_error_at_once(pattern: str) -> None:
    with pytest.raises(UrlError, match="names, more than"):
        expand_braces(pattern)


_ATOMS = ["{", "}", ",", "..", "a", "b", "0", "7", "01", "-2", "10", ".", r"\{", r"\}", r"\,", "{a,b}", "{1..3}"]
_PATTERNS = st.lists(st.sampled_from(_ATOMS), min_size=1, max_size=12).map("".join).filter(lambda text: "{" in text)


@given(st.lists(_PATTERNS, min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_every_pattern_is_read_as_bash_reads_it(patterns: list[str]) -> None:
    # The leading letter keeps bash from dropping empty words; the newlines tell the patterns apart.
    script = "\n".join(f"printf '%s ' x{pattern}; echo" for pattern in patterns)
    answer = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout
    for pattern, line in zip(patterns, answer.splitlines(), strict=True):
        assert " ".join(expand_braces(f"x{pattern}")) == line.rstrip(" "), pattern


@given(st.integers(-50, 200), st.integers(-50, 200), st.integers(-9, 9), st.integers(1, 6))
def test_a_range_has_the_names_of_its_numbers(first: int, last: int, step: int, width: int) -> None:
    names = expand_braces(f"{{{first:0{width}d}..{last:0{width}d}..{step}}}")
    size = abs(step) or 1
    assert [int(name) for name in names] == [
        *(range(first, last + 1, size) if first <= last else range(first, last - 1, -size))
    ]

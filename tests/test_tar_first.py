"""``tarfirst``: conditions, and what is written of the sample that meets one."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shoal.cli.tar._where import condition
from shoal.errors import MissingFieldError, PlanError, SampleError
from support.shell import environment, shell
from support.tars import write_shard

SAMPLE = {"__key__": "k", "cls": b"180", "txt": "Grüße".encode(), "seg.png": b"\x89PNG", "__source__": "s.tar"}


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    write_shard(tmp_path / "a.tar", [(f"{n}", {"cls": str(n * 15).encode(), "jpg": b"j%d" % n}) for n in range(20)])
    return tmp_path


def test_the_first_that_meets_a_condition_is_written_and_named(labels: Path) -> None:
    done = shell("""tarfirst -S 'int(_["cls"])==180' -f cls a.tar""", labels)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"180", b"12.cls\n")


def test_without_a_condition_it_is_the_first_picture(labels: Path) -> None:
    done = shell("cat a.tar | tarfirst > first.jpg", labels)
    assert (done.returncode, done.stderr, (labels / "first.jpg").read_bytes()) == (0, b"0.jpg\n", b"j0")


def test_none_is_exit_code_1_and_nothing_written(labels: Path) -> None:
    done = shell("tarfirst -S 'int(_.cls) > 1000' -f cls -o out a.tar", labels)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"tarfirst: none of 20 samples meets int(_.cls) > 1000\n"
    assert not (labels / "out").exists()


def test_a_sample_without_the_field_is_named_with_the_fields_it_has(labels: Path) -> None:
    done = shell("tarfirst -f 'png;ppm' a.tar", labels)
    assert done.returncode == 1
    assert b"sample '0': it has none of png;ppm; name one of its fields with -f: cls, jpg" in done.stderr


def test_reading_ends_with_the_sample_found(labels: Path) -> None:
    """The rest of the stream is damaged, which nobody ever sees."""
    data = (labels / "a.tar").read_bytes()
    (labels / "half.tar").write_bytes(data[:4096] + b"\xff" * 2048)
    done = shell("tarfirst -S '_.cls == \"0\"' -f cls half.tar", labels)
    assert (done.returncode, done.stdout) == (0, b"0")


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ('int(_["cls"]) == 180', True),
        ("int(_.cls) >= 181", False),
        ("100 < int(_.cls) < 200", True),
        ('_.cls == "180"', True),
        ('"180" == _.cls', True),
        ('_.cls == b"180"', True),
        ("_.cls != b'180'", False),
        ('_.cls in ["7", "180"]', True),
        ('_.cls not in ("7", b"180")', False),
        ('"rüß" in _.txt', True),
        ('b"PNG" in _["seg.png"]', True),
        ('"jpg" in _', False),
        ('"cls" in _ and not "jpg" in _', True),
        ('"jpg" in _ and len(_.jpg) > 3', False),
        ('len(_["seg.png"]) == 4', True),
        ('str(_.cls) == "180"', True),
        ("float(_.cls) == 1.8e2", True),
        ("int(_.cls) > -1", True),
        ('_.__key__ == "k" or _.absent == 1', True),
        ("True", True),
        ("None", False),
    ],
)
def test_conditions(text: str, met: bool) -> None:
    assert condition(text)(SAMPLE) is met


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("__import__('os').system('true')", "Call"),
        ("open('/etc/passwd')", "Call"),
        ("int(_.cls, 16) == 3", "Call"),
        ("_.cls.decode() == '3'", "Call"),
        ("_.cls.__class__", "Attribute"),
        ("().__class__", "Attribute"),
        ("[x for x in _]", "ListComp"),
        ("lambda: 1", "Lambda"),
        ("_[0]", "Subscript"),
        ("_.cls[0] == 1", "Subscript"),
        ("int(_.cls) ** 9 ** 9", "BinOp"),
        ("f'{_.cls}'", "JoinedStr"),
        ("(x := 3)", "NamedExpr"),
        ("print", "Name"),
        ("_.cls is None", "Is"),
        ("~int(_.cls) == 1", "UnaryOp"),
        ("...", "Constant"),
        ("1j == 1", "Constant"),
    ],
)
def test_whatever_else_python_has_is_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(PlanError, match=rf"\b{name}\b"):
        condition(text)


@pytest.mark.parametrize("text", ["", "int(", "a b", "(" * 500 + ")" * 500, "\0", "not " * 5000 + "True"])
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        condition(text)


@given(st.text(alphabet="_.[]()'\"=<> intcls+-*:,{}@!%&|~0189\n\\", max_size=40))
def test_any_text_is_a_condition_or_a_plan_error(text: str) -> None:
    try:
        asked = condition(text)
    except PlanError:
        return
    with contextlib.suppress(SampleError):
        assert isinstance(asked(SAMPLE), bool)


def test_a_missing_field_says_how_to_ask_for_it() -> None:
    with pytest.raises(MissingFieldError, match=r"shard s\.tar, sample 'k', field 'jpg'.*\"jpg\" in _ and"):
        condition("len(_.jpg) > 3")(SAMPLE)


def test_a_value_that_is_no_number_names_the_sample() -> None:
    with pytest.raises(SampleError, match=r"sample 'k': the condition .* fails: invalid literal"):
        condition("int(_.txt) > 3")(SAMPLE)


def test_bytes_that_are_no_text_do_not_reach_a_terminal(labels: Path) -> None:
    write_shard(labels / "b.tar", [("k", {"jpg": b"\x1b]0;owned\x07", "txt": b"plain\n"})])
    seen = {}
    for field in ("jpg", "txt"):
        mine, theirs = pty.openpty()
        command = ["tarfirst", "-f", field, "b.tar"]
        done = subprocess.run(command, cwd=labels, env=environment(), stdout=theirs, stderr=subprocess.PIPE)
        os.write(theirs, b".")
        text = b""
        while not text.endswith(b"."):
            text += os.read(mine, 1000)
        seen[field] = (done.returncode, text)
        os.close(mine)
        os.close(theirs)
    assert seen == {"jpg": (2, b"."), "txt": (0, b"plain\r\n.")}

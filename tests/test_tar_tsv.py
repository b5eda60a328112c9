"""``tar2tsv``: tables of fields, in formats that other programs read."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from shoal.cli.tar._rows import FORMATS
from shoal.sources import TarSource
from support.shell import shell
from support.tars import write_shard

CELLS = st.none() | st.text(st.characters(codec="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    samples = [("a", {"cls": b"3\n", "txt": b"x\ty\\z"}), ("b", {"cls": b"10"}), ("c", {"text": b"line 1\nline 2\n"})]
    write_shard(tmp_path / "small.tar", samples)
    return tmp_path


def table(text: str, folder: Path) -> str:
    done = shell(text, folder)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_a_header_and_a_row_for_each_sample(folder: Path) -> None:
    assert table("tar2tsv -f cls small.tar", folder) == "__key__\tcls\na\t3\nb\t10\nc\tNone\n"


def test_alternatives_and_escapes(folder: Path) -> None:
    shown = table("tar2tsv --noheader -f 'txt;text cls' < small.tar", folder)
    assert shown == "a\tx\\ty\\\\z\t3\nb\tNone\t10\nc\tline 1\\nline 2\tNone\n"


def test_without_keys_and_with_a_count(folder: Path) -> None:
    assert table("tar2tsv --nokey -c 2 small.tar small.tar", folder) == "cls\n3\n10\n"


def test_some_samples_of_a_tar(folder: Path) -> None:
    assert table("tar2tsv --noheader 'small.tar#1,2'", folder) == "b\t10\nc\tNone\n"


def test_a_file_appears_when_it_is_complete(folder: Path) -> None:
    (folder / "cut.tar").write_bytes((folder / "small.tar").read_bytes()[:1500])
    done = shell("tar2tsv -o labels.tsv cut.tar", folder)
    assert done.returncode == 1
    assert b"shard cut.tar, offset 1024" in done.stderr
    assert not (folder / "labels.tsv").exists()
    assert table("tar2tsv -o labels.tsv small.tar", folder) == ""
    assert (folder / "labels.tsv").read_text().startswith("__key__\tcls\n")


def test_a_reader_that_goes_ends_it_quietly(folder: Path) -> None:
    write_shard(folder / "many.tar", [(f"{n:06d}", {"txt": b"x" * 400}) for n in range(5000)])
    done = shell("tar2tsv -f txt many.tar | head -1; echo ${PIPESTATUS[0]}", folder)
    assert (done.stdout, done.stderr) == (b"__key__\ttxt\n141\n", b"")


def test_a_stream_may_be_larger_than_memory(folder: Path) -> None:
    """Samples of 60 MB, and then a great many small ones, through a process that may have 1 GB."""
    program = """
from shoal.shards import TarWriter
large = bytes(60 * 10**6)
with TarWriter("-") as writer:
    for number in range(25):
        writer.write({"__key__": f"large{number}", "bin": large})
    for number in range(40_000):
        writer.write({"__key__": f"small{number}", "cls": number})
"""
    (folder / "make.py").write_text(program)
    limited = "ulimit -v 1000000; export OPENBLAS_NUM_THREADS=1"
    for tool, last in {"tar2tsv": "small39999\t39999\n", "tarshow -f bin": "\n"}.items():
        assert table(f"python make.py | ({limited}; {tool}) | tail -1", folder) == last


def test_nothing_is_kept_of_what_went_through_a_pipe(folder: Path) -> None:
    peaks = []
    for number in (1_000, 8_000):
        write_shard(folder / "many.tar", [(f"{n:06d}", {"cls": b"1"}) for n in range(number)])
        source = TarSource(f"pipe:cat {folder / 'many.tar'}", trust=True)
        tracemalloc.start()
        assert sum(len(block.samples) for block in source.open(source.shards()[0])) == number
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2**20


def test_lines_become_samples_and_samples_documents(folder: Path) -> None:
    made = "printf 'a\\nb\\nc\\n' | tarcreate --format lines"
    assert table(f"{made} | tar tf -", folder) == "000000000.txt\n000000001.txt\n000000002.txt\n"
    shown = table(f"{made} | tar2tsv -f txt --format yaml", folder)
    assert shown.startswith('---\n__key__: "000000000"\ntxt: a\n---\n')
    assert [document["txt"] for document in yaml.safe_load_all(shown)] == ["a", "b", "c"]
    lines = table(f"{made} | tar2tsv -f txt --format jsonl", folder).splitlines()
    assert json.loads(lines[2]) == {"__key__": "000000002", "txt": "c"}
    assert json.loads(table(f"{made} | tar2tsv -f txt --nokey --format json", folder))[1] == {"txt": "b"}


def test_json_lines_are_a_plan_of_the_same_tar(folder: Path) -> None:
    shell("printf '__key__\\ttxt\\tcls\\na\\tgrün\\t3\\nb\\t\\t4\\n' | tarcreate -o one.tar", folder)
    table("tar2tsv -f 'txt cls' --format jsonl one.tar | tarcreate --format jsonl -o two.tar", folder)
    assert (folder / "one.tar").read_bytes() == (folder / "two.tar").read_bytes()


@pytest.mark.parametrize("form", FORMATS)
def test_no_samples_are_an_empty_table(form: str, folder: Path) -> None:
    write_shard(folder / "none.tar", [])
    shown = table(f"tar2tsv --format {form} none.tar", folder)
    assert shown == {"tsv": "__key__\tcls\n", "csv": "__key__,cls\n", "json": "[]\n"}.get(form, "")


@given(st.lists(st.tuples(CELLS, CELLS), max_size=4))
def test_every_format_is_read_back_by_others(rows: list[tuple[str | None, str | None]]) -> None:
    names = ["txt", "seg.png"]

    def written(form: str) -> str:
        made = FORMATS[form]()
        return made.head(names) + "".join(made.row(names, row) for row in rows) + made.tail()

    expected = [dict(zip(names, row, strict=True)) for row in rows]
    assert json.loads(written("json")) == expected
    assert [json.loads(line) for line in written("jsonl").split("\n")[:-1]] == expected
    assert list(yaml.safe_load_all(written("yaml"))) == expected
    blank = [{name: cell or "" for name, cell in row.items()} for row in expected]
    assert list(csv.DictReader(io.StringIO(written("csv"), newline=""))) == blank
    assert written("tsv").count("\n") == len(rows) + 1
    assert all(line.count("\t") == 1 for line in written("tsv").split("\n")[:-1])

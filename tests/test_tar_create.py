"""``tarcreate``: tars out of plans, lines and folders."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from shoal.cli.tar._creating import Files, Keys
from shoal.errors import EncodeError, PlanError
from shoal.shards import FileField, TarWriter, split_name
from support.shell import shell


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]


def created(text: str, folder: Path) -> dict[str, bytes]:
    """Run a command that writes out.tar; give what Python's tarfile and GNU tar find in it."""
    done = shell(text, folder)
    assert (done.returncode, done.stderr) == (0, b"")
    found = members(folder / "out.tar")
    listed = shell("tar tf out.tar", folder)
    assert (listed.stderr, listed.stdout.decode().splitlines()) == (b"", list(found))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "hello").write_bytes(b"world\n")
    (tmp_path / "files" / "bytes").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path


def test_a_plan_names_fields_and_files(folder: Path) -> None:
    (folder / "plan.tsv").write_text("@txt\tcls\t__key__\nhello\t7\tfirst\nbytes\t8\tsub/second\n")
    assert created("tarcreate -C files -o out.tar plan.tsv", folder) == {
        "first.cls": b"7",
        "first.txt": b"world\n",
        "sub/second.cls": b"8",
        "sub/second.txt": bytes(range(256)) * 10,
    }


def test_keys_are_numbers_where_the_plan_has_none(folder: Path) -> None:
    (folder / "plan.csv").write_text('\ufeffcls,txt\r\n7,"a, b\nc"\r\n8,""\r\n')
    found = created("tarcreate -o out.tar plan.csv", folder)
    expected = {"000000000.cls": b"7", "000000000.txt": b"a, b\nc", "000000001.cls": b"8", "000000001.txt": b""}
    assert found == expected
    assert next(iter(created("tarcreate -k 'x-{record:03d}' -o out.tar plan.csv", folder))) == "x-000.cls"


def test_json_lines_have_values_of_any_kind(folder: Path) -> None:
    rows = [{"__key__": "a", "cls": 3, "json": {"x": [1]}, "@bin": "bytes"}, {"txt": "grün", "cls": None}]
    (folder / "plan.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = created("cat plan.jsonl | tarcreate --format jsonl -C files -o out.tar -", folder)
    assert json.loads(found.pop("a.json")) == {"x": [1]}
    assert found == {"a.bin": bytes(range(256)) * 10, "a.cls": b"3", "000000001.txt": "grün".encode()}


def test_lines_have_columns_that_are_named(folder: Path) -> None:
    text = "printf 'k1,7\\nk2,8\\n' | tarcreate --format lines -f '__key__ cls' -s , -o out.tar"
    assert created(text, folder) == {"k1.cls": b"7", "k2.cls": b"8"}


def test_a_line_is_one_field_whatever_is_in_it(folder: Path) -> None:
    assert created("printf 'a\\tb\\n\\n' | tarcreate --format lines -o out.tar", folder) == {
        "000000000.txt": b"a\tb",
        "000000001.txt": b"",
    }


def test_columns_are_named_by_the_plan_or_by_the_command_and_not_by_both(folder: Path) -> None:
    done = shell("printf 'cls\\n1\\n' | tarcreate -f txt", folder)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"-f and -s are about --format lines" in done.stderr


def test_the_columns_are_said_when_asked_for(folder: Path) -> None:
    done = shell("printf 'cls\\ttxt\\n1\\ta\\n' | tarcreate -v > out.tar", folder)
    assert (done.returncode, done.stderr) == (0, b"# ['cls', 'txt']\n# 1 sample\n")


def test_the_same_plan_gives_the_same_bytes(folder: Path) -> None:
    (folder / "plan.tsv").write_text("@txt\tcls\nhello\t7\n")
    shell("tarcreate -C files -o a.tar plan.tsv; touch files/hello; cat plan.tsv | tarcreate -C files > b.tar", folder)
    assert (folder / "a.tar").read_bytes() == (folder / "b.tar").read_bytes() != b""


def test_all_files_are_looked_at_first(folder: Path) -> None:
    rows = ["hello\t1", "absent\t2", "../secret\t3", "hello\t4", *(f"no{n}\t5" for n in range(6))]
    (folder / "plan.tsv").write_text("@txt\tcls\n" + "\n".join(rows) + "\n")
    done = shell("cat plan.tsv | tarcreate -C files", folder)
    assert (done.returncode, done.stdout) == (2, b"")
    text = done.stderr.decode()
    assert text.startswith("tarcreate: -, line 3: files/absent: No such file or directory; -, line 4: ../secret lies")
    assert text.endswith("; and 3 more\n")
    assert text.count("\n") == 1


def test_files_do_not_leave_their_folder(folder: Path) -> None:
    (folder / "files" / "link").symlink_to(folder / "secret")
    inside = Files(str(folder / "files"))
    for name in ("../secret", str(folder / "secret"), "link", "../files/../secret"):
        with pytest.raises(PlanError, match=r"lies outside of .*--anywhere"):
            inside.field(name)
        assert b"".join(Files(str(folder / "files"), anywhere=True).field(name).pieces()) == b"secret"
    assert len(inside.field("../files/hello")) == 6


def test_what_is_no_file_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "files" / "pipe")
    for name, text in {"pipe": "no regular file", ".": "no regular file", "a\0b": "null byte"}.items():
        with pytest.raises(PlanError, match=text):
            Files(str(folder / "files")).field(name)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("", "is empty; its first line names the columns"),
        ("cls\tcls\n", "the column cls is there twice"),
        ("cls\t@cls\n", "the column cls is there twice"),
        ("_x\tcls\n", "'_x' cannot be the name of a column"),
        ("a\tb\n1\t2\n\n1\n", "line 4: 1 cells, but there are 2 columns: a, b"),
        ("__key__\nx\n", "there is no column but the key"),
        ("__key__\tcls\na.b\t1\n", "would be read back as"),
        ("__key__\tcls\na\t1\na\t2\n", "the same key twice in a row"),
        ("txt\n\xff\n", "line 2: this is not UTF-8"),
    ],
)
def test_a_plan_that_cannot_be_followed_names_the_line(plan: str, said: str, folder: Path) -> None:
    (folder / "plan.tsv").write_bytes(plan.encode("latin-1"))
    done = shell("tarcreate -o out.tar plan.tsv", folder)
    assert done.returncode in (1, 2)
    assert said in done.stderr.decode()
    assert "plan.tsv" in done.stderr.decode()
    assert not (folder / "out.tar").exists()


@pytest.mark.parametrize("line", ["[1]", "{", '{"a": "\\ud800"}', '{"__key__": 3, "a": ""}', '{"@a": 3}', "[" * 10**5])
def test_lines_of_json_that_are_no_samples_are_named(line: str, folder: Path) -> None:
    (folder / "plan.jsonl").write_text(f'{{"a": "b"}}\n{line}\n')
    done = shell("tarcreate -o out.tar plan.jsonl", folder)
    assert done.returncode == 2
    assert done.stderr.startswith(b"tarcreate: plan.jsonl, line 2: ")


@pytest.mark.parametrize("pattern", ["x", "{", "{other}", "{record.nothing}", "{record:xyz}", "{0}{1}{2}"])
def test_patterns_that_number_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(PlanError, match="pattern of keys"):
        Keys(pattern)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("cat/b.jpg", "cat/a.JPG", "cat/a.seg.png", "cat/a-1.jpg", "dog/deep/x.jpg", "dog/README", "top.txt"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_a_folder_has_a_sample_for_each_path(tree: Path) -> None:
    done = shell("tarcreate --from-folder tree -o out.tar", tree)
    assert done.stderr == b"# 1 file in no sample left out: dog/README\n"
    assert members(tree / "out.tar") == {
        "top.txt": b"top.txt",
        "cat/a.jpg": b"cat/a.JPG",
        "cat/a.seg.png": b"cat/a.seg.png",
        "cat/a-1.jpg": b"cat/a-1.jpg",
        "cat/b.jpg": b"cat/b.jpg",
        "dog/deep/x.jpg": b"dog/deep/x.jpg",
    }


def test_folders_are_classes_by_the_order_of_their_names(tree: Path) -> None:
    done = shell("tarcreate --from-folder tree --classes | tar2tsv -f 'cls class.txt jpg'", tree)
    assert done.stdout.decode().splitlines()[1:] == [
        "cat/a\t0\tcat\tcat/a.JPG",
        "cat/a-1\t0\tcat\tcat/a-1.jpg",
        "cat/b\t0\tcat\tcat/b.jpg",
        "dog/deep/x\t1\tdog\tdog/deep/x.jpg",
    ]
    assert done.stderr == b"# 2 files in no sample left out: top.txt, dog/README\n"


def test_two_files_of_one_field_are_refused(tree: Path) -> None:
    (tree / "tree" / "cat" / "a.jpg").write_text("another")
    done = shell("tarcreate --from-folder tree -o out.tar", tree)
    assert (done.returncode, (tree / "out.tar").exists()) == (1, False)
    assert b"sample 'cat/a', field 'jpg': cat/a.jpg would be the field jpg" in done.stderr


def test_links_to_folders_are_followed_only_where_allowed(tree: Path) -> None:
    (tree / "other").mkdir()
    (tree / "other" / "y.txt").write_text("y")
    (tree / "tree" / "link").symlink_to(tree / "other")
    done = shell("tarcreate --from-folder tree > out.tar", tree)
    assert done.returncode == 2
    assert b"tree/link is a link to another folder; follow it with --anywhere" in done.stderr
    shell("tarcreate --anywhere --from-folder tree -o out.tar", tree)
    assert members(tree / "out.tar")["link/y.txt"] == b"y"
    (tree / "other" / "back").symlink_to(tree / "other")
    done = shell("tarcreate --anywhere --from-folder tree -o again.tar", tree)
    assert b"leads back to" in done.stderr


def test_a_large_file_goes_through_little_memory(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1500 * 2**20)
    command = "ulimit -v 1200000; printf '@bin\\nlarge\\n' | OPENBLAS_NUM_THREADS=1 tarcreate | wc -c"
    done = shell(command, tmp_path)
    assert (done.stdout, done.stderr) == (b"%d\n" % (1500 * 2**20 + 512 + 1024), b"")


def test_a_file_that_grows_or_shrinks_leaves_no_tar(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for before, after in ((10, 20), (20, 10)):
        path.write_bytes(bytes(before))
        field = FileField.of(path)
        path.write_bytes(bytes(after))
        with pytest.raises(EncodeError, match="changed its size"), TarWriter(tmp_path / "out.tar") as writer:
            writer.write({"__key__": "a", "bin": field})
        assert not (tmp_path / "out.tar").exists()


@pytest.mark.parametrize("name", ["out.tar", "out.tgz", "out.tar.zst"])
def test_files_and_bytes_make_the_same_tar(name: str, tmp_path: Path) -> None:
    data = os.urandom(9 * 2**20 + 13)
    (tmp_path / "file").write_bytes(data)
    for folder, value in (("one", data), ("two", FileField.of(tmp_path / "file"))):
        with TarWriter(tmp_path / folder / name, index=True) as writer:
            assert writer.write({"__key__": "a", "bin": value, "cls": 3}) == len(data) + 1
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_names_are_taken_apart_at_the_first_dot_behind_the_folder() -> None:
    assert split_name("hello/world/a.b.c") == ("hello/world/a", "b.c")


def test_a_tar_is_not_written_to_a_terminal(tmp_path: Path) -> None:
    done = shell("printf 'a\\n' > in; script -qec 'tarcreate --format lines in' /dev/null", tmp_path)
    assert b"a tar is not written to a terminal" in done.stdout

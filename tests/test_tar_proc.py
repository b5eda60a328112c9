"""``tarproc`` runs a command for each sample, in a folder of its own, and takes what is there afterwards."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from PIL import Image

from shoal.cli.tar._crew import mapped
from support.engine import wait_until
from support.shell import environment, shell
from support.streams import peak_memory
from support.tars import samples_of, write_shard

Samples = list[tuple[str, dict[str, bytes]]]

NUMBERS: Samples = [(f"{number:03d}", {"txt": b"number %d" % number}) for number in range(12)]

#: Fails for one sample.
FAILS_AT_3 = 'test "$(cat sample.txt)" != "number 3" || { echo no; echo "not this one" >&2; exit 7; }'


def processed(options: str, folder: Path, samples: Samples = NUMBERS) -> Samples:
    write_shard(folder / "in.tar", samples)
    done = shell(f"tarproc {options} in.tar -o out.tar", folder)
    assert done.returncode == 0, done.stderr
    return samples_of((folder / "out.tar").read_bytes())


def folders_left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("tarproc-*"))


def test_a_new_file_is_a_new_field(tmp_path: Path) -> None:
    found = processed("-c 'cp sample.txt sample.x.txt'", tmp_path)
    assert found == [(key, {**fields, "x.txt": fields["txt"]}) for key, fields in NUMBERS]


def test_changed_fields_are_taken_and_removed_ones_are_gone(tmp_path: Path) -> None:
    samples: Samples = [("a/b c", {"txt": b"old", "cls": b"1", "json": b"{}"})]
    found = processed("-c 'echo new > sample.txt; rm sample.cls; touch scratch.tmp samples'", tmp_path, samples)
    assert found == [("a/b c", {"txt": b"new\n", "json": b"{}"})]


def test_samples_without_files_are_left_out(tmp_path: Path) -> None:
    found = processed("-c 'grep -q [13579]$ sample.txt || rm sample.*'", tmp_path)
    assert [key for key, _ in found] == ["001", "003", "005", "007", "009", "011"]


@pytest.mark.parametrize(
    ("mode", "text", "expected"),
    [
        ("lines", b"one\ntwo\n\nlast", [("0", b"one\n"), ("1", b"two\n"), ("2", b"\n"), ("3", b"last")]),
        ("pages", b"a\nb\n\f\n\f\nc", [("0", b"a\nb\n"), ("1", b""), ("2", b"c")]),
        ("keys", b"cat\n\nfolder/dog\r\n", [("cat", None), ("folder/dog", None)]),
    ],
)
def test_texts_are_samples_too(tmp_path: Path, mode: str, text: bytes, expected: list[tuple[str, object]]) -> None:
    (tmp_path / "in.txt").write_bytes(text)
    done = shell(f"tarproc --mode {mode} -c 'ls sample.* > sample.ls' in.txt", tmp_path)
    assert done.returncode == 0, done.stderr
    found = [(key, fields.get("txt")) for key, fields in samples_of(done.stdout)]
    assert found == expected


def test_texts_of_several_files_are_numbered_through(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    done = shell("tarproc --mode lines -c true a.txt b.txt", tmp_path)
    assert [(key, fields["txt"]) for key, fields in samples_of(done.stdout)] == [
        ("0", b"a1\n"),
        ("1", b"a2\n"),
        ("2", b"b1\n"),
        ("3", b"b2\n"),
    ]


def test_a_line_that_cannot_be_a_key_is_named(tmp_path: Path) -> None:
    done = shell("printf 'a\nb.c\n' | tarproc --mode keys -c 'touch sample.txt'", tmp_path)
    assert done.returncode == 1
    assert b"line 2 cannot be a key" in done.stderr


def test_the_key_is_in_a_file_and_may_be_changed(tmp_path: Path) -> None:
    found = processed("""-c 'cat sample.__source__ > sample.src; sed -i s/^/set-/ sample.__key__'""", tmp_path)
    assert found[0] == ("set-000", {"txt": b"number 0", "src": b"in.tar"})


def test_other_base_names_make_other_samples(tmp_path: Path) -> None:
    found = processed("-c 'cp sample.txt sampleX.txt; mv sample.txt sample-2.cls'", tmp_path, NUMBERS[:2])
    assert found == [
        ("000-2", {"cls": b"number 0"}),
        ("000-X", {"txt": b"number 0"}),
        ("001-2", {"cls": b"number 1"}),
        ("001-X", {"txt": b"number 1"}),
    ]


def test_subfolders_as_samples(tmp_path: Path) -> None:
    made = "for n in b a; do mkdir $n; cp sample.txt $n; echo $n-$(cat sample.__key__) > $n/sample.__key__; done"
    found = processed(f"-S -c '{made}'", tmp_path, NUMBERS[:2])
    assert [key for key, _ in found] == ["a-000", "b-000", "a-001", "b-001"]
    done = shell("tarproc -S -c 'mkdir x; cp sample.txt x' in.tar -o out.tar", tmp_path)
    assert b"sample '000': the subfolder x needs a sample.__key__" in done.stderr
    done = shell("tarproc -S -c 'mkdir x y; cp sample.* x; cp sample.* y' in.tar -o out.tar", tmp_path)
    assert b"sample '000': two subfolders have the key '000'" in done.stderr


def test_only_some_fields_and_another_base(tmp_path: Path) -> None:
    samples: Samples = [("a", {"jpg": b"1", "txt": b"2", "cls": b"3"}), ("b", {"png": b"4", "txt": b"5"})]
    found = processed("-b item -f 'png;jpg,cls' -c 'ls > item.names'", tmp_path, samples)
    assert found == [
        ("a", {"jpg": b"1", "cls": b"3", "names": b"item.__key__\nitem.__source__\nitem.cls\nitem.jpg\nitem.names\n"}),
        ("b", {"png": b"4", "names": b"item.__key__\nitem.__source__\nitem.names\nitem.png\n"}),
    ]


def test_a_failing_command_drops_keeps_or_ends(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS)
    (tmp_path / "fails.sh").write_text(FAILS_AT_3)
    done = shell("tarproc -s fails.sh in.tar", tmp_path)
    assert done.returncode == 0
    assert samples_of(done.stdout) == [sample for sample in NUMBERS if sample[0] != "003"]
    assert done.stderr.decode().splitlines() == [
        "no",
        "not this one",
        "tarproc: 1 of 12 samples failed and was left out:",
        "tarproc:   shard in.tar, sample '003': the command ended with exit code 7; it said: not this one",
    ]
    kept = shell("tarproc -e ignore -s fails.sh in.tar", tmp_path)
    assert (kept.returncode, samples_of(kept.stdout)) == (0, NUMBERS)
    assert b"1 of 12 samples failed and was kept" in kept.stderr
    ended = shell("tarproc -e abort -p 3 -s fails.sh in.tar -o out.tar", tmp_path)
    assert ended.returncode == 1
    assert b"tarproc: shard in.tar, sample '003': the command ended with exit code 7" in ended.stderr
    assert not (tmp_path / "out.tar").exists()


def test_long_lists_of_failures_are_cut(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", [(f"{number:03d}", {"txt": b""}) for number in range(30)])
    lines = shell("tarproc -q -p 4 -c 'kill -9 $$' in.tar", tmp_path).stderr.decode().splitlines()
    assert lines[0] == "tarproc: 30 of 30 samples failed and were left out:"
    assert re.fullmatch(r"tarproc:   shard in.tar, sample '\d+': the command was ended by SIGKILL", lines[1])
    assert lines[-1] == "tarproc:   ... and 10 more"
    assert len(lines) == 22


def test_parallel_commands_lose_nothing(tmp_path: Path) -> None:
    samples: Samples = [(f"{number:03d}", {"txt": b"%d" % (number % 3)}) for number in range(60)]
    command = "sleep 0.0$(cat sample.txt); tr 012 abc < sample.txt > sample.out"
    expected = [(key, {**fields, "out": bytes([fields["txt"][0] + 49])}) for key, fields in samples]
    assert sorted(processed(f"-p 4 -c '{command}'", tmp_path, samples)) == expected
    assert processed(f"-p 4 --ordered -c '{command}'", tmp_path, samples) == expected


def test_order_by_place_or_by_time() -> None:
    """The first item takes as long as all others together."""
    done: list[int] = []

    def work(item: int) -> int:
        while item == 0 and len(done) < 3:
            time.sleep(0.001)
        done.append(item)
        return item

    assert next(iter(mapped(work, range(4), workers=2, ordered=True, end=int))) == 0
    done.clear()
    found = list(mapped(work, range(6), workers=2, ordered=False, end=int))
    assert sorted(found) == list(range(6))
    assert found[0] != 0


def test_few_samples_are_under_way() -> None:
    drawn = itertools.count()
    results = mapped(abs, drawn, workers=3, ordered=True, end=int)
    assert [next(results) for _ in range(100)] == list(range(100))
    results.close()
    assert next(drawn) <= 106


def test_what_commands_say(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS[:2])
    command = "-c 'echo out $(cat sample.__key__); echo err >&2'"
    assert shell(f"tarproc {command} in.tar", tmp_path).stderr == b"out 000\nerr\nout 001\nerr\n"
    assert shell(f"tarproc -q {command} in.tar", tmp_path).stderr == b""
    kept = shell(f"tarproc -q --add-log log.txt {command} in.tar", tmp_path)
    assert [fields["log.txt"] for _, fields in samples_of(kept.stdout)] == [b"out 000\nerr\n", b"out 001\nerr\n"]
    assert shell(f"tarproc -O said.txt {command} in.tar && cat said.txt >&2", tmp_path).stderr.startswith(b"out 000\n")


def test_another_interpreter(tmp_path: Path) -> None:
    program = 'open("sample.n", "w").write(str(len(open("sample.txt").read())))'
    found = processed(f"--interpreter '{sys.executable} -S' -c '{program}'", tmp_path, NUMBERS[:1])
    assert found == [("000", {"txt": b"number 0", "n": b"8"})]


def test_content_and_keys_are_no_commands(tmp_path: Path) -> None:
    """Names that a shell would act on, were they ever part of a command line."""
    samples: Samples = [
        ("../../$(touch hit)", {"txt": b"$(touch hit)", "`touch hit`": b";touch hit"}),
        ("-rf *;touch hit", {"-x": b"", "a b\nc": b"2"}),
        ("/etc/x", {"txt": b"3"}),
    ]
    found = processed("-c 'cp sample.txt sample.copy 2> /dev/null || true'", tmp_path, samples)
    assert [(key, {name: data for name, data in fields.items() if name != "copy"}) for key, fields in found] == samples
    assert not list(tmp_path.rglob("hit"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ln -s /etc/passwd sample.x", "sample.x leads out of the folder, to /etc/passwd"),
        ("ln -s nowhere sample.x", "sample.x cannot be read: No such file"),
        ("ln $OUTSIDE sample.x", "sample.x is a link to a file outside the folder"),
        ("mkfifo sample.x", "sample.x is no regular file"),
        (
            "echo a.b > sample.__key__",
            "shard in.tar, sample '001': the key 'a.b' and the field 'txt' would be read back as",
        ),
        ("cp sample.txt sample.TXT", "fields differ only in case"),
        ("rm -r $PWD", "the command left a folder that cannot be read: No such file"),
    ],
)
def test_what_is_no_file_of_the_sample_is_refused(command: str, words: str, tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS[:2])
    (tmp_path / "outside").write_bytes(b"secret")
    done = shell(f"TMPDIR=$PWD OUTSIDE=$PWD/outside tarproc -c '{command}' in.tar", tmp_path)
    assert done.returncode == 0
    assert samples_of(done.stdout) == []
    assert "2 of 2 samples failed" in done.stderr.decode()
    assert words in done.stderr.decode()
    assert folders_left(tmp_path) == []


def test_all_fields_pass_whatever_they_are_called(tmp_path: Path) -> None:
    samples: Samples = [("a", {"__meta__": b"1", "_x": b"2", "a.b.c": b"3", "~": b"4"})]
    assert processed("-c true", tmp_path, samples) == samples


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    found = processed("-c 'ln -s sample.txt sample.a; ln sample.txt sample.b'", tmp_path, NUMBERS[:1])
    assert found == [("000", dict.fromkeys(("txt", "a", "b"), b"number 0"))]


def test_a_refused_sample_is_kept_as_it_was_if_errors_are_ignored(tmp_path: Path) -> None:
    found = processed("-e ignore -c 'ln -s /etc/passwd sample.x; echo new > sample.txt'", tmp_path, NUMBERS[:2])
    assert found == NUMBERS[:2]


def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS[:3])
    hang = 'trap "" TERM; (trap "" TERM; sleep 300) & echo $! >> $PIDS; grep -q 1 sample.txt && wait; true'
    done = shell(f"PIDS=$PWD/pids TMPDIR=$PWD tarproc -p 3 --timeout 1 -c '{hang}' in.tar", tmp_path)
    assert sorted(key for key, _ in samples_of(done.stdout)) == ["000", "002"]
    assert b"sample '001': the command took too long and was killed" in done.stderr
    assert folders_left(tmp_path) == []
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert wait_until(lambda: not any(map(is_running, pids)), 60.0), "who is killed is gone as soon as it has its turn"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_commands_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS)
    variables = environment() | {"TMPDIR": str(tmp_path), "PIDS": str(tmp_path / "pids")}
    command = ["tarproc", "-p", "3", "-c", "sleep 300 & echo $! >> $PIDS; wait", "in.tar", "-o", "out.tar"]
    process = subprocess.Popen(command, cwd=tmp_path, env=variables, stderr=subprocess.PIPE)
    while not (tmp_path / "pids").exists() or len((tmp_path / "pids").read_text().split()) < 3:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + number, b"")
    assert folders_left(tmp_path) == []
    assert not (tmp_path / "out.tar").exists()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert wait_until(lambda: not any(map(is_running, pids)), 60.0), "who is killed is gone as soon as it has its turn"


def is_running(pid: int) -> bool:
    """A process that has ended and that nobody has asked about yet does not run."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_folders_are_private_and_kept_on_demand(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS[:2])
    (tmp_path / "work").mkdir()
    done = shell("umask 0; tarproc -w work --keepdir -c 'stat -c %a . > sample.mode' in.tar", tmp_path)
    assert {fields["mode"] for _, fields in samples_of(done.stdout)} == {b"700\n"}
    kept = folders_left(tmp_path / "work")
    assert len(kept) == 2
    assert all(name in done.stderr.decode() for name in kept)


def test_a_name_that_no_file_can_have_is_a_failure_of_its_sample(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", [("a", {"x" * 300: b"1"}), ("b", {"txt": b"2"})])
    done = shell("tarproc -c true in.tar", tmp_path)
    assert samples_of(done.stdout) == [("b", {"txt": b"2"})]
    assert b"the name is too long for a file" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "say what to run"),
        ("-c true -s x.sh", "say what to run"),
        ("-s missing.sh", "there is no script missing.sh"),
        ("-c true --interpreter nosuchshell", "there is no program 'nosuchshell'"),
        ("-c true -b a/b", "the base 'a/b' must be a plain name"),
        ("-c true --timeout 0", "a timeout of 0 seconds is none"),
    ],
)
def test_misuse_is_told_before_anything_runs(options: str, words: str, tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS[:1])
    done = shell(f"tarproc {options} in.tar -o out.tar", tmp_path)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert not (tmp_path / "out.tar").exists()


def test_stop_after_some_samples_of_an_endless_stream(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS)
    done = shell("yes in.tar | xargs -n 1 cat | tarproc -p 2 --ordered --count 30 -c true | tar t | wc -l", tmp_path)
    assert done.stdout.split() == [b"30"]


def test_a_damaged_input_ends_it_with_its_place(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS)
    done = shell("head -c 8000 in.tar | TMPDIR=$PWD tarproc -p 2 -c true -o out.tar", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"tarproc: shard -, offset ")
    assert not (tmp_path / "out.tar").exists()
    assert folders_left(tmp_path) == []


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    assert peak_memory(["tarproc", "-p", "4", "-c", "true"], 1500, tmp_path / "out.tar") < 200e6


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    write_shard(tmp_path / "in.tar", NUMBERS[:4])
    ours, theirs = os.openpty()
    command = ["tarproc", "-c", "sleep 0.3; echo said", "in.tar", "-o", "out.tar"]
    subprocess.run(command, cwd=tmp_path, env=environment(), stderr=theirs, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends that nobody has open
        while part := os.read(ours, 10_000):
            shown += part
    os.close(ours)
    assert re.search(rb"\r\d samples done, \d+/s", shown)
    assert shown.count(b"said\r\n") == 4


#: GraphicsMagick need not be installed: this `gm` knows the one command of the test, and resizes with Pillow.
GM = f"""#!{sys.executable}
import sys
from PIL import Image
_, mogrify, size, _, *files, resize, largest = sys.argv
assert (mogrify, size, resize) == ("mogrify", "-size", "-resize")
for file in files:
    image = Image.open(file)
    image.thumbnail(tuple(map(int, largest.split("x"))))
    image.save(file)
"""


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (500 + number, 300), (number, 20, 30)).save(file, "jpeg")
    return file.getvalue()


def test_pictures_made_smaller_by_a_shell_line(tmp_path: Path) -> None:
    write_shard(
        tmp_path / "small.tar", [(f"n{n:02d}", {"cls": b"%d" % n, "jpg": picture(n), "json": b"{}"}) for n in range(10)]
    )
    tool = tmp_path / "bin" / "gm"
    tool.parent.mkdir()
    tool.write_text(GM)
    tool.chmod(0o755)
    line = "tarproc -p 5 -c 'ls; gm mogrify -size 256x256 *.jpg -resize 256x256' small.tar > out.tar"
    done = shell(f"PATH=$PWD/bin:$PATH\n{line}", tmp_path)
    assert done.returncode == 0
    assert done.stderr.split().count(b"sample.jpg") == 10
    found = dict(samples_of((tmp_path / "out.tar").read_bytes()))
    assert {key: fields["cls"] for key, fields in found.items()} == {f"n{n:02d}": b"%d" % n for n in range(10)}
    assert {max(Image.open(io.BytesIO(fields["jpg"])).size) for fields in found.values()} == {256}
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert len(tar.getnames()) == 30
    assert os.waitstatus_to_exitcode(os.system(f"tar tf {tmp_path}/out.tar > /dev/null")) == 0

"""tarcat puts tars one after the other, sample by sample as they are, and reads no more than it has to."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from pathlib import Path

import pytest

from shoal.shards import read_spans
from support.shell import shell
from support.tars import END, member, pack, samples_of, write_shard
from support.webdataset_shards import samples

#: Writes a tar without end.
ENDLESS = f"{sys.executable} {Path(__file__).parent}/support/endless_tar.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tars of three samples each."""
    for name, letters in (("t1.tar", "abc"), ("t2.tar", "def")):
        write_shard(tmp_path / name, [(letter, {"cls": b"1", "txt": letter.encode()}) for letter in letters])
    return tmp_path


def keys(line: str, folder: Path) -> str:
    """Run a line that writes a tar, which GNU tar, Python's tarfile and we must read alike; name its samples."""
    done = shell(f"{line} > out.tar && tar tf out.tar", folder)
    assert done.returncode == 0, done.stderr
    data = (folder / "out.tar").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
    assert done.stdout.decode().split() == names
    read = samples_of(data)
    assert [f"{key}.{field}" for key, fields in read for field in fields] == names
    assert all(len(fields) == 2 for _, fields in read)
    return "".join(key for key, _ in read)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tarcat t1.tar t2.tar", "abcdef"),
        ("tarcat -c 4 t1.tar t2.tar", "abcd"),
        ("tarcat -s 2 -c 4 t1.tar t2.tar", "cd"),
        ("tarcat --skip 4 t1.tar t2.tar", "ef"),
        ("tarcat -s 5 -c 2 t1.tar t2.tar", ""),
        ("tarcat -c 1e9 't{1,2}.tar'", "abcdef"),
        ("tarcat -c 1e30 t1.tar", "abc"),
        ("tarcat 't*.tar'", "abcdef"),
        ("cat t1.tar | tarcat", "abc"),
        ("cat t1.tar | tarscat t2.tar -", "defabc"),
        ("gzip -c t1.tar | tarcat - t2.tar", "abcdef"),
        ("cat t1.tar t2.tar | tarcat", "abcdef"),
        ("tarcat 't1.tar#0,1'", "ab"),
        ("tarcat 't1.tar#2' t2.tar", "cdef"),
        ("tarcat --trust 'pipe:cat t2.tar'", "def"),
        ("printf 't2.tar\\nt1.tar\\n' | tarcat -T -", "defabc"),
        ("tarcat -b 't{2,1}.tar'", "defabc"),
        ("shoal tar cat t1.tar", "abc"),
        ("tarcat -o - t1.tar", "abc"),
    ],
)
def test_samples_are_written_in_order(folder: Path, line: str, expected: str) -> None:
    assert keys(line, folder) == expected


def test_bytes_are_those_of_the_inputs_and_one_end(folder: Path) -> None:
    assert shell("tarcat t1.tar t2.tar -o both.tar", folder).stdout == b""
    whole = b"".join(
        b"".join(span.pieces()) for name in ("t1.tar", "t2.tar") for span in read_spans(f"{folder}/{name}")
    )
    assert (folder / "both.tar").read_bytes() == whole + END


def test_output_is_compressed_as_its_name_says(folder: Path) -> None:
    assert shell("tarcat t1.tar -o a.tgz", folder).returncode == 0
    assert samples_of(gzip.decompress((folder / "a.tgz").read_bytes())) == samples_of((folder / "t1.tar").read_bytes())


def test_the_first_ten_of_a_pipe(tmp_path: Path) -> None:
    """Whoever writes into the pipe is told when it is enough."""
    with tarfile.open(tmp_path / "imagenet_train-0000.tgz", "w:gz") as tar:
        for key, fields in samples():
            for field, data in (("cls", fields["cls"]), ("jpg", fields["png"]), ("json", b"{}")):
                info = tarfile.TarInfo(f"{key}.{field}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    assert shell("cat imagenet_train-0000.tgz | tarscat -c 10 > small.tar", tmp_path).returncode == 0
    assert shell("tar tvf small.tar | fgrep .jpg | wc -l", tmp_path).stdout == b"10\n"
    small = samples_of((tmp_path / "small.tar").read_bytes())
    assert [(key, fields["jpg"], fields["cls"]) for key, fields in small] == [
        (key, fields["png"], fields["cls"]) for key, fields in samples()[:10]
    ]


#: How Python ends when its reader has gone: while it writes, or while it puts away what it has not written yet.
GONE = ("1", "120")


@pytest.mark.parametrize("size", [100, 50_000_000])
def test_reading_ends_with_the_last_sample_that_is_wanted(folder: Path, size: int) -> None:
    line = f"{ENDLESS} {size} 2> errors | tarscat -c 3 | tar tf -; echo ${{PIPESTATUS[@]}}"
    done = shell(line, folder)
    *names, writer, tool, reader = done.stdout.decode().split()
    assert names == [f"{n}.{field}" for n in range(3) for field in ("bin", "cls")]
    assert (writer in GONE, tool, reader) == (True, "0", "0")
    assert b"BrokenPipeError" in (folder / "errors").read_bytes()


def test_a_reader_that_goes_ends_it_without_a_word(folder: Path) -> None:
    line = f"{ENDLESS} 1000 2> /dev/null | tarcat | head -c 10000 > head; echo ${{PIPESTATUS[@]}}"
    done = shell(line, folder)
    writer, *others = done.stdout.decode().split()
    assert (writer in GONE, others, done.stderr) == (True, ["141", "0"], b"")
    assert len((folder / "head").read_bytes()) == 10_000


def test_shuffling_is_a_matter_of_the_seed(folder: Path) -> None:
    first = keys("tarcat --shuffle 4 t1.tar t2.tar", folder)
    assert sorted(first) == list("abcdef")
    assert keys("tarcat --shuffle 4 --seed 0 't{1,2}.tar'", folder) == first
    assert len({keys(f"tarcat --shuffle 100 --seed {seed} t1.tar t2.tar", folder) for seed in range(4)}) > 1
    assert sorted(keys("cat t1.tar t2.tar | tarcat --shuffle 3", folder)) == list("abcdef")
    assert len(keys("tarcat --shuffle 3 -c 2 t1.tar t2.tar", folder)) == 2


def test_tars_are_named_when_they_are_opened(folder: Path) -> None:
    assert shell("tarcat -v t1.tar t2.tar > /dev/null", folder).stderr == b"# reading t1.tar\n# reading t2.tar\n"
    assert shell("tarcat t1.tar t2.tar > /dev/null", folder).stderr == b""


def test_damage_ends_it_after_what_comes_before(folder: Path) -> None:
    data = (folder / "t2.tar").read_bytes()
    (folder / "t2.tar").write_bytes(data[: 4 * 1024 + 512])
    for line, shard in (("tarcat t1.tar t2.tar", "t2.tar"), ("cat t2.tar | tarcat t1.tar -", "-")):
        done = shell(line, folder)
        place = f"shard {shard}, offset 4096, member 'f.cls'"
        assert done.stderr.decode() == f"tarcat: {place}: the member claims 1 bytes, but only 0 are left\n"
        assert done.returncode == 1
        # Without the end of an archive, so that whoever reads on sees that something is missing.
        assert not done.stdout.endswith(END)
        assert [key for key, _ in samples_of(done.stdout + END)] == ["a", "b", "c", "d", "e"]


def test_a_file_appears_when_it_is_complete(folder: Path) -> None:
    (folder / "t2.tar").write_bytes(b"no tar at all" * 100)
    before = sorted(path.name for path in folder.iterdir())
    assert shell("tarcat t1.tar t2.tar -o out.tar", folder).returncode == 1
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("tarcat missing.tar", 1, "missing.tar"),
        ("tarcat 'pipe:cat t1.tar'", 1, "trust"),
        ("tarcat -c many t1.tar", 2, "'many' is not a number"),
        ("tarcat 't1.tar#3,1'", 2, "the last comes before the first"),
        ("tarcat --no-such-option", 2, "No such option"),
    ],
)
def test_mistakes_are_told_in_a_line(folder: Path, line: str, status: int, words: str) -> None:
    done = shell(f"{line} > /dev/null", folder)
    assert done.returncode == status
    assert words in done.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("first", ["t1.tar", "-"])
def test_equal_keys_at_a_border_are_told_apart(folder: Path, first: str) -> None:
    done = shell(f"cat t1.tar | tarcat {first} 't1.tar#2' 't1.tar#2' t2.tar", folder)
    assert done.stderr == b"tarcat: 2 samples had the key of the one before them and got another: 'c' is now 'c-1'\n"
    read, (_, _, third) = samples_of(done.stdout), samples_of((folder / "t1.tar").read_bytes())
    assert [key for key, _ in read] == ["a", "b", "c", "c-1", "c-2", "d", "e", "f"]
    assert read[3][1] == read[4][1] == third[1]


def test_nothing_is_written_to_a_terminal(folder: Path) -> None:
    done = shell("script -qec 'tarcat t1.tar' /dev/null", folder)
    assert b"a tar is not written to a terminal" in done.stdout


def test_members_of_no_sample_are_left_out(folder: Path) -> None:
    links = member("link.txt", kind=b"2", link=b"a.txt") + member("folder/", kind=b"5")
    (folder / "t3.tar").write_bytes(member("README", b"words") + links + pack([("g.cls", b"1"), ("g.txt", b"g")]))
    assert keys("tarcat t1.tar t3.tar", folder) == "abcg"


@pytest.mark.slow
def test_memory_stays_flat(folder: Path) -> None:
    """3 GB pass a process that may not have 300 MB; and a sample of 1 GB does."""
    limited = '(ulimit -d 250000; /usr/bin/env python -c "$PEAK" tarcat{options})'
    peak = (
        "import resource,subprocess,sys; done = subprocess.run(sys.argv[1:]);"
        "sys.stderr.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)); sys.exit(done.returncode)"
    )
    for size, count in ((30_000, 100_000), (10**9, 3)):
        command = limited.format(options=f" -c {count}")
        line = f"export PEAK='{peak}'; {ENDLESS} {size} 2> /dev/null | {command} | wc -c"
        done = shell(line, folder, seconds=280)
        assert int(done.stdout) > 3 * 10**9
        assert int(done.stderr) < 300_000

"""tarsplit cuts tars into shards between samples; a shard is complete when it is there, and no larger than asked."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.shards import ShardWriter, beside, load_index, read_spans
from support.files import body
from support.shell import environment, shell
from support.tars import END, pack, samples_of, write_shard

#: Writes a tar without end.
ENDLESS = f"{sys.executable} {Path(__file__).parent}/support/endless_tar.py"

SAMPLES = [(f"{number:04d}", {"cls": b"%d" % number, "txt": body(200, number)}) for number in range(90)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tar of 90 samples, 2048 bytes each."""
    write_shard(tmp_path / "in.tar", SAMPLES)
    return tmp_path


def split(line: str, folder: Path) -> dict[str, list[tuple[str, dict[str, bytes]]]]:
    """Run a line, and read the shards that it made: by ourselves, and by Python's tarfile and GNU tar."""
    before = set(folder.iterdir())
    done = shell(line, folder)
    assert done.returncode == 0, done.stderr
    made = sorted(path for path in set(folder.iterdir()) - before if not path.name.endswith(".index"))
    shards = {}
    for path in made:
        data = path.read_bytes()
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        shards[path.name] = samples_of(plain)
        listed = shell(f"tar tf {path.name}", folder).stdout.decode().split()
        with tarfile.open(path) as tar:
            assert tar.getnames() == listed
        assert listed == [f"{key}.{field}" for key, fields in shards[path.name] for field in fields]
    return shards


def counts(shards: dict[str, list[tuple[str, dict[str, bytes]]]]) -> dict[str, int]:
    return {name: len(samples) for name, samples in shards.items()}


def test_shards_of_so_many_samples(folder: Path) -> None:
    shards = split("tarsplit -n 20 -o out in.tar", folder)
    assert counts(shards) == {f"out-{number:06d}.tar": 10 if number == 4 else 20 for number in range(5)}
    assert [sample for samples in shards.values() for sample in samples] == SAMPLES


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cat in.tar | tarsplit -n 20 --maxshards 2 -o out", {"out-000000.tar": 20, "out-000001.tar": 20}),
        ("tarsplit -n 5e1 -o 'o-{shard:03d}.tar' in.tar", {"o-000.tar": 50, "o-001.tar": 40}),
        ("tarsplit -n 50 -o o-%02d.tar in.tar", {"o-00.tar": 50, "o-01.tar": 40}),
        ("tarsplit -n 50 --start 7 -o o in.tar", {"o-000007.tar": 50, "o-000008.tar": 40}),
        ("tarsplit -n 50 -z -o o in.tar", {"o-000000.tgz": 50, "o-000001.tgz": 40}),
        ("gzip -c in.tar | tarsplit", {"temp-000000.tar": 90}),
        ("tarsplit -s 60e3 'in.tar#0,39' -o o", {"o-000000.tar": 28, "o-000001.tar": 12}),
        ("tarsplit -s 1e3 'in.tar#0,2' -o o", {f"o-{number:06d}.tar": 1 for number in range(3)}),
        ("tarsplit -s 60KB --maxshards 1 in.tar -o o", {"o-000000.tar": 28}),
        ("shoal tar split -n 100 in.tar -o o", {"o-000000.tar": 90}),
    ],
)
def test_shards_have_the_names_and_sizes_that_were_asked_for(folder: Path, line: str, expected: dict[str, int]) -> None:
    shards = split(line, folder)
    assert counts(shards) == expected
    assert [sample for samples in shards.values() for sample in samples] == SAMPLES[: sum(expected.values())]


def test_equal_keys_at_a_border_are_told_apart(folder: Path) -> None:
    shards = split("tarsplit -n 3 -o out 'in.tar#0,1' 'in.tar#1' 'in.tar#2'", folder)
    (first, second, third), (key, fields) = SAMPLES[:3], SAMPLES[1]
    assert shards == {"out-000000.tar": [first, second, (f"{key}-1", fields)], "out-000001.tar": [third]}


def test_a_folder_becomes_shards(tmp_path: Path) -> None:
    """The line as it is written, with a size for few files; whoever makes the tar is told when it is enough."""
    for number in range(400):
        place = tmp_path / "imagenet-raw" / "train" / f"n{number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:05d}.jpg").write_bytes(body(30_000, number))
        (place / f"{number:05d}.cls").write_text(f"{number}")
    line = "tar -cf - --sort=name -C imagenet-raw train | tarsplit -s 1e6 -o imagenet_train --maxshards 2"
    done = shell(f"{line}; echo ${{PIPESTATUS[@]}}", tmp_path)
    assert done.stdout in (b"141 0\n", b"2 0\n")
    made = sorted(path.name for path in tmp_path.glob("imagenet_train*.tar"))
    assert made == ["imagenet_train-000000.tar", "imagenet_train-000001.tar"]
    assert [line for line in done.stderr.decode().splitlines() if line.startswith("#")] == [
        "# writing imagenet_train-000000.tar (0, 0)",
        "# writing imagenet_train-000001.tar (31, 985088)",
    ]
    for name in made:
        data = (tmp_path / name).read_bytes()
        assert len(data) <= 1e6
        assert all(fields.keys() == {"cls", "jpg"} for _, fields in samples_of(data))


sizes = st.lists(st.lists(st.integers(0, 4000), min_size=1, max_size=3), min_size=1, max_size=30)


@given(sizes, st.integers(1, 12_000), st.integers(1, 9))
@settings(max_examples=50)
def test_no_shard_is_larger_than_it_may_be(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]], most: int, count: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    members = [(f"{key}.{field}", body(size)) for key, fields in enumerate(sizes) for field, size in enumerate(fields)]
    (folder / "in.tar").write_bytes(pack(members))
    with ShardWriter(f"{folder}/%d.tar", count, most) as writer:
        for span in read_spans(f"{folder}/in.tar"):
            assert writer.write_span(span)
    read = []
    for shard in writer.shards:
        data = Path(shard.url).read_bytes()
        assert len(data) == shard.size
        assert shard.count == 1 or (shard.count <= count and shard.size <= most)
        assert data.endswith(END)
        read += samples_of(data)
    assert read == samples_of(pack(members))


def test_shards_have_an_index_that_is_theirs(folder: Path) -> None:
    assert shell("cat in.tar | tarsplit -n 50 -o out", folder).returncode == 0
    for name in ("out-000000.tar", "out-000001.tar"):
        index, info = load_index(beside(f"{folder}/{name}")), os.stat(folder / name)
        assert (index.shard_size, index.version) == (info.st_size, f"{info.st_size}-{info.st_mtime_ns}")
    data = shoal.read_tar(f"{folder}/out-{{000000..000001}}.tar")
    assert [(sample["__key__"], sample["cls"]) for sample in data] == [(key, fields["cls"]) for key, fields in SAMPLES]
    assert shell("tarsplit -n 50 --no-index -o bare in.tar", folder).returncode == 0
    assert not list(folder.glob("bare*.index"))


def test_a_command_gets_each_shard_and_then_it_goes(folder: Path) -> None:
    (folder / "sub dir").mkdir()
    hook = "echo {shard} {dirname} {basename} {base} {ext}; test {abspath} -ef {shard} && tar tf {shard} | wc -l"
    done = shell(f"tarsplit -n 50 -o 'sub dir/x' -C '{hook}' in.tar", folder)
    where = folder / "sub dir"
    assert done.stdout.decode().splitlines() == [
        f"sub dir/x-000000.tar {where} x-000000.tar x-000000 .tar",
        "100",
        f"sub dir/x-000001.tar {where} x-000001.tar x-000001 .tar",
        "80",
    ]
    assert list(where.iterdir()) == []
    assert shell("tarsplit -n 50 -o 'sub dir/x' -C true --nodelete in.tar", folder).returncode == 0
    assert len(list(where.glob("*.tar"))) == 2
    assert shell("tarsplit -n 50 -o y -C 'mv {shard} kept-{basename}' in.tar", folder).returncode == 0
    assert sorted(path.name for path in folder.glob("*y-*")) == ["kept-y-000000.tar", "kept-y-000001.tar"]


def test_a_command_does_not_read_the_samples(folder: Path) -> None:
    done = shell("cat in.tar | tarsplit -n 50 -o x -C 'cat; tar tf {shard} | wc -l'", folder)
    assert done.stdout == b"100\n80\n"


def test_a_command_that_fails_ends_it_with_its_status(folder: Path) -> None:
    done = shell("tarsplit -n 20 -o out -C 'test {base} != out-000001 || exit 7' in.tar", folder)
    assert done.returncode == 7
    assert b"the command for out-000001.tar failed with 7" in done.stderr
    assert sorted(path.name for path in folder.glob("out*.tar")) == ["out-000001.tar"]


def test_damage_leaves_only_shards_that_are_complete(folder: Path) -> None:
    data = (folder / "in.tar").read_bytes()
    (folder / "in.tar").write_bytes(data[:100_000])
    done = shell("tarsplit -n 20 -o out in.tar", folder)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("tarsplit: shard in.tar, offset ")
    made = sorted(folder.glob("*out*.tar"))
    assert [path.name for path in made] == ["out-000000.tar", "out-000001.tar"]
    assert [sample for path in made for sample in samples_of(path.read_bytes())] == SAMPLES[:40]


def test_whoever_kills_it_finds_no_half_of_a_shard(folder: Path) -> None:
    line = f"exec tarsplit -n 30 -o out < <({ENDLESS} 100000 2> /dev/null)"
    for pause in (0.0, 0.02, 0.05):
        process = subprocess.Popen(["bash", "-c", line], cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (folder / "out-000001.tar").exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        made = [path for path in folder.glob("*") if path.name.endswith((".tar", ".tgz")) and path.name != "in.tar"]
        assert len(made) >= 2
        for path in made:
            assert len(samples_of(path.read_bytes())) == 30
            path.unlink()


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("tarsplit -o 'same-{name}.tar' in.tar", 2, "does not number its shards"),
        ("tarsplit -s big in.tar", 2, "'big' is not a number"),
        ("tarsplit -n 0 in.tar", 2, "must be at least 1"),
        ("tarsplit missing.tar", 1, "missing.tar"),
    ],
)
def test_mistakes_are_told_in_a_line(folder: Path, line: str, status: int, words: str) -> None:
    done = shell(line, folder)
    assert done.returncode == status
    assert words in done.stderr.decode().splitlines()[-1]
    assert sorted(path.name for path in folder.iterdir()) == ["in.tar"]


@pytest.mark.slow
def test_memory_stays_flat(folder: Path) -> None:
    """3 GB pass a process that may not have 300 MB, in samples of 30 KB and of 400 MB."""
    peak = (
        "import resource,subprocess,sys; done = subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)"
    )
    for size, shards in ((30_000, 12), (120_000_000, 12)):
        command = f"(ulimit -d 250000; exec python -c '{peak}' tarsplit -s 250MB --maxshards {shards} -o x -C true)"
        done = shell(f"{ENDLESS} {size} 2> /dev/null | {command}", folder, seconds=280)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 300_000
        assert not list(folder.glob("x-*"))

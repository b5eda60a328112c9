"""An index says what a walk over the shard finds, and one that cannot be trusted is never used."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.abc import Sample, Shard
from shoal.errors import IndexFileError, PlanError
from shoal.files import open_write, stat
from shoal.shards import (
    Entry,
    IndexBuilder,
    ShardIndex,
    TarWriter,
    find_index,
    keep_index,
    load_index,
    read_dali_index,
    save_index,
    write_dali_index,
)
from shoal.sources import TarSource
from support.tars import pack, read_both, write_shard

LONG = "folder.d/" * 20 + "n" * 90
SAMPLES = [(f"{number:03d}", {"bin": bytes([number]) * (number * 37), "cls": b"%d" % number}) for number in range(20)]
LOCAL = ["plain.tar", "packed.tar.gz", "packed.tar.zst"]


def as_samples(samples: list[tuple[str, dict[str, bytes]]]) -> list[Sample]:
    return [{"__key__": key, **fields} for key, fields in samples]


def taken(samples: list[Sample]) -> list[Sample]:
    return [
        {name: bytes(value) if name != "__key__" else value for name, value in sample.items()} for sample in samples
    ]


def walked(path: Path) -> list[tuple[str, int, dict[str, tuple[int, int]]]]:
    found = read_both(path.read_bytes()).samples
    return [(s.key, s.begin, {field: (offset, size) for field, offset, size in s.places}) for s in found]


def content(index: ShardIndex) -> list[tuple[str, int, dict[str, tuple[int, int]]]]:
    return [(entry.key, entry.begin, entry.fields) for entry in index.entries()]


def index_of(path: str | Path) -> ShardIndex:
    """Have the index built by asking for a length, and find it where it is kept."""
    url = str(path)
    TarSource(url).length(Shard(url))
    index = find_index(url, stat(url))
    assert index is not None
    return index


def place(root: Path, name: str) -> str:
    """Name a shard on the disk or, for remote ones, in memory."""
    return f"memory://{root.name}/{name.removeprefix('remote-')}" if name.startswith("remote-") else str(root / name)


def write(url: str, **options: Any) -> None:
    with TarWriter(url, **options) as writer:
        for key, fields in SAMPLES:
            writer.write({"__key__": key, **fields})


KEYS = st.text(st.characters(exclude_characters="\0./", exclude_categories=["Cs"]), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(keys=st.lists(KEYS, unique=True, max_size=6), form=st.sampled_from(["gnu", "pax"]), seed=st.integers(0, 9))
def test_an_index_equals_a_walk(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str], form: str, seed: int
) -> None:
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("index") / "a.tar"
    members = [(f"{key}.{field}", rng.randbytes(rng.randrange(1200))) for key in keys for field in ("a", "B.c")]
    path.write_bytes(pack(members, form))
    index = index_of(path)
    assert content(index) == walked(path)
    assert content(ShardIndex.from_bytes(index.to_bytes(), "again")) == content(index)
    assert [index.entry(position).key for position in range(len(index))] == [entry.key for entry in index.entries()]


def test_the_index_of_many_samples_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(pack([(f"{number}.x", b"") for number in range(3000)]))
    index = index_of(path)
    assert len(index) == 3000
    assert content(index) == walked(path)
    assert [entry.key for entry in index.entries(1020, 1030)] == [str(number) for number in range(1020, 1030)]
    assert list(index.entries(3000)) == []
    for position in (3000, -1):
        with pytest.raises(IndexError):
            index.entry(position)


@pytest.mark.parametrize(
    "name", ["a.tar", "a.tgz", "a.tar.bz2", "a.tar.xz", "a.tar.zst", "remote-a.tar", "remote-a.tgz"]
)
def test_the_index_made_while_writing_equals_the_walked_one(tmp_path: Path, name: str) -> None:
    url, bare = place(tmp_path, name), place(tmp_path, f"remote-bare-{name.removeprefix('remote-')}")
    write(url, index=True)
    write(bare)
    made = load_index(f"{url}.index")
    built = index_of(bare)
    assert content(made) == content(built)
    assert made.shard_size == stat(url).size
    assert made.seekable == name.endswith(".tar") == built.seekable


def test_an_empty_shard_has_an_empty_index(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar", index=True):
        pass
    assert len(index_of(tmp_path / "a.tar")) == 0
    assert list(shoal.read_tar(tmp_path / "a.tar")) == []
    assert shoal.read_tar(tmp_path / "a.tar").count() == 0


def test_reading_to_the_end_keeps_the_index_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_CACHE", str(tmp_path / "cache"))
    url = write_shard(tmp_path / "a.tar", [(f"{number}", {"x": b""}) for number in range(500)])
    next(iter(shoal.read_tar(url)))
    assert find_index(url, stat(url)) is None
    assert len(list(shoal.read_tar(url))) == 500
    index = find_index(url, stat(url))
    assert index is not None
    assert content(index) == walked(Path(url))
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "cache"]


def test_a_cache_that_cannot_be_written_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SHOAL_CACHE", str(tmp_path / "file" / "cache"))
    url = write_shard(tmp_path / "a.tar", SAMPLES)
    assert list(shoal.read_tar(url)) == as_samples(SAMPLES)
    assert TarSource(url).length(Shard(url)) == 20


@pytest.mark.parametrize("beside", [True, False])
def test_a_changed_shard_has_another_index(tmp_path: Path, beside: bool) -> None:
    url = write_shard(tmp_path / "a.tar", SAMPLES)
    index = index_of(url)
    if beside:
        save_index(index, f"{url}.index")
    assert find_index(url, stat(url)) is not None
    other = [(f"other-{key}", fields) for key, fields in SAMPLES]
    size = os.path.getsize(url)
    write_shard(tmp_path / "a.tar", other)
    assert os.path.getsize(url) == size
    os.utime(url, ns=(1, 1))
    assert find_index(url, stat(url)) is None
    assert list(shoal.read_tar(url)) == as_samples(other)
    write_shard(tmp_path / "a.tar", SAMPLES + other)
    os.utime(url, ns=(1, 1))
    assert TarSource(url).length(Shard(url)) == 40


def test_an_index_of_another_shard_is_not_used(tmp_path: Path) -> None:
    one = write_shard(tmp_path / "one.tar", SAMPLES)
    two = write_shard(tmp_path / "two.tar", SAMPLES[:5])
    save_index(index_of(one), f"{two}.index")
    assert list(shoal.read_tar(two)) == as_samples(SAMPLES[:5])
    assert TarSource(two).length(Shard(two)) == 5


class Evil:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self._path), "w"))


def evil_files(tmp_path: Path) -> dict[str, bytes]:
    bomb = Evil(tmp_path / "exploded")
    np.savez(tmp_path / "evil.npz", keys=np.array([bomb], dtype=object))
    np.save(tmp_path / "evil.npy", np.array([bomb], dtype=object))
    return {
        "pickle": pickle.dumps(bomb),
        "npz": (tmp_path / "evil.npz").read_bytes(),
        "npy": (tmp_path / "evil.npy").read_bytes(),
        "empty": b"",
        "text": b"hello",
        "tar": pack([("a.txt", b"1")]),
    }


@pytest.mark.parametrize("kind", ["pickle", "npz", "npy", "empty", "text", "tar"])
def test_foreign_files_in_an_indexs_place_are_neither_used_nor_run(tmp_path: Path, kind: str) -> None:
    url = write_shard(tmp_path / "a.tar", SAMPLES)
    (tmp_path / "a.tar.index").write_bytes(evil_files(tmp_path)[kind])
    with pytest.raises(IndexFileError, match="is not an index"):
        load_index(f"{url}.index")
    assert list(shoal.read_tar(url)) == as_samples(SAMPLES)
    assert TarSource(url).length(Shard(url)) == 20
    assert not (tmp_path / "exploded").exists()


def test_a_folder_in_an_indexs_place_is_not_used(tmp_path: Path) -> None:
    url = write_shard(tmp_path / "a.tar", SAMPLES)
    (tmp_path / "a.tar.index").mkdir()
    assert TarSource(url).length(Shard(url)) == 20


def test_a_damaged_index_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    index = index_of(write_shard(tmp_path / "a.tar", SAMPLES[:4]))
    data = index.to_bytes()
    assert content(ShardIndex.from_bytes(data, "x")) == content(index)
    for at in range(len(data)):
        for mask in (0x01, 0x20, 0x80):
            flipped = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
            with pytest.raises(IndexFileError):
                ShardIndex.from_bytes(flipped, "x")
    for length in range(len(data)):
        with pytest.raises(IndexFileError):
            ShardIndex.from_bytes(data[:length], "x")
    with pytest.raises(IndexFileError):
        ShardIndex.from_bytes(data + b"\0", "x")


def build(**changes: Any) -> ShardIndex:
    """Make an index of two samples with two fields each, and change columns of it."""
    builder = IndexBuilder()
    builder.add(Entry("a", 0, {"x": (512, 10), "y": (1536, 10)}))
    builder.add(Entry("b", 2048, {"x": (2560, 10), "y": (3584, 10)}))
    index = builder.build(shard_size=8192, version="v")
    columns = {name: getattr(index, name) for name in ShardIndex.__slots__}
    for name, value in changes.items():
        columns[name] = np.array(value, columns[name].dtype) if isinstance(value, list) else value
    return ShardIndex(**columns)


TOP = 2**63 - 1


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": [512, 1536, 2560, 9000]},
        {"offsets": [-1, 1536, 2560, 3584]},
        {"offsets": [TOP, 1536, 2560, 3584]},
        {"offsets": [TOP - 5, 1536, 2560, 3584], "sizes": [TOP, 10, 10, 10]},
        {"sizes": [10, 10, 10, 5000]},
        {"sizes": [TOP, 10, 10, 10]},
        {"sizes": [-10, 10, 10, 10]},
        {"sizes": [10, 10, 10]},
        {"offsets": [512, 1536, 2560]},
        {"field_ids": [0, 1, 0, 2]},
        {"field_ids": [0, 1, 0, -1]},
        {"field_ids": [0, 1]},
        {"fields": ()},
        {"key_ends": [1, 3]},
        {"key_ends": [3, 2]},
        {"key_ends": [-1, 2]},
        {"key_ends": [2]},
        {"member_ends": [2, 5]},
        {"member_ends": [5, 4]},
        {"member_ends": [-1, 4]},
        {"begins": [-512, 2048]},
        {"begins": [2048, 0]},
        {"begins": [0]},
        {"begins": []},
        {"shard_size": 100},
        {"keys": []},
    ],
)
def test_an_index_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    assert len(ShardIndex.from_bytes(build().to_bytes(), "x")) == 2
    with pytest.raises(IndexFileError):
        ShardIndex.from_bytes(build(**changes).to_bytes(), "x")


@pytest.mark.parametrize(
    "description",
    [
        {}, [], None, 7, "text", {"crc32": 0}, {"crc32": 0, "lengths": []}, {"crc32": None, "lengths": {}},
        {"lengths": {"key_ends": 2**62}}, {"lengths": {"key_ends": -5}}, {"shard_size": 1e400}, {"fields": 7},
    ],
)  # fmt: skip
def test_a_description_that_is_none_is_refused(description: Any) -> None:
    good = build().to_bytes()
    text = json.dumps(description).encode()
    for data in (good[:16] + struct.pack("<Q", len(text)) + text, good[:16] + struct.pack("<Q", 2**64 - 1) + text):
        with pytest.raises(IndexFileError):
            ShardIndex.from_bytes(data, "x")
    with pytest.raises(IndexFileError):
        ShardIndex.from_bytes(good[:16] + struct.pack("<Q", 200_000) + b"[" * 200_000, "x")


@settings(max_examples=300, deadline=None)
@given(junk=st.binary(max_size=300))
def test_any_bytes_are_an_index_or_an_index_file_error(junk: bytes) -> None:
    for data in (junk, build().to_bytes()[:24] + junk, b"shoal index 1\n\0\0" + junk):
        with pytest.raises(IndexFileError):
            ShardIndex.from_bytes(data, "x")


# Picking and splitting


@pytest.mark.parametrize("name", [*LOCAL, "remote-plain.tar", "remote-packed.tgz"])
@pytest.mark.parametrize("indexed", [False, True])
def test_length_take_and_split_agree_with_reading(tmp_path: Path, name: str, indexed: bool) -> None:
    url = place(tmp_path, name)
    write(url, index=indexed)
    source, shard = TarSource(url), Shard(url)
    everything = as_samples(SAMPLES)
    for parts in (1, 2, 3, 7, 20, 33):
        pieces = source.split(shard, parts)
        read = [sample["__key__"] for piece in pieces for block in source.open(piece) for sample in block.samples]
        assert sorted(read) == [key for key, _ in SAMPLES]
        assert len(pieces) == parts
        assert sum(map(source.length, pieces)) == 20
    assert source.length(shard) == 20
    picks = [19, 0, 7, 7, 3]
    assert taken(source.take(shard, picks)) == [everything[pick] for pick in picks]
    assert source.take(shard, []) == []
    for piece in source.split(shard, 3):
        inside = [sample for block in source.open(piece) for sample in block.samples]
        order = list(reversed(range(source.length(piece))))
        assert taken(source.take(piece, order)) == taken(inside)[::-1]
        halves = source.split(piece, 2)
        assert sum(map(source.length, halves)) == source.length(piece)
    for wrong in ([20], [-1], [0, 99]):
        with pytest.raises(IndexError, match=f"no sample {wrong[-1]} in shard"):
            source.take(shard, wrong)
    with pytest.raises(PlanError):
        source.split(shard, 0)


@pytest.mark.parametrize("name", [*LOCAL, "remote-plain.tar", "remote-packed.tgz"])
@pytest.mark.parametrize("indexed", [False, True])
def test_opening_in_the_middle_goes_on_where_it_should(tmp_path: Path, name: str, indexed: bool) -> None:
    url = place(tmp_path, name)
    write(url, index=indexed)
    source = TarSource(url)
    for shard in (Shard(url), Shard(url, 3, 17), Shard(url, 2, None, 3), Shard(url, 2, 19, 3)):
        numbers = range(20)[shard.start : shard.stop : shard.step]
        for start in (0, 1, 4, 30):
            keys = [sample["__key__"] for block in source.open(shard, start) for sample in block.samples]
            assert keys == [f"{number:03d}" for number in numbers[start:]]


def test_a_stale_index_beside_a_remote_shard_never_gives_wrong_data(tmp_path: Path) -> None:
    url = place(tmp_path, "remote-a.tar")
    old = [("a", {"txt": b"1", "zzz": b"22"}), ("b", {"txt": b"3"}), ("c", {"txt": b"4"})]
    new = [("a", {"txt": b"111", "zzz": b"2"}), ("x", {"txt": b"3333"}), ("c", {"txt": b"4"})]
    for samples in (old, new):
        with TarWriter(url, index=samples is old) as writer:
            for key, fields in samples:
                writer.write({"__key__": key, **fields})
    with pytest.raises(IndexFileError, match="is 'x', not what its index says"):
        TarSource(url).take(Shard(url), [1])
    assert list(shoal.read_tar(url, cache=tmp_path / "cache")) == as_samples(new)
    source = TarSource(url, cache=tmp_path / "cache")
    assert taken(source.take(Shard(url), [0, 1, 2])) == as_samples(new)
    assert list(shoal.read_tar(url)) == as_samples(new)


def test_an_index_may_be_uploaded_beside_a_shard_that_was_copied(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", SAMPLES)
    url = place(tmp_path, "remote-copied.tar")
    for source, target in ((path, url), (None, f"{url}.index")):
        with open_write(target) as file:
            file.write(Path(source).read_bytes() if source else index_of(path).to_bytes())
    assert taken(TarSource(url).take(Shard(url), [11, 2])) == [as_samples(SAMPLES)[11], as_samples(SAMPLES)[2]]


def test_samples_outlive_their_source_and_their_file(tmp_path: Path) -> None:
    url = write_shard(tmp_path / "a.tar", SAMPLES)
    source = TarSource(url)
    picked = source.take(Shard(url), [5])
    del source
    os.unlink(url)
    assert taken(picked) == [as_samples(SAMPLES)[5]]


# DALI


def test_a_dali_index_has_the_documented_form(tmp_path: Path) -> None:
    url = write_shard(tmp_path / "a.tar", [("d/a", {"jpg": b"123", "cls": b"1"}), ("b", {"seg.png": b""})])
    write_dali_index(index_of(url), tmp_path / "a.idx")
    assert (tmp_path / "a.idx").read_text() == (
        "v1.2 2\njpg 512 3 d/a.jpg cls 1536 1 d/a.cls\nseg.png 2560 0 b.seg.png\n"
    )


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_dali_index_makes_the_round_trip(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(
        pack([(f"{LONG}.txt", b"long"), (f"{LONG}.cls", b"7"), ("\u00e4.txt", b"u"), ("b.txt", b"3")], form)
    )
    index = index_of(path)
    write_dali_index(index, tmp_path / "a.idx")
    again = read_dali_index(tmp_path / "a.idx", path)
    assert [(entry.key, entry.fields) for entry in again.entries()] == [(e.key, e.fields) for e in index.entries()]
    assert (again.shard_size, again.version) == (index.shard_size, index.version)
    copy = tmp_path / "copy.tar"
    shutil.copy2(path, copy)
    save_index(read_dali_index(tmp_path / "a.idx", copy), f"{copy}.index")
    assert list(shoal.read_tar(copy)) == list(shoal.read_tar(path))


def test_dali_gets_no_index_that_it_would_misread(tmp_path: Path) -> None:
    for key in ("a b", "a\nb", "a\u00a0b", "a\tb"):
        with pytest.raises(IndexFileError, match="separates by blanks"):
            write_dali_index(index_of(write_shard(tmp_path / "a.tar", [(key, {"txt": b""})])), tmp_path / "a.idx")
    write(str(tmp_path / "b.tgz"))
    with pytest.raises(IndexFileError, match="plain tars only"):
        write_dali_index(index_of(tmp_path / "b.tgz"), tmp_path / "b.idx")


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "v1.2", "v1.2 ", "v1.2 x", "v1.2 2\njpg 512 1 a.jpg", "v1.2 0\njpg 512 1 a.jpg", "v1.1 1\njpg 512 1",
        "v9 1\njpg 512 1 a.jpg", "v1.2 1\njpg 512 1", "v1.2 1\n\n", "v1.2 1\njpg 512 1 a.png", "v1.2 1\njpg x 1 a.jpg",
        "v1.2 1\njpg -512 1 a.jpg", "v1.2 1\njpg 512 \u00b2 a.jpg", "v1.2 \u00b2", "v1.2 1\njpg 512 1 README",
        "v1.2 1\njpg 512 999999 a.jpg", "v1.2 1\njpg 99999999999999999999999999 1 a.jpg", "v1.2 1\njpg 0 1 a.jpg",
        "v1.2 1\njpg 512 1 a.jpg cls 1536 1 b.cls", "v1.2 1\njpg 512 1 a.jpg jpg 1536 1 a.jpg",
        "v1.2 1\njpg 512 9223372036854775807 a.jpg", "v1.2 1\njpg 512 1 a.jpg extra", "v1.2 " + "9" * 5000,
    ],
)  # fmt: skip
def test_a_file_that_is_no_dali_index_is_refused(tmp_path: Path, text: str) -> None:
    url = write_shard(tmp_path / "a.tar", SAMPLES[:2])
    (tmp_path / "a.idx").write_text(text)
    with pytest.raises(IndexFileError):
        read_dali_index(tmp_path / "a.idx", url)


def test_keeping_an_index_of_something_remote_needs_no_file_there(tmp_path: Path) -> None:
    url = place(tmp_path, "remote-kept.tar")
    write(url)
    keep_index(url, index_of(url))
    assert fsspec.filesystem("memory").find(f"/{tmp_path.name}") == [f"/{tmp_path.name}/kept.tar"]
    assert len(index_of(url)) == 20

"""TFRecord files as datasets and as shards of frames: what TensorFlow wrote is what is read, and damage is told."""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fsspec
import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.abc import Shard
from shoal.data.pandas import read_tfrecord as read_frames
from shoal.errors import (
    CorruptShardError,
    DecodeError,
    MissingFieldError,
    PlanError,
    SampleError,
    SchemaError,
    ShardError,
    TruncatedShardError,
)
from shoal.readers import read_tfrecord
from shoal.sources import TFRecordSource
from shoal.sources._tfrecord_example import parse_example

#: Two examples as TensorFlow 2.21 wrote them: plain, with "GZIP" and with "ZLIB".
WRITTEN = {
    "plain": "3b000000000000001a23ac5c0a390a130a03626f78120c120a0a08000000000000c03f0a120a05696d61676512090a070a0500"
    "000000000a0e0a056c6162656c12051a030a0100b4a90a05440000000000000043592e9a0a420a130a03626f78120c120a0a080000003f"
    "0000c03f0a120a05696d61676512090a070a0501010101010a170a056c6162656c120e1a0c0a0affffffffffffffffff01b9c4396e",
    "gz": "1f8b0800000000000003b366800029e535315c965cc25ccc49f915423c425c5c1c108903f65c425cac99b989e9a9429c5cec5cac60"
    "512e3e2ed69cc4a4d41c215629662e46862d2bb9585da0463947eacde2724237ca1e8b518c20c0250e338a4f8a878beb3f0c30ee3c6299"
    "0700043652999f000000",
    "zlib": "789cb366800029e535315c965cc25ccc49f915423c425c5c1c108903f65c425cac99b989e9a9429c5cec5cac60512e3e2ed69cc4"
    "a4d41c215629662e46862d2bb9585da0463947eacde2724237ca1e8b518c20c0250e338a4f8a878beb3f0c30ee3c62990700419b1fc2",
}

FEATURES = {"image": bytes, "label": int, "box": [float]}


def masked(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(number: int) -> bytes:
    number %= 2**64
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(values: Mapping[str, Any], *, packed: bool = True) -> bytes:
    """Write an example; lists of bytes, floats or whole numbers, and () for a feature that has no kind."""
    entries = b""
    for name, some in values.items():
        kind = {bytes: 1, float: 2, int: 3, type(None): 0}[type(next(iter(some), None))]
        if kind == 1:
            items = b"".join(field(1, value) for value in some)
        elif kind == 2:
            raw = [struct.pack("<f", value) for value in some]
            items = field(1, b"".join(raw)) if packed else b"".join(varint(1 << 3 | 5) + value for value in raw)
        else:
            raw = [varint(value) for value in some]
            items = field(1, b"".join(raw)) if packed else b"".join(varint(1 << 3) + value for value in raw)
        feature = field(kind, items) if kind else b""
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def numbers(folder: Path, count: int = 100, name: str = "a.tfrecord") -> Path:
    path = folder / name
    data = (example({"n": [number], "image": [bytes([number % 256]) * (number % 7)]}) for number in range(count))
    path.write_bytes(b"".join(map(record, data)))
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_what_tensorflow_wrote_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.tfrecord"
    path.write_bytes(bytes.fromhex(WRITTEN[name]))
    first, second = read_tfrecord(path)
    assert list(second) == ["__key__", "box", "image", "label"]
    assert (first["__key__"], second["__key__"]) == (f"{name}-000000000", f"{name}-000000001")
    assert second["image"] == [b"\1\1\1\1\1"]
    np.testing.assert_array_equal(second["box"], np.array([0.5, 1.5], np.float32), strict=True)
    np.testing.assert_array_equal(second["label"], np.array([-1]), strict=True)
    named = list(read_tfrecord(path, {"label": int, "box": (float, (2, 1)), "more": [str]}))
    assert [sample["label"] for sample in named] == [0, -1]
    assert named[1]["box"].tolist() == [[0.5], [1.5]]
    assert named[1]["more"] == []
    assert read_tfrecord(path).count() == 2


TENSORFLOW = """
import json, random, sys
import tensorflow as tf
folder, payloads = sys.argv[1], json.load(open(sys.argv[2]))
kinds = {"bytes_list": lambda v: [x.hex() for x in v], "float_list": list, "int64_list": list, None: lambda v: None}
def told(data):
    try:
        found = tf.train.Example.FromString(data)
    except Exception:
        return None
    made = {}
    for name, feature in found.features.feature.items():
        kind = feature.WhichOneof("kind")
        made[name] = [kind, kinds[kind](getattr(feature, kind).value if kind else None)]
    return made
drawn = random.Random(1)
for compression in ("", "GZIP", "ZLIB"):
    with tf.io.TFRecordWriter(f"{folder}/{compression or 'plain'}.tfrecord", compression) as writer:
        for n in range(200):
            features = {
                "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[n])),
                "ints": tf.train.Feature(int64_list=tf.train.Int64List(
                    value=[drawn.randint(-2**63, 2**63 - 1) >> drawn.randint(0, 63) for _ in range(n % 9)])),
                "floats": tf.train.Feature(float_list=tf.train.FloatList(value=[n / 3] * drawn.randint(0, 9))),
                "bytes": tf.train.Feature(bytes_list=tf.train.BytesList(value=[drawn.randbytes(n)] * (n % 3))),
                "nothing": tf.train.Feature(),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
examples = {name: [told(data.numpy()) for data in tf.data.TFRecordDataset(f"{folder}/{name}.tfrecord", kind)]
            for name, kind in (("plain", ""), ("GZIP", "GZIP"), ("ZLIB", "ZLIB"))}
json.dump({"examples": examples, "judged": [told(bytes.fromhex(data)) for data in payloads]}, open(sys.argv[3], "w"))
"""


def damaged(seed: int, count: int) -> list[bytes]:
    """Make examples with some bytes changed, dropped or added."""
    drawn = random.Random(seed)
    whole = example({"a": [1, -5, 2**40], "b": [b"xy", b""], "c": [1.5, 2.5], "d": ()}) + b"\x9b\x06\x08\x01\x9c\x06"
    made = [whole]
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(drawn.randint(1, 3)):
            at = drawn.randrange(len(data))
            data[at : at + drawn.randint(0, 2)] = drawn.randbytes(drawn.randint(0, 2))
        made.append(bytes(data))
    return made


def told(data: bytes) -> Any:
    """Say what an example holds as the script above does; None if it is none."""
    try:
        found = parse_example(data)
    except CorruptShardError:
        return None
    return {name: _told(values) for name, values in found.items()}


def _told(values: Any) -> Any:
    if values is None:
        return [None, None]
    if isinstance(values, list):
        return ["bytes_list", [value.hex() for value in values]]
    return ["int64_list" if values.dtype == np.int64 else "float_list", values.tolist()]


def test_tensorflow_agrees(tmp_path: Path) -> None:
    """The real library writes and reads files, and judges damaged examples, in a process of its own."""
    payloads = damaged(3, 2000)
    (tmp_path / "payloads.json").write_text(json.dumps([data.hex() for data in payloads]))
    answer = tmp_path / "answer.json"
    arguments = [sys.executable, "-c", TENSORFLOW, str(tmp_path), str(tmp_path / "payloads.json"), str(answer)]
    subprocess.run(arguments, check=True, capture_output=True)
    seen = json.loads(answer.read_text())
    for name, expected in seen["examples"].items():
        samples = list(read_tfrecord(tmp_path / f"{name}.tfrecord"))
        assert [
            {name: _told(values) for name, values in each.items() if name != "__key__"} for each in samples
        ] == expected
    assert sum(judged is None for judged in seen["judged"]) > 100
    for data, judged in zip(payloads, seen["judged"], strict=True):
        assert agree(told(data), judged), data.hex()


def agree(found: Any, judged: Any) -> bool:
    """Compare with what the library says, which leaves out an entry of the map that holds a field it does not know."""
    if found is None or judged is None:
        return found is judged
    return all(repr(found[name]) == repr(values) for name, values in judged.items())


lists = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20),
    st.lists(st.binary(max_size=20), min_size=1, max_size=5),
)


@given(st.dictionaries(st.text(max_size=5), lists, max_size=4), st.booleans())
def test_examples_are_what_was_written(values: dict[str, list[Any]], packed: bool) -> None:
    found = parse_example(example(values, packed=packed))
    assert {name: list(some) for name, some in found.items() if some is not None} == values
    assert list(found) == sorted(values)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_example_are_an_error_or_nothing(data: bytes) -> None:
    assert told(data) is None or isinstance(told(data), dict)


def test_unknown_fields_and_groups_are_passed_over_and_names_replaced() -> None:
    odd = (
        field(7, b"later")
        + varint(9 << 3)
        + varint(5)
        + varint(9 << 3 | 5)
        + b"1234"
        + varint(9 << 3 | 1)
        + b"12345678"
    )
    group = varint(20 << 3 | 3) + field(1, b"x") + varint(20 << 3 | 4)
    found = parse_example(odd + example({"a": [1]}) + group + example({"a": [2, 3]}))
    assert {name: list(values) for name, values in found.items() if values is not None} == {"a": [2, 3]}


@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from(["plain", "gz", "zlib"]))
def test_a_damaged_file_ends_in_an_error_of_its_place(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, name: str
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.tfrecord"
    whole = bytes.fromhex(WRITTEN[name])
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    samples: list[Any] = []
    told = None
    try:
        samples += read_tfrecord(path, FEATURES)
    except ShardError as error:
        told = str(error)
    if told is None:
        assert len(samples) == 2 or path.stat().st_size == 0
    else:
        assert "a.tfrecord" in told
        assert "record" in told


def test_each_damage_is_named(tmp_path: Path) -> None:
    path = numbers(tmp_path, 3)
    whole = path.read_bytes()
    begin = len(record(example({"n": [0], "image": [b""]})))

    def damage(data: bytes) -> str:
        path.write_bytes(data)
        with pytest.raises(ShardError) as caught:
            list(read_tfrecord(path))
        assert isinstance(caught.value, TruncatedShardError if "cut off" in str(caught.value) else CorruptShardError)
        assert caught.value.offset == begin or data[:12] != whole[:12]
        return str(caught.value).partition("a.tfrecord, ")[2]

    changed = bytearray(whole)
    changed[begin] ^= 1
    assert damage(bytes(changed)) == f"offset {begin}: the length of record 1 does not fit to its checksum"
    changed = bytearray(whole)
    changed[begin + 14] ^= 1
    assert damage(bytes(changed)) == f"offset {begin}: the bytes of record 1 do not fit to their checksum"
    assert damage(whole[: begin + 5]) == f"offset {begin}: record 1 is cut off: the file ends before it does"
    assert "record 1 is cut off" in damage(whole[: begin + 20])
    assert "is it a TFRecord file?" in damage(b"not a record at all")
    noise = b"\x0a\x05no"
    assert "record 1 is no tf.train.Example: field 1 goes on 3 bytes" in damage(whole[:begin] + record(noise))


def test_what_comes_before_the_damage_is_read(tmp_path: Path) -> None:
    path = numbers(tmp_path, 100)
    path.write_bytes(path.read_bytes()[:-3])
    seen: list[int] = []
    with pytest.raises(TruncatedShardError, match="record 99"):
        seen.extend(sample["n"] for sample in read_tfrecord(path, {"n": int}))
    assert seen == list(range(99))
    with pytest.raises(TruncatedShardError, match="record 99"):
        read_tfrecord(path).count()


def test_a_length_that_lies_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    length = struct.pack("<Q", 2**62)
    path.write_bytes(length + masked(length) + b"few")
    with pytest.raises(TruncatedShardError, match="record 0 is cut off"):
        list(read_tfrecord(path))
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(TruncatedShardError, match="record 0 is cut off"):
        list(read_tfrecord(path))


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_compressed_bytes_that_end_too_early(tmp_path: Path, pack: Any) -> None:
    path = numbers(tmp_path, 100)
    data = pack(path.read_bytes())
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(TruncatedShardError, match="cannot be decompressed at record"):
        list(read_tfrecord(path))


def test_records_are_picked_counted_and_split(tmp_path: Path) -> None:
    path = numbers(tmp_path, 100)
    source = TFRecordSource(path, features={"n": int})
    (shard,) = source.shards()
    assert source.seekable
    assert source.length(shard) == 100
    assert [sample["n"] for sample in source.take(shard, [99, 0, 7])] == [99, 0, 7]
    with pytest.raises(IndexError, match="there is no sample 100"):
        source.take(shard, [100])
    parts = source.split(shard, 3)
    assert [source.length(part) for part in parts] == [33, 33, 34]
    assert sum(source.size(part) or 0 for part in parts) == path.stat().st_size == source.size(shard)
    dealt = [sample["n"] for block in source.open(Shard(shard.url, 1, None, 40)) for sample in block.samples]
    assert dealt == [1, 41, 81]
    assert next(iter(source.open(parts[1], 3))).samples[0]["n"] == 36


@pytest.mark.parametrize("mode", ["shards", "full"])
def test_a_shuffled_loader_resumes_exactly(tmp_path: Path, mode: Any) -> None:
    for number in range(3):
        numbers(tmp_path, 50, f"{number}.tfrecord")

    def loader() -> Any:
        return read_tfrecord(tmp_path, {"n": int, "image": bytes}).shuffle(mode, seed=3).loader(16)

    keys = [batch["__key__"] for batch in loader()]
    assert len({key for batch in keys for key in batch}) == 150
    begun = loader()
    some = iter(begun)
    assert [next(some)["__key__"] for _ in range(4)] == keys[:4]
    again = loader()
    again.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert [batch["__key__"] for batch in again] == keys[4:]


def test_worker_processes_read_records(tmp_path: Path) -> None:
    run = read_tfrecord(numbers(tmp_path), {"n": int}).run(workers=2, mode="process")
    assert [sample["n"] for sample in run] == list(range(100))


def test_compressed_files_are_read_forward(tmp_path: Path) -> None:
    path = numbers(tmp_path, 100, "a.tfrecord.gz")
    path.write_bytes(gzip.compress(path.read_bytes()))
    source = TFRecordSource(tmp_path, features={"n": int})
    (shard,) = source.shards()
    assert not source.seekable
    assert [sample["n"] for sample in source.take(shard, [50, 3])] == [50, 3]
    assert source.length(shard) == 100
    batches = list(read_tfrecord(path, {"n": int}).loader(10))
    assert [number for batch in batches for number in batch["n"].tolist()] == list(range(100))


def test_remote_files_are_read_forward_or_from_a_cache(tmp_path: Path) -> None:
    data = numbers(tmp_path, 100).read_bytes()
    fsspec.filesystem("memory").pipe_file("/records/a.tfrecord", data)
    assert not TFRecordSource("memory://records/a.tfrecord").seekable
    assert read_tfrecord("memory://records/*.tfrecord").count() == 100
    cached = TFRecordSource("memory://records/a.tfrecord", features={"n": int}, cache=tmp_path / "cache")
    assert cached.seekable
    assert cached.take(cached.shards()[0], [42])[0]["n"] == 42


def test_keys_are_of_names_or_of_a_feature(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(record(example({"id": [b"dog/1"], "n": [7, 8]})) + record(example({"id": [b"cat"], "n": [1]})))
    assert [sample["__key__"] for sample in read_tfrecord(path, key="id")] == ["dog/1", "cat"]
    assert [sample["__key__"] for sample in read_tfrecord(path, {"id": str}, key="id")] == ["dog/1", "cat"]
    with pytest.raises(SampleError, match=r"field 'n': record 0 has 2 values here, and a key is one"):
        list(read_tfrecord(path, key="n"))
    with pytest.raises(PlanError, match="'n' makes no keys"):
        read_tfrecord(path, {"id": str}, key="n")


def test_features_must_be_what_they_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(record(example({"n": [7, 8], "raw": [b"\xff"]})))
    for features, error, text in (
        ({"n": int}, DecodeError, r"field 'n': record 0: it has 2 values, and should be one value; write"),
        ({"n": (int, (3,))}, DecodeError, r"should be an array of \(3,\)"),
        ({"n": [float]}, DecodeError, "it holds int64, and should hold float32"),
        ({"raw": str}, DecodeError, "it is no text"),
        ({"x": int}, MissingFieldError, "the example has no such feature"),
    ):
        with pytest.raises(error, match=text):
            list(read_tfrecord(path, features))
    for wrong in ({"n": dict}, {"n": [int, int]}, {"n": (bytes, (2,))}, {}, ["n"]):
        with pytest.raises(PlanError, match=r"write int|as in"):
            read_tfrecord(path, wrong)  # type: ignore[arg-type]


@pytest.fixture
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=2, mode="thread"):
        yield


@pytest.mark.usefixtures("_engine")
def test_a_large_file_is_cut_between_records(tmp_path: Path) -> None:
    path = numbers(tmp_path, 100)
    shards = read_frames(str(path), {"n": int, "image": bytes}, part_size=500)
    assert shards.num_partitions() == -(-path.stat().st_size // 500)
    frame = shards.to_pandas()
    assert frame["n"].tolist() == list(range(100))
    assert frame["n"].dtype == np.int64
    assert frame["image"][13] == bytes([13]) * 6
    compressed = tmp_path / "b.tfrecord"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_frames(str(compressed), {"n": int}, part_size=50).num_partitions() == 1
    fsspec.filesystem("memory").pipe_file("/frames/a.tfrecord", path.read_bytes())
    remote = read_frames("memory://frames/a.tfrecord", {"n": int}, part_size=500)
    assert remote.num_partitions() == shards.num_partitions()
    assert remote.to_pandas()["n"].tolist() == list(range(100))


@pytest.mark.usefixtures("_engine")
def test_frames_without_features_hold_lists(tmp_path: Path) -> None:
    path = numbers(tmp_path, 10)
    (tmp_path / "empty.tfrecord").touch()
    frame = read_frames(str(tmp_path)).to_pandas()
    assert list(frame) == ["image", "n"]
    assert [value.tolist() for value in frame["n"]] == [[number] for number in range(10)]
    assert frame["image"][3] == [b"\3\3\3"]
    kinds = read_frames(str(path), {"n": [int], "image": str}).to_pandas().dtypes
    assert kinds["n"] == np.dtype(object)
    with path.open("ab") as file:
        file.write(record(example({"other": [1]})))
    with pytest.raises(SchemaError, match="has a column 'other'"):
        read_frames(str(path), part_size=200).collect()


@pytest.mark.usefixtures("_engine")
def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    path = numbers(tmp_path, 100)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 14] ^= 255
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptShardError, match=r"a\.tfrecord, offset \d+: .*record \d+"):
        read_frames(str(path), {"n": int}, part_size=500).collect()

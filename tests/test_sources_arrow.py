"""Arrow files and streams as a source: record batches in a map, behind a server, in a pipe."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from shoal.abc import Sample, Shard
from shoal.errors import (
    CorruptShardError,
    DecodeError,
    PlanError,
    ShardError,
    TruncatedShardError,
    TrustError,
    UrlChangedError,
    UrlError,
)
from shoal.sources import ArrowSource
from shoal.testing.faults import HttpServer, http_server
from support.files import body
from support.tables import all_samples, arrow, expected, numbered, plain


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.001")
    with http_server() as running:
        yield running


def numbers(samples: list[Sample]) -> list[int]:
    return [sample["n"] for sample in samples]


# Files


@pytest.mark.parametrize("name", ["a.arrow", "a.feather", "a.parquet", "a"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_first_bytes_tell_what_a_file_is(tmp_path: Path, name: str, stream: bool) -> None:
    (tmp_path / name).write_bytes(arrow(numbered(10), 4, stream=stream))
    source = ArrowSource(tmp_path / name)
    assert source.seekable is not stream
    assert len(source.shards()) == (1 if stream else 3)
    assert numbers(all_samples(source)) == list(range(10))


def test_feather_files_are_arrow_files(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(numbered(10), tmp_path / "a.feather", compression="lz4", chunksize=4)
    source = ArrowSource(tmp_path)
    assert [source.length(shard) for shard in source.shards()] == [4, 4, 2]
    assert numbers(all_samples(source)) == list(range(10))


def test_files_and_streams_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "0.arrow").write_bytes(arrow(numbered(4), 2))
    (tmp_path / "1.arrows").write_bytes(arrow(numbered(3, start=4), 2, stream=True))
    source = ArrowSource(tmp_path)
    assert not source.seekable
    assert numbers(all_samples(source)) == list(range(7))


def test_arrays_are_views_into_the_mapped_file(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(arrow(numbered(100)))
    before = pa.total_allocated_bytes()
    samples = all_samples(ArrowSource(tmp_path))
    assert pa.total_allocated_bytes() == before, "nothing was copied"
    one, two = samples[0]["v"], samples[1]["v"]
    assert two.ctypes.data - one.ctypes.data == one.nbytes == 12
    assert not one.flags.writeable


def test_lengths_are_read_without_the_batches(tmp_path: Path) -> None:
    """Compressed buffers that are damaged are not looked at before they are needed."""
    table = pa.table({"n": range(40), "data": [body(100, n) * 50 for n in range(40)]})
    whole = bytearray(arrow(table, 10, compression="zstd"))
    magic = b"\x28\xb5\x2f\xfd"
    while magic in whole:
        whole[whole.index(magic)] ^= 0xFF
    (tmp_path / "a.arrow").write_bytes(whole)
    source = ArrowSource(tmp_path)
    assert [source.length(shard) for shard in source.shards()] == [10] * 4
    with pytest.raises(CorruptShardError, match=r"a\.arrow.*damaged"):
        all_samples(source)


@pytest.mark.parametrize("stream", [False, True])
def test_files_of_before_0_15_are_read(tmp_path: Path, stream: bool) -> None:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True, metadata_version=pa.ipc.MetadataVersion.V4)
    table = numbered(10)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=4)
    (tmp_path / "a.arrow").write_bytes(sink.getvalue())
    source = ArrowSource(tmp_path)
    assert [source.length(shard) for shard in source.shards()] == ([10] if stream else [4, 4, 2])
    assert numbers(all_samples(source)) == list(range(10))


NEWER = {
    "text": pa.array(["a", None, "a text that is longer than twelve bytes", ""], pa.string_view()),
    "bytes": pa.array([b"a", None, b"", bytes(20)], pa.binary_view()),
    "views": pa.array([[1, 2], None, [], [3, None]], pa.list_view(pa.int16())),
    "large_views": pa.array([[1.5], [], None, [2.5, 3.5]], pa.large_list_view(pa.float32())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 4], pa.int32()), pa.array(["x", "y"])),
    "sparse": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(list("abcd"))]
    ),
    "dense": pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1], pa.int8()), pa.array([0, 0, 1, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a", "b"])]
    ),
    "nested": pa.array([{"t": "x"}, None, {"t": None}, {"t": "y"}], pa.struct({"t": pa.string_view()})),
    "words": pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1]), pa.array(["p", "q"], pa.string_view())),
    "pairs": pa.array([["a", "b"], None, ["c", None], ["d", "e"]], pa.list_(pa.string_view(), 2)),
    "half": pa.array([np.float16(1.5), None, np.float16(2), np.float16(0)], pa.float16()),
    "halves": pa.array([[np.float16(1.5)], None, [], [np.float16(2)]], pa.list_(pa.float16())),
    "span": pa.array([pa.MonthDayNano([1, 2, 3]), None, None, None]),
    "uuid": pa.array([bytes(16), None, bytes(16), bytes(range(16))], pa.uuid()),
}


@pytest.mark.parametrize("name", NEWER)
@pytest.mark.parametrize("stream", [False, True])
def test_newer_kinds_of_columns_come_back(tmp_path: Path, name: str, stream: bool) -> None:
    table = pa.table({"c": NEWER[name], "n": range(4)})
    (tmp_path / "a.arrow").write_bytes(arrow(table, stream=stream))
    source = ArrowSource(tmp_path)
    (shard,) = source.shards()
    wanted = expected(table)
    assert plain(all_samples(source)) == wanted
    assert plain(source.take(shard, [3, 0, 1, 0])) == [wanted[row] for row in (3, 0, 1, 0)]
    assert plain([s for block in source.open(shard, 2) for s in block.samples]) == wanted[2:]


def test_numbers_in_newer_lists_are_arrays_too(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(
        arrow(pa.table({name: NEWER[name] for name in ("views", "large_views", "halves")}))
    )
    one, *_ = all_samples(ArrowSource(tmp_path))
    assert [one[name].dtype for name in ("views", "large_views", "halves")] == [np.int16, np.float32, np.float16]


def test_offsets_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    words = pa.array(["x", "y"] * 5).dictionary_encode()
    table = pa.table(
        {
            "text": ["abcdefgh"] * 10,
            "lists": [[1, 2, 3]] * 10,
            "words": pa.ListArray.from_arrays(list(range(11)), words),
        }
    )
    whole = arrow(table)
    for offsets in (range(0, 88, 8), range(0, 33, 3), range(11)):
        damaged = bytearray(whole)
        place = damaged.index(np.array(offsets, np.int32).tobytes())
        damaged[place + 16 : place + 20] = (2**31 - 5).to_bytes(4, "little")
        (tmp_path / "a.arrow").write_bytes(damaged)
        with pytest.raises(CorruptShardError, match=r"a\.arrow.*(?i:offset)"):
            all_samples(ArrowSource(tmp_path))


def test_words_that_are_not_in_their_dictionary_are_an_error(tmp_path: Path) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([7, 7, 9, 7], pa.int32()), pa.array([str(n) for n in range(10)]))
    whole = arrow(pa.table({"word": words}))
    place = whole.index(np.array([7, 7, 9, 7], np.int32).tobytes())
    (tmp_path / "a.arrow").write_bytes(whole[:place] + (10**6).to_bytes(4, "little") + whole[place + 4 :])
    with pytest.raises(DecodeError, match="'word'"):
        all_samples(ArrowSource(tmp_path))


def test_text_that_is_none_is_an_error(tmp_path: Path) -> None:
    whole = arrow(pa.table({"text": ["good", "wrong"]}))
    (tmp_path / "a.arrow").write_bytes(whole.replace(b"wrong", b"wr\xffng"))
    with pytest.raises(ShardError, match=r"(?i)utf"):
        all_samples(ArrowSource(tmp_path))


def test_a_file_that_was_cut_says_so(tmp_path: Path) -> None:
    whole = arrow(numbered(100))
    (tmp_path / "a").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TruncatedShardError, match="begins as an Arrow file and does not end as one") as caught:
        ArrowSource(tmp_path / "a").shards()
    assert caught.value.__cause__ is not None


# Streams


def test_a_stream_tells_its_length_after_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.arrows").write_bytes(arrow(numbered(100), 30, stream=True))
    source = ArrowSource(tmp_path)
    (shard,) = source.shards()
    passes: list[int] = []
    opened = pa.ipc.open_stream
    monkeypatch.setattr(pa.ipc, "open_stream", lambda *args: passes.append(1) or opened(*args))
    assert shard == Shard(str(tmp_path / "a.arrows"))
    assert [source.length(shard), source.length(shard), source.length(Shard(shard.url, 5, None, 10))] == [100, 100, 10]
    assert len(passes) == 1
    assert numbers(source.take(shard, [99, 0, 50, 0])) == [99, 0, 50, 0]
    assert len(passes) == 2


def test_a_stream_must_have_its_end(tmp_path: Path) -> None:
    whole = arrow(numbered(100), 30, stream=True)
    source = ArrowSource(tmp_path / "a")
    got: list[int] = []

    def read() -> None:
        for shard in source.shards():
            for block in source.open(shard):
                got.extend(numbers(block.samples))

    (tmp_path / "a").write_bytes(whole[:-8])
    with pytest.raises(TruncatedShardError, match="no end mark: it was cut off, or its writer has not been closed"):
        read()
    assert got == list(range(100)), "what there is comes first"


def test_nothing_may_follow_a_stream(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(arrow(numbered(10), stream=True) * 2)
    with pytest.raises(CorruptShardError, match="bytes after the end of the stream"):
        all_samples(ArrowSource(tmp_path / "a"))


def test_dictionaries_may_change_in_a_stream(tmp_path: Path) -> None:
    sink = io.BytesIO()
    batches = [pa.record_batch({"w": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["b", "c"], ["d"])]
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    (tmp_path / "a").write_bytes(sink.getvalue())
    source = ArrowSource(tmp_path / "a")
    assert [sample["w"] for sample in all_samples(source)] == ["a", "b", "b", "c", "d"]
    assert [sample["w"] for sample in source.take(Shard(str(tmp_path / "a")), [4, 2, 0])] == ["d", "b", "a"]


def test_a_trusted_command_may_bring_a_stream(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(arrow(numbered(10), 4, stream=True))
    url = f"pipe:cat {tmp_path}/a"
    source = ArrowSource(url, trust=True, columns=["n"])
    assert numbers(all_samples(source)) == numbers(all_samples(source)) == list(range(10))
    assert all_samples(source)[3]["__key__"] == "pipe-000000003"
    assert not source.seekable
    assert source.fingerprint(Shard(url)) == ""
    for ask in (source.length, lambda shard: source.take(shard, [0])):
        with pytest.raises(PlanError, match="can be read only once"):
            ask(Shard(url))
    parts = source.split(Shard(url), 3)
    assert [numbers([s for block in source.open(part) for s in block.samples]) for part in parts] == [
        [0, 3, 6, 9],
        [1, 4, 7],
        [2, 5, 8],
    ]
    with pytest.raises(TrustError, match="trust=True"):
        all_samples(ArrowSource(url))


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(arrow(numbered(10), stream=True))
    with pytest.raises(UrlError, match="failed with status 3"):
        all_samples(ArrowSource(f"pipe:cat {tmp_path}/a; exit 3", trust=True))


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (arrow(numbered(10)), PlanError, "is a pipe that brings an Arrow file, which is read from its end"),
        (b"", TruncatedShardError, "empty"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", CorruptShardError, "compressed"),
        (b"PAR1....", CorruptShardError, "read_parquet"),
        (arrow(numbered(10), stream=True)[:300], ShardError, "pipe:"),
    ],
)
def test_what_else_a_pipe_may_bring_is_named(tmp_path: Path, data: bytes, kind: type[Exception], text: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(kind, match=text):
        all_samples(ArrowSource(f"pipe:cat {tmp_path}/a", trust=True))


def test_a_stream_may_come_through_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    data = arrow(numbered(10), 4, stream=True)
    writer = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=(data,))
    writer.start()
    assert numbers(all_samples(ArrowSource(tmp_path / "fifo"))) == list(range(10))
    writer.join()


def test_a_stream_may_come_from_standard_input() -> None:
    program = """
from shoal.sources import ArrowSource
source = ArrowSource("-")
print([(s["__key__"], s["n"]) for shard in source.shards() for b in source.open(shard) for s in b.samples])
"""
    data = arrow(numbered(2), stream=True)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], input=data, capture_output=True, check=True)
    assert done.stdout == b"[('stdin-000000000', 0), ('stdin-000000001', 1)]\n"


# Far


def heavy(rows: int) -> pa.Table:
    return pa.table({"n": range(rows), "picture": [body(20_000, seed) for seed in range(rows)], "x": [0.5] * rows})


def test_of_a_remote_file_only_the_columns_asked_for_are_read(server: HttpServer) -> None:
    whole = arrow(heavy(400), 100)
    source = ArrowSource(server.add("/a.arrow", whole), columns=["n"])
    assert numbers(all_samples(source)) == list(range(400))
    assert len(whole) > 8_000_000
    assert server.asked("/a.arrow") < 1_000_000


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_remote_file_is_read_by_batches(server: HttpServer, compression: str | None) -> None:
    source = ArrowSource(server.add("/a.arrow", arrow(heavy(400), 100, compression=compression)))
    assert [source.length(shard) for shard in source.shards()] == [100] * 4
    assert server.asked("/a.arrow") < 600_000
    (sample,) = source.take(source.shards()[2], [7])
    assert (sample["n"], sample["picture"]) == (207, body(20_000, 207))
    assert server.asked("/a.arrow") < 3_000_000
    seen = len(server.requests)
    assert numbers(source.take(source.shards()[2], [0, 99])) == [200, 299]
    assert len(server.requests) == seen, "the batch was kept"


@pytest.mark.parametrize("stream", [False, True])
def test_a_remote_file_whose_connection_is_cut_arrives_whole(server: HttpServer, stream: bool) -> None:
    url = server.add(
        "/a.arrow", arrow(heavy(100), 50, stream=stream), cut_after=[1000, 100_000, 50_000], statuses=[503]
    )
    samples = all_samples(ArrowSource(url))
    assert [sample["picture"] for sample in samples] == [body(20_000, seed) for seed in range(100)]


@pytest.mark.parametrize("stream", [False, True])
def test_a_remote_file_that_changes_is_an_error(server: HttpServer, stream: bool) -> None:
    source = ArrowSource(server.add("/a.arrow", arrow(heavy(100), 50, stream=stream)))
    (shard, *_) = source.shards()
    server.add("/a.arrow", arrow(heavy(100), 50, stream=stream), etag='"two"')
    with pytest.raises(UrlChangedError, match=r"/a\.arrow"):
        source.take(shard, [0])


def test_a_stream_needs_neither_ranges_nor_a_size(server: HttpServer) -> None:
    data = arrow(numbered(100), 30, stream=True)
    source = ArrowSource(server.add("/a.arrows", data, ignore_range=True, chunked=True, etag=None))
    assert numbers(all_samples(source)) == list(range(100))
    (shard,) = source.shards()
    assert source.length(shard) == 100


def test_several_threads_read_batches_of_one_remote_file(server: HttpServer) -> None:
    source = ArrowSource(server.add("/a.arrow", arrow(heavy(200), 10, compression="lz4")))

    def read(shard: Shard) -> Any:
        return source.take(shard, [3])[0]["picture"]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(read, source.shards())) == [body(20_000, row) for row in range(3, 200, 10)]

"""Parquet files as a source: row groups, footers, chunks of columns, near and far."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.abc import Sample, Shard
from shoal.errors import (
    CorruptShardError,
    PlanError,
    ShardError,
    TruncatedShardError,
    UrlChangedError,
    UrlError,
)
from shoal.files import open_write
from shoal.sources import ParquetSource
from shoal.sources import _tables as limits
from shoal.testing.faults import HttpServer, http_server
from support.files import body
from support.s3_server import s3_bucket
from support.tables import all_samples, numbered, parquet


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.001")
    with http_server() as running:
        yield running


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that pyarrow was asked to decode, in their order."""
    groups: list[int] = []
    decode = pq.ParquetFile.iter_batches

    def counting(self: pq.ParquetFile, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        groups.extend(options["row_groups"])
        return decode(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counting)
    return groups


def pictures(rows: int, size: int = 20_000) -> pa.Table:
    """Rows of which one column is heavy."""
    return pa.table({"label": range(rows), "picture": [body(size, seed) for seed in range(rows)], "x": [0.5] * rows})


def labels(samples: list[Sample]) -> list[int]:
    return [sample["label"] for sample in samples]


# Near


def test_lengths_come_from_footers_alone(tmp_path: Path, decoded: list[int]) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(numbered(10), 4))
    source = ParquetSource(tmp_path)
    assert [source.length(shard) for shard in source.shards()] == [4, 4, 2]
    assert source.seekable
    assert decoded == []


def test_reading_a_shard_decodes_its_row_group_only(tmp_path: Path, decoded: list[int]) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(numbered(100), 10))
    source = ParquetSource(tmp_path)
    assert len(list(source.open(source.shards()[3]))) == 1
    assert decoded == [3]
    url = source.shards()[0].url
    assert [b.samples[0]["n"] for b in source.open(Shard(url, 15, 30), 2)] == [17, 20]
    assert decoded == [3, 1, 2]


def test_a_row_group_is_decoded_once_however_often_it_is_asked_for(tmp_path: Path, decoded: list[int]) -> None:
    """As a loader does that deals from 16 row groups at once."""
    (tmp_path / "a.parquet").write_bytes(parquet(numbered(16 * 50), 50))
    source = ParquetSource(tmp_path)
    for row in range(50):
        for number, shard in enumerate(source.shards()):
            assert source.take(shard, [row, 49 - row])[0]["n"] == number * 50 + row
    assert sorted(decoded) == list(range(16))


def test_threads_that_want_the_same_row_group_wait_for_one_decoding(tmp_path: Path, decoded: list[int]) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(numbered(20_000), 10_000))
    source = ParquetSource(tmp_path)
    one, two = source.shards()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: source.take((one, two)[n % 2], [n])[0]["n"], range(200)))
    assert found == [n + 10_000 * (n % 2) for n in range(200)]
    assert sorted(decoded) == [0, 1]


def test_kept_row_groups_are_bounded_but_for_the_one_in_use(
    tmp_path: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(numbered(30), 10))
    monkeypatch.setattr(limits, "_KEPT_BYTES", 1)
    source = ParquetSource(tmp_path)
    for shard in source.shards():
        for row in range(10):
            source.take(shard, [row])
    source.take(source.shards()[0], [0])
    assert decoded == [0, 1, 2, 0]


def test_large_row_groups_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(pictures(300, 2000)))
    monkeypatch.setattr(limits, "_PIECE_BYTES", 1)
    monkeypatch.setattr(limits, "_GROUP_PIECE_BYTES", 1)
    source = ParquetSource(tmp_path)
    (shard,) = source.shards()
    assert [block.samples[0]["label"] for block in source.open(shard)] == [0, 64, 128, 192, 256]
    assert labels(source.take(shard, [299, 5, 64, 63, 5])) == [299, 5, 64, 63, 5]
    for start in (1, 63, 64, 65, 299):
        assert labels([s for block in source.open(shard, start) for s in block.samples]) == list(range(start, 300))


def test_columns_that_are_not_wanted_are_not_touched(tmp_path: Path) -> None:
    table = pictures(20)
    whole = bytearray(parquet(table, compression="zstd"))
    place = whole.index(table["picture"][3].as_py()[:50])
    whole[place - 200 : place] = bytes(200)
    (tmp_path / "a.parquet").write_bytes(whole)
    assert labels(all_samples(ParquetSource(tmp_path, columns=["label", "x"]))) == list(range(20))


def test_damage_is_told_by_checksums_where_there_are_any(tmp_path: Path) -> None:
    table = pictures(30)
    whole = bytearray(parquet(table, 10, write_page_checksum=True, use_dictionary=False, compression="none"))
    whole[whole.index(table["picture"][25].as_py())] ^= 1
    (tmp_path / "a.parquet").write_bytes(whole)
    source = ParquetSource(tmp_path / "a.parquet")
    got: list[Sample] = []
    with pytest.raises(CorruptShardError, match=r"(?i)checksum|crc") as caught:
        got.extend(sample for shard in source.shards() for block in source.open(shard) for sample in block.samples)
    assert caught.value.shard == str(tmp_path / "a.parquet")
    assert caught.value.__cause__ is not None
    assert labels(source.take(source.shards()[1], [9])) == [19], "the other row groups are sound"
    with pytest.raises(CorruptShardError):
        source.take(source.shards()[2], [0])


def test_row_groups_before_a_damaged_one_are_delivered(tmp_path: Path) -> None:
    table = pictures(30)
    whole = bytearray(parquet(table, 10, write_page_checksum=True, use_dictionary=False, compression="none"))
    whole[whole.index(table["picture"][25].as_py())] ^= 1
    (tmp_path / "a.parquet").write_bytes(whole)
    source = ParquetSource(tmp_path / "a.parquet")
    got: list[int] = []

    def read() -> None:
        for shard in source.shards():
            for block in source.open(shard):
                got.extend(labels(block.samples))

    with pytest.raises(CorruptShardError):
        read()
    assert got == list(range(20))


def test_a_file_that_was_cut_is_told_from_one_that_is_something_else(tmp_path: Path) -> None:
    whole = parquet(numbered(10))
    for data, kind, text in [
        (whole[:-1], TruncatedShardError, "cut off, or is still being written"),
        (whole[: len(whole) // 2], TruncatedShardError, "cut off"),
        (b"", TruncatedShardError, "is empty"),
        (b"hello, world", CorruptShardError, r"not a Parquet file: it begins with b'hello, w'"),
    ]:
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(kind, match=text) as caught:
            ParquetSource(tmp_path / "a.parquet").shards()
        assert isinstance(caught.value.__cause__, pa.ArrowException | OSError)


def test_parquet_does_not_come_through_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for url in ("-", "pipe:cat a.parquet", str(tmp_path / "fifo")):
        with pytest.raises(PlanError, match="is a pipe, and Parquet is read from its end; write it to a file first"):
            ParquetSource(url).shards()


@pytest.mark.parametrize(
    "name", ["a b.parquet", "a%20b.parquet", "tür.parquet", os.fsdecode(b"\xff.parquet"), "[x].parquet"]
)
def test_names_are_taken_as_they_are(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(parquet(numbered(1)))
    monkeypatch.chdir(tmp_path)
    for url in (name, tmp_path / name, tmp_path):
        (sample,) = all_samples(ParquetSource(url))
        assert sample["__key__"] == f"{name.removesuffix('.parquet')}-000000000"


def test_a_url_of_a_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a b.parquet").write_bytes(parquet(numbered(1)))
    assert len(all_samples(ParquetSource(f"file://{tmp_path}/a%20b.parquet"))) == 1


def test_arrays_share_memory_with_the_decoded_column(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(800, dtype=np.float32)), 8)
    pq.write_table(pa.table({"v": vectors}), tmp_path / "a.parquet")
    one, two, *_ = [sample["v"] for sample in all_samples(ParquetSource(tmp_path))]
    assert (one.shape, one.dtype) == ((8,), np.float32)
    assert two.ctypes.data - one.ctypes.data == 32


# Far


def test_of_a_remote_file_only_the_columns_asked_for_are_read(server: HttpServer) -> None:
    whole = parquet(pictures(400), 100)
    url = server.add("/a.parquet", whole)
    source = ParquetSource(url, columns=["label", "x"])
    assert labels(all_samples(source)) == list(range(400))
    assert len(whole) > 8_000_000
    # The footer, and in each of four row groups two chunks that are small.
    assert server.asked("/a.parquet") <= 9 * 65_536
    assert source.shards()[1] == Shard(url, 100, 200)


def test_counting_a_remote_file_reads_its_footer_only(server: HttpServer) -> None:
    url = server.add("/a.parquet", parquet(pictures(400), 100))
    source = ParquetSource(url)
    assert sum(map(source.length, source.shards())) == 400
    assert server.asked("/a.parquet") <= 65_536


def test_a_row_group_is_fetched_in_one_piece(server: HttpServer) -> None:
    url = server.add("/a.parquet", parquet(pictures(400), 100))
    source = ParquetSource(url)
    source.shards()
    seen = len(server.requests)
    assert labels(source.take(source.shards()[2], [7, 3])) == [207, 203]
    assert labels(source.take(source.shards()[2], [99])) == [299]
    assert len(server.requests) - seen == 1
    assert labels([sample for block in source.open(source.shards()[1]) for sample in block.samples])[0] == 100
    assert len(server.requests) - seen == 2
    assert server.asked("/a.parquet") < 5_000_000, "two of four"


def test_a_remote_file_whose_connection_is_cut_arrives_whole(server: HttpServer) -> None:
    url = server.add("/a.parquet", parquet(pictures(100), 50), cut_after=[1000, 100_000, 50_000], statuses=[503])
    samples = all_samples(ParquetSource(url))
    assert [sample["picture"] for sample in samples] == [body(20_000, seed) for seed in range(100)]


def test_an_error_of_the_transfer_stays_one(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "1")
    url = server.add("/a.parquet", parquet(pictures(100), 50))
    source = ParquetSource(url)
    shards = source.shards()
    server.resources["/a.parquet"].statuses = [500] * 10
    with pytest.raises(UrlError, match=r"/a\.parquet.*gave up after 2 attempts") as caught:
        source.take(shards[0], [0])
    assert not isinstance(caught.value, ShardError)
    server.resources["/a.parquet"].statuses = []
    assert labels(source.take(shards[0], [3])) == [3], "and is not remembered"


def test_a_remote_file_that_changes_is_an_error(server: HttpServer) -> None:
    url = server.add("/a.parquet", parquet(pictures(100), 50))
    source = ParquetSource(url)
    shards = source.shards()
    server.add("/a.parquet", parquet(pictures(100), 50), etag='"two"')
    with pytest.raises(UrlChangedError, match=r"/a\.parquet"):
        source.take(shards[0], [0])
    assert source.fingerprint(shards[0]) == '"one"'
    assert ParquetSource(url).fingerprint(Shard(url)) == '"two"'


def test_a_server_without_ranges_needs_a_cache(server: HttpServer, tmp_path: Path) -> None:
    url = server.add("/a.parquet", parquet(pictures(50)), ignore_range=True)
    with pytest.raises(UrlError, match="random access needs ranges"):
        all_samples(ParquetSource(url))
    assert labels(all_samples(ParquetSource(url, cache=tmp_path))) == list(range(50))


def test_secrets_of_a_url_are_in_no_error(server: HttpServer) -> None:
    server.add("/a.parquet", b"PAR1 and no more")
    with pytest.raises(TruncatedShardError) as caught:
        ParquetSource(server.url("/a.parquet?X-Signature=secret")).shards()
    assert "secret" not in str(caught.value)
    server.add("/b.parquet", parquet(numbered(1)))
    (sample,) = all_samples(ParquetSource(server.url("/b.parquet?X-Signature=a/b.c")))
    assert sample["__key__"] == "b-000000000"


def test_many_footers_are_read_at_once(server: HttpServer) -> None:
    urls = [server.add(f"/{n}.parquet", parquet(numbered(5, start=5 * n))) for n in range(40)]
    source = ParquetSource(server.url("/{0..39}.parquet"))
    assert [shard.url for shard in source.shards()] == urls
    assert [sample["n"] for sample in all_samples(source)] == list(range(200))


def test_a_forked_process_reads_through_connections_of_its_own(server: HttpServer) -> None:
    url = server.add("/a.parquet", parquet(pictures(400), 20))
    program = """
import multiprocessing, sys
from shoal.sources import ParquetSource

source = ParquetSource(sys.argv[1])
first = source.take(source.shards()[0], [1])

def read(number):
    return [source.take(shard, [number])[0]["label"] for shard in source.shards()]

with multiprocessing.get_context("fork").Pool(3) as pool:
    there = pool.map_async(read, range(6), chunksize=1)
    here = [read(number) for number in range(6)]
    assert there.get() == here == [[20 * group + number for group in range(20)] for number in range(6)]
print(first[0]["label"])
"""
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket("tables") as url:
        yield url


def put(url: str, data: bytes) -> None:
    with open_write(url) as target:
        target.write(data)


def test_files_in_s3_are_read_and_listed(bucket: str) -> None:
    for number in range(3):
        put(f"{bucket}/train/{number}.parquet", parquet(pictures(60), 20))
    put(f"{bucket}/train/_SUCCESS", b"")
    source = ParquetSource(f"{bucket}/train/", columns=["label"])
    assert len(source.shards()) == 9
    assert labels(all_samples(source)) == list(range(60)) * 3
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda shard: source.take(shard, [19])[0]["label"], source.shards())) == [19, 39, 59] * 3
    whole = ParquetSource(f"{bucket}/train/{{0..2}}.parquet")
    assert whole.take(whole.shards()[4], [1])[0]["picture"] == body(20_000, 21)


def test_of_a_file_in_s3_little_more_is_read_than_the_columns(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{bucket}/a.parquet", parquet(pictures(400), 100))
    fetched: list[int] = []
    file = type(fsspec.filesystem("s3").open(f"{bucket}/a.parquet", "rb"))
    fetch = file._fetch_range

    def counting(self: Any, start: int, end: int) -> bytes:
        fetched.append(end - start)
        return fetch(self, start, end)  # type: ignore[no-any-return]

    monkeypatch.setattr(file, "_fetch_range", counting)
    assert labels(all_samples(ParquetSource(f"{bucket}/a.parquet", columns=["label"]))) == list(range(400))
    assert 0 < sum(fetched) < 1_000_000


def test_a_file_replaced_in_s3_is_another_one(bucket: str) -> None:
    url = f"{bucket}/b.parquet"
    put(url, parquet(pictures(100), 50))
    source = ParquetSource(url)
    before = source.fingerprint(source.shards()[0])
    put(url, parquet(pictures(100), 20))
    with pytest.raises(UrlChangedError, match=r"b\.parquet"):
        source.take(source.shards()[1], [0])
    assert ParquetSource(url).fingerprint(Shard(url)) != before


def test_a_buffer_of_a_reader_is_its_own() -> None:
    """Row groups are decoded by several threads at once, from one object."""
    fsspec.filesystem("memory").pipe_file("/parallel.parquet", parquet(pictures(400), 20))
    source = ParquetSource("memory://parallel.parquet")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda shard: source.take(shard, [3])[0], source.shards()))
    assert [sample["picture"] for sample in found] == [body(20_000, 20 * n + 3) for n in range(20)]

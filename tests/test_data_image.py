"""Tables of pictures and arrays: what is written is read, and a table is whole or not there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import shoal
from shoal.data.image import DType, FeatureType, ParquetDataset, SchemaField
from shoal.data.image._cells import column_of, stored, values_of
from shoal.errors import (
    CorruptShardError,
    DecodeError,
    EncodeError,
    PlanError,
    SchemaError,
    TrustError,
    UrlNotFoundError,
)
from support.clusters import running
from support.engine import run_script
from support.s3_server import s3_bucket

SCHEMA = {
    "id": SchemaField(FeatureType.SCALAR, DType.STRING, ()),
    "zeros": SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (10,)),
    "ones": SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (4,)),
}
NUMBER = {"n": SchemaField(FeatureType.SCALAR, DType.INT32)}


@pytest.fixture(autouse=True)
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    if "engine" in request.fixturenames:
        yield
    else:
        with shoal.init("local", workers=2, mode="thread"):
            yield


def records(count: int = 100, first: int = 0) -> Iterator[dict[str, Any]]:
    for number in range(first, first + count):
        yield {"id": str(number), "zeros": np.zeros(10), "ones": np.ones(4)}


def write_numbers(path: Any, *numbers: int, block_size: int = 2, **options: Any) -> None:
    ParquetDataset.write(path, ({"n": number} for number in numbers), NUMBER, block_size, **options)


def numbers(path: Any) -> list[int]:
    return [record["n"] for record in ParquetDataset.read_as_dicts(path)]


def files_of(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_bucket() as url:
        yield url


@pytest.fixture(params=["path", "memory", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a table: on a disk, in memory, in a real S3 store."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}{tmp_path}/table"
    return f"{tmp_path}/table" if request.param == "path" else f"memory:/{tmp_path}/table"


def test_records_come_back(root: str) -> None:
    ParquetDataset.write(root, records(), SCHEMA, block_size=30)
    found = list(ParquetDataset.read_as_dicts(root))
    assert len(found) == 100
    assert found[0]["id"] == "0"
    assert np.array_equal(found[0]["zeros"], np.zeros(10, np.float32))
    assert np.array_equal(found[0]["ones"], np.ones(4, np.float32))
    assert found[0]["ones"].dtype == np.float32
    assert [record["id"] for record in found] == list(map(str, range(100)))
    assert ParquetDataset.read_schema(root) == SCHEMA


def test_a_chunk_is_a_shard(root: str) -> None:
    ParquetDataset.write(root, records(), SCHEMA, block_size=30)
    shards = ParquetDataset.read_as_xshards(root).collect()
    assert [len(shard["id"]) for shard in shards] == [30, 30, 30, 10]
    assert shards[1]["id"].tolist() == list(map(str, range(30, 60)))
    assert shards[1]["zeros"].shape == (30, 10)
    assert shards[3]["ones"].shape == (10, 4)


def test_records_are_samples(root: str) -> None:
    ParquetDataset.write(root, records(), SCHEMA, block_size=30)
    dataset = ParquetDataset.read_as_dataset(root)
    assert dataset.count() == 100
    assert len({sample["__key__"] for sample in dataset}) == 100
    batches = list(dataset.shuffle("full", seed=1).loader(20))
    assert sorted(int(name) for batch in batches for name in batch["id"]) == list(range(100))
    assert batches[0]["zeros"].shape == (20, 10)
    assert batches[0]["zeros"].dtype == np.float32


def test_the_folder_looks_as_users_know_it(tmp_path: Path) -> None:
    ParquetDataset.write(tmp_path, records(5), SCHEMA, block_size=2)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["_orca_metadata", "chunk=0", "chunk=1", "chunk=2"]
    written = json.loads((tmp_path / "_orca_metadata").read_text())
    assert written["schema"]["zeros"] == {"feature_type": "NDARRAY", "dtype": "FLOAT32", "shape": [10]}
    (file,) = (tmp_path / "chunk=1").iterdir()
    cell = pq.read_table(io.BytesIO(file.read_bytes()))["ones"][0].as_py()
    with np.load(io.BytesIO(cell), allow_pickle=False) as loaded:
        assert loaded["arr"].tolist() == [1.0] * 4
    table = pq.read_table(tmp_path)
    assert table.num_rows == 5
    assert set(table["chunk"].to_pylist()) == {0, 1, 2}


def test_equal_records_give_equal_tables(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ParquetDataset.write(tmp_path / name, records(7), SCHEMA, block_size=3)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    keys = [[sample["__key__"] for sample in ParquetDataset.read_as_dataset(tmp_path / name)] for name in "ab"]
    assert keys[0] == keys[1]


TYPES = {
    DType.INT32: np.int32,
    DType.INT64: np.int64,
    DType.UINT8: np.uint8,
    DType.FLOAT32: np.float32,
    DType.FLOAT64: np.float64,
}


@given(st.sampled_from(list(TYPES)), st.data())
def test_arrays_come_back_as_they_were(dtype: DType, data: st.DataObject) -> None:
    array = data.draw(arrays.arrays(TYPES[dtype], arrays.array_shapes(min_dims=0, min_side=0)))
    schema = {"x": SchemaField(FeatureType.NDARRAY, dtype)}
    cell = stored({"x": array}, 0, schema)["x"]
    (back,) = values_of("x", schema["x"], [cell])
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == np.ascontiguousarray(array).tobytes()


def test_scalars_of_all_types(tmp_path: Path) -> None:
    schema = {dtype.name.lower(): SchemaField(FeatureType.SCALAR, dtype) for dtype in DType}
    record = {
        "string": "für",
        "bytes": b"\0a\0",
        "int32": np.int64(-5),
        "int64": 2**40,
        "float32": 0.5,
        "float64": np.float64(0.1),
        "uint8": True,
    }
    ParquetDataset.write(tmp_path, [record, record], schema)
    assert list(ParquetDataset.read_as_dicts(tmp_path)) == [record, record]
    (shard,) = ParquetDataset.read_as_xshards(tmp_path).collect()
    assert shard["bytes"] == [b"\0a\0", b"\0a\0"]
    assert shard["string"].tolist() == ["für", "für"]
    assert {name: shard[name].dtype.name for name in ("int32", "int64", "float32", "float64", "uint8")} == {
        name: name for name in ("int32", "int64", "float32", "float64", "uint8")
    }


def test_arrays_of_several_shapes_are_a_list() -> None:
    field = SchemaField(FeatureType.NDARRAY, DType.INT32, (-1, 2))
    same, other = np.zeros((3, 2)), np.zeros((1, 2))
    assert column_of(field, [same, same]).shape == (2, 3, 2)
    assert [array.shape for array in column_of(field, [same, other])] == [(3, 2), (1, 2)]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (SchemaField(FeatureType.SCALAR, DType.STRING), 5, "5 is a int, and not of the schema's STRING"),
        (SchemaField(FeatureType.SCALAR, DType.BYTES), "5", "'5' is a str, and not of the schema's BYTES"),
        (SchemaField(FeatureType.SCALAR, DType.INT32), 2**31, "2147483648 goes beyond INT32"),
        (SchemaField(FeatureType.SCALAR, DType.INT32), 0.5, r"0\.5 cannot be INT32 without losing"),
        (SchemaField(FeatureType.SCALAR, DType.INT32), None, "None cannot be INT32"),
        (SchemaField(FeatureType.SCALAR, DType.FLOAT32), np.zeros(3), r"an array of shape \(3,\) is no scalar"),
        (SchemaField(FeatureType.NDARRAY, DType.UINT8), np.array([3, 256]), "an array of int64 goes beyond UINT8"),
        (SchemaField(FeatureType.NDARRAY, DType.UINT8), np.array([3, -1]), "goes beyond UINT8, which is from 0 to 255"),
        (SchemaField(FeatureType.NDARRAY, DType.FLOAT32), np.array([{}]), "an array of object cannot be FLOAT32"),
        (SchemaField(FeatureType.NDARRAY, DType.STRING), np.zeros(2), "an array of float64 is not of the schema's STR"),
        (SchemaField(FeatureType.NDARRAY, DType.INT32, (2, -1)), np.zeros((3, 1), int), r"shape \(3, 1\) is not of.*2"),
        (SchemaField(FeatureType.NDARRAY, DType.INT32, (2,)), np.int32(1), r"shape \(\) is not of the schema's \(2,\)"),
        (SchemaField(FeatureType.IMAGE, DType.UINT8), b"bytes", "by the path of its file, not by a bytes"),
    ],
)
def test_values_that_do_not_fit_are_named(field: SchemaField, value: Any, text: str) -> None:
    with pytest.raises(EncodeError, match=rf"field 'x': record 7: .*{text}"):
        stored({"x": value}, 7, {"x": field})


def test_records_must_have_the_names_of_the_schema(tmp_path: Path) -> None:
    def wrong() -> Iterator[dict[str, Any]]:
        yield from records(3)
        yield {"id": "3", "zeros": np.zeros(10), "weight": 1}

    with pytest.raises(EncodeError, match="record 3 lacks ones and has weight, of which the schema knows nothing"):
        ParquetDataset.write(tmp_path / "table", wrong(), SCHEMA, block_size=2)
    assert files_of(tmp_path) == {}
    with pytest.raises(EncodeError, match="record 0 is a list; a record is a dict"):
        ParquetDataset.write(tmp_path / "table", [["a"]], SCHEMA)


def test_a_schema_that_makes_no_sense_is_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"feature_type is 'IMAGE'; it is one of FeatureType\.IMAGE"):
        SchemaField("IMAGE", DType.UINT8)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"a scalar has no shape, and this one has \(2,\)"):
        SchemaField(FeatureType.SCALAR, DType.UINT8, (2,))
    with pytest.raises(PlanError, match=r"shape is \(-2,\)"):
        SchemaField(FeatureType.NDARRAY, DType.UINT8, (-2,))
    for schema in ({}, {"n": int}, {"__key__": NUMBER["n"]}):
        with pytest.raises(PlanError):
            ParquetDataset.write(tmp_path / "table", [], schema)
    with pytest.raises(PlanError, match="block_size=0"):
        write_numbers(tmp_path / "table", 1, block_size=0)
    with pytest.raises(PlanError, match="write_mode='update'; known are"):
        write_numbers(tmp_path / "table", 1, write_mode="update")
    assert not (tmp_path / "table").exists()


def test_a_table_is_replaced(root: str) -> None:
    write_numbers(root, *range(10))
    write_numbers(root, 7, 8, 9)
    assert numbers(root) == [7, 8, 9]
    if root.startswith("/"):
        assert len(files_of(Path(root))) == 3
        assert sorted(entry.name for entry in Path(root).iterdir()) == ["_orca_metadata", "chunk=0", "chunk=1"]


def test_the_old_table_stays_until_the_new_one_is_whole(root: str) -> None:
    write_numbers(root, *range(6))

    def failing() -> Iterator[dict[str, int]]:
        yield from ({"n": number} for number in (0, 1, 70, 80))  # the first chunk is the same as before
        assert numbers(root) == list(range(6))
        raise RuntimeError("no more records")

    with pytest.raises(RuntimeError, match="no more records"):
        ParquetDataset.write(root, failing(), NUMBER, 2)
    assert numbers(root) == list(range(6))
    if root.startswith("/"):
        assert len(files_of(Path(root))) == 4


def test_a_program_that_is_killed_leaves_the_old_table(tmp_path: Path) -> None:
    write_numbers(tmp_path, *range(6))
    done = run_script(
        """
        import os, sys
        from shoal.data.image import ParquetDataset

        def records():
            yield from ({"n": number} for number in (0, 1, 70, 80, 90))
            os._exit(9)

        ParquetDataset.write(sys.argv[1], records(), ParquetDataset.read_schema(sys.argv[1]), 2)
        """,
        arguments=[str(tmp_path)],
    )
    assert done.returncode == 9
    assert len(files_of(tmp_path)) > 4
    assert numbers(tmp_path) == list(range(6))
    write_numbers(tmp_path, 6, 7, write_mode="append")
    assert numbers(tmp_path) == list(range(8))


def test_the_same_table_again_is_the_same_table(root: str) -> None:
    write_numbers(root, *range(6))
    write_numbers(root, *range(6))
    assert numbers(root) == list(range(6))


def test_nothing_is_no_table(root: str) -> None:
    write_numbers(root, 1)
    with pytest.raises(PlanError, match="there are no records to write"):
        write_numbers(root)
    assert numbers(root) == [1]


def test_chunks_are_appended(root: str) -> None:
    write_numbers(root, 1, 2, 3, write_mode="append")
    write_numbers(root, *range(4, 30), write_mode="append")
    assert numbers(root) == list(range(1, 30))
    assert ParquetDataset.read_as_xshards(root).num_partitions() == 15
    with pytest.raises(SchemaError, match="what is to be appended"):
        ParquetDataset.write(root, records(1), SCHEMA, write_mode="append")
    assert numbers(root) == list(range(1, 30))


@pytest.mark.parametrize("mode", ["error", "errorifexists"])
def test_a_table_that_is_there_can_be_an_error(root: str, mode: str) -> None:
    write_numbers(root, 1, write_mode=mode)
    with pytest.raises(PlanError, match=r'there is a table in .* already; write_mode="overwrite" replaces it'):
        write_numbers(root, 2, write_mode=mode)
    assert numbers(root) == [1]


@pytest.mark.parametrize("mode", ["overwrite", "append", "error"])
def test_what_is_no_table_is_left_alone(tmp_path: Path, mode: str) -> None:
    (tmp_path / "mine" / "chunk=0").mkdir(parents=True)
    (tmp_path / "mine" / "chunk=0" / "precious.parquet").write_text("mine")
    for path in (tmp_path / "mine", tmp_path / "mine" / "chunk=0" / "precious.parquet"):
        with pytest.raises((PlanError, OSError)):
            write_numbers(path, 1, write_mode=mode)
    assert files_of(tmp_path) == {"mine/chunk=0/precious.parquet": b"mine"}


def test_files_beside_the_table_stay(tmp_path: Path) -> None:
    write_numbers(tmp_path, *range(4))
    (tmp_path / "chunk=1" / "notes.txt").write_text("mine")
    (tmp_path / "README").write_text("mine")
    write_numbers(tmp_path, 5)
    assert numbers(tmp_path) == [5]
    assert (tmp_path / "chunk=1" / "notes.txt").read_text() == (tmp_path / "README").read_text() == "mine"


def test_a_list_that_names_other_files_is_refused(tmp_path: Path) -> None:
    write_numbers(tmp_path / "table", 1)
    (tmp_path / "precious.parquet").write_text("mine")
    metadata = tmp_path / "table" / "_orca_metadata"
    for name in ("../precious.parquet", "chunk=0/../../precious.parquet", "/etc/passwd"):
        written = json.loads(metadata.read_text())
        written["chunks"] = [{"file": name, "rows": 1}]
        metadata.write_text(json.dumps(written))
        for action in (lambda: numbers(tmp_path / "table"), lambda: write_numbers(tmp_path / "table", 2)):
            with pytest.raises(CorruptShardError, match="is no name of a chunk"):
                action()
    assert (tmp_path / "precious.parquet").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "schema": {"a": 1}, "chunks": []}'])
def test_damaged_metadata_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "_orca_metadata").write_text(text)
    with pytest.raises(CorruptShardError, match=r"_orca_metadata: this describes no table"):
        ParquetDataset.read_schema(tmp_path)


def test_no_table_is_told(tmp_path: Path) -> None:
    for read in (ParquetDataset.read_as_xshards, ParquetDataset.read_as_dataset, ParquetDataset.read_schema):
        with pytest.raises(UrlNotFoundError, match=r"no _orca_metadata in .*nowhere"):
            read(tmp_path / "nowhere")


def test_damaged_chunks_are_named(tmp_path: Path) -> None:
    write_numbers(tmp_path, 1, 2, 3)
    (second,) = (tmp_path / "chunk=1").iterdir()
    whole = second.read_bytes()
    second.write_bytes(whole[:-20])
    with pytest.raises(CorruptShardError, match=rf"{second.name}: it is no Parquet file, or damaged"):
        numbers(tmp_path)
    pq.write_table(pa.table({"n": pa.array([3, 4], pa.int32())}), second)
    with pytest.raises(CorruptShardError, match="it holds 2 rows of n, and the table has 1 rows of n there"):
        ParquetDataset.read_as_xshards(tmp_path).collect()
    second.unlink()
    with pytest.raises(UrlNotFoundError, match=second.name):
        numbers(tmp_path)


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    ParquetDataset.write(tmp_path, records(1), SCHEMA)
    (file,) = (tmp_path / "chunk=0").iterdir()
    for content, error in (({"arr": np.array([{"a": 1}], object)}, TrustError), ({"x": np.zeros(3)}, DecodeError)):
        cell = io.BytesIO()
        np.savez_compressed(cell, **content)
        table = {"id": ["0"], "zeros": [cell.getvalue()], "ones": [cell.getvalue()]}
        pq.write_table(pa.table(table), file)
        with pytest.raises(error):
            list(ParquetDataset.read_as_dicts(tmp_path))
        with pytest.raises(error):
            list(ParquetDataset.read_as_dataset(tmp_path))
    with pytest.raises(DecodeError, match=rf"{file.name}.*field 'zeros'.*found x"):
        ParquetDataset.read_as_xshards(tmp_path).collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:pyspark")
@pytest.mark.parametrize("engine", ["local", "dask", "ray", "spark"])
def test_every_engine_reads_tables(engine: str, tmp_path: Path) -> None:
    ParquetDataset.write(tmp_path, records(20), SCHEMA, block_size=6)
    with running(engine, workers=2, **({"mode": "process"} if engine == "local" else {})):
        shards = ParquetDataset.read_as_xshards(tmp_path).collect()
    assert [name for shard in shards for name in shard["id"]] == list(map(str, range(20)))
    assert np.concatenate([shard["ones"] for shard in shards]).tolist() == [[1.0] * 4] * 20

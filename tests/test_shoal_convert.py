"""The same samples in other formats: what is kept, what is named how, what never appears half."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from shoal.cli._convert._fields import as_tar, as_values
from shoal.cli._convert._formats import Reading, Writing, format_of
from shoal.cli._convert._writer import Limits, Rolling
from shoal.errors import EncodeError
from shoal.readers import read_arrow, read_parquet, read_tar, read_tfrecord
from shoal.shards import TarWriter
from shoal.sources import TFRecordSource, pack_example, pack_record
from support.engine import wait_until
from support.shell import environment, shell

pytestmark = pytest.mark.timeout(180)

OUTPUTS = ["x.parquet", "x.arrow", "x.tfrecord", "x.tfrecord.gz", "x/", "x.tar.gz"]


def picture() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, "png")
    return file.getvalue()


def array(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


SAMPLES: list[dict[str, Any]] = [
    {
        "__key__": f"dogs.and.cats/{n:04d}",
        "cls": b"%03d\n" % n,
        "txt": ("ä" * n).encode(),
        "json": b'{"n":  %d}' % n,
        "seg.npy": array(np.full((2, 3), n, np.float32)),
        "png": picture(),
        "bin": bytes(range(256)) * n,
        "_odd": b"x",
        **({"sometimes": b""} if n == 3 else {}),
    }
    for n in range(5)
]


def write(path: Path, samples: list[dict[str, Any]]) -> Path:
    with TarWriter(path, keep_meta=True) as writer:
        for sample in samples:
            writer.write(sample)
    return path


def plain(path: Path) -> list[dict[str, Any]]:
    return [{name: value if name == "__key__" else bytes(value) for name, value in s.items()} for s in read_tar(path)]


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        found = {}
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


# There and back


@pytest.mark.parametrize("output", OUTPUTS)
def test_there_and_back_keeps_every_byte(tmp_path: Path, output: str) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    done = shell(f"shoal convert a.tar {output} && shoal convert {output} b.tar && tar tf b.tar | wc -l", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert members(tmp_path / "b.tar") == members(tmp_path / "a.tar")
    assert plain(tmp_path / "b.tar") == plain(tmp_path / "a.tar")


FIELD = st.from_regex(r"[a-z_][a-z0-9_]{0,3}(\.[a-z0-9]{1,3}){0,2}", fullmatch=True).filter(
    lambda name: not name.startswith("__")
)
KEYS = st.from_regex(r"([a-z][a-z.]{0,2}x/){0,2}[a-zé0-9][a-z0-9_-]{0,4}", fullmatch=True)
SAMPLE = st.dictionaries(FIELD, st.binary(max_size=20), min_size=1, max_size=4)


@pytest.mark.parametrize("output", OUTPUTS[:5])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=st.dictionaries(KEYS, SAMPLE, max_size=6))
def test_any_samples_come_back(
    tmp_path_factory: pytest.TempPathFactory, output: str, samples: dict[str, dict[str, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    given_samples = [{"__key__": key, **fields} for key, fields in samples.items()]
    first, second = f"{folder}/{output}", f"{folder}/back.tar"
    source = write(folder / "a.tar", given_samples)
    for kind, place, target in (("tar", str(source), first), (format_of(first), first, second)):
        with Rolling(target, Writing(format_of(target)).begin, Limits()) as files:
            for sample in Reading(kind, [place]).samples([]):
                files.write(sample)
    found = {sample.pop("__key__"): sample for sample in plain(Path(second))}
    assert found == samples


def test_tables_to_tables_keep_their_types(tmp_path: Path) -> None:
    columns = {
        "n": pa.array([1, None, 3], pa.int16()),
        "at": pa.array([0, 1, None], pa.timestamp("ms")),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        "box": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
    }
    table = pa.table(columns).replace_schema_metadata({"note": "kept"})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    done = shell("shoal convert a.parquet b.arrow && shoal convert b.arrow c.parquet", tmp_path)
    assert done.returncode == 0, done.stderr
    made = pq.read_table(tmp_path / "c.parquet")
    assert made.drop_columns(["__key__"]).cast(table.schema).equals(table)
    assert {name: made.schema.field(name).type for name in ("n", "at", "tags")} == {
        name: table.schema.field(name).type for name in ("n", "at", "tags")
    }
    assert made.schema.metadata[b"note"] == b"kept"
    assert made["__key__"].to_pylist() == [f"a-{n:09d}" for n in range(3)]


# Values


def test_decoded_fields_have_types_in_tables(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    done = shell("shoal convert --decode a.tar b.parquet && shoal convert b.parquet c.tar", tmp_path)
    assert done.returncode == 0, done.stderr
    schema = pq.read_schema(tmp_path / "b.parquet")
    assert {name: str(schema.field(name).type) for name in ("cls", "txt", "json", "bin")} == {
        "cls": "int64",
        "txt": "string",
        "json": "string",
        "bin": "binary",
    }
    row = list(read_parquet(tmp_path / "b.parquet"))[3]
    assert (row["cls"], row["txt"], row["png"]["bytes"]) == (3, "äää", picture())
    back = plain(tmp_path / "c.tar")[3]
    assert back["cls"] == b"3"
    assert {name: back[name] for name in ("txt", "json", "png", "bin")} == {
        name: SAMPLES[3][name] for name in ("txt", "json", "png", "bin")
    }
    assert np.load(io.BytesIO(back["seg.npy"])).tolist() == np.full((2, 3), 3).tolist()
    assert np.load(io.BytesIO(back["seg.npy"])).dtype == np.float32


def test_decoded_fields_have_types_in_examples(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    assert shell("shoal convert --decode -f 'cls seg.npy,txt' a.tar b.tfrecord", tmp_path).returncode == 0
    features = {"cls": int, "seg.npy": (float, (2, 3)), "txt": str}
    found = list(read_tfrecord(tmp_path / "b.tfrecord", features, key=None))
    assert [sample["cls"] for sample in found] == list(range(5))
    assert found[2]["seg.npy"].tolist() == [[2.0] * 3] * 2
    assert found[2]["txt"] == "ää"
    keyed = TFRecordSource(tmp_path / "b.tfrecord")
    assert [s["__key__"] for s in keyed.take(keyed.shards()[0], range(5))] == [s["__key__"] for s in SAMPLES]


def test_datasets_reads_what_was_written(tmp_path: Path) -> None:
    import datasets

    write(tmp_path / "a.tar", [{name: s[name] for name in ("__key__", "cls", "png", "seg.npy")} for s in SAMPLES])
    assert shell("shoal convert --decode a.tar b.arrow && shoal convert a.tar c.arrow", tmp_path).returncode == 0
    rows = datasets.Dataset.from_file(str(tmp_path / "b.arrow"))
    assert isinstance(rows.features["png"], datasets.Image)
    assert rows[2]["png"].size == (8, 8)
    assert rows["cls"][:] == list(range(5))
    assert rows[1]["seg.npy"] == [[1.0] * 3] * 2
    raw = datasets.Dataset.from_file(str(tmp_path / "c.arrow"))
    assert raw.features["png"] == datasets.Value("binary")
    assert raw[4]["cls"] == b"004\n"


def test_a_dataset_on_disk_is_read(tmp_path: Path) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["one", "two"], "label": [1, 0]})
    rows.save_to_disk(str(tmp_path / "saved"))
    done = shell("shoal convert --from arrow saved/ a.tar", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(s["label.cls"], s["text"]) for s in plain(tmp_path / "a.tar")] == [(b"1", b"one"), (b"0", b"two")]


@pytest.mark.slow
def test_tensorflow_reads_what_was_written(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    assert shell("shoal convert --decode a.tar b.tfrecord.gz", tmp_path).returncode == 0
    program = """
import tensorflow as tf
kinds = {"cls": tf.io.FixedLenFeature([], tf.int64), "txt": tf.io.FixedLenFeature([], tf.string),
         "seg.npy": tf.io.FixedLenFeature([2, 3], tf.float32), "__key__": tf.io.FixedLenFeature([], tf.string)}
for record in tf.data.TFRecordDataset("b.tfrecord.gz", compression_type="GZIP"):
    row = tf.io.parse_single_example(record, kinds)
    print(int(row["cls"]), row["txt"].numpy().decode(), float(row["seg.npy"][1, 2]), row["__key__"].numpy().decode())
"""
    done = shell(f"python -c '{program}' 2>/dev/null", tmp_path)
    lines = [f"{n} {'ä' * n} {n:.1f} dogs.and.cats/{n:04d}" for n in range(5)]
    assert done.stdout.decode().splitlines() == lines


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
        | st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5)
        | st.lists(st.binary(max_size=200), min_size=1, max_size=3),
        max_size=4,
    )
)
def test_examples_are_read_back(features: dict[str, list[Any]]) -> None:
    from shoal.sources import Features

    found = Features().parsed(pack_example(features))
    assert {name: list(values if isinstance(values, list) else values.tolist()) for name, values in found.items()} == {
        name: [float(v) if isinstance(v, float) else v for v in values] for name, values in features.items()
    }


def test_features_of_one_value_are_that_value_unless_some_have_more(tmp_path: Path) -> None:
    examples = [
        {"__key__": "a", "n": 3, "boxes": [0.5], "words": [b"x"], "raw": b"\xff"},
        {"__key__": "b", "n": 5, "boxes": [0.5, 1.5], "words": [b"y", b"z"], "raw": b""},
    ]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(pack_record(pack_example(example)) for example in examples))
    assert shell("shoal convert a.tfrecord b.tar && shoal convert a.tfrecord b.parquet", tmp_path).returncode == 0
    first, second = read_tar(tmp_path / "b.tar").decode()
    assert (first["n.cls"], first["raw"], first["words.json"], second["words.json"]) == (3, b"\xff", ["x"], ["y", "z"])
    assert (first["boxes.npy"].tolist(), second["boxes.npy"].tolist()) == ([0.5], [0.5, 1.5])
    rows = pq.read_table(tmp_path / "b.parquet").to_pylist()
    assert rows[0] == {"__key__": "a", "n": 3, "boxes": [0.5], "words": [b"x"], "raw": b"\xff"}
    assert rows[1]["boxes"] == [0.5, 1.5]


@pytest.mark.parametrize("value", [object(), [1, "a"], 2**64, [[1], [2, 3]], {"a": 1}])
def test_what_is_no_feature_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError, match="no feature") as caught:
        pack_example({"x": value})
    assert caught.value.field == "x"


def test_columns_without_bytes_are_named_by_what_they_hold() -> None:
    sample = {
        "__key__": "a",
        "label": 3,
        "caption": "a dog",
        "vector": np.ones(3, np.float32),
        "ok": True,
        "words": [b"one", b"two"],
        "image/encoded": b"\xff\xd8",
        "count": np.int32(7),
        "page.json": {"x": np.float32(0.5)},
        "photo": {"bytes": b"\x89PNG", "path": "x.png"},
        "nothing": None,
    }
    assert {name: value if isinstance(value, bytes) else None for name, value in as_tar(sample).items()} == {
        "__key__": None,
        "label.cls": None,
        "caption.txt": b"a dog",
        "vector.npy": None,
        "ok.json": None,
        "words.json": None,
        "image.encoded": b"\xff\xd8",
        "count": None,
        "page.json": None,
        "photo": b"\x89PNG",
    }
    made = as_tar(sample)
    assert (made["label.cls"], made["count"], made["words.json"], made["page.json"]) == (
        3,
        7,
        ["one", "two"],
        {"x": 0.5},
    )


def test_values_that_make_no_column_are_told(tmp_path: Path) -> None:
    examples = [{"__key__": "a", "n": 3}, {"__key__": "b", "n": "three"}]
    (tmp_path / "a.tfrecord").write_bytes(b"".join(pack_record(pack_example(example)) for example in examples))
    done = shell("shoal convert a.tfrecord b.parquet", tmp_path)
    assert done.returncode == 1
    assert b"field 'n'" in done.stderr
    assert b"Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]


def test_files_of_a_folder_are_decoded_like_fields_of_a_tar(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    line = "shoal convert a.tar in/ && shoal convert --decode in/ b.parquet && shoal convert --decode a.tar c.parquet"
    assert shell(line, tmp_path).returncode == 0
    assert pq.read_table(tmp_path / "b.parquet").equals(pq.read_table(tmp_path / "c.parquet"))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(EncodeError, match="two fields would have this name"):
        as_tar({"__key__": "a", "x/y": b"1", "x.y": b"2"})


def test_a_field_that_is_not_what_it_is_called_is_named() -> None:
    with pytest.raises(ValueError, match="sample 'k', field 'cls'"):
        as_values({"__key__": "k", "cls": b"seven"})


# Files


@pytest.mark.parametrize("suffix", ["tar", "parquet", "arrow", "tfrecord"])
def test_shards_by_count_and_size(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / "a.tar", [{"__key__": f"{n}", "bin": bytes(1000)} for n in range(10)])
    done = shell(
        f"shoal convert -v a.tar c-%02d.{suffix} --maxcount 4 && shoal convert a.tar s-%d.{suffix} --maxsize 2.5kB",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert b"10 samples in 3 files" in done.stderr
    read = {"tar": read_tar, "parquet": read_parquet, "arrow": read_arrow, "tfrecord": read_tfrecord}[suffix]
    counts = [len(list(read(str(tmp_path / f"c-0{n}.{suffix}")))) for n in range(3)]  # type: ignore[operator]
    assert counts == [4, 4, 2]
    assert len(list(tmp_path.glob("s-*"))) == 4
    assert [s["__key__"] for s in read(str(tmp_path / f"s-{{0..3}}.{suffix}"))] == [str(n) for n in range(10)]  # type: ignore[operator]


def test_standard_streams_carry_samples(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    line = "cat a.tar | shoal convert --from tar --to arrow - - | shoal convert --from arrow --to tar - - > b.tar"
    done = shell(f"set -o pipefail; {line}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert members(tmp_path / "b.tar") == members(tmp_path / "a.tar")


@pytest.mark.parametrize("kind", ["tar", "parquet", "arrow", "tfrecord"])
def test_a_pipe_takes_samples_from_those_who_trust_it(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    assert shell(f"shoal convert a.tar 'pipe:cat > b' --to {kind}", tmp_path).returncode != 0
    assert not (tmp_path / "b").exists()
    line = f"shoal convert --trust a.tar 'pipe:cat > b' --to {kind} && shoal convert --from {kind} b c.tar"
    done = shell(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert members(tmp_path / "c.tar") == members(tmp_path / "a.tar")


def test_a_column_may_hold_the_keys(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["Rex", "Mia"], "age": [3, 5]}), tmp_path / "a.parquet")
    assert shell("shoal convert --key name a.parquet b.tar", tmp_path).returncode == 0
    rex, mia = {"Rex.age.cls": b"3", "Rex.name.txt": b"Rex"}, {"Mia.age.cls": b"5", "Mia.name.txt": b"Mia"}
    assert members(tmp_path / "b.tar") == {**rex, **mia}


def test_a_field_that_comes_late_is_refused_unless_it_was_named(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"__key__": f"{n:05d}", "cls" if n < 10_500 else "late": b"1"} for n in range(10_600)])
    done = shell("shoal convert a.tar b.parquet", tmp_path)
    assert done.returncode == 1
    assert b"sample '10500', field 'late'" in done.stderr
    assert b"with -f" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]
    assert shell("shoal convert -f cls,late a.tar b.parquet", tmp_path).returncode == 0
    table = pq.read_table(tmp_path / "b.parquet")
    assert (table["cls"].null_count, table["late"].null_count) == (100, 10_500)


@pytest.mark.parametrize("key", ["../evil", "a/../../evil", "a//b", "./b"])
def test_nothing_is_written_outside_of_a_folder(tmp_path: Path, key: str) -> None:
    pq.write_table(pa.table({"__key__": [key], "txt": [b"x"]}), tmp_path / "a.parquet")
    done = shell("shoal convert a.parquet inner/out/", tmp_path)
    assert done.returncode == 1
    assert b"no path inside of a folder" in done.stderr
    assert list(tmp_path.rglob("*.txt")) == []


def test_a_link_out_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    write(tmp_path / "a.tar", [{"__key__": "a/b", "txt": b"x"}])
    done = shell("shoal convert a.tar out/", tmp_path)
    assert done.returncode == 1
    assert b"leads outside" in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_files_in_a_folder_are_replaced_only_when_asked(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES[:1])
    (tmp_path / "out" / "dogs.and.cats").mkdir(parents=True)
    kept = tmp_path / "out" / "dogs.and.cats" / "0000.cls"
    kept.write_text("mine")
    refused = shell("shoal convert a.tar out/", tmp_path)
    assert refused.returncode == 2
    assert b"--overwrite" in refused.stderr
    assert kept.read_text() == "mine"
    assert shell("shoal convert --overwrite a.tar out/", tmp_path).returncode == 0
    assert kept.read_bytes() == b"000\n"


def test_files_that_belong_to_no_sample_are_told(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x")
    (tmp_path / "in" / "README").write_text("x")
    done = shell("shoal convert in/ a.tar", tmp_path)
    assert done.returncode == 0
    assert b"1 files belong to no sample and were left out, such as README" in done.stderr


def test_the_same_samples_make_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    for name in ("x.tfrecord.gz", "x.arrow", "x.parquet"):
        assert shell(f"shoal convert a.tar 1{name} && sleep 1 && shoal convert a.tar 2{name}", tmp_path).returncode == 0
        assert (tmp_path / f"1{name}").read_bytes() == (tmp_path / f"2{name}").read_bytes()
    assert len(gzip.decompress((tmp_path / "1x.tfrecord.gz").read_bytes())) > 0


@pytest.mark.parametrize("output", ["x.parquet", "x.arrow", "x.tfrecord", "x.tar"])
def test_a_killed_conversion_leaves_nothing(tmp_path: Path, output: str) -> None:
    write(tmp_path / "a.tar", [{"__key__": f"{n:06d}", "bin": bytes(20_000)} for n in range(500)])
    line = f"{{ head -c 8000000 a.tar; touch half; sleep 100; }} | exec shoal convert --from tar - {output}"
    process = subprocess.Popen(["bash", "-c", line], cwd=tmp_path, env=environment(), start_new_session=True)
    began = wait_until(lambda: (tmp_path / "half").exists())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert began
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize("output", ["x.parquet", "x.arrow", "x.tfrecord", "x.tar"])
def test_a_damaged_input_leaves_no_output(tmp_path: Path, output: str) -> None:
    write(tmp_path / "a.tar", SAMPLES)
    (tmp_path / "cut.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:9000])
    done = shell(f"shoal convert cut.tar {output}", tmp_path)
    assert done.returncode == 1
    assert b"cut.tar" in done.stderr
    assert b"Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "cut.tar"]


@pytest.mark.parametrize("output", ["x.parquet", "x.arrow", "x.tfrecord", "x.tar"])
def test_no_samples_make_an_empty_file(tmp_path: Path, output: str) -> None:
    write(tmp_path / "a.tar", [])
    done = shell(f"shoal convert a.tar {output} && shoal convert {output} b.tar", tmp_path)
    assert done.returncode == 0, done.stderr
    assert members(tmp_path / "b.tar") == {}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("a.tar out.xyz", "does not tell what kind"),
        ("a.tar out.csv", "only read"),
        ("a.tar b.parquet c.tar", "parquet and tar"),
        ("a.tar b.tar --maxcount 3", "write it like train-%06d.tar"),
        ("a.tar b-%d.tar --maxcount 0", "must be at least 1"),
        ("a.tar s3://bucket/folder/", "no folder of this machine"),
    ],
)
def test_misuse_is_told_in_a_line(tmp_path: Path, arguments: str, text: str) -> None:
    write(tmp_path / "a.tar", SAMPLES[:1])
    done = shell(f"shoal convert {arguments}", tmp_path)
    assert done.returncode == 2
    assert text in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["a.csv", "b.jsonl"])
def test_rows_of_text_can_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text("name,age\nRex,3\nMia,5\n")
    (tmp_path / "b.jsonl").write_text('{"name": "Rex", "age": 3}\n{"name": "Mia", "age": 5}\n')
    done = shell(f"shoal convert --key name -f age {name} x.parquet", tmp_path)
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [
        {"__key__": "Rex", "age": 3},
        {"__key__": "Mia", "age": 5},
    ]

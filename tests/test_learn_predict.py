"""Predictions come back as the kind of data that was given: all rows, in their order, with what was there before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn.pytorch import Estimator, served
from shoal.store import ObjectID, connect
from support.engine import run_script
from support.learn import Sloped, shipped


@pytest.fixture(autouse=True)
def _shipped() -> Iterator[None]:
    with shipped(__name__):
        yield


class Twice(nn.Module):
    def forward(self, x: Any) -> Any:
        return 2 * x.float()


class Cut(nn.Module):
    """Two outputs of different width, which together are the input."""

    def forward(self, x: Any) -> Any:
        return x[:, :24], x[:, 24:]


class Named(nn.Module):
    def forward(self, x: Any) -> Any:
        return {"low": x.min(-1).values, "high": x.max(-1).values}


def of(model: nn.Module) -> Estimator:
    return Estimator.from_torch(model=model)


def ragged(sample: Any) -> Any:
    return {"x": np.zeros(int(sample["n"]), np.float32)}


def table(rows: int, columns: int = 3) -> np.ndarray[Any, Any]:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def test_arrays_give_arrays() -> None:
    x = table(11)
    for batch_size in (1, 4, 11, 100):
        found = of(Twice()).predict(x, batch_size=batch_size)
        assert found.dtype == np.float32
        assert (found == 2 * x).all()


def test_several_inputs_and_tensors_give_one_array() -> None:
    x = np.arange(5.0, dtype=np.float32)
    assert of(Sloped(1.0)).predict((x, x)).tolist() == (2 * x).tolist()
    assert of(Sloped(1.0)).predict([x, x, x], batch_size=2).tolist() == (3 * x).tolist()
    assert of(Twice()).predict(torch.from_numpy(x)).tolist() == (2 * x).tolist()


def test_several_outputs_come_as_a_list_or_under_their_names() -> None:
    x = table(7, 50)
    found = of(Cut()).predict(x, batch_size=3)
    assert [each.shape for each in found] == [(7, 24), (7, 26)]
    assert (np.concatenate(found, axis=1) == x).all()
    named = of(Cut()).predict(x, output_cols=["left", "right"])
    assert list(named) == ["left", "right"]
    assert (named["right"] == x[:, 24:]).all()
    with pytest.raises(PlanError, match="the model has 2 outputs, and output_cols names 1"):
        of(Cut()).predict(x, output_cols=["left"])


def test_outputs_with_names_keep_them() -> None:
    x = table(4)
    found = of(Named()).predict(x, batch_size=3)
    assert found["low"].tolist() == x[:, 0].tolist()
    shards = of(Named()).predict(XShards.partition({"x": x}, 2)).collect()
    assert [list(shard) for shard in shards] == [["x", "low", "high"]] * 2
    frame = of(Named()).predict(pd.DataFrame({"x": list(x)}), feature_cols=["x"], output_cols=["a", "b"])
    assert frame["b"].tolist() == x[:, 2].tolist()


def test_shards_of_dicts_keep_their_sizes_and_what_they_had() -> None:
    x, y = table(10), np.arange(10)
    shards = XShards.partition({"x": x, "y": y}, 4)
    found = of(Twice()).predict(shards, batch_size=2)
    assert isinstance(found, XShards)
    parts = found.collect()
    assert [len(part["prediction"]) for part in parts] == [3, 3, 2, 2]
    assert all(list(part) == ["x", "y", "prediction"] for part in parts)
    assert (np.concatenate([part["prediction"] for part in parts]) == 2 * x).all()
    assert np.concatenate([part["y"] for part in parts]).tolist() == y.tolist()


def test_many_small_shards_come_back_row_by_row() -> None:
    """110 rows in pieces of 5, through a model that changes nothing."""
    x = table(110)
    shards = XShards.from_shards([{"x": x[at : at + 5]} for at in range(0, 110, 5)])
    parts = of(nn.Identity()).predict(shards).collect()
    assert len(parts) == 22
    assert all((part["prediction"] == part["x"]).all() for part in parts)


def test_shards_with_several_inputs_or_outputs() -> None:
    x = np.arange(6.0, dtype=np.float32)
    parts = of(Sloped(1.0)).predict(XShards.partition({"x": (x, x)}, 2)).collect()
    assert np.concatenate([part["prediction"] for part in parts]).tolist() == (2 * x).tolist()
    wide = table(6, 50)
    parts = of(Cut()).predict(XShards.partition({"x": wide}, 2)).collect()
    assert [[each.shape for each in part["prediction"]] for part in parts] == [[(3, 24), (3, 26)]] * 2


def test_frames_get_a_column() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]}, index=[5, 6, 7])
    found = of(Twice()).predict(frame, feature_cols=["a"], batch_size=2)
    assert list(found.columns) == ["a", "b", "prediction"]
    assert found["prediction"].tolist() == [2.0, 4.0, 6.0]
    assert found.index.tolist() == [5, 6, 7]
    assert list(frame.columns) == ["a", "b"], "what was given stays as it was"
    wide = of(Twice()).predict(pd.DataFrame({"a": list(table(3))}), feature_cols=["a"])
    assert np.stack(wide["prediction"]).tolist() == (2 * table(3)).tolist()
    both = of(Cut()).predict(pd.DataFrame({"a": list(table(3, 50))}), feature_cols=["a"])
    assert [[len(each) for each in cell] for cell in both["prediction"]] == [[24, 26]] * 3
    with pytest.raises(PlanError, match="feature columns is None; it should not be None in prediction"):
        of(Twice()).predict(frame)


def test_shards_of_frames_stay_frames() -> None:
    shards = XShards.from_shards([pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [3.0]})])
    found = of(Twice()).predict(shards, feature_cols=["a"])
    assert [part["prediction"].tolist() for part in found.collect()] == [[2.0, 4.0], [6.0]]


def test_a_stored_object_gives_another() -> None:
    x = table(5)
    found = of(Twice()).predict(connect().put({"x": x}))
    assert isinstance(found, ObjectID)
    assert (connect().get(found)["prediction"] == 2 * x).all()
    several = of(Twice()).predict(connect().put(XShards.partition({"x": x}, 2)))
    parts = XShards.from_store(several).collect()
    assert (np.concatenate([part["prediction"] for part in parts]) == 2 * x).all()
    assert [len(part["x"]) for part in parts] == [3, 2]


def test_a_hugging_face_dataset_gets_a_column() -> None:
    import datasets

    given = datasets.Dataset.from_dict({"x": table(7).tolist(), "name": [*"abcdefg"]})
    found = of(Twice()).predict(given, feature_cols=["x"], batch_size=3)
    assert isinstance(found, datasets.Dataset)
    assert found["name"][:] == [*"abcdefg"]
    assert np.asarray(found["prediction"][:]).tolist() == (2 * table(7)).tolist()
    stream = of(Twice()).predict(given.to_iterable_dataset(), feature_cols=["x"], batch_size=3)
    rows = list(stream)
    assert [row["x"] for row in rows] == table(7).tolist()
    assert np.stack([row["prediction"] for row in rows]).tolist() == (2 * table(7)).tolist()


def test_loaders_give_arrays_in_their_order() -> None:
    x = torch.from_numpy(table(9))
    loader = DataLoader(TensorDataset(x, torch.arange(9)), batch_size=4)
    assert (of(Twice()).predict(loader) == 2 * x.numpy()).all()
    assert (of(Twice()).predict(served(loader)) == 2 * x.numpy()).all()
    with pytest.raises(PlanError, match="there is no batch to predict for"):
        of(Twice()).predict(DataLoader([], batch_size=4))  # type: ignore[arg-type]


def test_a_dataset_predicts_when_it_is_read() -> None:
    read = []

    def noted(sample: Any) -> Any:
        read.append(sample["__key__"])
        return sample

    x = table(1000)
    found = of(Twice()).predict(shoal.from_arrays(x=x, y=np.arange(1000)).map(noted), batch_size=4)
    assert read == []
    samples = iter(found)
    first = next(samples)
    assert sorted(first) == ["__key__", "prediction", "x", "y"]
    assert len(read) < 500, "the rest is not read before somebody wants it"
    rest = [first, *samples]
    assert [int(sample["y"]) for sample in rest] == [*range(1000)]
    assert all((sample["prediction"] == 2 * sample["x"]).all() for sample in rest)
    with pytest.raises(PlanError, match="values of field 'x' are of different shapes"):
        list(of(Twice()).predict(shoal.from_arrays(n=np.arange(4)).map(ragged)))
    with pytest.raises(PlanError, match="samples have no field 'x' but a; name the inputs with feature_cols="):
        list(of(Twice()).predict(shoal.from_arrays(a=x)))


def test_predictions_of_a_dataset_go_through_a_loader_and_into_shards(tmp_path: Path) -> None:
    x = table(20)
    found = of(Cut()).predict(
        shoal.from_arrays(image=np.tile(x, 10)), feature_cols=["image"], output_cols=["a.npy", "b.npy"]
    )
    found.select("a.npy", "b.npy").write_tar(tmp_path / "%d.tar", maxcount=8)
    back = list(shoal.read_tar(f"{tmp_path}/*.tar").decode())
    assert (np.stack([np.concatenate([sample["a.npy"], sample["b.npy"]]) for sample in back]) == np.tile(x, 10)).all()


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_results_larger_than_memory_stream_to_disk(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 predictions of 400 kB each: written as they come, they never lie in memory together."""
    monkeypatch.setenv("SHOAL_MEMORY", "50MB")
    program = """
    import json, resource, sys
    import numpy as np, pyarrow, pyarrow.parquet, torch
    import shoal
    from shoal.learn.pytorch import Estimator

    class Wide(torch.nn.Module):
        def forward(self, x):
            return x[:, None].expand(-1, 100_000).contiguous()

    kind, target = sys.argv[1:]
    rows = shoal.from_arrays(x=np.arange(2000, dtype=np.float32))
    found = Estimator.from_torch(model=Wide()).predict(rows, batch_size=8, output_cols=["out.npy"])

    def write(dataset, name):
        if kind == "tar":
            dataset.select("out.npy").write_tar(f"{target}/{name}-%d.tar")
            return
        schema = pyarrow.schema({"out": pyarrow.list_(pyarrow.float32())})
        with pyarrow.parquet.ParquetWriter(f"{target}/{name}.parquet", schema) as writer:
            for sample in dataset:
                writer.write_batch(pyarrow.record_batch([[sample["out.npy"]]], schema=schema))

    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    write(found.take(300), "small")
    before = peak()
    write(found, "all")
    print(json.dumps({"grown": peak() - before}))
    """
    done = run_script(program, arguments=[kind, str(tmp_path)], seconds=250)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["grown"] < 200
    if kind == "tar":
        assert sum(1 for _ in shoal.read_tar(f"{tmp_path}/all-*.tar")) == 2000
    else:
        assert shoal.read_parquet(f"{tmp_path}/all.parquet").count() == 2000


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(PlanError, match="batch_size should be greater than 0"):
        of(Twice()).predict(table(3), batch_size=0)

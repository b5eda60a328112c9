"""Blocks 6 to 9 of the document on data-parallel processing, with imports and data paths changed and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.clusters import running

ENGINES = ("local", "dask", "ray", "spark")


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in ENGINES])
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with running(request.param, workers=2):
        yield


@pytest.fixture
def csv_folder(tmp_path: Path) -> str:
    for number in range(3):
        rows = pd.DataFrame({"value": [number, 10 * number], "location": ["here", f"place {number}"]})
        rows.to_csv(tmp_path / f"{number}.csv", index=False)
    return str(tmp_path)


@pytest.mark.usefixtures("_engine")
def test_partition_and_transform() -> None:
    from shoal.data import XShards

    train_images = np.random.random((20, 3, 224, 224))
    train_label_images = np.zeros(20)
    train_shards = XShards.partition([train_images, train_label_images])

    def transform_to_dict(train_data: Any) -> Any:
        return {"x": train_data[0], "y": train_data[1]}

    train_shards = train_shards.transform_shard(transform_to_dict)

    found = train_shards.collect()
    assert all(len(shard["x"]) == len(shard["y"]) for shard in found)
    assert (np.concatenate([shard["x"] for shard in found]) == train_images).all()


@pytest.mark.usefixtures("_engine")
def test_frames(csv_folder: str) -> None:
    from shoal.data.pandas import read_csv

    csv_path = csv_folder
    shard = read_csv(csv_path)

    def negative(df: Any, column_name: str) -> Any:
        df[column_name] = df[column_name] * (-1)
        return df

    train_shards = shard.transform_shard(negative, "value")

    parted = shard.partition_by(cols="location", num_partitions=4)
    location_list = shard["location"].unique()

    assert shard.num_partitions() == 3
    assert len(shard) == 6
    assert train_shards.to_pandas()["value"].tolist() == [0, 0, -1, -10, -2, -20]
    assert shard.to_pandas()["value"].tolist() == [0, 0, 1, 10, 2, 20]
    homes = [set(frame["location"]) for frame in parted.collect()]
    assert len(homes) == 4
    assert sum(map(len, homes)) == len(set.union(*homes)) == 4
    assert location_list.tolist() == ["here", "place 0", "place 1", "place 2"]
    assert len(read_csv(f"{csv_folder}/1.csv")) == 2

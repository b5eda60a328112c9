"""What users of other systems do with Keras: frames of Spark, shards of all sizes, tf.data, functions that make it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import shoal
from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn.tf import Estimator
from shoal.learn.tf2 import Estimator as Estimator2
from support.clusters import running
from support.engine import by_value

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras, when it saves
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module")
def local() -> Iterator[None]:
    with shoal.init("local", workers=2):
        yield


def two_inputs(config: dict[str, Any]) -> Any:
    user, item = keras.Input((1,)), keras.Input((1,))
    hidden = keras.layers.Dense(8, activation="tanh")(keras.layers.Concatenate()([user, item]))
    model = keras.Model([user, item], keras.layers.Dense(2, activation="softmax")(hidden))
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def ratings(count: int = 48) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    user, item = np.random.default_rng(0).normal(size=(2, count)).astype(np.float32)
    return user, item, (user > item).astype(np.int64)


def image_model(config: dict[str, Any]) -> Any:
    layers = [keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile(
        optimizer=keras.optimizers.RMSprop(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def digits(config: dict[str, Any] | None = None) -> Any:
    from sklearn.datasets import load_digits

    found = load_digits()
    made = tf.data.Dataset.from_tensor_slices((found.images[:600].astype(np.uint8), found.target[:600]))
    return made.map(lambda image, label: (tf.cast(image, tf.float32) / 16.0, label))


def digits_in_batches(config: dict[str, Any], batch_size: int) -> Any:
    return digits().batch(batch_size)


def weighted() -> Any:
    return digits().map(lambda image, label: (image, label, tf.cast(label < 5, tf.float32))).batch(50)


def test_frames_of_spark_in_and_out(tmp_path: Path) -> None:
    user, item, label = ratings()
    with running("spark", workers=2) as context:
        del context
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        assert spark is not None
        rows = [(float(a), float(b), int(c)) for a, b, c in zip(user, item, label, strict=True)]
        one = spark.createDataFrame(rows, "user float, item float, label int").repartition(1)
        model = two_inputs({})
        made = Estimator.from_keras(keras_model=model, workers=2, model_dir=str(tmp_path))
        history = made.fit(one, epochs=6, batch_size=16, feature_cols=["user", "item"], labels_cols=["label"])
        assert history.column("num_samples") == [48] * 6
        assert history.column("train_loss")[-1] < history.column("train_loss")[0]
        assert made.get_model() is model
        assert made.get_train_summary("Loss")
        gaps = spark.createDataFrame(rows[:5], "user float, item float, label int").repartition(8)
        found = made.predict(one.repartition(3), feature_cols=["user", "item"])
        assert set(found.columns) == {"user", "item", "label", "prediction"}
        told = found.collect()
        assert len(told) == 48
        inputs = [np.array([[row[name]] for row in told], np.float32) for name in ("user", "item")]
        assert np.allclose([list(row["prediction"]) for row in told], model.predict(inputs, verbose=0), atol=1e-5)
        scores = made.evaluate(gaps, feature_cols=["user", "item"], label_cols=["label"])
        assert scores["num_samples"] == 5
        with pytest.raises(PlanError, match="label columns is None; it should not be None in training"):
            made.fit(one, feature_cols=["user", "item"])
        with pytest.raises(PlanError, match="feature columns is None; it should not be None in prediction"):
            made.predict(one)


def test_frames_of_dask_in_and_out() -> None:
    import dask.dataframe as dd
    import pandas as pd

    user, item, label = ratings()
    table = pd.DataFrame({"user": user, "item": item, "label": label})
    with shoal.init("dask", workers=2):
        frame = dd.from_pandas(table, npartitions=3)
        made = Estimator2.from_keras(model_creator=two_inputs, workers=2)
        history = made.fit(frame, epochs=3, batch_size=16, feature_cols=["user", "item"], label_cols=["label"])
        assert history.column("num_samples") == [48] * 3
        assert history.column("train_loss")[-1] < history.column("train_loss")[0]
        found = made.predict(frame, feature_cols=["user", "item"])
        assert type(found) is type(frame)
        told = shoal.engines.current().client.compute(found).result()  # type: ignore[attr-defined]
    assert list(told.columns) == ["user", "item", "label", "prediction"]
    assert np.array_equal(told["user"], user)
    inputs = [each.reshape(-1, 1) for each in (user, item)]
    expected = made.get_model().predict(inputs, verbose=0)
    assert np.allclose(np.stack([*told["prediction"]]), expected, atol=1e-5)


def test_shards_of_all_sizes(local: None) -> None:
    user, item, label = ratings(60)
    shards = XShards.partition({"x": (user, item), "y": label}, num_shards=5).transform_shard(repeated)
    made = Estimator2.from_keras(model_creator=two_inputs, workers=2)
    history = made.fit(
        shards, epochs=2, batch_size=16, validation_data=XShards.partition({"x": (user, item), "y": label})
    )
    assert history.column("num_samples") == [len(item) for item in [range(sum(_times(user)))]] * 2
    assert history.column("val_num_samples") == [60, 60]
    found = made.predict(XShards.partition({"x": (user, item)}, num_shards=4)).collect()
    assert [shard["prediction"].shape for shard in found] == [(15, 2)] * 4


def _times(user: Any) -> list[int]:
    parts = np.array_split(user, 5)
    return [len(part) * (1 + int(abs(part[0]) * 10) % 5) for part in parts]


def repeated(shard: dict[str, Any]) -> dict[str, Any]:
    times = 1 + int(abs(shard["x"][0][0]) * 10) % 5
    return {"x": tuple(np.tile(each, times) for each in shard["x"]), "y": np.tile(shard["y"], times)}


def test_a_dataset_of_tensorflow_and_a_function_that_makes_one(local: None) -> None:
    made = Estimator.from_keras(keras_model=image_model({}), workers=2)
    history = made.fit(data=digits().shuffle(1000), epochs=3, batch_size=50)
    assert history.column("num_samples") == [600] * 3
    assert history.column("train_loss")[-1] < history.column("train_loss")[0]
    assert made.predict(digits().map(lambda image, label: image), batch_size=100).shape == (600, 10)
    other = Estimator2.from_keras(model_creator=image_model, workers=2)
    stats = other.fit(data=digits_in_batches, epochs=2, batch_size=60, steps_per_epoch=10)
    assert stats.column("num_samples") == [600, 600]
    assert {"train_loss", "train_accuracy"} <= set(stats[-1])
    assert other.evaluate(digits_in_batches, batch_size=60)["num_samples"] == 600


def test_rows_have_weights_as_keras_counts_them(local: None) -> None:
    model = image_model({})
    same = keras.models.clone_model(model)
    same.set_weights(model.get_weights())
    rate, loss = keras.optimizers.RMSprop(0.01), "sparse_categorical_crossentropy"
    same.compile(optimizer=rate, loss=loss, weighted_metrics=["accuracy"])
    made = Estimator.from_keras(keras_model=model, workers=2)
    made.fit(weighted(), epochs=1)
    same.fit(weighted(), epochs=1, shuffle=False, verbose=0)
    for one, other in zip(made.get_model().get_weights(), same.get_weights(), strict=True):
        assert np.allclose(one, other, atol=1e-4)

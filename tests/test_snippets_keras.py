"""The blocks on TensorFlow of the documents on data and on training, with imports and data paths changed and no more.

scikit-learn's digits stand for MNIST, and ``tf`` is ``tf.compat.v1`` where a graph is made. What the blocks leave
undefined (models, ``preprocess``, sizes) is defined here; one block makes ``dataset`` and trains on ``mnist_train``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from shoal.errors import PlanError
from support import digits_mnist
from support import digits_tfds as tfds
from support.clusters import running
from support.engine import by_value
from support.lengths import first

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn.t accept a copy keyword:DeprecationWarning"),
]

ROWS = total_size = 1500
batch_size = 100
max_epoch = 3
dataset_dir = None


@pytest.fixture(scope="module", params=first(1, ["local", "ray"]))
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param, workers=2):
        yield request.param


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__, "support.digits_tfds", "support.digits_mnist"):
        yield


def create_keras_lenet_model() -> Any:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def compiled() -> Any:
    model = create_keras_lenet_model()
    model.compile(optimizer=keras.optimizers.RMSprop(),
                  loss='sparse_categorical_crossentropy',
                  metrics=['accuracy'])  # fmt: skip
    return model


def image_frame(count: int) -> pd.DataFrame:
    (images, _), _ = digits_mnist.load_data()
    return pd.DataFrame({"id": range(count), "image": list(images[:count, ..., None].astype(np.float32) / 255)})


def preprocess(data: Any) -> Any:
    data['image'] = tf.cast(data["image"], tf.float32) / 255.  # fmt: skip
    return data['image'], data['label']  # fmt: skip


def check_predictions(predictions: Any, count: int) -> None:
    assert list(predictions["id"]) == [*range(count)]
    assert {len(cell) for cell in predictions["prediction"]} == {10}
    (_, labels), _ = digits_mnist.load_data()
    assert np.mean([np.argmax(cell) for cell in predictions["prediction"]] == labels[:count]) > 0.6


def collected(frame: Any) -> pd.DataFrame:
    return pd.DataFrame([row.asDict() for row in frame.collect()])


def two_inputs() -> Any:
    inputs = [keras.Input((1,), name=name) for name in ("user", "item")]
    made = keras.layers.Dense(8, activation="relu")(keras.layers.Concatenate()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(made))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


def test_a_frame_of_spark_trains_and_gets_predictions(tmp_path: Any) -> None:
    from shoal.learn.tf.estimator import Estimator

    with running("spark", workers=2):
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        random = np.random.default_rng(0)
        user, item = random.normal(size=(2, 480)).astype(np.float32)
        table = pd.DataFrame({"user": user, "item": item, "label": (user > item).astype(np.int64)})
        table.to_parquet(tmp_path / "data.parquet")
        model = two_inputs()

        df = spark.read.parquet(str(tmp_path / "data.parquet"))
        est = Estimator.from_keras(keras_model=model)  # the model accept two inputs and one label
        history = est.fit(data=df,
                feature_cols=['user', 'item'], # specifies which column(s) to be used as inputs
                labels_cols=['label'])  # specifies which column(s) to be used as labels  # fmt: skip
        assert history[0]["num_samples"] == 480
        with pytest.raises(PlanError, match="label columns is None"):
            est.fit(data=df, feature_cols=['user', 'item'])  # fmt: skip
        made = collected(est.predict(df, feature_cols=["user", "item"]))
        assert len(made) == 480
        assert {len(cell) for cell in made["prediction"]} == {2}

        rows = image_frame(12).to_dict("records")
        images = spark.createDataFrame([{**row, "image": row["image"].tolist()} for row in rows])
        est = Estimator.from_keras(keras_model=compiled())
        est.fit(data=tfds.load(name="mnist", split="train").map(preprocess), batch_size=320, epochs=2)
        predictions = est.predict(data=images,
                                  feature_cols=['image'])  # fmt: skip
        found = collected(predictions.select("id", "prediction")).sort_values("id")
        assert list(found["id"]) == [*range(12)]
        assert {len(cell) for cell in found["prediction"]} == {10}


@pytest.mark.usefixtures("engine")
def test_a_dataset_of_tensorflow_trains_a_model() -> None:
    from shoal.learn.tf.estimator import Estimator

    model = compiled()

    dataset = tfds.load(name="mnist", split="train", data_dir=dataset_dir)
    dataset = dataset.map(preprocess)
    dataset = dataset.shuffle(1000)

    est = Estimator.from_keras(keras_model=model)
    first = est.fit(data=dataset)
    again = est.fit(data=dataset)
    assert est.get_model() is model
    assert [epoch["num_samples"] for epoch in [*first, *again]] == [ROWS, ROWS]
    assert again[0]["train_loss"] < first[0]["train_loss"]


def train_data_creator_of_config(config: Any) -> Any:
    dataset = tfds.load(name="mnist", split="train", data_dir=dataset_dir)
    dataset = dataset.map(preprocess)
    dataset = dataset.shuffle(1000, seed=1)
    dataset = dataset.batch(config["batch_size"])
    return dataset  # noqa: RET504  # as it is written there


@pytest.mark.usefixtures("engine")
def test_a_function_of_the_config_makes_the_data() -> None:
    from shoal.learn.tf2 import Estimator

    est = Estimator.from_keras(model_creator=lambda config: compiled())
    history = est.fit(data=train_data_creator_of_config, epochs=2, batch_size=batch_size)
    assert history.column("num_samples") == [ROWS, ROWS]
    assert history.column("batch_count") == [ROWS // batch_size] * 2
    assert history[1]["train_loss"] < history[0]["train_loss"]


def lenet(images: Any) -> Any:
    layer = tf.reshape(images, (-1, 28 * 28))
    weights = tf.compat.v1.get_variable("w", initializer=np.zeros((28 * 28, 10), np.float32))
    bias = tf.compat.v1.get_variable("b", initializer=np.zeros(10, np.float32))
    return layer @ weights + bias


def accuracy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), labels), tf.float32))


def mnist_graph(tf: Any) -> Any:
    from shoal.learn.tf.estimator import Estimator

    # define inputs to the graph
    images = tf.placeholder(dtype=tf.float32, shape=(None, 28, 28, 1))
    labels = tf.placeholder(dtype=tf.int32, shape=(None,))

    # define the network and loss
    logits = lenet(images)
    loss = tf.reduce_mean(tf.losses.sparse_softmax_cross_entropy(logits=logits, labels=labels))

    # define a metric
    acc = accuracy(logits, labels)

    # create an estimator using endpoints of the graph
    return Estimator.from_graph(inputs=images,
                                outputs=logits,
                                labels=labels,
                                loss=loss,
                                optimizer=tf.train.AdamOptimizer(),
                                metrics={"acc": acc})  # fmt: skip


@pytest.mark.usefixtures("engine")
def test_a_graph_is_trained_evaluated_and_predicts() -> None:
    dataset = tfds.load(name="mnist", split="train")
    mnist_train = dataset.map(preprocess)
    with tf.Graph().as_default():
        est = mnist_graph(tf.compat.v1)
    history = est.fit(data=mnist_train,
                      batch_size=320,
                      epochs=max_epoch)  # fmt: skip
    predictions = est.predict(data=image_frame(30),
                              feature_cols=['image'])  # fmt: skip
    assert history.column("num_samples") == [ROWS] * max_epoch
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    check_predictions(predictions, 30)
    assert 0.5 < est.evaluate(mnist_train)["acc"] <= 1
    est.shutdown()


@pytest.mark.usefixtures("engine")
def test_a_model_of_keras_is_trained_and_predicts() -> None:
    from shoal.learn.tf.estimator import Estimator

    model = create_keras_lenet_model()
    model.compile(optimizer=keras.optimizers.RMSprop(),
                  loss='sparse_categorical_crossentropy',
                  metrics=['accuracy'])  # fmt: skip
    est = Estimator.from_keras(keras_model=model)

    dataset = tfds.load(name="mnist", split="train")
    mnist_train = dataset.map(preprocess)
    history = est.fit(data=mnist_train,
                      batch_size=320,
                      epochs=2 * max_epoch)  # fmt: skip
    predictions = est.predict(data=image_frame(30),
                              feature_cols=['image'])  # fmt: skip
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    check_predictions(predictions, 30)


def model_creator(config: Any) -> Any:
    model = create_keras_lenet_model()
    model.compile(optimizer=keras.optimizers.RMSprop(),
                  loss='sparse_categorical_crossentropy',
                  metrics=['accuracy'])  # fmt: skip
    return model


def train_data_creator(config: Any, batch_size: int) -> Any:
    dataset = tfds.load(name="mnist", split="train")
    dataset = dataset.map(preprocess)
    dataset = dataset.batch(batch_size)
    return dataset  # noqa: RET504  # as it is written there


@pytest.mark.usefixtures("engine")
def test_functions_make_model_and_data() -> None:
    from shoal.learn.tf2 import Estimator

    est = Estimator.from_keras(model_creator=model_creator)
    stats = est.fit(data=train_data_creator,
                    epochs=max_epoch,
                    steps_per_epoch=total_size // batch_size)  # fmt: skip
    predictions = est.predict(data=image_frame(30),
                              feature_cols=['image'])  # fmt: skip
    assert stats.column("batch_count") == [total_size // batch_size] * max_epoch
    assert stats[-1]["train_loss"] < stats[0]["train_loss"]
    assert stats[-1]["train_accuracy"] > stats[0]["train_accuracy"]
    assert len(predictions) == 30
    assert {len(cell) for cell in predictions["prediction"]} == {10}

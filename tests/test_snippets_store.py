"""The seed's programs for Dask and TensorFlow over the store, as they are written there.

Changed are imports, and where data comes from: scikit-learn's digits stand for MNIST, pictures that are drawn here for
flowers, a small convolutional net for ResNet50. What the seed has wrong is corrected: it imports one name and calls
another, a body is not indented, a module is not there, and sizes of pictures and of parts do not agree.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shoal.store import ObjectID, connect
from support.dask_hosts import DaskHosts, dask_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PREPROCESS = """
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed

import shoal.store
from shoal.store import builder_context
from shoal.store.dask import register_dask_builder
from support import digits_mnist


def dask_preprocess(dask_scheduler):
    def get_mnist():
        (x_train, y_train), _ = digits_mnist.load_data()
        # The `x` arrays are in uint8 and have values in the [0, 255] range.
        # You need to convert them to float64 with values in the [0, 1] range.
        x_train = x_train / np.float64(255)
        y_train = y_train.astype(np.int64)
        return pd.DataFrame({'x': list(x_train), 'y': y_train})

    with builder_context() as builder:
        # register the builder for dask.dataframe to the builder_context
        register_dask_builder(builder, None)

        datasets = [delayed(get_mnist)() for i in range(20)]
        dfs = [dd.from_delayed(ds) for ds in datasets]
        gdf = dd.concat(dfs)
        gdf_id = shoal.store.connect().put(gdf, dask_scheduler=dask_scheduler)

        return gdf_id


print(dask_preprocess(sys.argv[1]))
"""

TRAIN = """
import sys

import tensorflow as tf

import shoal.store
from shoal.store import resolver_context
from shoal.store.tensorflow import register_tf_types


def mnist_dataset(gdf_id, batch_size):
    with resolver_context() as resolver:
        # register the resolver for tensorflow Dataset to the resolver_context
        register_tf_types(None, resolver)
        train_datasets = shoal.store.connect().get(gdf_id, data='x', label='y')
        print('rows', len(train_datasets), train_datasets.element_spec)
        train_datasets = train_datasets.repeat().batch(batch_size)

        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        train_datasets_no_auto_shard = train_datasets.with_options(options)
        return train_datasets_no_auto_shard


def build_and_compile_cnn_model():
    model = tf.keras.Sequential([
        tf.keras.layers.InputLayer(input_shape=(28, 28)),
        tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation='relu'),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation='relu'),
        tf.keras.layers.Dense(10)
    ])
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.001),
        metrics=['accuracy'])
    return model


def train(gdf_id):
    per_worker_batch_size = 64
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    train_dataset = mnist_dataset(gdf_id, per_worker_batch_size)

    with strategy.scope():
        multi_worker_model = build_and_compile_cnn_model()

    multi_worker_model.fit(train_dataset, epochs=3, steps_per_epoch=70)


train(sys.argv[1])
print('trained')
"""

ESTIMATE = """
import json
import sys

import keras
import numpy as np

import shoal
from shoal.learn.tf2 import Estimator
from shoal.store import connect


def build_and_compile_cnn_model(config):
    model = keras.Sequential([
        keras.layers.InputLayer(shape=(28, 28)),
        keras.layers.Reshape(target_shape=(28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation='relu'),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation='relu'),
        keras.layers.Dense(10)
    ])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.001),
        metrics=['accuracy'])
    return model


gdf_id = sys.argv[1]
estimator = Estimator.from_keras(model_creator=build_and_compile_cnn_model, workers=2)
rows = shoal.from_store(gdf_id, partitions='local').shuffle('full', seed=0)
given = {'batch_size': 128, 'feature_cols': ['x'], 'label_cols': ['y']}
history = estimator.fit(rows, epochs=3, steps_per_epoch=70, **given)

part = connect().get(gdf_id)[0]
frame_id = connect().put(part)
scores = estimator.evaluate(frame_id, **given)
predictions = connect().get(estimator.predict(frame_id, feature_cols=['x']))
right = float(np.mean([np.argmax(cell) for cell in predictions['prediction']] == part['y'].to_numpy()))
print(json.dumps({'history': list(history), 'scores': scores, 'right': right, 'rows': len(part)}))
"""

FEATURES = """
import io
import sys
from pathlib import Path

import dask.array as da
import keras
import numpy as np
from dask import delayed
from PIL import Image

import shoal.store


def img_to_array(img):
    return np.asarray(img, np.float32)


def preprocess_input(arr):
    return arr / 127.5 - 1


def small_net():
    keras.utils.set_random_seed(7)
    layers = [keras.layers.Conv2D(4, 3, strides=2, activation='relu', padding='same')]
    return keras.Sequential([keras.Input((32, 32, 3)), *layers])


def transfer(dask_scheduler, flower_photos, calls):
    def get_images(idx, num):
        paths = sorted(Path(flower_photos).rglob("*.jpg"))[idx::num]
        data = []
        for p in paths:
            with open(p,'rb') as f:
              img = Image.open(io.BytesIO(f.read())).resize([32, 32])
              arr = preprocess_input(img_to_array(img))
              data.append(arr)
        return np.array(data)

    def featurize(v, block_id=None):
        if len(v) == 40:  # not when Dask asks for the type
            with open(calls, 'a') as f:
                f.write('called\\n')
        model = small_net()
        preds = model.predict(np.stack(v))
        return preds.reshape(40, 1024)

    imgs = [da.from_delayed(delayed(get_images)(i,8), shape=(40, 32, 32, 3), dtype='float') for i in range(8)]
    imgs = da.concatenate(imgs, axis=0)
    res = imgs.map_blocks(featurize, chunks=(40,1024), drop_axis=[2,3], dtype=float)
    global_tensor_id = shoal.store.connect().put(res, dask_scheduler=dask_scheduler)
    return global_tensor_id


print(transfer(*sys.argv[1:]))
"""

LATER_NUMPY = """
import sys

import shoal.store

features = shoal.store.connect().get(sys.argv[1], partitions='all', to='numpy')
print(features.shape, float(features.astype('f8').sum()).hex())
"""

LATER_TORCH = """
import sys

import torch

import shoal.store
from shoal.store.torch import torch_context

with torch_context():
    dataset = shoal.store.connect().get(sys.argv[1], partitions='all')
loader = torch.utils.data.DataLoader(dataset, batch_size=32)
total = sum(batch.double().sum() for (batch,) in loader)
print((len(dataset), *dataset[0][0].shape), float(total))
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="shoal-test-", dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def hosts(shared: Path) -> Iterator[DaskHosts]:
    with dask_hosts(shared, [f"{shared}/a", f"{shared}/b"]) as found:
        yield found


def started(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **quiet, **environment},
    )


def ended(process: subprocess.Popen[str], seconds: float = 400.0) -> str:
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
    assert process.returncode == 0, f"it ended with {process.returncode} and said\n{out[-2000:]}\n{error[-4000:]}"
    return out


@pytest.fixture(scope="module")
def gdf_id(hosts: DaskHosts) -> str:
    """Run the first program. Dask would turn cells that are arrays into texts, were it not told otherwise."""
    kept = {"DASK_DATAFRAME__CONVERT_STRING": "False"}
    return ended(started(PREPROCESS, hosts.address, SHOAL_STORE=hosts.stores[0], **kept)).split()[-1]


def test_dask_puts_twenty_partitions_over_two_machines(hosts: DaskHosts, gdf_id: str) -> None:
    stores = [connect(path) for path in hosts.stores]
    meta = stores[0].get_meta(ObjectID(gdf_id))
    assert (meta.typename, meta["partitions_-size"]) == ("vineyard::GlobalDataFrame", 20)
    counts = [meta["owners_"].count(store.instance_id) for store in stores]
    assert sum(counts) == 20
    assert all(counts)
    for store, count in zip(stores, counts, strict=True):
        parts = store.get(gdf_id)
        assert [len(part) for part in parts] == [1500] * count
        cell, label = parts[0].iloc[0]
        assert (cell.shape, cell.dtype, type(label)) == ((28, 28), np.float64, np.int64)
        assert 0 <= cell.min() < cell.max() <= 1


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def test_keras_trains_on_two_machines_each_with_its_own_part(hosts: DaskHosts, gdf_id: str) -> None:
    first, second = free_ports(2)
    cluster = {"worker": [f"127.0.0.1:{first}", f"127.0.0.2:{second}"]}  # two names, as two hosts have
    workers = []
    for index, store in enumerate(hosts.stores):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        own = {"TF_CONFIG": config, "TF_USE_LEGACY_KERAS": "1", "SHOAL_STORE": store}
        workers.append(started(TRAIN, gdf_id, **own))
    said = [ended(worker) for worker in workers]
    rows = [int(re.search(r"rows (\d+)", text)[1]) for text in said]  # type: ignore[index]
    owners = connect(hosts.stores[0]).get_meta(ObjectID(gdf_id))["owners_"]
    assert rows == [1500 * owners.count(connect(path).instance_id) for path in hosts.stores]
    for text in said:
        assert "TensorSpec(shape=(28, 28), dtype=tf.float64" in text
        assert text.rstrip().endswith("trained")
        found = [float(number) for number in re.findall(r"accuracy: ([0-9.]+)\s*\n", text)]
        assert len(found) == 3
        assert found[-1] > max(found[0], 0.2)


def test_an_estimator_trains_on_what_dask_has_put_and_predicts_for_stored_objects(
    hosts: DaskHosts, gdf_id: str
) -> None:
    told = json.loads(ended(started(ESTIMATE, gdf_id, SHOAL_STORE=hosts.stores[0])).splitlines()[-1])
    history = told["history"]
    assert [(epoch["batch_count"], epoch["num_samples"]) for epoch in history] == [(70, 70 * 128)] * 3
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert history[-1]["train_accuracy"] > max(history[0]["train_accuracy"], 0.2)
    assert told["scores"]["num_samples"] == told["rows"] == 1500
    assert told["right"] == pytest.approx(told["scores"]["accuracy"], abs=2e-3)


def test_features_are_computed_once_and_read_by_two_later_programs(shared: Path, tmp_path: Path) -> None:
    photos = tmp_path / "flower_photos"
    random = np.random.default_rng(1)
    for number in range(320):
        folder = photos / ("daisy", "tulips")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (48, 64, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03d}.jpg")
    calls, store = tmp_path / "calls", f"{shared}/features"
    with dask_hosts(tmp_path, [store, store]) as hosts:
        made = started(FEATURES, hosts.address, str(photos), str(calls), SHOAL_STORE=store, KERAS_BACKEND="torch")
        number = ended(made).split()[-1]
    meta = connect(store).get_meta(ObjectID(number))
    assert (meta.typename, meta["partitions_-size"], meta["shape_"]) == ("vineyard::GlobalTensor", 8, [320, 1024])
    parts = [connect(store).get_meta(meta[f"partitions_-{at}"].id) for at in range(8)]
    assert [(part["shape_"], part["partition_index_"]) for part in parts] == [([40, 1024], [at, 0]) for at in range(8)]
    assert calls.read_text().count("called") == 8
    one, other = (started(program, number, SHOAL_STORE=store) for program in (LATER_NUMPY, LATER_TORCH))
    shape, total = ended(one).strip().rsplit(" ", 1)
    shape_again, total_again = ended(other).strip().rsplit(" ", 1)
    assert shape == shape_again == "(320, 1024)"
    assert float.fromhex(total) == pytest.approx(float(total_again))
    assert float.fromhex(total) > 0
    assert calls.read_text().count("called") == 8

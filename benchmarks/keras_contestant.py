"""One Keras training in a process of its own: ``python -m benchmarks.keras_contestant shoal|strategy|alone``.

The last line that it prints says how many pictures a second were learnt from in all epochs but the first, how many
seconds of processors that took, and the loss at the end. The work is the same for all: scanned digits, enlarged and
repeated, a convolutional network, SGD, the same global batch, in memory.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

EPOCHS, BATCH, WORKERS, REPEATS, CLASSES = 4, 256, 2, 8, 10
COUNT = 1797 * REPEATS // BATCH * BATCH


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Give pictures of 32x32 and their classes."""
    from sklearn.datasets import load_digits

    found = load_digits()
    large = np.kron(found.images / 16, np.ones((4, 4))).astype(np.float32)[..., None]
    return np.tile(large, (REPEATS, 1, 1, 1))[:COUNT], np.tile(found.target, REPEATS)[:COUNT].astype(np.int64)


def network(keras: Any) -> Any:
    """Build the network."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((32, 32, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss=loss, metrics=["accuracy"])
    return model


class Clock:
    """What is told in the end, of this process."""

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0

    def epoch(self, number: int) -> None:
        """An epoch begins; the first is 0."""
        if number == 1:
            self._wall, self._cpu = time.time(), time.process_time()

    def told(self, loss: float) -> dict[str, float]:
        """Say it, after the last epoch."""
        rate = COUNT * (EPOCHS - 1) / (time.time() - self._wall)
        return {"rate": rate, "cpu": time.process_time() - self._cpu, "loss": loss}


def timed(keras: Any, clock: Clock) -> Any:
    """Make a callback that looks at the clock."""

    class Timed(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            clock.epoch(epoch)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == EPOCHS - 1:
                print(json.dumps(clock.told(float(logs["loss"]))), flush=True)

    return Timed()


def creator(config: Mapping[str, Any]) -> Any:
    """Build it where it is trained."""
    import keras

    return network(keras)


def shoal() -> None:
    """Train with the Estimator; each worker says how much it took."""
    from shoal.learn import Callback
    from shoal.learn.tf2 import Estimator

    class Timed(Callback):
        def __init__(self) -> None:
            self.clock = Clock()

        def before_epoch(self, epoch: int) -> None:
            self.clock.epoch(epoch - 1)

        def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
            if epoch == EPOCHS:
                print(json.dumps(self.clock.told(stats["train_loss"])), flush=True)

    estimator = Estimator.from_keras(model_creator=creator, workers=WORKERS)
    estimator.fit(digits(), epochs=EPOCHS, batch_size=BATCH, callbacks=[Timed()], progress=False)


def alone() -> None:
    """Train with Keras, in one process."""
    import keras

    network(keras).fit(*digits(), epochs=EPOCHS, batch_size=BATCH, verbose=0, callbacks=[timed(keras, Clock())])


def strategy() -> None:
    """Start two processes that train with tf_keras under MultiWorkerMirroredStrategy."""
    ports = []
    for _ in range(WORKERS):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(f"127.0.0.1:{probe.getsockname()[1]}")
    processes = []
    for index in range(WORKERS):
        place = {"cluster": {"worker": ports}, "task": {"type": "worker", "index": index}}
        variables = {"TF_CONFIG": json.dumps(place), "TF_USE_LEGACY_KERAS": "1"}
        command = [sys.executable, "-m", "benchmarks.keras_contestant", "strategy_worker"]
        processes.append(subprocess.Popen(command, env={**os.environ, **variables}))
    sys.exit(max(abs(process.wait()) for process in processes))


def strategy_worker() -> None:
    """Be one of them: each has every second row, as the Estimator's workers have."""
    import tensorflow as tf
    import tf_keras

    way = tf.distribute.MultiWorkerMirroredStrategy()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    x, y = (array[index::WORKERS] for array in digits())
    # The strategy cuts each batch into a part for every worker, also where each of them has its own rows.
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=0).batch(BATCH).prefetch(2)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    with way.scope():
        model = network(tf_keras)
    rows = rows.with_options(options).repeat()
    steps = COUNT // BATCH
    model.fit(rows, epochs=EPOCHS, steps_per_epoch=steps, verbose=0, callbacks=[timed(tf_keras, Clock())])


if __name__ == "__main__":
    globals()[sys.argv[1]]()

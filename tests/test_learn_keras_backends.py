"""Keras on PyTorch and JAX, and the Keras 2 of TensorFlow: the same estimator, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.lengths import first

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

SCRIPT = """
import json, os, signal, sys
import numpy as np
import shoal
from shoal.learn import Callback, SeveralIteration
from shoal.learn.keras import Estimator

library, folder = sys.argv[1:]
if library == "tf_keras":
    import tf_keras as keras
else:
    import keras

def network(config):
    layers = [keras.layers.InputLayer((8,)), keras.layers.Dense(16, activation="tanh")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)] if config.get("more") else []
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.2, momentum=0.9), loss=loss, metrics=["accuracy"])
    return model

class KillAt(Callback):
    def after_step(self, step, loss):
        if step == 7 and self.run.rank == 1 and not os.path.exists(folder + "/dead"):
            open(folder + "/dead", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

def seen(epoch, rate):
    with open(folder + "/epochs", "a") as file:
        file.write(str(epoch))
    return rate

def distance(one, other):
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))

if __name__ == "__main__":
    chance = np.random.default_rng(0)
    x = chance.normal(size=(210, 8)).astype(np.float32)
    y = x[:, :3].argmax(1).astype(np.int64)
    found = {}
    with shoal.init("local", workers=2):
        made = {}
        runs = (("one", 1, 30, {}), ("two", 2, 30, {"validation_data": (x, y)}), ("parts", 2, 15, {"accumulate": 2}))
        for name, workers, size, options in runs:
            made[name] = Estimator.from_keras(model_creator=network, workers=workers)
            history = made[name].fit((x, y), epochs=3, batch_size=size, shuffle=False, **options)
            found[name] = [history.column("train_loss"), history.column("train_accuracy")]
            found["validated"] = history[-1] if name == "two" else found.get("validated")
        weights = {name: each.get_model().get_weights() for name, each in made.items()}
        found["workers"] = distance(weights["one"], weights["two"])
        found["accumulated"] = distance(weights["one"], weights["parts"])
        found["accuracy"] = float((made["two"].predict(x).argmax(1) == y).mean())
        path = made["two"].save(folder + "/model.keras")
        found["saved"] = distance(keras.saving.load_model(path).get_weights(), weights["two"])
        both = []
        for kills in ([], [KillAt()]):
            more = {"more": library == "keras"}  # Keras 2 draws its numbers where nobody can see them
            one = Estimator.from_keras(
                model_creator=network, config=more, workers=2, model_dir=f"{folder}/{len(kills)}"
            )
            late = [] if kills else [keras.callbacks.LearningRateScheduler(seen)]
            one.fit((x, y), epochs=2, batch_size=20, callbacks=[*late, *kills], checkpoint_trigger=SeveralIteration(5))
            both.append(one.get_model().get_weights())
        found["killed"] = distance(*both)
        found["dead"] = os.path.exists(folder + "/dead")
    print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("library", "backend"), first(1, [("keras", "torch"), ("keras", "jax"), ("tf_keras", "tensorflow")])
)
def test_the_same_on_every_backend(library: str, backend: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, str(script), library, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["workers"] < 1e-5
    assert found["accumulated"] < 1e-5
    assert found["saved"] == 0
    assert found["killed"] < 1e-5
    assert found["dead"]
    for mine, theirs in zip(found["one"], found["two"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
    assert found["validated"]["val_num_samples"] == 210
    assert found["validated"]["val_accuracy"] == pytest.approx(found["accuracy"], abs=1e-6)
    assert sorted((tmp_path / "epochs").read_text()) == list("0011")

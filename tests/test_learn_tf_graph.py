"""Graphs of TensorFlow 1 on several workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import shoal
from shoal.data import XShards
from shoal.errors import PlanError, StateError
from shoal.learn import SeveralIteration
from shoal.learn.tf.estimator import Estimator
from shoal.testing.faults import KillAt
from support.engine import by_value
from support.lengths import first

v1 = tf.compat.v1
pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=4):
        yield


def ratings(count: int = 48) -> dict[str, Any]:
    chance = np.random.default_rng(0)
    user, item = chance.normal(size=(2, count)).astype(np.float32)
    return {"x": (user, item), "y": (user > item).astype(np.int64)}


def model(*, training: bool = True, norm: bool = False, sess: bool = False, **options: Any) -> Any:
    """Make the graph of a small classifier, whose weights begin the same each time."""
    graph = tf.Graph()
    with graph.as_default():
        user = v1.placeholder(tf.float32, [None, 1], "user")
        item = v1.placeholder(tf.float32, [None, 1], "item")
        label = v1.placeholder(tf.int64, [None], "label")
        both = tf.concat([user, item], 1)
        updates = None
        if norm:
            mean = v1.get_variable("mean", [2], initializer=v1.zeros_initializer(), trainable=False)
            updates = [v1.assign(mean, 0.9 * mean + 0.1 * tf.reduce_mean(both, 0)).op]
        weight = v1.get_variable("weight", [2, 8], initializer=v1.random_normal_initializer(seed=1))
        bias = v1.get_variable("bias", [8], initializer=v1.zeros_initializer())
        last = v1.get_variable("last", [8, 2], initializer=v1.random_normal_initializer(seed=2))
        logits = tf.matmul(tf.tanh(tf.matmul(both, weight) + bias), last)
        if not training:
            return Estimator.from_graph(inputs=[user, item], outputs=logits, **options)
        loss = v1.losses.sparse_softmax_cross_entropy(labels=label, logits=logits)
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), label), tf.float32))
        session = v1.Session(graph=graph) if sess else None
        if session is not None:
            session.run(v1.global_variables_initializer())
        return Estimator.from_graph(
            inputs=[user, item],
            outputs=logits,
            labels=label,
            loss=loss,
            optimizer=options.pop("optimizer", None) or v1.train.AdamOptimizer(0.05),
            metrics={"acc": right},
            updates=updates,
            sess=session,
            **options,
        )


def weights(made: Any) -> dict[str, np.ndarray[Any, Any]]:
    session = made.get_session()
    names = session.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
    return {each.name: session.run(each) for each in names}


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert set(one) == set(other)
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@pytest.fixture(scope="module")
def undisturbed() -> tuple[dict[str, Any], Any]:
    """What one worker makes of 40 steps, with a batch that is not full at the end of each epoch."""
    alone = model(workers=1)
    with by_value(__name__):
        history = alone.fit(ratings(), epochs=8, batch_size=11, validation_data=ratings())
    return weights(alone), history


@pytest.mark.parametrize("workers", first(1, [2, 4]))
def test_variables_do_not_depend_on_the_number_of_workers(
    workers: int, undisturbed: tuple[dict[str, Any], Any]
) -> None:
    several = model(workers=workers)
    history = several.fit(ratings(), epochs=8, batch_size=11, validation_data=ratings())
    assert distance(weights(several), undisturbed[0]) < 1e-5
    assert history.column("num_samples") == [48] * 8
    for name in ("train_loss", "val_loss", "val_acc"):
        assert np.allclose(history.column(name), undisturbed[1].column(name), atol=1e-5)
    assert history.column("val_loss")[-1] < history.column("val_loss")[0]


def test_a_killed_worker_changes_nothing_and_checkpoints_resume(
    tmp_path: Path, undisturbed: tuple[dict[str, Any], Any]
) -> None:
    killed = model(workers=2, model_dir=str(tmp_path / "model"))
    data, trigger = ratings(), SeveralIteration(4)
    killed.fit(data, epochs=8, batch_size=11, callbacks=[KillAt(18, 1, tmp_path / "dead")], checkpoint_trigger=trigger)
    assert (tmp_path / "dead").exists()
    assert distance(weights(killed), undisturbed[0]) < 1e-5
    losses = killed.get_train_summary("Loss")
    assert losses is not None
    assert losses[-1][0] == 40
    begun = model(workers=1, model_dir=str(tmp_path / "other"))
    begun.fit(data, epochs=8, batch_size=11, max_steps=23, checkpoint_trigger=trigger)
    resumed = model(workers=1, model_dir=str(tmp_path / "other"))
    resumed.fit(data, epochs=8, batch_size=11, resume=True)
    assert distance(weights(resumed), undisturbed[0]) < 1e-5
    fresh = model(workers=1)
    fresh.load(resumed.latest_checkpoint())
    assert distance(weights(fresh), undisturbed[0]) < 1e-5


def test_shards_and_frames_in_and_out(tmp_path: Path) -> None:
    data = ratings()
    shards = XShards.partition({"x": data["x"], "y": data["y"]}, num_shards=3)
    made = model(workers=2, clip_norm=1.2, clip_value=0.2)
    assert made.get_train_summary("Loss") is None
    before = made.evaluate(shards)
    assert before["num_samples"] == 48
    made.fit(shards, epochs=10, batch_size=8)
    after = made.evaluate(shards, batch_size=7)
    assert after["val_loss"] < before["val_loss"]
    found = made.predict(XShards.partition({"x": data["x"]}, num_shards=3)).collect()
    assert [len(shard["prediction"]) for shard in found] == [16, 16, 16]
    predictions = np.concatenate([shard["prediction"] for shard in found])
    assert after["acc"] == pytest.approx(float((predictions.argmax(1) == data["y"]).mean()), abs=1e-6)
    frame = pd.DataFrame({"user": data["x"][0], "item": data["x"][1], "label": data["y"]})
    told = made.predict(frame, feature_cols=["user", "item"])
    assert np.allclose(np.stack(told["prediction"]), predictions, atol=1e-6)
    made.save_tf_checkpoint(tmp_path / "kept" / "ckpt")
    path = made.save(tmp_path / "file.npz")
    for load in ("load_tf_checkpoint", "load"):
        other = model(workers=1)
        getattr(other, load)(tmp_path / "kept" / "ckpt" if load != "load" else path)
        assert distance(weights(other), weights(made)) == 0
    assert other.evaluate(frame, feature_cols=["user", "item"], label_cols=["label"])["val_loss"] == pytest.approx(
        after["val_loss"], abs=1e-6
    )


def test_what_updates_change_is_averaged_and_is_in_the_session_of_the_user() -> None:
    made = model(workers=2, norm=True, sess=True, optimizer=v1.train.GradientDescentOptimizer(0.1))
    alone = model(workers=1, norm=True, optimizer=v1.train.MomentumOptimizer(0.1, 0.0))
    data = ratings()
    made.fit(data, epochs=2, batch_size=11)
    alone.fit(data, epochs=2, batch_size=11)
    found, expected = weights(made), weights(alone)
    assert np.abs(found["mean:0"]).max() > 0
    for name in ("mean:0", "weight:0"):
        assert np.allclose(found[name], expected[name], atol=1e-5)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    data = ratings()
    made = model(training=False, workers=1)
    assert made.predict({"x": data["x"]})["prediction"].shape == (48, 2)
    with pytest.raises(PlanError, match=r"labels is None; it should not be None in training"):
        made.fit(data)
    with pytest.raises(PlanError, match="no optimizer for a graph"):
        model(optimizer="adam")
    with pytest.raises(PlanError, match="clip_value"):
        model(clip_value=(1, 0))
    with pytest.raises(PlanError, match="Horovod"):
        model(backend="horovod")
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 1])
        other = Estimator.from_graph(inputs=x, outputs=x * v1.get_variable("quite_another", []))
    path = made.save(tmp_path / "file.npz")
    with pytest.raises(StateError, match="another graph"):
        other.load(path)

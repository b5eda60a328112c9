"""What every framework must do.

Make a class of this one with a method that makes an estimator, and let pytest run it, on any engine::

    class TestMyFramework(FrameworkTests):
        def estimator(self, **options):
            return MyEstimator.from_model(model=..., workers=2, **options)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from shoal.data import XShards
from shoal.errors import PlanError
from shoal.learn import BaseEstimator, Callback
from shoal.readers import from_arrays

__all__ = ["FrameworkTests"]

#: What the model has to find: the number that each of four columns counts with.
_SLOPES = np.array([[1.0], [-2.0], [3.0], [0.5]], np.float32)
_ROWS, _BATCH = 120, 20


class FrameworkTests:
    """Tests of an estimator: its model is linear, of four numbers ``x`` to one number ``y``, with a square loss.

    Gradient descent at a rate of 0.1 is right for it. The model of a framework that cannot learn may have any weights.

    >>> sum(name.startswith("test_") for name in dir(FrameworkTests))
    7
    """

    trains: ClassVar[bool] = True
    """Whether it learns; if not, it has to say so in words."""

    def estimator(self, **options: Any) -> BaseEstimator:
        """Make an estimator with a new model; ``model_dir`` is given where checkpoints are needed."""
        raise NotImplementedError("derive from FrameworkTests, and make an estimator here")

    def test_fit_lowers_the_loss(self) -> None:
        """It counts every row of every epoch once, and what it has learnt is what it evaluates and predicts with."""
        made, (x, y) = self.estimator(), _rows()
        if not self.trains:
            error = _raised(lambda: made.fit((x, y), epochs=1, batch_size=_BATCH))
            assert isinstance(error, PlanError), error
            assert len(str(error).split()) > 4, "say why it cannot learn, and what does"
            return
        history = made.fit((x, y), epochs=4, batch_size=_BATCH)
        assert history.column("epoch") == [1, 2, 3, 4]
        assert history.column("num_samples") == [_ROWS] * 4
        losses = history.column("train_loss")
        assert losses[-1] < losses[0] / 2, losses
        after = made.evaluate((x, y), batch_size=_BATCH)
        assert after["num_samples"] == _ROWS
        assert after["val_loss"] < losses[0] / 2
        square = float(np.mean((_column(made.predict(x)) - y) ** 2))
        assert np.isclose(after["val_loss"], square, rtol=1e-3), (after["val_loss"], square)

    def test_predictions_keep_rows_and_their_order(self) -> None:
        """Whatever the kind of data, its parts, and the size of a batch, also one that is not full at the end."""
        made, (x, _) = self.estimator(), _rows(23)
        whole = _column(made.predict(x, batch_size=23))
        assert np.allclose(_column(made.predict(x, batch_size=4)), whole, atol=1e-5)
        order = np.random.default_rng(1).permutation(23)
        assert np.allclose(_column(made.predict(x[order], batch_size=5)), whole[order], atol=1e-5)
        shards = made.predict(XShards.partition({"x": x}, 3), batch_size=4).collect()
        assert [len(shard["x"]) for shard in shards] == [len(shard["prediction"]) for shard in shards] == [8, 8, 7]
        assert np.allclose(np.concatenate([_column(shard["prediction"]) for shard in shards]), whole, atol=1e-5)
        table = pd.DataFrame({"name": [f"row {number}" for number in range(23)], "x": list(x)}, index=order)
        found = made.predict(table, batch_size=4, feature_cols=["x"])
        assert list(found.columns) == ["name", "x", "prediction"]
        assert list(found.index) == list(order)
        assert np.allclose(_column(np.stack([np.ravel(cell) for cell in found["prediction"]])), whole, atol=1e-5)
        samples = list(made.predict(from_arrays({"x": x}), batch_size=4))
        assert np.allclose(_column(np.stack([np.ravel(sample["prediction"]) for sample in samples])), whole, atol=1e-5)

    def test_what_was_saved_is_what_is_loaded(self, tmp_path: Path) -> None:
        """Another estimator predicts the same with it."""
        made, (x, y) = self.estimator(), _rows()
        if self.trains:
            made.fit((x, y), epochs=1, batch_size=_BATCH)
        path = made.save(tmp_path / "model")
        again = self.estimator()
        again.load(path)
        assert np.allclose(_column(again.predict(x)), _column(made.predict(x)), atol=1e-6)

    def test_a_training_that_was_stopped_goes_on_from_its_checkpoint(self, tmp_path: Path) -> None:
        """What it has learnt in the end is what an undisturbed one has learnt."""
        x, y = _rows()
        if not self.trains:
            made = self.estimator(model_dir=str(tmp_path))
            assert isinstance(_raised(lambda: made.fit((x, y), epochs=4, resume=True)), PlanError)
            return
        undisturbed = self.estimator()
        history = undisturbed.fit((x, y), epochs=4, batch_size=_BATCH)
        begun = self.estimator(model_dir=str(tmp_path))
        error = _raised(lambda: begun.fit((x, y), epochs=4, batch_size=_BATCH, callbacks=[_StopsBefore(3)]))
        assert "stopped before epoch 3" in str(error), error
        assert begun.latest_checkpoint() is not None
        again = self.estimator(model_dir=str(tmp_path))
        later = again.fit((x, y), epochs=4, batch_size=_BATCH, resume=True)
        assert later.column("epoch") == history.column("epoch")
        assert np.allclose(later.column("train_loss"), history.column("train_loss"), rtol=1e-3)
        assert np.allclose(_column(again.predict(x)), _column(undisturbed.predict(x)), atol=1e-5)

    def test_columns_that_are_not_there_are_named(self) -> None:
        """With those that are."""
        made, (x, y) = self.estimator(), _rows(8)
        table = pd.DataFrame({"x": list(x), "y": list(y)})
        ways: list[Callable[[], Any]] = [lambda: made.predict(table, feature_cols=["size"])]
        if self.trains:
            ways += [lambda: made.fit(table, epochs=1, batch_size=4, feature_cols=["size"], label_cols=["y"])]
            ways += [lambda: made.evaluate(table, batch_size=4, feature_cols=["x"], label_cols=["size"])]
        for way in ways:
            error = _raised(way)
            assert isinstance(error, PlanError), error
            assert "'size'" in str(error), error
            assert "x, y" in str(error), error

    def test_shapes_that_do_not_fit_are_told(self) -> None:
        """The error of a model says what it was given."""
        made, (x, y) = self.estimator(), _rows(8)
        wide = np.concatenate([x, x[:, :1]], axis=1)
        ways: list[Callable[[], Any]] = [lambda: made.predict(wide, batch_size=8)]
        if self.trains:
            ways += [lambda: made.fit((wide, y), epochs=1, batch_size=8)]
        for way in ways:
            error = _raised(way)
            told = "\n".join([str(error), *getattr(error, "__notes__", ())])
            assert ", 5)" in told, told

    def test_sizes_that_make_no_sense_are_refused(self) -> None:
        """Before anything is started."""
        made, (x, y) = self.estimator(), _rows(8)
        ways: list[Callable[[], Any]] = [lambda: made.predict(x, batch_size=0)]
        if self.trains:
            ways += [lambda: made.fit((x, y), epochs=1, batch_size=0), lambda: made.fit((x, y), epochs=-1)]
        for way in ways:
            assert isinstance(_raised(way), PlanError)


class _StopsBefore(Callback):
    """Ends a training with an error."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def before_epoch(self, epoch: int) -> None:
        if epoch == self._epoch:
            raise RuntimeError(f"stopped before epoch {epoch}")


def _rows(count: int = _ROWS) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return x, x @ _SLOPES


def _column(found: Any) -> NDArray[np.float32]:
    """Take predictions as a column, also those of frameworks that give plain numbers for one output."""
    return np.asarray(found, np.float32).reshape(-1, 1)


def _raised(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:  # of what class it is, the caller looks at
        return error
    raise AssertionError("nothing was raised")

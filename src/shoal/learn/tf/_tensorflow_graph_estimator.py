"""The estimator for graphs of TensorFlow 1."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from shoal._optional import require
from shoal.errors import PlanError
from shoal.learn._data import Ask, Prepared
from shoal.learn._estimator import BaseEstimator
from shoal.learn._history import History
from shoal.learn._packed import unpack
from shoal.learn._predicting import Predictor
from shoal.learn.keras._keras_choice import backend_for
from shoal.learn.keras._keras_data import keras_predicted, keras_prepared
from shoal.learn.tf._tensorflow_graph import graph_of, read, written
from shoal.learn.tf._tensorflow_graph_framework import GraphFramework, packed

__all__ = ["GraphEstimator"]

v1: Any = require("tensorflow", "shoal.learn.tf").compat.v1


class GraphEstimator(BaseEstimator):
    """A graph that several workers train together; a session here has what was learnt."""

    _framework: GraphFramework
    _session: Any
    _variables: list[Any]
    _given: bool
    """Whether the session is the user's own."""

    @classmethod
    def of(
        cls,
        ends: Mapping[str, Any],
        optimizer: Any,
        updates: Any,
        clips: Mapping[str, Any],
        sess: Any,
        **options: Any,
    ) -> GraphEstimator:
        """Make one of the ends of a graph; see `Estimator.from_graph`."""
        if ends["metrics"] is not None and not isinstance(ends["metrics"], Mapping):
            raise PlanError('metrics of a graph are tensors by their names: metrics={"acc": tensor}')
        options["backend"] = backend_for(options.get("backend"))
        graph, native, made = graph_of(ends, optimizer, updates, clips)
        session = sess if sess is not None else v1.Session(graph=native)
        variables = list(native.get_collection(v1.GraphKeys.GLOBAL_VARIABLES))
        with native.as_default():
            session.run(v1.variables_initializer(variables if sess is None else made))
        found = cls(GraphFramework(graph, {}), **options)
        found._session, found._variables, found._given = session, variables, sess is not None
        return found

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        *,
        feed_dict: Mapping[Any, tuple[Any, Any]] | None = None,
        session_config: Any = None,
        **options: Any,
    ) -> History:
        """Train for some epochs; see `BaseEstimator.fit`.

        ``feed_dict`` has for a placeholder what it is fed in training, and otherwise; ``session_config`` is for the
        sessions of workers.
        """
        self._framework = copy(self._framework)
        self._framework.check_training()
        self._framework.feeds = {tensor.name: tuple(values) for tensor, values in (feed_dict or {}).items()}
        self._framework.session_config = None if session_config is None else session_config.SerializeToString()
        self._take()
        history = super().fit(data, epochs, batch_size, **options)
        self._give()
        return history

    def evaluate(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Say how good the model is; see `BaseEstimator.evaluate`."""
        self._take()
        return super().evaluate(*args, **options)

    def predict(self, *args: Any, **options: Any) -> Any:
        """Predict; see `BaseEstimator.predict`."""
        self._take()
        return super().predict(*args, **options)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write the variables into one file."""
        self._take()
        return super().save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take what `save` wrote, or a checkpoint of a training."""
        super().load(path)
        self._give()

    def get_session(self) -> Any:
        """Give the session whose variables have what was learnt: the one that was given, or one that was made."""
        return self._session

    def save_tf_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Let TensorFlow write the variables."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._session.graph.as_default():
            v1.train.Saver(self._variables).save(self._session, os.fspath(path))

    def load_tf_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Take variables that TensorFlow has written."""
        with self._session.graph.as_default():
            v1.train.Saver(self._variables).restore(self._session, os.fspath(path))

    def shutdown(self) -> None:
        """Close the session, if it is not the user's own."""
        if not self._given:
            self._session.close()

    def _take(self) -> None:
        """Begin with what the variables are in the session."""
        self._framework = copy(self._framework)
        self._framework.files = packed(self._framework.graph, read(self._session, self._variables))

    def _give(self) -> None:
        """Set the variables in the session to what was learnt."""
        files = self._framework.files
        values = {name: value for part in files.values() for name, value in unpack(part).items()}
        written(self._session, self._variables, values)

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        return keras_predicted(data, predictor)

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        ask = Ask(features, labels, shuffle=seed, workers=self._size())
        return keras_prepared(data, ask, config={}, batch_size=batch_size)

"""The estimator for MXNet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import fields
from typing import Any

from shoal.errors import PlanError, WorkerDiedError
from shoal.files import open_read, open_write
from shoal.learn._data import Prepared
from shoal.learn._estimator import BaseEstimator
from shoal.learn._history import History
from shoal.learn._predicting import Predictor
from shoal.learn.mxnet._mxnet_abroad import MXNetAbroad
from shoal.learn.mxnet._mxnet_config import checked
from shoal.learn.mxnet._mxnet_framework import Creators
from shoal.learn.mxnet._mxnet_model import MXNetModel
from shoal.learn.mxnet._mxnet_nodes import Words
from shoal.learn.mxnet._mxnet_rows import MadeRows

__all__ = ["Estimator"]

#: Backends that would train with something else than MXNet's kvstore.
_OTHERS = ("horovod", "torch_distributed", "bigdl")
_PARAMETERS = ".params"


class Estimator(BaseEstimator):
    """A model of MXNet that several workers train together, by a kvstore of the kind ``dist_sync``.

    >>> from shoal.learn.mxnet import create_config, gluon
    >>> estimator = Estimator.from_mxnet(
    ...     config=create_config(optimizer="adam"),
    ...     model_creator=lambda config: gluon.nn.Dense(2),
    ...     loss_creator=lambda config: gluon.loss.L2Loss(),
    ...     num_workers=2,
    ... )
    >>> estimator.shutdown()  # MXNet starts with the first call that needs it
    """

    _framework: MXNetAbroad
    _words = ""
    """What a worker said of a process of the kvstore before it ended with it."""

    @classmethod
    def from_mxnet(
        cls,
        *,
        config: Mapping[str, Any],
        model_creator: Callable[[dict[str, Any]], Any],
        loss_creator: Callable[[dict[str, Any]], Any] | None = None,
        eval_metrics_creator: Callable[[dict[str, Any]], Any] | None = None,
        validation_metrics_creator: Callable[[dict[str, Any]], Any] | None = None,
        num_workers: int | None = None,
        num_servers: int | None = None,
        metrics: Any = None,
        backend: str | None = None,
        model_dir: str | None = None,
        keep_checkpoints: int = 3,
        restarts: int = 3,
        seed: int | None = None,
    ) -> Estimator:
        """Make an estimator of functions that are called with the config, where MXNet is.

        ``model_creator`` makes a `gluon.Block`, whose loss ``loss_creator`` makes, or an `mx.mod.Module` or a symbol,
        which have their losses in them. Metrics of MXNet come as ``train_...`` and ``val_...``; ``metrics`` are those
        of `shoal.learn.metrics`. There is one server unless ``num_servers`` says otherwise.
        """
        options = checked(config)
        for name, given in (("num_workers", num_workers), ("num_servers", num_servers)):
            if given is not None and given < 1:
                raise PlanError(f"{name}={given}; at least one is needed")
        if backend in _OTHERS:
            raise PlanError(f"backend={backend!r} does not train with MXNet's kvstore; give None, ray, spark or dask")
        creators = Creators(model_creator, loss_creator, eval_metrics_creator, validation_metrics_creator)
        for each in fields(creators):
            made = getattr(creators, each.name)
            if made is not None and not callable(made):
                text = f"the creator of the {each.name.replace('_', ' ')} is a {type(made).__name__}"
                raise PlanError(f"{text}; it should be a function of the config")
        number = options.get("seed") or 0 if seed is None else seed
        framework = MXNetAbroad(creators, options, number, num_servers or 1)
        chosen = {"metrics": metrics, "backend": backend, "workers": num_workers, "model_dir": model_dir}
        return cls(framework, **chosen, keep_checkpoints=keep_checkpoints, restarts=restarts, seed=number)

    def fit(
        self,
        data: Any,
        epochs: int = 1,
        batch_size: int | None = None,
        *,
        train_resize_batch_num: int | None = None,
        **options: Any,
    ) -> History:
        """Train for some epochs, and give what came of each; see `BaseEstimator.fit`.

        ``data`` may also be a function of config and kvstore that gives a `DataIter` or a `DataLoader` of MXNet; it
        finds ``batch_size`` in the config, which counts the rows of a step on all workers. An epoch has all rows, or
        ``train_resize_batch_num`` batches, for which the data begins anew if it must.
        """
        if train_resize_batch_num is not None:
            if train_resize_batch_num < 1:
                raise PlanError(f"train_resize_batch_num={train_resize_batch_num}; an epoch has a batch at least")
            options = {"end": "wrap", **options, "steps": train_resize_batch_num}
        return super().fit(data, epochs, batch_size, **options)

    def evaluate(self, data: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """Say how good the model is; see `BaseEstimator.evaluate`. Metrics of MXNet have their own names."""
        found = super().evaluate(data, *args, **options)
        if found.keys() == {"num_samples"}:
            text = "this model tells no loss, and there are no metrics"
            raise PlanError(f"{text}: give loss_creator, validation_metrics_creator or metrics to from_mxnet")
        return found

    def save(self, path: str | os.PathLike[str]) -> str:
        """Write what was learnt into one file, at any URL; into ``.params`` the parameters alone, as MXNet has them."""
        url = os.fspath(path)
        if not url.endswith(_PARAMETERS):
            return super().save(url)
        self._framework.build()
        with open_write(url) as target:
            target.write(self._framework.dump("model")["model.params"])
        return url

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take what `save` wrote, a checkpoint of a training, or parameters alone: a ``.params`` file of MXNet."""
        url = os.fspath(path)
        if not url.endswith(_PARAMETERS):
            super().load(url)
            return
        with open_read(url) as file:
            data = bytes(file.read())
        self._framework = copy(self._framework)
        self._framework.files = {"model.params": data}

    def get_model(self) -> MXNetModel:
        """Give the model: its symbol, and its parameters as arrays."""
        self._framework.build()
        return self._framework.exported()

    def shutdown(self) -> None:
        """End the process that has predicted last, if there is one; another call starts one again."""
        self._framework.leave(False)

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        if callable(data):
            return Prepared(MadeRows(self._framework, data))
        return super()._prepared(data, features, labels, batch_size, seed=seed)

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        if callable(data):
            raise PlanError("predict takes rows and no function that makes them: give arrays, shards, a table, ...")
        return super()._predicted(data, predictor)

    def _together(self, function: Callable[[Any], Any], progress: bool | None, hang: float) -> list[Any]:
        """Let all workers do something; if they are given up, say which process of the kvstore was lost."""
        self._words = ""
        try:
            return super()._together(function, progress, hang)
        except WorkerDiedError as error:
            if not self._words:
                raise
            raise WorkerDiedError(f"{error}: {self._words}") from None

    def _heard(self, reports: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Note last words."""
        for rank, told in reports:
            if isinstance(told, Words):
                self._words = told.text
            yield rank, told

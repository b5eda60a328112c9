"""The estimator for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import torch

from shoal.abc import Framework
from shoal.errors import PlanError
from shoal.learn._callbacks import Callback, checked
from shoal.learn._data import Ask, Prepared
from shoal.learn._estimator import BaseEstimator
from shoal.learn._predicting import Predictor
from shoal.learn.pytorch._torch_abroad import TorchAbroad
from shoal.learn.pytorch._torch_framework import TorchFramework, TorchOptions
from shoal.learn.pytorch._torch_loaders import Served, inputs_of, torch_prepared
from shoal.learn.pytorch._torch_main import main_of

__all__ = ["Estimator"]


class Estimator(BaseEstimator):
    """A torch module that several workers train together.

    >>> estimator = Estimator.from_torch(
    ...     model=lambda config: torch.nn.Linear(2, 1),
    ...     optimizer=lambda model, config: torch.optim.SGD(model.parameters(), lr=0.5),
    ...     loss=torch.nn.MSELoss(),
    ...     workers=2,
    ... )
    >>> estimator.get_model()  # `fit` trains it, on two workers
    Linear(in_features=2, out_features=1, bias=True)
    """

    _framework: TorchFramework | TorchAbroad

    @classmethod
    def from_torch(
        cls,
        *,
        model: torch.nn.Module | Callable[[dict[str, Any]], torch.nn.Module],
        optimizer: torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] | None = None,
        loss: Any = None,
        metrics: Any = None,
        scheduler_creator: Callable[..., Any] | None = None,
        scheduler_step_freq: str = "batch",
        config: Mapping[str, Any] | None = None,
        backend: str | None = None,
        workers: int | None = None,
        model_dir: str | None = None,
        keep_checkpoints: int = 3,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        amp: bool = False,
        compile: bool = False,
        sync_batch_norm: bool = False,
        restarts: int = 3,
        seed: int = 0,
    ) -> Estimator:
        """Make an estimator of a module or a function that makes one of a config; so for optimizer and loss.

        An optimizer that is an instance has to be that of a model that is one, too.
        """
        if "batch_size" in (config or {}):
            raise PlanError("batch_size does not belong into the config; give it to fit, evaluate and predict")
        if isinstance(optimizer, torch.optim.Optimizer) and not isinstance(model, torch.nn.Module):
            raise PlanError("an optimizer instance is that of one model: give the model as an instance, too")
        if scheduler_step_freq not in ("batch", "epoch"):
            raise PlanError(f"scheduler_step_freq={scheduler_step_freq!r}; it is batch or epoch")
        options = TorchOptions(clip_norm, clip_value, amp, compile, sync_batch_norm, scheduler_step_freq, seed)
        make = TorchAbroad.horovod if backend == "horovod" else TorchFramework
        framework: Any = make(model, optimizer, loss, scheduler_creator, config, options)
        given = {"metrics": metrics, "backend": backend, "workers": workers, "model_dir": model_dir}
        return cls(framework, **given, keep_checkpoints=keep_checkpoints, restarts=restarts, seed=seed)

    def get_model(self) -> torch.nn.Module:
        """Give the model with the weights that it has learnt; an instance that was given gets them itself."""
        self._framework.build()
        model: torch.nn.Module = self._framework.model
        return model

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        ask = Ask(features, labels, shuffle=seed, workers=self._size())
        return torch_prepared(data, ask, config=self._framework.config, batch_size=batch_size)

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        """Predict for loaders, too: rows in the order in which the loader gives them."""
        loader = data.loader if isinstance(data, Served) else data
        if isinstance(loader, torch.utils.data.DataLoader):
            return predictor.joined(inputs_of(loader, predictor.features))
        return super()._predicted(data, predictor)

    def _listening(self, callbacks: Sequence[Any]) -> tuple[Framework, list[Callback]]:
        """Let the one `MainCallback` that may be among them do what is done with a batch."""
        main, found = main_of(checked(callbacks))
        if main is None:
            return self._framework, found
        framework = copy(self._framework)
        framework.main = main
        return framework, found

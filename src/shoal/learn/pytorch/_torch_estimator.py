"""The estimator for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from shoal.errors import PlanError
from shoal.learn._data import Ask, Prepared
from shoal.learn._estimator import BaseEstimator
from shoal.learn._predicting import Predictor
from shoal.learn.pytorch._torch_framework import TorchFramework, TorchOptions, loaded, saved
from shoal.learn.pytorch._torch_loaders import Served, inputs_of, torch_prepared

__all__ = ["Estimator"]


class Estimator(BaseEstimator):
    """A torch module that several workers train together."""

    _framework: TorchFramework

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
        framework = TorchFramework(model, optimizer, loss, scheduler_creator, config, options)
        given = {"metrics": metrics, "backend": backend, "workers": workers, "model_dir": model_dir}
        return cls(framework, **given, restarts=restarts, seed=seed)

    def get_model(self) -> torch.nn.Module:
        """Give the model with the weights that it has learnt; an instance that was given gets them itself."""
        self._framework.build()
        model: torch.nn.Module = self._framework.model
        return model

    def save(self, path: str | Path) -> str:
        """Write model and optimizer into a file that torch can load without running code."""
        files = self._framework.files or self._fresh()
        state = {name.removesuffix(".pt"): loaded(data) for name, data in files.items()}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(saved({**state, "epoch": self._epoch, "step": self._step}))
        return str(path)

    def load(self, path: str | Path) -> None:
        """Take what `save` wrote."""
        state = loaded(Path(path).read_bytes())
        self._epoch, self._step = int(state.pop("epoch")), int(state.pop("step"))
        self._framework.files = {f"{name}.pt": saved(part) for name, part in state.items()}

    def _prepared(self, data: Any, features: Any, labels: Any, batch_size: int | None, *, seed: int | None) -> Prepared:
        ask = Ask(features, labels, shuffle=seed, workers=self._size())
        return torch_prepared(data, ask, config=self._framework.config, batch_size=batch_size)

    def _predicted(self, data: Any, predictor: Predictor) -> Any:
        """Predict for loaders, too: rows in the order in which the loader gives them."""
        loader = data.loader if isinstance(data, Served) else data
        if isinstance(loader, torch.utils.data.DataLoader):
            return predictor.joined(inputs_of(loader, predictor.features))
        return super()._predicted(data, predictor)

    def _fresh(self) -> dict[str, bytes]:
        self._framework.build()
        return self._framework.dump()

"""How an MXNet model is trained, as a dict that all creator functions get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import PlanError

__all__ = ["checked", "create_config"]

_NEEDED = ("optimizer", "optimizer_params", "log_interval")


def create_config(
    optimizer: Any = "sgd",
    optimizer_params: Mapping[str, Any] | None = None,
    log_interval: int = 10,
    seed: int | None = None,
    extra_config: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make a config of an optimizer, by its name or as an object of MXNet, its options, and all else that creators use.

    ``log_interval`` is kept for creators that look at it; how training goes is shown by ``fit(progress=True)``.

    >>> create_config(optimizer="adam", optimizer_params={"learning_rate": 0.02}, extra_config={"classes": 10})
    {'optimizer': 'adam', 'optimizer_params': {'learning_rate': 0.02}, 'log_interval': 10, 'classes': 10}
    """
    if extra_config is not None and not isinstance(extra_config, Mapping):
        raise PlanError(f"extra_config must be a dict, and this is a {type(extra_config).__name__}")
    params = {"learning_rate": 0.01} if optimizer_params is None else optimizer_params
    config = {"optimizer": optimizer, "optimizer_params": params, "log_interval": log_interval}
    return checked({**config, **({} if seed is None else {"seed": seed}), **(extra_config or {})})


def checked(config: Any) -> dict[str, Any]:
    """Refuse a config with which nobody can train."""
    if not isinstance(config, Mapping):
        raise PlanError(f"config is a {type(config).__name__}; it should be a dict, which create_config makes")
    for name in _NEEDED:
        if name not in config:
            raise PlanError(f"{name} must be specified in config; create_config puts it there")
    if "batch_size" in config:
        raise PlanError("batch_size does not belong into the config; give it to fit, evaluate and predict")
    if not isinstance(config["optimizer_params"], Mapping):
        raise PlanError(f"optimizer_params is a {type(config['optimizer_params']).__name__}; it should be a dict")
    if "rescale_grad" in config["optimizer_params"]:
        text = "optimizer_params has rescale_grad, and gradients are means over the rows of a step already"
        raise PlanError(f"{text}; leave it out")
    interval = config["log_interval"]
    if not isinstance(interval, int) or interval < 1:
        raise PlanError(f"log_interval={interval!r}; it should be a number of batches")
    return dict(config)

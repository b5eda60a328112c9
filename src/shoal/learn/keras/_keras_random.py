"""The random numbers of a worker: those of layers, and those of PyTorch, which Keras draws from without telling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.learn._packed import pack, unpack
from shoal.learn.keras import _keras_variables as variables
from shoal.learn.keras._keras_choice import backend_of

__all__ = ["apart", "dumped", "taken"]

_SEEDS, _GENERATOR = "seeds.npz", "generator.npz"


def apart(model: Any, rank: int) -> None:
    """Let each worker draw numbers of its own: they began alike, so that models do."""
    for seed in variables.seeds(model):
        value = np.array(variables.arrays([seed])[0])
        value.reshape(-1)[0] += np.asarray(rank, value.dtype)
        seed.assign(value)
    if backend_of(model) == "torch":
        from shoal.learn.keras import _torch_arrays

        _torch_arrays.seed_apart(rank)


def dumped(model: Any) -> dict[str, bytes]:
    """Give the states of all generators, as files."""
    found = {_SEEDS: variables.dumped(variables.seeds(model))}
    if backend_of(model) == "torch":
        from shoal.learn.keras import _torch_arrays

        found[_GENERATOR] = pack([_torch_arrays.generator()])
    return found


def taken(model: Any, files: Mapping[str, bytes]) -> None:
    """Take what `dumped` gave."""
    if _SEEDS in files:
        variables.taken(variables.seeds(model), files[_SEEDS], "random numbers")
    if _GENERATOR in files and backend_of(model) == "torch":
        from shoal.learn.keras import _torch_arrays

        _torch_arrays.set_generator(next(iter(unpack(files[_GENERATOR]).values())))

"""Files of torch: what it loads without running code, and tensors alone as safetensors."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import torch

from shoal._optional import require
from shoal.errors import PlanError, StateError

__all__ = ["loaded", "packed", "saved", "unpacked"]

_TENSORS = ".safetensors"


def saved(state: Any) -> bytes:
    """Write a state as torch does."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def loaded(data: bytes) -> Any:
    """Read a state: tensors and plain values, no code."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def packed(files: Mapping[str, bytes], info: Mapping[str, Any] | None, name: str) -> bytes:
    """Make one file of several: a dict of model, optimizer, scheduler and info, or the model alone."""
    if name.endswith(_TENSORS):
        return _as_tensors(loaded(files["model.pt"]), info, name)
    if info is None:
        return files["model.pt"]
    return saved({**{part.removesuffix(".pt"): loaded(data) for part, data in files.items()}, **info})


def unpacked(data: bytes, name: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Give the files of such a file; one that has weights alone may be anybody's."""
    if name.endswith(_TENSORS):
        return {"model.pt": saved(require("safetensors.torch", "reading .safetensors").load(data))}, {}
    try:
        state = loaded(data)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise StateError(f"{name} is no file of weights that torch loads without running code: {error}") from error
    if not isinstance(state, Mapping):
        raise StateError(f"{name} has a {type(state).__name__}, and no weights by their names")
    if "model" not in state or "epoch" not in state:
        return {"model.pt": data}, {}
    info = {part: state[part] for part in ("epoch", "step")}
    return {f"{part}.pt": saved(value) for part, value in state.items() if part not in info}, info


def _as_tensors(state: Mapping[str, torch.Tensor], info: Mapping[str, Any] | None, name: str) -> bytes:
    if info is not None:
        raise PlanError(f"{name} can hold weights alone, and not what an optimizer knows; take another suffix")
    # Tensors that share memory are written once each: the format has no word for sharing.
    tensors = {key: value.detach().clone().contiguous() for key, value in state.items()}
    data: bytes = require("safetensors.torch", "writing .safetensors").save(tensors)
    return data

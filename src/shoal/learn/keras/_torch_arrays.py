"""Tensors of PyTorch through a function of arrays, and where PyTorch is in its random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["generator", "seed_apart", "set_generator", "through"]


def through(function: Callable[[Any], Any], tensors: Sequence[Any]) -> list[Any]:
    """Give what a function makes of tensors as one flat array, in the same shapes and types."""
    kind = torch.float64 if any(each.dtype == torch.float64 for each in tensors) else torch.float32
    flat = torch.cat([each.detach().to(kind).reshape(-1) for each in tensors])
    made = torch.from_numpy(function(flat.cpu().numpy())).to(flat.device)
    parts = torch.split(made, [each.numel() for each in tensors])
    return [part.reshape(each.shape).to(each.dtype) for part, each in zip(parts, tensors, strict=True)]


def generator() -> Any:
    """Give the state of the generator as an array."""
    return torch.get_rng_state().numpy()


def set_generator(state: Any) -> None:
    """Take what `generator` gave."""
    torch.set_rng_state(torch.from_numpy(state))


def seed_apart(rank: int) -> None:
    """Let a worker draw other numbers than the first one does."""
    torch.manual_seed(torch.initial_seed() + rank)

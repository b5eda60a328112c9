"""Batch norm over the rows of all workers.

torch's own `SyncBatchNorm` needs GPUs. And however many rows a batch has, a worker may have one of them or none, of
which alone nothing can be said: torch refuses to train on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from shoal.errors import PlanError

__all__ = ["Gloo", "Norms", "Peers"]

_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Peers(Protocol):
    """How a worker hears of the others."""

    def add(self, values: torch.Tensor) -> None:
        """Put the sum over all workers in place of values."""

    def least(self, number: int) -> int:
        """Give the least of the numbers of all workers."""

    def take(self, values: torch.Tensor) -> None:
        """Put what the first worker has in place of values."""


class Gloo:
    """The workers of torch's process group."""

    def add(self, values: torch.Tensor) -> None:
        """Add up."""
        dist.all_reduce(values)

    def least(self, number: int) -> int:
        """Find the least."""
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)

    def take(self, values: torch.Tensor) -> None:
        """Take it from the first."""
        dist.broadcast(values, 0)


class Norms:
    """The batch norms of a model that several workers train.

    Each worker looks at its own rows, as torch does it; where one of them has less than two, and ``always`` if that is
    wanted, they look at the rows of all.
    """

    def __init__(self, model: nn.Module, peers: Peers, *, always: bool) -> None:
        self.model, self._peers, self._always = _replaced(model), peers, always
        """The model with layers in it that can do both."""
        self._layers = [each for each in self.model.modules() if isinstance(each, SharedBatchNorm)]
        for each in self._layers:
            each.__dict__["peers"] = peers

    def before_step(self, features: Sequence[Any], counts: bool) -> None:
        """Agree with the others on what is looked at in this step; rows that do not count are left out."""
        if not self._layers:
            return
        shared = self._always or self._peers.least(_length(features) if counts else 0) < 2
        for each in self._layers:
            each.is_shared, each.counts = shared, counts

    def settle(self) -> None:
        """Let all have what the first one remembers of the rows, before they evaluate."""
        for each in self._layers:
            for buffer in each.buffers(recurse=False):
                self._peers.take(buffer)


class SharedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """A batch norm that can look at the rows of all workers at once."""

    is_shared = False
    """Whether it does so in the next step; all workers have to agree."""
    counts = True
    """Whether the rows of this worker are real ones."""
    peers: Peers

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Normalise rows."""
        if not self.training or not self.is_shared:
            return super().forward(rows)
        mean, variance, count = _moments(rows, self.counts, self.peers)
        if count:
            self._remember(mean.detach(), variance.detach() * count / (count - 1))
        shape = [1, -1, *[1] * (rows.dim() - 2)]
        found: torch.Tensor = (rows - mean.view(shape)) * torch.rsqrt(variance + self.eps).view(shape)
        if self.weight is not None:
            found = found * self.weight.view(shape) + self.bias.view(shape)
        return found.to(rows.dtype)

    def _remember(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Take the moments of a batch into those that hold in evaluation."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)

    def _check_input_dim(self, rows: torch.Tensor) -> None:
        if rows.dim() < 2:
            raise ValueError(f"batch norm takes rows of channels, and not {rows.dim()} dimensions")


def _replaced(model: nn.Module) -> nn.Module:
    """Put layers that can be shared in place of a model's batch norms; they have the same parameters."""
    if type(model) in _KINDS:
        made = SharedBatchNorm.__new__(SharedBatchNorm)
        made.__dict__ = model.__dict__
        return made
    for name, child in model._modules.items():
        if child is not None:
            setattr(model, name, _replaced(child))
    return model


def _length(features: Sequence[Any]) -> int:
    """Count rows."""
    first: Any = features
    while isinstance(first, Mapping | list | tuple):
        first = next(iter(first.values() if isinstance(first, Mapping) else first))
    return len(first)


def _moments(rows: torch.Tensor, counts: bool, peers: Peers) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Give mean and variance of each channel over all workers, and how many values they are of."""
    axes = [axis for axis in range(rows.dim()) if axis != 1]
    values = rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows
    here = float(values.numel() // values.shape[1]) if counts else 0.0
    added = _added(torch.cat([values.sum(axes) * counts, values.new_tensor([here])]), peers)
    count = float(added[-1].detach())
    if not count:  # nobody's rows are real, and anything will do
        return torch.zeros_like(added[:-1]), torch.ones_like(added[:-1]), count
    if count < 2:
        text = f"a batch has {count:g} value for each channel on all workers, and batch norm needs two"
        raise PlanError(f'{text}; leave a last batch of one row out with end="drop"')
    mean = added[:-1] / count
    shape = [1, -1, *[1] * (rows.dim() - 2)]
    squares = _added(((values - mean.view(shape)) ** 2).sum(axes) * counts, peers)
    return mean, squares / count, count


def _added(values: torch.Tensor, peers: Peers) -> torch.Tensor:
    made: torch.Tensor = _Added.apply(values, peers)  # type: ignore[no-untyped-call]
    return made


class _Added(torch.autograd.Function):
    """The sum over all workers; so is its gradient, for each of them has lost by what was added up."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, peers: Peers) -> torch.Tensor:
        context.peers = peers
        made = values.clone()
        peers.add(made)
        return made

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        made = gradients[0].contiguous().clone()
        context.peers.add(made)
        return made, None

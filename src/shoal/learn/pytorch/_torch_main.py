"""What a step does with a batch, for those who want to do it in another way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from shoal.errors import PlanError
from shoal.learn._callbacks import Callback

__all__ = ["MainCallback", "Runner", "main_of"]


def _no_step() -> None:
    """Do nothing: only training takes steps."""


@dataclass(slots=True)
class Runner:
    """A batch, and what works on it."""

    model: Any
    criterion: Any
    optimizer: Any
    scheduler: Any
    features: Sequence[Any] = ()
    """The inputs of the batch."""
    targets: Sequence[Any] = ()
    """Its targets; there are none in a prediction."""
    weight: float = 1.0
    """What the loss of these rows is multiplied with, so that all rows of all workers count alike."""
    last: bool = True
    """Whether a step is to be taken now; else gradients wait for those of the next batch."""
    step: Callable[[], None] = _no_step
    """Limits the gradients, lets the optimizer take a step, and forgets the gradients."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """What came of an epoch, where a schedule takes a step after each."""
    output: Any = None
    loss: Any = None

    @property
    def batch(self) -> tuple[Any, ...]:
        """Inputs and targets."""
        return (*self.features, *self.targets)


class MainCallback(Callback):
    """Does what is done with a batch; derive from it to deal with other models, outputs and labels.

    A training takes one of them. What sets ``output`` and ``loss`` of the runner may do so in its own way:

    >>> class Named(MainCallback):
    ...     def on_iter_forward(self, runner):
    ...         runner.output = runner.model(*runner.features)["logits"]
    ...         runner.loss = runner.criterion(runner.output, *runner.targets)
    """

    def on_iter_forward(self, runner: Runner) -> None:
        """Set ``runner.output``, and ``runner.loss`` if there is a criterion."""
        runner.output = runner.model(*runner.features)
        if runner.criterion is not None:
            runner.loss = runner.criterion(runner.output, *runner.targets)

    def on_iter_backward(self, runner: Runner) -> None:
        """Make gradients of the loss, and take a step if it is time.

        Who overrides this has to mind ``weight`` and ``last`` if parts of a batch may differ in size, or gradients are
        accumulated.
        """
        (runner.loss * runner.weight).backward()
        if runner.last:
            runner.step()

    def on_lr_adjust(self, runner: Runner) -> None:
        """Let the scheduler take a step: after one of the optimizer, or after an epoch."""
        if runner.scheduler is None:
            return
        if not isinstance(runner.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            runner.scheduler.step()
        elif not runner.stats:
            raise PlanError('ReduceLROnPlateau looks at whole epochs; give scheduler_step_freq="epoch"')
        else:
            runner.scheduler.step(runner.stats.get("val_loss", runner.stats["train_loss"]))

    def on_train_forward(self, runner: Runner) -> None:
        """Do the forward pass of a step."""
        self.on_iter_forward(runner)

    def on_val_forward(self, runner: Runner) -> None:
        """Do the forward pass of an evaluation; without a loss there is none to tell."""
        self.on_iter_forward(runner)

    def on_pred_forward(self, runner: Runner) -> None:
        """Set ``runner.output`` to predictions: a tensor, or a list or dict of them."""
        runner.output = runner.model(*runner.features)


def main_of(callbacks: Sequence[Callback]) -> tuple[MainCallback | None, list[Callback]]:
    """Find who does the steps, if there is one, and give all callbacks with that one in front."""
    found = [each for each in callbacks if isinstance(each, MainCallback)]
    if len(found) > 1:
        names = " and ".join(type(each).__name__ for each in found)
        raise PlanError(f"there can be one MainCallback, and these are {len(found)}: {names}")
    others = (each for each in callbacks if not isinstance(each, MainCallback))
    return found[0] if found else None, [*found, *others]

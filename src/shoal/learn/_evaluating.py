"""What one of the workers does who evaluate a model together, while it is trained or after that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shoal.abc import Framework, Member
from shoal.learn._callbacks import Callbacks, Run
from shoal.learn._explaining import explained
from shoal.learn._job import Batches, EvaluateJob, Measures, Rows
from shoal.learn.metrics import Metric

__all__ = ["evaluate", "joined", "validated"]


def evaluate(member: Member, job: EvaluateJob) -> dict[str, Any] | None:
    """Evaluate as one of several."""
    with joined(job.framework, member):
        loader = job.rows.loader(
            job.batch_size,
            member.rank,
            member.size,
            job.framework.format,
            **({"steps": job.steps} if job.steps else {}),
        )
        callbacks = Callbacks(job.callbacks, Run(member.rank, member.size, member.attempt, job.framework))
        done = validated(job.framework, job.rows, loader, job.metrics, callbacks)
    return done if member.rank == 0 else None


@contextmanager
def joined(framework: Framework, member: Member) -> Iterator[None]:
    """Be with the other workers for as long as the block runs."""
    framework.join(member)
    try:
        yield
    except BaseException as error:
        error.__dict__["raised_at"] = time.time()  # before others fail because this one leaves
        framework.leave(False)
        raise
    framework.leave(True)


def validated(
    framework: Framework,
    rows: Rows,
    loader: Batches,
    metrics: Sequence[Any],
    callbacks: Callbacks,
    move: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Evaluate as one of several, with callbacks; ``move`` is called for each batch."""
    callbacks.before_validation()
    found = _evaluated(framework, rows, loader, metrics, move or _rest)
    callbacks.after_validation(found)
    return found


def _evaluated(
    framework: Framework, rows: Rows, loader: Batches, metrics: Sequence[Any], move: Callable[[], None]
) -> dict[str, Any]:
    """Evaluate as one of several: each row counts once."""
    losses, count, has_loss = 0.0, 0, False
    for batch in loader:
        move()
        features, labels, real = rows.taken(batch)
        if not real:
            continue
        with explained(features, labels):
            predictions, loss = framework.evaluate(features, labels)
        if loss is not None:
            losses, has_loss = losses + loss * real, True
        count += real
        target = labels[0] if len(labels) == 1 else labels
        for metric in metrics:
            metric.update(predictions, target)
    summed, total, with_loss = framework.total([losses, float(count), float(has_loss)])
    found: dict[str, Any] = {"num_samples": int(total)}
    if with_loss:
        found["val_loss"] = summed / total
    for metric in metrics:
        if isinstance(metric, Metric):
            shape = metric.sums.shape
            metric.sums = np.asarray(framework.total(metric.sums.reshape(-1).tolist())).reshape(shape)
        name = getattr(metric, "name", type(metric).__name__)
        found[name] = float(metric.compute())
    return {**found, **framework.measured()} if isinstance(framework, Measures) else found


def _rest() -> None:
    """Do nothing: nobody watches."""

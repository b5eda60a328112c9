"""What one of the workers does who train a model together.

All of them take the same steps. A step is one global batch, of which each has its part; rows that are only there to
fill a batch up are left out, and the mean over all rows of the batch is what counts, however they were shared out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.abc import Framework, Member
from shoal.learn._callbacks import Run, callbacks_of
from shoal.learn._checkpoints import Checkpoint
from shoal.learn._history import History
from shoal.learn._job import Batches, EvaluateJob, FitJob, Rows
from shoal.learn._watch import beating
from shoal.learn.metrics import Metric

__all__ = ["evaluate", "fit"]

#: Seconds between two reports of how it goes.
_REPORT = 0.2


def fit(member: Member, job: FitJob) -> dict[str, Any] | None:
    """Train as one of several; the first of them gives back what came of it."""
    with beating(member) as progress:
        job.framework.join(member)
        done = None
        try:
            done = _Fit(member, job, progress).run()
        finally:
            job.framework.leave(done is not None)
    return done if member.rank == 0 else None


def evaluate(member: Member, job: EvaluateJob) -> dict[str, Any] | None:
    """Evaluate as one of several."""
    job.framework.join(member)
    done = None
    try:
        loader = job.rows.loader(
            job.batch_size,
            member.rank,
            member.size,
            job.framework.format,
            **({"steps": job.steps} if job.steps else {}),
        )
        done = _evaluated(job.framework, job.rows, loader, job.metrics)
    finally:
        job.framework.leave(done is not None)
    return done if member.rank == 0 else None


@dataclass(slots=True)
class _Sums:
    """What was added up in an epoch so far, on this worker."""

    loss: float = 0.0
    rows: int = 0
    batches: int = 0
    last: float = 0.0


class _Fit:
    """A training under way."""

    def __init__(self, member: Member, job: FitJob, progress: Any) -> None:
        self._progress = progress
        self._member, self._job, self._framework = member, job, job.framework
        options = {"end": job.end, **job.loader}
        self._loader = job.rows.loader(job.batch_size, member.rank, member.size, job.framework.format, **options)
        self._loader.epoch = job.first_epoch
        self._epoch, self._step = job.first_epoch, job.first_step
        self._history, self._sums = History(), _Sums()
        self._reported = 0.0
        self._run = Run(member.rank, member.size, member.attempt, job.framework)
        self._callbacks = callbacks_of(job.callbacks, self._run)

    def run(self) -> dict[str, Any]:
        """Train to the end."""
        self._resume()
        self._callbacks.before_run()
        while self._epoch < self._job.epochs and not self._is_over():
            self._one_epoch()
        self._callbacks.after_run()
        return {
            "history": list(self._history),
            "files": self._framework.dump(),
            "epoch": self._epoch,
            "step": self._step,
        }

    def _is_over(self) -> bool:
        most = self._job.max_steps
        return self._run.stopped or (most is not None and self._step >= most)

    def _one_epoch(self) -> None:
        self._callbacks.before_epoch(self._epoch + 1)
        ended = True
        for features, labels, rows, everybody in self._batches():
            self._train(features, labels, rows, everybody)
            if self._is_over():
                ended = False
                break
            self._keep(epoch_ended=False)
        self._loader.close()
        if not self._sums.batches and ended:
            self._run.stop("there is no batch in an epoch")
        stats = self._summed_up()
        self._epoch += 1
        self._framework.end_epoch(stats)
        self._callbacks.after_epoch(self._epoch, stats)
        self._history.append(stats)
        self._sums = _Sums()
        self._run.stopped = self._framework.total([float(self._run.stopped)])[0] > 0
        self._keep(epoch_ended=True)

    def _batches(self) -> Iterator[tuple[list[Any], list[Any], int, int]]:
        """Give inputs and targets of batches, with the number of rows here, and on all workers."""
        total, size = self._loader.samples, self._job.rows.batch_size or self._job.batch_size
        for batch in self._loader:
            features, labels, rows = self._job.rows.taken(batch)
            if total is None:
                everybody = int(self._framework.total([rows])[0])
            else:
                step = self._loader.state_dict()["step"] or -(-total // size)
                everybody = min(size, total - (step - 1) * size)
            yield features, labels, rows, everybody

    def _train(self, features: list[Any], labels: list[Any], rows: int, everybody: int) -> None:
        self._callbacks.before_step(self._step + 1)
        weight = rows * self._member.size / max(everybody, 1)
        last = (self._sums.batches + 1) % self._job.accumulate == 0
        loss = self._framework.train(features, labels, weight / self._job.accumulate, last)
        self._sums.loss += loss * rows
        self._sums.rows += rows
        self._sums.batches += 1
        self._sums.last = loss
        self._step += 1
        self._run.rows += everybody
        self._progress.step = self._step
        self._callbacks.after_step(self._step, loss)
        self._report()

    def _report(self) -> None:
        now = time.monotonic()
        if self._member.rank == 0 and now - self._reported > _REPORT:
            self._reported = now
            sums, steps = self._sums, self._loader.steps
            told = {"epoch": self._epoch + 1, "step": sums.batches, "steps": steps, "rows": sums.rows}
            self._member.report({**told, "loss": sums.loss / max(sums.rows, 1), "world": self._member.size})

    def _summed_up(self) -> dict[str, Any]:
        sums = self._sums
        loss, rows, last = self._framework.total([sums.loss, float(sums.rows), sums.last])
        stats: dict[str, Any] = {
            "epoch": self._epoch + 1,
            "num_samples": int(rows),
            "batch_count": sums.batches,
            "train_loss": loss / rows if rows else float("nan"),
            "last_train_loss": last / self._member.size,
        }
        if self._job.validation is not None:
            job, member = self._job, self._member
            assert job.validation is not None
            loader = job.validation.loader(job.batch_size, member.rank, member.size, job.framework.format)
            found = _evaluated(job.framework, job.validation, loader, deepcopy(list(job.metrics)))
            stats |= {name if name.startswith("val_") else f"val_{name}": value for name, value in found.items()}
        return stats

    def _keep(self, *, epoch_ended: bool) -> None:
        """Make a checkpoint, if it is time."""
        job = self._job
        if job.checkpoints is None or job.trigger is None or not job.trigger(self._step, epoch_ended):
            return
        mine = {"position": self._loader.state_dict(), "sums": asdict(self._sums)}
        told = self._member.all_gather(mine)
        if self._member.rank == 0:
            info = {
                "epoch": self._epoch,
                "step": self._step,
                "began": self._job.first_epoch,
                "positions": [each["position"] for each in told],
                "sums": [each["sums"] for each in told],
                "history": list(self._history),
            }
            job.checkpoints.save(self._step, self._framework.dump(), info)

    def _resume(self) -> None:
        """Go on from the last checkpoint of this training, or from the one that it is to begin with."""
        found = self._agreed()
        if found is None:
            return
        self._framework.load(found.files())
        self._loader.load_state_dict(found.info["positions"])
        self._epoch, self._step = found.info["epoch"], found.step
        self._history = History(found.info["history"])
        sums = [_Sums(**each) for each in found.info["sums"]]
        self._sums.batches = sums[0].batches
        if self._member.rank == 0:  # whoever counted them, they are counted once
            self._sums = _Sums(
                sum(each.loss for each in sums), sum(each.rows for each in sums), sums[0].batches, sums[0].last
            )

    def _agreed(self) -> Checkpoint | None:
        """Let the first worker look for a checkpoint, so that all take the same."""
        job, found = self._job, None
        if self._member.rank == 0:
            latest = None if job.checkpoints is None else job.checkpoints.latest()
            found = job.resume if latest is None else latest.url
        url = self._member.all_gather(found)[0]
        return None if url is None else Checkpoint.read(url)


def _evaluated(framework: Framework, rows: Rows, loader: Batches, metrics: Sequence[Any]) -> dict[str, Any]:
    """Evaluate as one of several: each row counts once."""
    losses, count, has_loss = 0.0, 0, False
    for batch in loader:
        features, labels, real = rows.taken(batch)
        predictions, loss = framework.evaluate(features, labels)
        if not real:
            continue
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
    return found

"""A training with BigDL, told by its host: epochs, validations, checkpoints; each stretch of steps is BigDL's own."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from shoal.learn._callbacks import Callbacks, Run
from shoal.learn._checkpoints import Checkpoint
from shoal.learn._evaluating import validated
from shoal.learn._history import History
from shoal.learn._job import FitJob, Sums
from shoal.learn._progress import EpochEnd, Pace
from shoal.learn._triggers import EveryEpoch, Trigger
from shoal.learn.bigdl._bigdl_framework import BigDLFramework

__all__ = ["BigDLTraining"]


class BigDLTraining:
    """A training under way, of rows that the guest holds."""

    def __init__(self, job: FitJob, rows: int, shuffle: bool, validating: Trigger | None) -> None:
        assert isinstance(job.framework, BigDLFramework)
        self._job, self._framework, self._rows, self._shuffle = job, job.framework, rows, shuffle
        self._validating = validating or EveryEpoch()
        self.epoch, self.step = job.first_epoch, job.first_step
        self.history, self._sums, self._found = History(), Sums(), dict[str, Any]()
        self._run = Run(0, 1, 0, job.framework)
        self._run.epoch, self._run.step = self.epoch, self.step
        self._run.validates = job.validation is not None
        self._callbacks = Callbacks(job.callbacks, self._run)

    def reports(self) -> Iterator[tuple[int, Any]]:
        """Train, and tell how it goes."""
        self._resume()
        self._callbacks.before_run()
        while self.epoch < self._job.epochs and not self._run.stopped and not self._has_all_steps():
            yield from self._one_epoch()
        self._callbacks.after_run()

    def _has_all_steps(self) -> bool:
        return self._job.max_steps is not None and self.step >= self._job.max_steps

    def _one_epoch(self) -> Iterator[tuple[int, Any]]:
        job, sums = self._job, self._sums
        self._callbacks.before_epoch(self.epoch + 1)
        steps = self._framework.begin(self._order(), job.batch_size)
        while sums.batches < steps and not self._has_all_steps():
            last = self._stretch(steps)
            self._take(self._framework.steps(self.epoch, sums.batches, last, job.batch_size))
            ended = sums.batches == steps
            ahead = (job.epochs - self.epoch) * steps - sums.batches
            loss = sums.loss / max(sums.rows, 1)
            yield 0, Pace(self.epoch + 1, job.epochs, sums.batches, steps, self.step, ahead, self._run.rows, loss)
            if not ended:
                self._validate(epoch_ended=False)
                self._keep(epoch_ended=False)
        stats = self._summed_up()
        self.epoch += 1
        self._run.epoch = self.epoch
        self._callbacks.after_epoch(self.epoch, stats)
        yield 0, EpochEnd(stats)
        self.history.append(stats)
        self._sums, self._found = Sums(), {}
        self._keep(epoch_ended=True)

    def _order(self) -> int | None:
        """Give the number that the order of this epoch follows from."""
        if not self._shuffle:
            return None
        return int.from_bytes(sha256(f"{self._job.seed} {self.epoch}".encode()).digest()[:6], "big")

    def _stretch(self, steps: int) -> int:
        """Find the step of this epoch up to which nothing else is to be done."""
        done, ends = self._sums.batches, steps
        if self._job.max_steps is not None:
            ends = min(ends, done + self._job.max_steps - self.step)
        triggers = [self._job.trigger if self._job.checkpoints is not None else None]
        triggers += [self._validating if self._job.validation is not None else None]
        for ahead in range(1, ends - done):
            if any(each is not None and each(self.step + ahead, False) for each in triggers):
                return done + ahead
        return ends

    def _take(self, losses: list[float]) -> None:
        """Count steps that were taken, and tell of each."""
        for loss in losses:
            self._callbacks.before_step(self.step + 1)
            sums, size = self._sums, self._job.batch_size
            rows = min(size, self._rows - sums.batches * size)
            sums.loss, sums.rows, sums.last = sums.loss + loss * rows, sums.rows + rows, loss
            sums.batches += 1
            self.step += 1
            self._run.rows += rows
            self._run.step = self.step
            self._callbacks.after_step(self.step, loss)

    def _validate(self, *, epoch_ended: bool) -> None:
        job = self._job
        if job.validation is None or not self._validating(self.step, epoch_ended):
            return
        loader = job.validation.loader(job.batch_size, 0, 1, "numpy")
        metrics = deepcopy(list(job.metrics))
        found = validated(self._framework, job.validation, loader, metrics, self._callbacks)
        self._found = {name if name.startswith("val_") else f"val_{name}": value for name, value in found.items()}

    def _summed_up(self) -> dict[str, Any]:
        self._validate(epoch_ended=True)
        sums = self._sums
        return {
            "epoch": self.epoch + 1,
            "num_samples": sums.rows,
            "batch_count": sums.batches,
            "train_loss": sums.loss / sums.rows if sums.rows else float("nan"),
            "last_train_loss": sums.last,
            **self._found,
        }

    def _keep(self, *, epoch_ended: bool) -> None:
        """Make a checkpoint, if it is time."""
        job = self._job
        if job.checkpoints is None or job.trigger is None or not job.trigger(self.step, epoch_ended):
            return
        states, files = self._callbacks.kept()
        info = {
            "callbacks": states,
            "stopped": self._run.stopped,
            "epoch": self.epoch,
            "step": self.step,
            "began": job.first_epoch,
            "sums": asdict(self._sums),
            "found": self._found,
            "history": list(self.history),
        }
        job.checkpoints.save(self.step, {**self._framework.dump(), **files}, info)

    def _resume(self) -> None:
        """Go on from the checkpoint that it is to begin with."""
        if self._job.resume is None:
            return
        found = Checkpoint.read(self._job.resume)
        files = found.files()
        self._framework.load({name: data for name, data in files.items() if "/" not in name})
        self._callbacks.take(found.info.get("callbacks", {}), files)
        self.epoch, self.step = self._run.epoch, self._run.step = found.info["epoch"], found.step
        self.history, self._sums = History(found.info["history"]), Sums(**found.info["sums"])
        self._found = dict(found.info["found"])

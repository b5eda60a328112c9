"""What one of the workers does who train a model together.

All of them take the same steps. A step is one global batch, of which each has its part; rows that are only there to
fill a batch up are left out, and the mean over all rows of the batch is what counts, however they were shared out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from shoal.abc import Member
from shoal.learn import _random as random_numbers
from shoal.learn._callbacks import Callbacks, Run
from shoal.learn._checkpoints import Checkpoint
from shoal.learn._evaluating import joined, validated
from shoal.learn._explaining import explained
from shoal.learn._history import History
from shoal.learn._job import FitJob, Sums
from shoal.learn._progress import EpochEnd, Pace
from shoal.learn._watch import beating

__all__ = ["fit"]

#: Seconds between two reports of how it goes.
_REPORT = 0.2


def fit(member: Member, job: FitJob) -> dict[str, Any]:
    """Train as one of several; the first of them gives back what came of it, the others only what is their own."""
    with beating(member) as progress, joined(job.framework, member):
        done = _Fit(member, job, progress).run()
    return done if member.rank == 0 else {"own": done["own"]}


class _Fit:
    """A training under way."""

    def __init__(self, member: Member, job: FitJob, progress: Any) -> None:
        self._progress = progress
        self._member, self._job, self._framework = member, job, job.framework
        options = {"end": job.end, **job.loader}
        self._loader = job.rows.loader(job.batch_size, member.rank, member.size, job.framework.format, **options)
        self._loader.epoch = job.first_epoch
        self._epoch, self._step = job.first_epoch, job.first_step
        self._history, self._sums = History(), Sums()
        self._reported, self._due = 0.0, False
        random_numbers.seeded(job.seed, member.rank)
        if len(job.own) == member.size:
            self._take(job.own[member.rank])
        self._run = Run(member.rank, member.size, member.attempt, job.framework)
        self._run.epoch, self._run.step = self._epoch, self._step
        self._run.validates = job.validation is not None
        self._callbacks = Callbacks(job.callbacks, self._run)

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
            "own": self._own(),
        }

    def _is_over(self) -> bool:
        return self._run.stopped or self._has_all_steps()

    def _has_all_steps(self) -> bool:
        return self._job.max_steps is not None and self._step >= self._job.max_steps

    def _one_epoch(self) -> None:
        self._callbacks.before_epoch(self._epoch + 1)
        features: list[Any] = []
        labels: list[Any] = []
        ended = True
        for features, labels, rows, everybody in self._batches():
            self._train(features, labels, rows, everybody)
            if self._has_all_steps():  # who wants to stop has to agree with the others first, below
                ended = False
                break
            self._keep(epoch_ended=False)
        self._loader.close()
        if self._sums.batches % self._job.accumulate:  # a step that is not full: its rows once more, which do not count
            self._framework.train(features, labels, 0.0, True)
        if not self._sums.batches and ended:
            self._run.stop("there is no batch in an epoch")
        stats = self._summed_up()
        self._epoch += 1
        stats |= self._framework.end_epoch(stats)
        self._run.epoch = self._epoch
        self._callbacks.after_epoch(self._epoch, stats)
        if self._member.rank == 0:
            self._member.report(EpochEnd(stats))
        self._history.append({**stats, **self._of_each(stats)})
        self._sums = Sums()
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
                everybody = min(size, total - self._sums.batches * size)
            yield features, labels, rows, everybody

    def _train(self, features: list[Any], labels: list[Any], rows: int, everybody: int) -> None:
        self._callbacks.before_step(self._step + 1)
        weight = rows * self._member.size / max(everybody, 1)
        last = (self._sums.batches + 1) % self._job.accumulate == 0
        with explained(features, labels):
            loss = self._framework.train(features, labels, weight / self._job.accumulate, last)
        self._sums.loss += loss * rows
        self._sums.rows += rows
        self._sums.batches += 1
        self._sums.last = loss
        self._step += 1
        self._run.rows += everybody
        self._run.step = self._step
        self._progress.move(self._step)
        self._callbacks.after_step(self._step, loss)
        self._report()

    def _report(self) -> None:
        now = time.monotonic()
        if self._member.rank == 0 and now - self._reported > _REPORT:
            self._reported = now
            sums, steps, epochs = self._sums, self._loader.steps, self._job.epochs
            told = self._epoch + 1, epochs, sums.batches, steps, self._step, self._ahead(steps)
            self._member.report(Pace(*told, self._run.rows, sums.loss / max(sums.rows, 1)))

    def _ahead(self, steps: int | None) -> int | None:
        """Say how many steps are to come, if that is known."""
        limits = [] if steps is None else [(self._job.epochs - self._epoch) * steps - self._sums.batches]
        limits += [] if self._job.max_steps is None else [self._job.max_steps - self._step]
        return min(limits, default=None)

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
        if self._job.validation is not None and (self._epoch + 1) % self._job.validation_freq == 0:
            job, member = self._job, self._member
            assert job.validation is not None
            limit = {} if job.validation_steps is None else {"steps": job.validation_steps}
            loader = job.validation.loader(job.batch_size, member.rank, member.size, job.framework.format, **limit)
            metrics = deepcopy(list(job.metrics))
            found = validated(job.framework, job.validation, loader, metrics, self._callbacks, self._progress.move)
            stats |= {name if name.startswith("val_") else f"val_{name}": value for name, value in found.items()}
        return stats

    def _of_each(self, stats: dict[str, Any]) -> dict[str, Any]:
        """Give what each worker has for itself of an epoch, if that is wanted."""
        if not self._job.each_worker:
            return {}
        sums = self._sums
        loss = sums.loss / sums.rows if sums.rows else float("nan")
        mine = {"num_samples": sums.rows, "train_loss": loss, "last_train_loss": sums.last}
        return {"workers": self._member.all_gather({**stats, **mine})}

    def _keep(self, *, epoch_ended: bool) -> None:
        """Make a checkpoint, if it is time."""
        job = self._job
        if job.checkpoints is None or job.trigger is None:
            return
        self._due = self._due or job.trigger(self._step, epoch_ended)
        if not self._due or self._sums.batches % job.accumulate:  # in the middle of a step
            return
        self._due = False
        mine = {"position": self._loader.state_dict(), "sums": asdict(self._sums), "own": self._own()}
        told = self._member.all_gather(mine)
        if self._member.rank == 0:
            states, files = self._callbacks.kept()
            info = {
                "callbacks": states,
                "stopped": self._run.stopped,
                "epoch": self._epoch,
                "step": self._step,
                "began": self._job.first_epoch,
                "positions": [each["position"] for each in told],
                "sums": [each["sums"] for each in told],
                "history": list(self._history),
            }
            for rank, each in enumerate(told):
                files |= {f"rank-{rank}/{name}": data for name, data in each["own"].items()}
            job.checkpoints.save(self._step, {**self._framework.dump(), **files}, info)

    def _resume(self) -> None:
        """Go on from the last checkpoint of this training, or from the one that it is to begin with."""
        found, ours = self._agreed()
        if found is None:
            return
        files = found.files()
        self._framework.load({name: data for name, data in files.items() if "/" not in name})
        if len(found.info["positions"]) == self._member.size:
            mine = f"rank-{self._member.rank}/"
            self._take({name.removeprefix(mine): data for name, data in files.items() if name.startswith(mine)})
        self._callbacks.take(found.info.get("callbacks", {}), files)
        self._loader.load_state_dict(found.info["positions"])
        self._epoch, self._step = self._run.epoch, self._run.step = found.info["epoch"], found.step
        self._run.stopped = ours and found.info.get("stopped", False)
        self._history = History(found.info["history"])
        sums = [Sums(**each) for each in found.info["sums"]]
        self._sums.batches = sums[0].batches
        if len(sums) == self._member.size:
            self._sums = sums[self._member.rank]
        elif self._member.rank == 0:  # whoever counted them, they are counted once
            self._sums = Sums(
                sum(each.loss for each in sums), sum(each.rows for each in sums), sums[0].batches, sums[0].last
            )

    def _own(self) -> dict[str, bytes]:
        """Give what each worker has for itself: where it is in its random numbers."""
        return {**self._framework.dump("own"), **random_numbers.dumped()}

    def _take(self, own: Mapping[str, bytes]) -> None:
        self._framework.load(own)
        random_numbers.taken(own)

    def _agreed(self) -> tuple[Checkpoint | None, bool]:
        """Let the first worker look for a checkpoint, so that all take the same; say if it is of this training."""
        job, found, ours = self._job, None, False
        if self._member.rank == 0:
            latest = None if job.checkpoints is None else job.checkpoints.latest()
            found, ours = (job.resume, False) if latest is None else (latest.url, True)
        url, ours = self._member.all_gather((found, ours))[0]
        return None if url is None else Checkpoint.read(url), ours

"""One training in a process of its own: ``python -m benchmarks.training_contestant shoal|ddp|ray FOLDER COUNT``.

The last line that it prints says how many pictures a second were learnt from in all epochs but the first, when the
first step was done, and the loss at the end. The work is the same for all: pictures of a tar or Parquet folder, cropped
at random, flipped, normalised; a small convolutional network; plain SGD; two workers with a thread each.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

EPOCHS, BATCH, WORKERS, SIDE, CLASSES = 3, 64, 2, 96, 10


def network(config: Mapping[str, Any] | None = None) -> nn.Module:
    """Build the network; the same weights for all."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * 16, CLASSES))


def sgd(model: nn.Module, config: Mapping[str, Any] | None = None) -> torch.optim.Optimizer:
    """Build the optimizer."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def labelled(sample: dict[str, Any]) -> dict[str, Any]:
    """Make a class of the number of a picture."""
    return {**sample, "cls": sample["cls"] % CLASSES}


class Clock:
    """What is told in the end."""

    def __init__(self, count: int) -> None:
        self._count, self._called = count, time.time()
        self.first = self._second = 0.0

    def step(self) -> None:
        """A step was done."""
        self.first = self.first or time.time() - self._called

    def epoch(self, number: int) -> None:
        """An epoch begins; the first is 1."""
        if number == 2:
            self._second = time.time()

    def told(self, loss: float) -> str:
        """Say it, after the last epoch."""
        rate = self._count * (EPOCHS - 1) / (time.time() - self._second)
        return json.dumps({"rate": rate, "first": self.first, "loss": loss})


def dataset(folder: Path) -> Any:
    """Make what Shoal and the hand-written loop read."""
    import shoal
    from shoal import image

    tars = sorted(str(path) for path in folder.glob("*.tar"))
    stages = image.random_resized_crop(SIDE), image.flip(), image.normalize()
    return shoal.read_tar(tars).shuffle("shards", seed=0).decode().map(labelled).apply(*stages)


def shoal(folder: Path, count: int) -> None:
    """Train with the Estimator."""
    from shoal.learn import Callback
    from shoal.learn.pytorch import Estimator

    class Timed(Callback):
        def __init__(self) -> None:
            self.clock = Clock(count)

        def before_epoch(self, epoch: int) -> None:
            self.clock.epoch(epoch)

        def after_step(self, step: int, loss: float) -> None:
            self.clock.step()

        def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
            if epoch == EPOCHS and self.run.rank == 0:
                assert stats["num_samples"] == count
                print(self.clock.told(stats["train_loss"]), flush=True)

    estimator = Estimator.from_torch(model=network, optimizer=sgd, loss=nn.CrossEntropyLoss(), workers=WORKERS)
    estimator.fit(
        dataset(folder), EPOCHS, BATCH, feature_cols=["jpg"], label_cols=["cls"], callbacks=[Timed()], progress=False
    )


def ddp(folder: Path, count: int) -> None:
    """Start the hand-written loop as PyTorch's documents say."""
    command = ["--standalone", f"--nproc-per-node={WORKERS}", "-m", "benchmarks.training_contestant"]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *command, "loop", str(folder), str(count)])


def loop(folder: Path, count: int) -> None:
    """Train with DistributedDataParallel, over the same loader."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    clock = Clock(count)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer, criterion = sgd(model.module), nn.CrossEntropyLoss()
    loader = dataset(folder).loader(BATCH, rank=rank, world_size=WORKERS, to="torch")
    for epoch in range(EPOCHS):
        clock.epoch(epoch + 1)
        total = rows = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch["jpg"]), batch["cls"])
            loss.backward()
            optimizer.step()
            total, rows = total + float(loss.detach()) * len(batch["cls"]), rows + len(batch["cls"])
            clock.step()
    sums = torch.tensor([total, rows], dtype=torch.float64)
    dist.all_reduce(sums)
    assert int(sums[1]) == count
    if rank == 0:
        print(clock.told(float(sums[0] / sums[1])), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def ray(folder: Path, count: int) -> None:
    """Train with Ray Train on Ray Data, as its documents say, with a decoder as fast as Python has."""
    import logging

    import ray as library
    import ray.data
    import ray.train
    from ray.train.torch import TorchTrainer

    library.init(num_cpus=2 * WORKERS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    logging.getLogger("ray").setLevel(logging.ERROR)
    library.data.DataContext.get_current().enable_progress_bars = False
    rows = library.data.read_parquet(str(folder), shuffle="files").map_batches(_decoded, batch_size=BATCH)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as private:
        trainer = TorchTrainer(
            _ray_loop,
            train_loop_config={"clock": Clock(count), "told": f"{private}/told"},
            scaling_config=library.train.ScalingConfig(num_workers=WORKERS),
            datasets={"train": rows},
            run_config=library.train.RunConfig(storage_path=private),
        )
        trainer.fit()
        print(Path(private, "told").read_text(), flush=True)
        library.shutdown()


def _decoded(rows: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from benchmarks import transform

    transform.SIDE = SIDE
    pictures = np.stack([transform.picture_array(data) for data in rows["jpg"]])
    return {"picture": pictures, "cls": rows["cls"] % CLASSES}


def _ray_loop(config: dict[str, Any]) -> None:
    import ray.train
    import ray.train.torch

    clock: Clock = config["clock"]
    model = ray.train.torch.prepare_model(network())
    optimizer, criterion = sgd(model), nn.CrossEntropyLoss()
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(EPOCHS):
        clock.epoch(epoch + 1)
        total = rows = 0.0
        for batch in shard.iter_torch_batches(batch_size=BATCH // WORKERS, local_shuffle_buffer_size=4 * BATCH):
            optimizer.zero_grad()
            loss = criterion(model(batch["picture"]), batch["cls"])
            loss.backward()
            optimizer.step()
            total, rows = total + float(loss.detach()) * len(batch["cls"]), rows + len(batch["cls"])
            clock.step()
    if ray.train.get_context().get_world_rank() == 0:
        Path(config["told"]).write_text(clock.told(total / rows))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))

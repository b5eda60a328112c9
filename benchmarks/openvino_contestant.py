"""One prediction in a process of its own: ``python -m benchmarks.openvino_contestant shoal|queue model.xml``.

The last line that it prints says how many rows a second were predicted for, from the reading of the model to the last
result, how many seconds of processors that took, and the peak of the memory. The work is the same for all: shards of
pictures in memory, one file of a model, the same batches, 32 bits, as many streams as OpenVINO finds best. ``write``
makes the file.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np
import psutil

ROWS, SHARDS, BATCH, SIDE, CLASSES = 100_000, 20, 128, 16, 10


def pictures(number: int) -> np.ndarray:
    """Make one shard."""
    return np.random.default_rng(number).random((ROWS // SHARDS, 1, SIDE, SIDE), dtype=np.float32)


def write(path: str) -> None:
    """Write the model: two convolutions and two layers."""
    import torch
    from torch import nn

    from shoal.learn.openvino import Estimator

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip
    Estimator.from_torch(module, example_input=torch.zeros(1, 1, SIDE, SIDE)).save(path)


def shoal(path: str) -> None:
    """Predict with the Estimator: shards give shards, with what was there before."""
    from shoal.data import XShards
    from shoal.learn.openvino import Estimator

    shards = XShards.from_shards({"x": pictures(number)} for number in range(SHARDS))
    began = time.perf_counter(), _processors()
    estimator = Estimator.from_openvino(model_path=path)
    found = estimator.predict(shards, batch_size=BATCH).collect()
    _told(began, [shard["prediction"] for shard in found])


def predictions(path: str) -> None:
    """Predict with the Estimator, and take the predictions alone."""
    from shoal.data import XShards
    from shoal.learn.openvino import Estimator

    shards = XShards.from_shards({"x": pictures(number)} for number in range(SHARDS))
    began = time.perf_counter(), _processors()
    estimator = Estimator.from_openvino(model_path=path)
    _told(began, estimator.predict(shards, batch_size=BATCH)["prediction"].collect())


def queue(path: str) -> None:
    """Predict with OpenVINO's queue, as its guide has it: results are copied in the callback."""
    import openvino as ov

    shards = [{"x": pictures(number)} for number in range(SHARDS)]
    began = time.perf_counter(), _processors()
    options = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "f32"}
    requests = ov.AsyncInferQueue(ov.Core().compile_model(path, "CPU", options))
    parts: dict[tuple[int, int], np.ndarray] = {}

    def keep(request: Any, place: tuple[int, int]) -> None:
        parts[place] = request.get_output_tensor().data.copy()

    requests.set_callback(keep)
    starts = range(0, ROWS // SHARDS, BATCH)
    for number, shard in enumerate(shards):
        for at in starts:
            requests.start_async([shard["x"][at : at + BATCH]], (number, at), share_inputs=True)
    requests.wait_all()
    _told(began, [np.concatenate([parts[number, at] for at in starts]) for number in range(SHARDS)])


def _processors() -> float:
    """Count the seconds that processors worked for this process, and for those that it started."""
    here = psutil.Process()
    times = [each.cpu_times() for each in (here, *here.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _told(began: tuple[float, float], found: list[np.ndarray]) -> None:
    seconds, cpu = time.perf_counter() - began[0], _processors() - began[1]
    assert sum(map(len, found)) == ROWS
    check = float(sum(np.abs(part).sum(dtype=np.float64) for part in found))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"rate": ROWS / seconds, "cpu": cpu, "memory": memory, "check": check}), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])

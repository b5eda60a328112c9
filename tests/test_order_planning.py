"""An epoch of 10 billion samples in 100,000 shards is planned on each of 1,024 ranks in no time, and in little memory.

Each measurement has a process of its own, so that nothing but the planning counts. Time is printed for who wants to
know it; what is asserted is memory and the number of steps taken, and of time only that nothing hangs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SHARDS, SAMPLES, RANKS = 100_000, 10**10, 1024
MEGABYTES, SECONDS = 200, 20

PLANNING = """
import json, sys, time
import numpy as np
from shoal.order import ElementOrder, Part, Shuffle, Walk, rank_part


def peak():
    # Not ru_maxrss: a child begins with what its parent had.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def counted(function):
    calls = [0]

    def count(frame, event, argument):
        calls[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        return function(), calls[0]
    finally:
        sys.setprofile(None)


def plan(lengths, mode, lanes, rank, asked):
    def known(shards):
        asked[0] += len(shards)
        return lengths[shards]

    part = Part(batch_size=8 * ranks, rank=rank, world_size=ranks, lanes=lanes)
    order = ElementOrder(Walk(Shuffle(mode, seed=1), epoch=3, shards=len(lengths), lanes=lanes), known)
    total = int(known(np.arange(len(lengths))).sum())
    steps = -(-total // part.batch_size)
    slots = np.concatenate([rank_part(step * part.batch_size, part)[0] for step in range(125)])
    assert len(slots) == 1000
    wanted = [slots, rank_part(steps // 2 * part.batch_size, part)[0], np.array([total - 1, total])]
    found = [order.locate(some) for some in wanted]
    assert [int((places.shards >= 0).sum()) for places in found] == [1000, 8, 1]
    assert len({*zip(found[0].shards.tolist(), found[0].offsets.tolist())}) == 1000
    assert abs(order.anchor(int(wanted[1][0])).window - (0 if mode == "full" else len(lengths) // 32)) < 2
    return steps


shards, samples, ranks, lanes, mode = *map(int, sys.argv[1:5]), sys.argv[5]
lengths = samples // shards + np.arange(shards) % 3 - 1
lengths[0] += samples - lengths.sum()
few = lengths // 10
result = {"seconds": [], "asked": [], "calls": []}
warm = ElementOrder(Walk(Shuffle(mode), 0, 64, lanes), lambda shards: few[shards]).locate(np.arange(100))
before = peak()
for rank in (0, 1, ranks // 2, ranks - 1):
    begun, asked = time.perf_counter(), [0]
    result["steps"] = plan(lengths, mode, lanes, rank, asked)
    result["seconds"].append(round(time.perf_counter() - begun, 3))
    result["asked"].append(asked[0])
result["megabytes"] = round(peak() - before, 1)
result["calls"] = [counted(lambda: plan(some, mode, lanes, ranks - 1, [0]))[1] for some in (few, lengths)]
print(json.dumps(result))
"""

LOADING = """
import json, sys, time
import numpy as np
from shoal.abc import Block, Shard, Source
from shoal.pipeline import Dataset


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


class Large(Source):
    counted = True

    def __init__(self, shards, samples):
        self._shards = [Shard(f"{number:06d}") for number in range(shards)]
        self._length = samples // shards
        self.lengths, self.taken = 0, []

    def shards(self):
        return self._shards

    def open(self, shard, start=0):
        raise AssertionError("nobody has to read a whole shard")

    def length(self, shard):
        self.lengths += 1
        return self._length

    def take(self, shard, indices):
        self.taken += [(shard.url, index) for index in indices]
        return [{"__key__": f"{shard.url}-{index}", "index": index} for index in indices]


shards, samples, ranks, lanes, mode = *map(int, sys.argv[1:5]), sys.argv[5]
source = Large(shards, samples)
warm = Large(64, 64_000)
next(iter(Dataset(warm).shuffle(mode, seed=1).loader(8, workers=0)))
before = peak()
begun = time.perf_counter()
dataset = Dataset(source).shuffle(mode, seed=1).lanes(lanes)
loader = dataset.loader(8 * ranks, rank=ranks - 1, world_size=ranks, workers=0)
made = source.lengths
steps = loader.steps
asked = source.lengths
batches = iter(loader)
first = next(batches)
seconds = time.perf_counter() - begun
again = loader.state_dict()
result = {"seconds": round(seconds, 3), "megabytes": round(peak() - before, 1), "steps": steps, "made": made}
result |= {"asked": asked, "lengths": source.lengths, "taken": len(source.taken), "rows": len(set(first["__key__"]))}
result |= {"state": len(json.dumps(again)), "masked": "__mask__" in first}
print(json.dumps(result))
"""


def measured(program: str, lanes: int, mode: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", "-c", program, *map(str, (SHARDS, SAMPLES, RANKS, lanes)), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    print(f"{mode}, {lanes} lanes: {done.stdout.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("lanes", [RANKS, 4 * RANKS])
@pytest.mark.parametrize("mode", ["shards", "full"])
def test_an_epoch_is_planned_without_going_through_its_samples(mode: str, lanes: int) -> None:
    found = measured(PLANNING, lanes, mode)
    assert found["steps"] == -(-SAMPLES // (8 * RANKS))
    assert found["megabytes"] < MEGABYTES
    assert max(found["seconds"]) < SECONDS
    # Once for the number of steps, once for the order, and again for the few windows in which samples are looked up.
    assert max(found["asked"]) <= 2 * SHARDS + 100 * 16
    few, many = found["calls"]
    assert many <= 1.05 * few  # of ten times as many samples


@pytest.mark.parametrize("lanes", [RANKS, 4 * RANKS])
@pytest.mark.parametrize("mode", ["shards", "full"])
def test_a_loader_of_a_large_world_begins_with_what_it_needs(mode: str, lanes: int) -> None:
    found = measured(LOADING, lanes, mode)
    assert found["steps"] == -(-SAMPLES // (8 * RANKS))
    assert found["megabytes"] < MEGABYTES
    assert found["seconds"] < SECONDS
    assert found["made"] == 0
    assert found["asked"] == SHARDS
    assert found["lengths"] <= 3 * SHARDS + 100 * 16
    assert found["rows"] == 8
    assert not found["masked"]
    assert found["taken"] < 20_000  # some blocks ahead, never a shard
    assert found["state"] < 64 * 1024

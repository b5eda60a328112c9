"""How many feeder cores, disks and how much network a training needs: ``python -m benchmarks.feed_capacity``.

A small simulation of one training: all GPUs take a step together, when each has its part of the batch. A part is read
from disks, prepared by the cores of feeder hosts, sent through their networks and received through those of the hosts
that train. What a sample costs was measured (``MEASURED``); what a host has is assumed (``Site``). The tables are those
of docs/feed-capacity.md, which a test compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Cost:
    """What one sample costs, on its way."""

    read: float
    """Bytes on disk."""
    sent: float
    """Bytes that a feeder sends."""
    prepare: float
    """Seconds of a core to prepare it."""
    send: float
    """Seconds of a core to send it."""
    receive: float
    """Seconds of a core to receive it."""


#: Of a JPEG of 95 KB that becomes 3x224x224 float32 (RESULTS-feed.md): 1.2 ms to prepare, and for the 602 KB that come
#: of it 0.24 ms to send and 0.17 ms to receive.
MEASURED = Cost(95e3, 602e3, 1.2e-3, 0.24e-3, 0.17e-3)
#: The same as bytes, which the GPU turns into numbers: a quarter is sent.
AS_BYTES = Cost(95e3, 150.5e3, 1.0e-3, 0.09e-3, 0.06e-3)
#: As bytes, with more to do: several augmentations, larger pictures, frames of a video. This is assumed.
HEAVY = replace(AS_BYTES, prepare=8e-3)


@dataclass(frozen=True)
class Site:
    """What the hosts have."""

    gpus_per_host: int = 8
    trainer_cores: float = 64
    """Of a host that trains; half of them are for loading."""
    trainer_network: float = 100e9 / 8
    feeder_cores: float = 64
    feeder_network: float = 25e9 / 8
    disk: float = 200e6
    """Bytes a second of a disk that is read forward."""
    disks: float = math.inf
    """Of the whole storage; without a number, as many as are needed."""


@dataclass(frozen=True)
class Training:
    """What is to be fed."""

    gpus: int
    rate: float
    """Samples a second that a GPU learns from."""
    batch: int = 64
    """Samples of a step on each GPU."""
    ahead: int = 3
    """Batches that may be ready before they are needed."""
    spread: float = 0.3
    """How much the time of preparing a part varies, as a share of it."""


def simulated(training: Training, site: Site, cost: Cost, feeders: int, steps: int = 300) -> float:
    """Give the share of their time that GPUs learn, with so many feeder hosts; with none, trainers do it themselves."""
    rng = np.random.default_rng(0)
    hosts = -(-training.gpus // site.gpus_per_host)
    total = training.gpus * training.batch
    compute = training.batch / training.rate
    makers = feeders or hosts
    cores = site.feeder_cores if feeders else site.trainer_cores / 2
    share = total / makers
    read = total * cost.read / (site.disk * site.disks)
    make = share * (cost.prepare + (cost.send if feeders else 0.0)) / cores
    send = share * cost.sent / site.feeder_network if feeders else 0.0
    of_host = total / hosts
    network = of_host * cost.sent / site.trainer_network if feeders else 0.0
    receive = max(network, of_host * cost.receive / (site.trainer_cores / 2) if feeders else 0.0)
    noise = rng.lognormal(
        -math.log1p(training.spread**2) / 2, math.sqrt(math.log1p(training.spread**2)), (steps, makers)
    )
    made, gone, arrived, begun = np.zeros(makers), np.zeros(makers), 0.0, [0.0] * training.ahead
    stored = 0.0
    for step in range(steps):
        free = begun[-training.ahead]  # a batch may be made when there is room for it
        stored = max(stored, free) + read
        made = np.maximum(made, max(stored, free)) + make * noise[step]
        gone = np.maximum(gone, made) + send
        arrived = max(arrived, float(gone.max())) + receive
        begun.append(max(begun[-1] + compute, arrived))
    half = steps // 2
    return min(half * compute / (begun[-1] - begun[-1 - half]), 1.0)


def needed(training: Training, site: Site, cost: Cost, enough: float = 0.95) -> int | None:
    """Find the fewest feeder hosts that keep GPUs at work; None where more of them would not help."""
    total = training.gpus * training.rate
    by_cores = total * (cost.prepare + cost.send) / site.feeder_cores
    least = math.ceil(enough * max(by_cores, total * cost.sent / site.feeder_network))
    return next(
        (count for count in range(least, 2 * least + 2) if simulated(training, site, cost, count) >= enough), None
    )


def bottleneck(training: Training, site: Site, cost: Cost) -> str:
    """Name what more feeders do not mend."""
    per_host = training.rate * min(site.gpus_per_host, training.gpus)
    if per_host * cost.sent > 0.95 * site.trainer_network:
        return "trainers' network"
    if per_host * cost.receive > 0.95 * site.trainer_cores / 2:
        return "trainers' cores, which receive"
    return "disks"


def feeders_table(site: Site, cost: Cost) -> Iterator[str]:
    """Tell for some trainings what they need."""
    yield "| GPUs | samples/s each | at work, no feeders | cores | feeder hosts | disks | each sends | each receives |"
    yield "|---|---|---|---|---|---|---|---|"
    for gpus in (16, 64, 256):
        for rate in (400, 1500, 3000):
            training = Training(gpus, rate)
            alone, feeders = simulated(training, site, cost, 0), needed(training, site, cost)
            total, hosts = gpus * rate, gpus / site.gpus_per_host
            cores = f"{total * (cost.prepare + cost.send):,.0f}"
            found = f"none: {bottleneck(training, site, cost)}" if feeders is None else f"{feeders}"
            sends = "" if feeders is None else f"{total * cost.sent * 8 / 1e9 / feeders:.0f} Gbit/s"
            receives = f"{total * cost.sent * 8 / 1e9 / hosts:.0f} Gbit/s"
            disks = math.ceil(total * cost.read / site.disk)
            yield f"| {gpus} | {rate:,} | {alone:.0%} | {cores} | {found} | {disks} | {sends} | {receives} |"


def saturation_table(training: Training, site: Site, cost: Cost) -> Iterator[str]:
    """Tell what GPUs do with more and more feeder hosts, and what holds them up."""
    few = replace(site, disks=0.8 * training.gpus * training.rate * cost.read / site.disk)
    slow = replace(site, feeder_network=site.feeder_network / 10)
    yield "| feeder hosts | as above | in float32 | a tenth of the feeders' network | a fifth of the disks missing |"
    yield "|---|---|---|---|---|"
    for feeders in (0, 2, 4, 8, 12, 16, 24, 32):
        shares = (
            simulated(training, site, cost, feeders),
            simulated(training, site, replace(cost, sent=MEASURED.sent, receive=MEASURED.receive), feeders),
            simulated(training, slow, cost, feeders),
            simulated(training, few, cost, feeders),
        )
        yield f"| {feeders} | {' | '.join(f'{share:.0%}' for share in shares)} |"


def tables() -> Iterator[tuple[str, list[str]]]:
    """Give all tables, each with its title."""
    yield "float32", list(feeders_table(Site(), MEASURED))
    yield "bytes", list(feeders_table(Site(), AS_BYTES))
    yield "heavy", list(feeders_table(Site(), HEAVY))
    yield "saturation", list(saturation_table(Training(64, 1500), Site(), HEAVY))


def main() -> None:
    """Print all tables."""
    for title, lines in tables():
        print(f"{title}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

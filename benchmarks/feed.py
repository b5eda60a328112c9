"""Feeds beside each other: ``make bench-feed``. Writes benchmarks/RESULTS-feed.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.constants import BATCH
from benchmarks.feed_contestant import WARM_UP
from benchmarks.prepare import prepare
from benchmarks.processes import warm_up
from shoal.environments import find

ROUNDS, COUNT, PATIENCE = 5, 4032, 300
READY = {"flight": 200, "shared": 400, "tfdata": 40, "tfdata-plain": 40, "tensorcom": 100}
"""Batches that each takes of those that are ready."""
LABELS = {
    "flight": "Shoal, over Flight",
    "shared": "Shoal, in shared memory",
    "tfdata": "tf.data service",
    "tfdata-plain": "tf.data service, without its compression",
    "tensorcom": "tensorcom, zpush to zpull",
    "local": "Shoal, a loader of its own",
}
HOW_READY = """\
Batches of 64x3x224x224 float32 (38.5 MB) of normally distributed numbers, which are ready, from one process to \
another on the same machine; who receives looks at one number of each. Each run is a new pair of processes, \
contestants take turns, figures are the best of {rounds} rounds, and "of medians" compares the medians.
"""
HOW_PICTURES = """\
{count:,} JPEGs of about 500x375 and 95 KB from tar shards, shuffled, cropped at random to 224x224 and flipped, in \
batches of 64, two workers; as above. As float32 they are normalised, too; as bytes that is left to the model. CPU is \
that of the trainer's process alone, which does everything where the loader is local; "of the work" compares it with \
that. Feeder and trainer share two cores here, so over Flight the pictures a second tell little of two hosts: what is \
sent and received takes the time of decoding.
"""


def transported(rounds: int, tensorcom: str | None) -> Iterator[str]:
    """Compare how batches that are ready come to a trainer."""
    names = [name for name in READY if tensorcom is not None or name != "tensorcom"]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            results[name].append(_tensorcom(tensorcom) if name == "tensorcom" else _ready(name))
            print(f"round {number + 1}: {name} {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    rates = {name: [run["bytes"] / run["seconds"] / 1e9 for run in runs] for name, runs in results.items()}
    yield "### Batches that are ready\n"
    yield "| | GB/s | Flight is faster by | of medians | trainer's CPU, ms a batch | feeder's |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        ratios = f"{max(rates['flight']) / max(rates[name]):.2f} | {median(rates['flight']) / median(rates[name]):.2f}"
        cpu = f"{_cpu(results[name]):.1f} | {_feeder_cpu(results[name])}"
        yield f"| {LABELS[name]} | {max(rates[name]):.2f} | {ratios} | {cpu} |"
    yield "\n" + HOW_READY.format(rounds=rounds)


def decoded(rounds: int, count: int) -> Iterator[str]:
    """Compare a trainer that decodes pictures itself with one that is fed."""
    folder = prepare("images", count, {"tar"}) / "tar"
    batches = 2 * count // BATCH
    names = [(name, kind) for kind in ("float32", "bytes") for name in ("local", "shared", "flight")]
    results: dict[tuple[str, str], list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            warm_up(folder)
            results[name].append(_pictures(*name, folder, batches))
            print(f"round {number + 1}: {name} {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    rates = {name: [run["batches"] * BATCH / run["seconds"] for run in runs] for name, runs in results.items()}
    yield "### Pictures\n"
    yield "| | | pictures/s | of the local | of medians | trainer's CPU, ms a batch | of the work | feeder's CPU |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, kind in names:
        own, local = rates[name, kind], rates["local", kind]
        ratios = f"{max(own) / max(local):.2f} | {median(own) / median(local):.2f}"
        cpu = _cpu(results[name, kind])
        share = cpu / _cpu(results["local", kind])
        told = f"{cpu:.1f} | {share:.1%} | {_feeder_cpu(results[name, kind])}"
        yield f"| {kind} | {LABELS[name]} | {max(own):,.0f} | {ratios} | {told} |"
    yield "\n" + HOW_PICTURES.format(count=count)


def _cpu(runs: list[dict[str, Any]]) -> float:
    """Give the milliseconds of CPU that a batch took a trainer, as the median of the rounds."""
    return median(run["cpu"] / run["batches"] * 1000 for run in runs)


def _feeder_cpu(runs: list[dict[str, Any]]) -> str:
    """Give the milliseconds of CPU that a batch took a feeder, as the median of the rounds, if it is known."""
    if any(run.get("feeder") is None for run in runs):
        return ""
    return f"{median(run['feeder'] / (run['batches'] + WARM_UP) * 1000 for run in runs):.1f}"


def _ready(name: str) -> dict[str, Any]:
    return _fed(name, READY[name], "float32", "serve-tfdata" if name.startswith("tfdata") else "serve-shoal")


def _pictures(name: str, kind: str, folder: Path, batches: int) -> dict[str, Any]:
    if name == "local":
        return _trained(name, str(folder), batches, kind)
    return _fed(name, batches, kind, "serve-shoal", str(folder), kind)


def _fed(name: str, batches: int, kind: str, *server: str) -> dict[str, Any]:
    with _serving(*server) as served:
        found = _trained(name, served["url"], batches, kind)
    return {**found, "feeder": served.get("cpu")}


@contextmanager
def _serving(*arguments: str) -> Iterator[dict[str, Any]]:
    """Have a server, of which more is known when it has ended."""
    process = subprocess.Popen(_command(*arguments), stdin=subprocess.PIPE, env=_environment(), **_PIPES)
    assert process.stdin is not None
    assert process.stdout is not None
    served: dict[str, Any] = {"url": process.stdout.readline().strip()}
    try:
        yield served
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for line in process.stdout.readlines():
            served |= json.loads(line)
        process.stdout.close()


def _trained(*arguments: Any) -> dict[str, Any]:
    done = subprocess.run(_command(*map(str, arguments)), env=_environment(), timeout=PATIENCE, check=False, **_PIPES)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{arguments[0]} gave nothing, and ended with {done.returncode}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _tensorcom(python: str | None) -> dict[str, Any]:
    assert python is not None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    script = str(Path(__file__).with_name("tensorcom_contestant.py"))
    address = f"127.0.0.1:{port}"
    receive = [python, script, "receive", f"zpull://{address}", str(READY["tensorcom"])]
    receiver = subprocess.Popen(receive, **_PIPES)
    assert receiver.stdout is not None
    receiver.stdout.readline()
    sender = subprocess.Popen([python, script, "send", f"zpush://{address}"], **_PIPES)
    try:
        output, _ = receiver.communicate(timeout=PATIENCE)
    finally:
        for process in (sender, receiver):
            process.kill()
            process.communicate()
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


_PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.feed_contestant", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def main() -> None:
    """Measure, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--environment", help="The environment of the real tensorcom.")
    given = parser.parse_args()
    tensorcom = None if given.environment is None else str(find(given.environment).python)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    peers = ", ".join(f"{name} {version(name)}" for name in ("shoal", "pyarrow", "tensorflow_cpu"))
    head = (
        f"# Results: the feed\n\n`make bench-feed` on {date.today():%Y-%m-%d}: {machine}; {peers}, tensorcom 0.1.0.\n"
    )
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as private:
        os.environ["SHOAL_CACHE"] = private
        text = "\n".join([head, *transported(given.rounds, tensorcom), *decoded(given.rounds, given.count)])
    print(text)
    Path(__file__).with_name("RESULTS-feed.md").write_text(text)


if __name__ == "__main__":
    main()

"""Image loaders beside each other: ``python -m benchmarks.loaders --only shoal,grain --count 1000 --rounds 2``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from benchmarks.constants import BATCH
from benchmarks.prepare import prepare
from benchmarks.processes import Contestant, RunError, run

COUNT, ROUNDS = 63 * BATCH, 5
STOP_AFTER = 8
"""Batches after which the run that measures the end leaves its loop: all queues are full by then."""

CONTESTANTS = {
    "shoal": Contestant("Shoal", "shoal", "images", "tar", "shoal"),
    "grain": Contestant("Grain, threads, tuned", "grain", "images", "arrayrecord", "grain"),
    "dali": Contestant("DALI, CPU", "dali", "images", "files", "nvidia-dali-cuda120"),
    "files": Contestant("torch DataLoader over files, tuned", "files", "images", "files", "torch"),
    "spdl-tuned": Contestant("SPDL, tuned", "spdl", "images_tuned", "files", "spdl"),
    "huggingface": Contestant("HF datasets map-style, tuned", "huggingface", "images", "arrow", "datasets"),
    "litdata": Contestant("LitData, tuned", "litdata", "images", "litdata", "litdata"),
    "webdataset": Contestant("webdataset, tuned", "webdataset", "images", "tar", "webdataset"),
    "webdataset-torch": Contestant(
        "webdataset, tuned, stacked by torch", "webdataset", "images_by_torch", "tar", "webdataset"
    ),
    "tfdata": Contestant("tf.data", "tfdata", "images", "tfrecord", "tensorflow-cpu"),
    "mds": Contestant("MosaicML Streaming, tuned", "mds", "images", "mds", "mosaicml-streaming"),
    "spdl": Contestant("SPDL", "spdl", "images", "files", "spdl"),
    "webdataset-documented": Contestant(
        "webdataset as documented", "webdataset_documented", "images", "tar", "webdataset"
    ),
    "ray": Contestant("Ray Data, tuned", "ray", "images", "parquet", "ray"),
}

_MEMORY = ("pss", "owned")

HOW = """\
All read the same {count:,} JPEGs ({kilobytes:.0f} KB each, about 500x375, quality 90, 4:2:0) from a warm page \
cache, each in the format of its own, and do the same work: random resized crop to 224, flip, normalised float32 CHW \
batches of 64 as torch tensors (tf.data: its own), one shuffled epoch, with 2 workers or threads. "Tuned" decodes \
with simplejpeg and OpenCV instead of Pillow; SPDL, tf.data, DALI and Shoal bring decoders of their own. Contestants \
take turns, each run is a new process, and each figure is the best of {rounds} rounds. Time begins after the \
imports; Shoal begins without an index, Ray's time includes starting it. CPU is that of the process and its \
children. Memory is the peak of one more epoch, looked at every 0.1 s: PSS, and of it what no file backs (anonymous \
and shared memory). "Stop" leaves the loop after {stop} batches and counts until closing the loader has returned and \
its worker processes have ended; "gone" until the process itself is gone. In that run all batches are kept and must \
stay what they were. All images must have come, once each.
"""


def compare(
    names: Sequence[str], table: dict[str, Contestant], runs: Callable[[Contestant], dict[str, Any]], rounds: int
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Let contestants take turns; one that fails twice in a row is out, with the reason."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for name in names:
            if name in failed:
                continue
            try:
                results[name].append(_run_again(runs, table[name]))
            except RunError as error:
                failed[name] = str(error).splitlines()[-1]
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
            print(f"round {number + 1}: {name} {json.dumps(results[name][-1])}", file=sys.stderr, flush=True)
    return {name: found for name, found in results.items() if name not in failed}, failed


def _run_again(runs: Callable[[Contestant], dict[str, Any]], contestant: Contestant) -> dict[str, Any]:
    """Run a contestant, and once more if that fails: a busy machine breaks some of them now and then."""
    try:
        return runs(contestant)
    except RunError as error:
        print(f"{contestant.label}: {error}; once more", file=sys.stderr, flush=True)
        return runs(contestant)


def run_all() -> Iterator[str]:
    """Yield the table of all contestants."""
    yield measure(list(CONTESTANTS), COUNT, ROUNDS)


def measure(names: Sequence[str], count: int, rounds: int) -> str:
    """Run everything and write the table."""
    data = prepare("images", count, {CONTESTANTS[name].store for name in names})
    steps = max(2, min(STOP_AFTER, count // BATCH // 2))
    peaks: dict[str, dict[str, Any]] = {}

    def thrice(contestant: Contestant) -> dict[str, Any]:
        whole, part = run(contestant, data, count), run(contestant, data, steps * BATCH, keep=True)
        _check(whole, part, count)
        if contestant.label not in peaks:
            peaks[contestant.label] = run(contestant, data, count, memory=True)
        return {**whole, **{key: part[key] for key in ("stop", "gone")}, **_only_memory(peaks[contestant.label])}

    results, failed = compare(names, CONTESTANTS, thrice, rounds)
    size = sum(path.stat().st_size for path in (data / "tar").glob("*.tar")) / count / 1000
    how = HOW.format(count=count, kilobytes=size - 2, rounds=rounds, stop=steps)
    return "\n".join(
        [f"### Loading {count:,} images", "", *_rows(results, count), *_reasons(failed), "", how, disturbance(results)]
    )


def _only_memory(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in _MEMORY}


def _check(whole: dict[str, Any], part: dict[str, Any], count: int) -> None:
    """Refuse a run that did less than the work, or whose batches changed afterwards."""
    faults = [
        (whole["distinct"] != count, f"only {whole['distinct']} of {count} images came"),
        (whole["count"] != count, f"{whole['count']} images came where there are {count}"),
        (not whole["shuffled"], "the images came in the order of their storage"),
        (not part["safe"], "batches that were kept changed"),
        (abs(whole["mean"]) > 1 or not 0.3 < whole["std"] < 3, f"mean {whole['mean']:.2f}, std {whole['std']:.2f}"),
    ]
    for fault, text in faults:
        if fault:
            raise RunError(text)


def _rows(results: dict[str, list[dict[str, Any]]], count: int) -> Iterator[str]:
    yield (
        "| | images/s | ratio to Shoal | of medians | CPU ms/image | ratio | first batch s | stop s | gone s "
        "| peak PSS MB | of it not file-backed |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    base = results.get("shoal")
    for name, found in results.items():
        best = {key: least(found, key) for key in ("seconds", "cpu", "first", "stop", "gone")}
        cpu = [f"{best['cpu'] / count * 1000:.2f}", ratio(best["cpu"], base and least(base, "cpu"))]
        times = [f"{best[key]:.2f}" for key in ("first", "stop", "gone")]
        memory = [f"{found[0][key] / 1e6:,.0f}" for key in _MEMORY]
        yield row(
            title(CONTESTANTS[name]),
            f"{count / best['seconds']:,.0f}",
            *speed_ratios(found, base),
            *cpu,
            *times,
            *memory,
        )


def speed_ratios(found: list[dict[str, Any]], base: list[dict[str, Any]] | None) -> list[str]:
    """Compare speeds: of the best rounds, and of the middle ones."""
    if base is None:
        return ["-", "-"]
    middle = [median(result["seconds"] for result in results) for results in (base, found)]
    return [ratio(least(base, "seconds"), least(found, "seconds")), ratio(*middle)]


def ratio(one: float, other: float | None) -> str:
    """Write how many times one is the other."""
    return f"{one / other:.2f}" if other else "-"


def least(found: list[dict[str, Any]], key: str) -> float:
    """Give the best of the rounds."""
    return min(float(result[key]) for result in found)


def disturbance(results: dict[str, list[dict[str, Any]]]) -> str:
    """Say how busy others kept the machine meanwhile: the figures are worth as much as it was quiet."""
    shares = [result["others"] / result["seconds"] for found in results.values() for result in found]
    return f"Other processes used {median(shares):.2f} cores in the middle run, {max(shares):.2f} in the worst.\n"


def row(*cells: str) -> str:
    """Write a row of a table."""
    return f"| {' | '.join(cells)} |"


def title(contestant: Contestant) -> str:
    """Name a contestant with its version."""
    try:
        return f"{contestant.label} ({contestant.package} {version(contestant.package)})"
    except PackageNotFoundError:
        return contestant.label


def _reasons(failed: dict[str, str]) -> list[str]:
    return ["", *(f"- {CONTESTANTS[name].label} is not here: {reason}" for name, reason in failed.items())]


def command(
    measure: Callable[[Sequence[str], int, int], str], names: Sequence[str], count: int, batch: int, rounds: int
) -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Loaders beside each other.")
    parser.add_argument("--only", default=",".join(names), help="names, with commas between them")
    parser.add_argument("--count", type=int, default=count, help="samples; taken down to whole batches")
    parser.add_argument("--rounds", type=int, default=rounds)
    options = parser.parse_args()
    print(measure(options.only.split(","), options.count // batch * batch, options.rounds))


if __name__ == "__main__":
    command(measure, list(CONTESTANTS), COUNT, BATCH, ROUNDS)

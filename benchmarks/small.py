"""Small samples beside each other: ``python -m benchmarks.small --only shoal,webdataset --count 100000 --rounds 2``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.loaders import command, compare, disturbance, least, row, speed_ratios, title
from benchmarks.prepare import prepare
from benchmarks.processes import Contestant, RunError, run

BATCH = 256
COUNT, ROUNDS = 1563 * BATCH, 5

CONTESTANTS = {
    "shoal": Contestant("Shoal, tar, index there", "shoal", "small", "tar", "shoal", warm=True),
    "shoal-cold": Contestant("Shoal, tar, index built on the way", "shoal", "small", "tar", "shoal"),
    "shoal-parquet": Contestant("Shoal, Parquet", "shoal", "small_parquet", "parquet", "shoal"),
    "webdataset": Contestant("webdataset, tar, in process", "webdataset", "small", "tar", "webdataset"),
    "tfdata": Contestant("tf.data, TFRecord", "tfdata", "small", "tfrecord", "tensorflow-cpu"),
    "litdata": Contestant("LitData, in process", "litdata", "small", "litdata", "litdata"),
    "huggingface": Contestant("HF datasets map-style, in process", "huggingface", "small", "arrow", "datasets"),
    "grain": Contestant("Grain, threads, ArrayRecord", "grain", "small", "arrayrecord", "grain"),
}

HOW = """\
All read the same {count:,} samples of 200 bytes, shuffled, in batches of 256 byte strings, from a warm page cache. \
Contestants take turns, each run is a new process, and time begins after the imports: the best of {rounds} rounds. \
webdataset and tf.data shuffle shards and a buffer of 1,000 samples, LitData its chunks and each of them, Shoal \
across shards, the others all samples. Those \
that are faster without worker processes run without.
"""


def run_all() -> Iterator[str]:
    """Yield the table of all contestants."""
    yield measure(list(CONTESTANTS), COUNT, ROUNDS)


def measure(names: Sequence[str], count: int, rounds: int) -> str:
    """Run everything and write the table."""
    data = prepare("small", count, {CONTESTANTS[name].store for name in names})

    def once(contestant: Contestant) -> dict[str, Any]:
        result = run(contestant, data, count)
        if result["count"] != count or not result["shuffled"]:
            raise RunError(f"{result['count']} of {count} samples came, shuffled: {result['shuffled']}")
        return result

    if "shoal" in names:
        with suppress(RunError):
            once(CONTESTANTS["shoal"])  # leaves the index behind
    results, failed = compare(names, CONTESTANTS, once, rounds)
    reasons = [f"- {CONTESTANTS[name].label} is not here: {reason}" for name, reason in failed.items()]
    how = HOW.format(count=count, rounds=rounds)
    title = f"### Loading {count:,} samples of 200 bytes"
    return "\n".join([title, "", *_rows(results, count), "", *reasons, how, disturbance(results)])


def _rows(results: dict[str, list[dict[str, Any]]], count: int) -> Iterator[str]:
    yield "| | samples/s | ratio to Shoal | of medians | CPU us/sample |"
    yield "|---|---|---|---|---|"
    base = results.get("shoal")
    for name, found in results.items():
        cpu = f"{least(found, 'cpu') / count * 1e6:.1f}"
        yield row(title(CONTESTANTS[name]), f"{count / least(found, 'seconds'):,.0f}", *speed_ratios(found, base), cpu)


if __name__ == "__main__":
    command(measure, list(CONTESTANTS), COUNT, BATCH, ROUNDS)

"""How a run is doing: what is counted, what is blamed, and how it is said."""

from __future__ import annotations

import json
import os
import re
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

from shoal.abc import Block, PoolReading, Sample, Shard
from shoal.pipeline import mix
from shoal.pipeline._meter import Meter
from shoal.pipeline.statistics import StageStatistics, Statistics
from support.engine import by_value, forward, numbers, run_script
from support.lane_sources import ForwardSource, MemorySource

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


def stage(name: str = "map(f)", busy: float = 0.5, *, workers: int = 2, mode: str = "thread", pool: int = 0) -> Any:
    return StageStatistics(name, mode, workers, 100, 50.0, busy * workers * 2, busy, 0.25, 0, pool)


def statistics(*stages: StageStatistics, waiting: float = 0.5, processors: float = 1.9, samples: int = 100) -> Any:
    return Statistics(2.0, samples, 10**6, waiting, 0, processors, stages)


# Who is to blame


def test_a_consumer_that_hardly_waits_is_the_bottleneck() -> None:
    found = statistics(stage(busy=0.9), waiting=0.05)
    assert found.bottleneck == "consumer"
    assert "ahead" in found.advice


def test_before_anything_is_delivered_nobody_is() -> None:
    assert statistics(stage(), samples=0).bottleneck == "unknown"
    assert statistics().bottleneck == "unknown"
    assert Meter().statistics().bottleneck == "unknown"
    assert Meter().statistics().advice == "nothing was delivered yet"


def test_the_busiest_stage_of_the_busiest_pool_is_named() -> None:
    first, second = stage("read", 0.3), stage("map(f)", 0.6)
    other = stage("map(g)", 0.8, pool=1)
    assert statistics(first, second, other).bottleneck == "map(f)"
    assert statistics(first, other).bottleneck == "map(g)"


def test_python_in_threads_is_told_to_go_to_processes() -> None:
    slow = stage("map(slow)", 0.95, workers=4)
    assert 'mode="process"' in statistics(slow, processors=1.05).advice
    assert "map(slow)" in statistics(slow, processors=1.05).advice
    assert 'mode="process"' not in statistics(slow, processors=3.6).advice
    assert 'mode="process"' not in statistics(stage(busy=0.95, workers=4, mode="process"), processors=0.1).advice
    assert 'mode="process"' not in statistics(stage(busy=0.95, workers=1), processors=1.0).advice


def test_other_advice_follows_from_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert "give it workers" in statistics(stage(mode="caller", workers=1, busy=0.9)).advice
    assert "storage or the network" in statistics(stage(busy=0.2)).advice
    assert "more than 2 workers" in statistics(stage(busy=0.9)).advice
    assert "all 8 processors" in statistics(stage(busy=0.9, workers=8)).advice
    crowded = replace(statistics(stage(busy=0.9, workers=8), processors=2.0), load=20.0)
    assert "other programs" in crowded.advice


# What is counted


def add_one(sample: Sample) -> Sample:
    return {**sample, "n": sample["n"] + 1}


def nap(sample: Sample) -> Sample:
    time.sleep(0.002)
    return sample


def even(sample: Sample) -> bool:
    return sample["n"] % 2 == 0


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
@pytest.mark.parametrize("make", [numbers, forward])
def test_samples_and_stages_are_counted(make: Callable[[int], Any], options: dict[str, Any]) -> None:
    dataset = make(200).map(add_one).filter(even).map(nap)
    for run in (dataset.run(**options), dataset.loader(8, **options)):
        list(run)
        found = run.statistics()
        assert found.samples == 100
        samples = {each.name: each.samples for each in found.stages}
        assert samples["read"] == samples["map(add_one)"] == samples["filter(even)"] == 200
        assert samples["map(nap)"] == 100
        assert found.samples_per_second == pytest.approx(100 / found.elapsed)
        naps = next(each for each in found.stages if each.name == "map(nap)")
        assert 0.2 <= naps.seconds < found.elapsed * naps.workers * 1.01
        assert {each.mode for each in found.stages} <= {"caller", "thread", options.get("mode", "thread")}
        assert all(0 <= each.busy <= 1 and 0 <= each.queue <= 1 for each in found.stages)


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_are_about_right(workers: int) -> None:
    dataset = numbers(100, size=5000)
    for run in (dataset.run(workers=workers), dataset.loader(10, workers=workers)):
        list(run)
        assert run.statistics().bytes == pytest.approx(500_000, rel=0.05)


def test_stages_behind_a_batch_are_counted() -> None:
    def total(batch: Sample) -> Sample:
        return {**batch, "total": np.full(len(batch["n"]), batch["n"].sum())}

    for own in ({}, {"workers": 2}):
        loader = numbers(100).map(add_one).batch(5).map(total, **own).lanes(1).loader(4, workers=0)
        list(loader)
        samples = {each.name.rpartition(".")[2]: each.samples for each in loader.statistics().stages}
        assert samples["total)"] == 20


def test_skipped_samples_are_counted() -> None:
    def refuse(sample: Sample) -> Sample:
        if sample["n"] % 50 == 0:
            raise ValueError
        return sample

    dataset = numbers(200).map(refuse)
    for run in (dataset.run(on_error="skip"), dataset.loader(8, workers=2, on_error="skip")):
        list(run)
        assert (run.statistics().samples, run.statistics().skipped) == (196, 4)
        assert "4 skipped" in run.statistics().line()


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
def test_a_slow_stage_is_found(options: dict[str, Any]) -> None:
    dataset = numbers(150).map(add_one).map(nap)
    for run in (dataset.run(**options), dataset.loader(8, **options)):
        list(run)
        assert run.statistics().bottleneck == "map(nap)" or options.get("mode") == "process"
        assert run.statistics().waiting > 0.3


class SlowSource(ForwardSource):
    """Takes its time for each block."""

    def open(self, shard: Shard, start: int = 0) -> Iterator[Block]:
        for block in super().open(shard, start):
            time.sleep(0.02)
            yield block


class SlowShelf(MemorySource):
    """Takes its time for each pick."""

    def take(self, shard: Shard, indices: Sequence[int]) -> list[Sample]:
        time.sleep(0.002 * len(indices))
        return super().take(shard, indices)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", [SlowSource, SlowShelf])
def test_a_slow_source_is_found(workers: int, source: Any) -> None:
    dataset = numbers(150, source=source).map(add_one)
    found = dataset.loader(8, workers=workers)
    list(found)
    assert found.statistics().bottleneck == "read"
    if source is SlowSource:
        run = dataset.run(workers=workers)
        list(run)
        assert run.statistics().bottleneck == "read"
        plain = numbers(150, source=source).run(workers=workers)
        list(plain)
        assert plain.statistics().bottleneck == "read"


@pytest.mark.parametrize("options", [{"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
def test_a_slow_consumer_is_found(options: dict[str, Any]) -> None:
    loader = numbers(2000).map(add_one).loader(8, **options)
    batches = iter(loader)
    next(batches)  # a process has to be started first
    loader._meter.begun, loader._meter.waited = time.perf_counter(), 0.0  # type: ignore[union-attr]
    for _ in islice(batches, 30):
        time.sleep(0.03)
    assert loader.statistics().bottleneck == "consumer"
    loader.close()


def test_a_stage_behind_a_batch_that_is_done_by_the_caller_is_found() -> None:
    loader = numbers(200).batch(2).map(nap).loader(2, workers=0)
    list(loader)
    assert loader.statistics().bottleneck == "map(nap)"
    assert "give it workers" in loader.statistics().advice


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}], ids=str)
def test_after_the_end_the_figures_stand_still(options: dict[str, Any]) -> None:
    dataset = numbers(100).map(nap)
    loader = dataset.loader(8, **options)
    batches = iter(loader)
    next(batches)
    loader.close()
    run = dataset.run(**options)
    next(run)
    run.close()
    for each in (loader, run):
        before = each.statistics()
        time.sleep(0.05)
        assert each.statistics() == before


def test_statistics_can_be_asked_for_by_another_thread() -> None:
    """While stages come and go, as with mixtures that begin again."""
    meter, wrong = Meter(), []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                meter.statistics()
            except RuntimeError as error:
                wrong.append(error)
                return

    meter.watch(_Readings())
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(3000):
        meter.add(0, [(0, f"stage {number}", 0.1, 1)])
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


class _Readings:
    def readings(self) -> list[PoolReading]:
        return [PoolReading("", "process", 1, 0, 1, 0.5)]


def test_components_that_begin_again_are_the_same_stages() -> None:
    run = mix([numbers(10).map(add_one, workers=2), numbers(7).map(nap)], exhausted="wrap").run()
    assert len(list(islice(run, 200))) == 200
    found = run.statistics()
    names = [each.name for each in found.stages]
    assert len(names) == len(set(names)) + names.count("copy") - 1
    assert sum(each.samples for each in found.stages if each.name.startswith("map")) >= 200
    assert len(run._flow._streams) <= 2
    run.close()


def test_the_way_to_processes_is_a_stage_of_its_own() -> None:
    meter = Meter()
    meter.watch(_Readings())
    meter.add(0, [(0, "map(f)", 0.2, 10)])
    way = meter.statistics().stages[-1]
    assert (way.name, way.samples) == ("to and from processes", 10)
    assert way.seconds == pytest.approx(0.3)


# How it is said


def test_it_can_be_said_in_one_line() -> None:
    line = statistics(stage(busy=0.9)).line()
    assert line == "50 samples/s, 0 MB/s, waited for 50 % of the time; bottleneck: map(f)"


def test_it_can_be_said_as_a_table() -> None:
    head, names, first, second, advice = str(statistics(stage(busy=0.9), stage("decode()", 0.1, pool=1))).splitlines()
    assert head.startswith("50 samples/s")
    assert names.split() == ["stage", "workers", "samples/s", "busy", "queue"]
    assert first.split() == ["map(f)", "2", "thread", "50", "90%", "25%"]
    assert second.split() == ["decode()", "2", "thread", "50", "10%", "25%"]
    assert len(names) == len(first) == len(second)
    assert "map(f)" in advice
    assert "unknown" in str(Meter().statistics())


def test_it_can_be_said_as_json() -> None:
    found = statistics(stage(busy=0.9))
    text = found.json()
    assert "\n" not in text
    read = json.loads(text)
    stages = tuple(StageStatistics(**each) for each in read.pop("stages"))
    derived = {name: read.pop(name) for name in ("samples_per_second", "megabytes_per_second", "bottleneck", "advice")}
    assert Statistics(**read, stages=stages) == found
    assert derived["bottleneck"] == "map(f)"


SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parsed(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read Prometheus' text format, and refuse what it refuses."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in kinds, "a family comes once"
            assert kind in ("counter", "gauge")
            kinds[family] = kind
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        labels = match["labels"] or ""
        pairs = LABEL.findall(labels)
        assert "".join(f'{name}="{value}",' for name, value in pairs).rstrip(",") == labels
        assert len({name for name, _ in pairs}) == len(pairs)
        assert match["name"] == family, "the lines of a family are together"
        plain = frozenset(
            (name, re.sub(r'\\\\|\\"|\\n', lambda escape: UNESCAPED[escape[0]], value)) for name, value in pairs
        )
        assert (family, plain) not in found, f"{line} comes twice"
        found[family, plain] = float(match["value"])
        assert kinds[family] == "gauge" or family.endswith("_total")
    return found


def test_it_can_be_read_by_prometheus() -> None:
    name = 'map(a "b"\\c\nd)'
    found = parsed(statistics(stage(name, 0.9), stage("decode()", pool=1)).prometheus(job='x"y'))
    assert found["shoal_samples_total", frozenset({("job", 'x"y')})] == 100
    busy = {dict(labels)["stage"]: value for (family, labels), value in found.items() if family == "shoal_stage_busy"}
    assert busy == {name: 0.9, "decode()": 0.5}
    assert parsed(Meter().statistics().prometheus())["shoal_samples_total", frozenset()] == 0


def test_stages_of_one_name_are_told_apart_by_prometheus() -> None:
    loader = numbers(60).map(lambda s: s, workers=1, mode="process").map(lambda s: s, workers=1).filter(even).loader(4)
    list(loader)
    assert parsed(loader.statistics().prometheus(rank="0"))
    assert parsed(statistics(stage(pool=0), stage(pool=1)).prometheus())


# The line on the terminal

PROGRAM = """
    import sys, time
    from support.engine import numbers

    def nap(sample):
        time.sleep(0.01)
        return sample

    for batch in numbers(250).map(nap).loader(10, workers=2, progress=True):
        pass
    sys.stderr.write("the end\\n")
"""


def test_off_a_terminal_progress_is_one_line_at_the_end() -> None:
    done = run_script(PROGRAM)
    assert done.returncode == 0, done.stderr
    line, end = done.stderr.splitlines()
    assert re.fullmatch(r"[\d,]+ samples/s, \d+ MB/s, waited for \d+ % of the time; bottleneck: .*", line)
    assert end == "the end"


def test_on_a_terminal_the_line_is_rewritten() -> None:
    spawn = """
        import os, pty, sys
        code = pty.spawn([sys.executable, "-W", "error", "-c", sys.argv[1]])
        sys.exit(os.waitstatus_to_exitcode(code))
    """
    done = run_script(spawn, arguments=[textwrap.dedent(PROGRAM)])
    assert done.returncode == 0, done.stdout
    lines = done.stdout.replace("\r\n", "\n").split("\n")
    assert lines[1] == "the end"
    written = lines[0].split("\r")[1:]
    assert len(written) >= 3
    assert all(each.endswith("\x1b[K") and "samples/s" in each for each in written)
    assert all(len(each.removesuffix("\x1b[K")) <= 79 for each in written)


def test_without_progress_nothing_is_said() -> None:
    done = run_script(PROGRAM.replace("progress=True", "progress=False"))
    assert (done.returncode, done.stderr, done.stdout) == (0, "the end\n", "")


# Stalls

STALLED = """
    import sys, time, warnings
    from shoal.errors import StallWarning
    from support.engine import numbers

    def wait(sample):
        if sample["n"] in (0, 140):
            time.sleep(2.5)
        return sample

    def tell(message, category, *_):
        assert category is StallWarning
        print(delivered, message)

    warnings.simplefilter("always")
    warnings.showwarning = tell
    dataset = numbers(200).map(wait, workers=2, mode=sys.argv[1])
    delivered = 0
    for item in dataset.run() if sys.argv[2] == "run" else dataset.loader(8, workers=1):
        delivered += 1 if sys.argv[2] == "run" else len(item["n"])
    assert delivered == 200
"""


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("way", ["run", "loader"])
def test_a_silence_is_explained_once(monkeypatch: pytest.MonkeyPatch, mode: str, way: str) -> None:
    monkeypatch.setenv("SHOAL_STALL", "1.2")
    done = run_script(STALLED, arguments=[mode, way])
    assert done.returncode == 0, done.stderr
    # A busy machine has silences of its own, and a loader may wait for several blocks before it has a batch.
    told = [line.split(" ", 1) for line in done.stdout.splitlines()]
    silences = {delivered for delivered, _ in told} if way == "run" else set(done.stdout.splitlines())
    assert len(silences) == len(told)
    for shard in ("memory-0", "memory-2"):
        ours = (line for _, line in told if "of map(wait) has had" in line and f"samples of {shard}" in line)
        line = next(ours)
        assert line.startswith("nothing was delivered for 1.2 s: worker ")
        assert ("(process " in line) == (mode == "process")


def test_no_silence_is_explained_if_nobody_wants_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_STALL", "0")
    done = run_script(STALLED.replace("2.5", "0.5"), arguments=["thread", "run"])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("stages", ["", ".filter(bool)"])
def test_a_silence_of_the_source_names_the_shard(monkeypatch: pytest.MonkeyPatch, stages: str) -> None:
    monkeypatch.setenv("SHOAL_STALL", "0.2")
    text = """
        import sys, time, warnings
        from support.engine import numbers
        from support.lane_sources import MemorySource

        class SlowShelf(MemorySource):
            def take(self, shard, indices):
                time.sleep(0.7)
                return super().take(shard, indices)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(numbers(20, source=SlowShelf)STAGES.loader(20, workers=1))
        for each in caught:
            print(each.message)
    """
    done = run_script(text.replace("STAGES", stages))
    assert done.returncode == 0, done.stderr
    assert re.search(r"worker 0 of read and .* has had \d+ samples of memory-0, in stage read", done.stdout)


def test_a_stall_that_is_made_an_error_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_STALL", "0.1")
    text = """
        import threading, time
        from shoal.errors import StallWarning
        from support.engine import held, numbers

        before = held()
        try:
            list(numbers(3).map(lambda sample: time.sleep(0.3) or sample, workers=1).loader(3))
        except StallWarning:
            time.sleep(1)
            print(held() == before)
    """
    done = run_script(text)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr

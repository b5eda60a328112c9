"""However a run ends, it ends soon and leaves nothing behind: threads, processes, descriptors, memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from shoal.abc import Sample
from shoal.errors import PlanError, StateError
from shoal.pipeline import Dataset
from support.engine import (
    TESTS,
    by_value,
    forward,
    held,
    held_again,
    named_in_shared_memory,
    no_collector,
    numbers,
    run_script,
    wait_until,
)

pytestmark = pytest.mark.timeout(120)

MODES = ["thread", "process"]
WAYS = ["run", "loader", "lanes", "behind a batch"]


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


def grown(sample: Sample) -> Sample:
    """Make something that is large enough to go through shared memory."""
    return {**sample, "array": np.zeros(30_000, np.uint8)}


def begun(way: str, mode: str) -> Any:
    """Begin a run; what it gives is of no matter, and there is much of it."""
    own = {"workers": 2, "mode": mode}
    match way:
        case "run":
            return numbers(5000).map(grown, **own).run(workers=1)
        case "loader":
            return numbers(5000).map(grown, **own).loader(4, workers=1)
        case "lanes":
            return forward(5000).map(grown, **own).loader(4, workers=1)
    return numbers(5000).map(grown).batch(2).map(dict, **own).loader(4, workers=1)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


# In this process


def leave_early(run: Any) -> None:
    for _ in islice(run, 3):
        pass


def fail_in_the_middle(run: Any) -> None:
    with suppress(ZeroDivisionError):
        for _ in run:
            raise ZeroDivisionError


def close_in_the_middle(run: Any) -> None:
    for number, _ in enumerate(run):
        if number == 3:
            run.close()
            break


def drop_the_iterator(run: Any) -> None:
    iterator = iter(run)
    next(iterator)


def never_begin(run: Any) -> None:
    iter(run)


ENDS = [leave_early, fail_in_the_middle, close_in_the_middle, drop_the_iterator, never_begin]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_nothing_is_left(way: str, mode: str, end: Callable[[Any], None]) -> None:
    before = held()
    with no_collector():
        run = begun(way, mode)
        end(run)
        if way == "run":
            del run  # which is its own iterator
        assert held_again(before)


def test_nothing_is_left_over_many_rounds(mode: str) -> None:
    with no_collector():
        before = held()
        for number in range(20):
            run = begun(WAYS[number % len(WAYS)], mode)
            ENDS[number % 3](run)
            del run
        assert held_again(before)


def test_an_iterator_that_is_dropped_takes_its_stream_with_it(mode: str) -> None:
    with no_collector():
        run = begun("run", mode)
        iterator = iter(run)
        next(iterator)
        streams = [weakref.ref(stream) for stream in run._flow._streams]
        del run
        assert all(stream() is not None for stream in streams)
        del iterator
        assert [stream() for stream in streams] == [None]


def test_a_loop_over_a_run_that_is_closed_in_it_ends(way: str) -> None:
    run, seen = begun(way, "thread"), 0
    for _ in run:
        seen += 1
        if seen == 3:
            run.close()
    assert 3 <= seen < 200


def test_a_run_that_is_closed_by_another_thread_ends(mode: str) -> None:
    def slow(sample: Sample) -> Sample:
        time.sleep(0.01)
        return sample

    before = held()
    run = numbers(5000).map(slow, workers=2, mode=mode).run()
    caught: list[BaseException] = []

    def consume() -> None:
        try:
            for _ in run:
                pass
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    time.sleep(0.3)
    run.close()
    thread.join(30)
    assert not thread.is_alive()
    assert [type(error) for error in caught] in ([], [StateError])
    assert held_again(before)


def test_a_run_is_closed_by_its_context() -> None:
    before = held()
    with begun("run", "thread") as run:
        next(run)
    assert held_again(before)
    assert list(run) == []


def test_a_plan_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    lock = threading.Lock()
    plan = numbers(100).map(grown, workers=2).map(lambda sample: lock and sample, workers=1, mode="process")
    before = held()
    for run in (plan.run(), plan.loader(4), plan.filter(bool).loader(4)):
        with pytest.raises(PlanError, match="cannot be sent"):
            next(iter(run))
    assert held_again(before)


def test_an_epoch_that_ends_by_itself_leaves_nothing(way: str, mode: str) -> None:
    before = held()
    with no_collector():
        for _ in begun(way, mode):
            pass
        assert held_again(before)


# Programs

BEGIN = """
    import os, sys, threading, time
    import numpy as np
    import shoal.pipeline  # whoever holds modules lets them be taken apart before what else he holds
    from support.engine import forward, held, numbers

    def grown(sample):
        time.sleep(0.002)
        return {**sample, "array": np.zeros(30_000, np.uint8)}

    mode, way = sys.argv[1:]
    own = {"workers": 2, "mode": mode}
    if way == "run":
        run = numbers(50_000).map(grown, **own).run(workers=1)
    elif way == "loader":
        run = numbers(50_000).map(grown, **own).loader(4, workers=1)
    elif way == "lanes":
        run = forward(50_000).map(grown, **own).loader(4, workers=1)
    else:
        run = numbers(50_000).map(grown).batch(2).map(dict, **own).loader(4, workers=1)
    samples = iter(run)
    next(samples)
    next(samples)
"""

PROGRAMS = {
    "just ends": ("", 0),
    "exits": ("sys.exit(3)", 3),
    "fails": ("raise OSError('on purpose')", 1),
    "ends while a daemon thread iterates": (
        "threading.Thread(target=lambda: list(samples), daemon=True).start(); time.sleep(0.1)",
        0,
    ),
    "ends in a function that is called at exit": ("import atexit; atexit.register(next, samples)", 0),
}


def program(rest: str) -> str:
    return textwrap.dedent(BEGIN) + textwrap.dedent(rest)


def descendants_of(group: int) -> list[int]:
    """List the processes of a session that are not gone."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("way", "mode"), [*product(WAYS, ["thread"]), ("run", "process"), ("behind a batch", "process")]
)
def test_a_program_ends_in_the_middle_of_an_epoch(way: str, mode: str, name: str) -> None:
    rest, code = PROGRAMS[name]
    done = run_script(program(rest), arguments=[mode, way])
    assert done.returncode == code, done.stderr
    if name == "fails":
        assert done.stderr.endswith("OSError: on purpose\n")
    else:
        assert done.stderr == ""


@pytest.mark.parametrize("way", ["run", "loader"])
def test_ctrl_c_ends_a_program(mode: str, way: str) -> None:
    rest = """
        try:
            print("begun", flush=True)
            for _ in samples:
                pass
        except KeyboardInterrupt:
            del samples, run
            end = time.monotonic() + 10
            while (held().threads or held().children) and time.monotonic() < end:
                time.sleep(0.01)
            print(held().threads, held().children)
            sys.exit(7)
    """
    done = run_script(program(rest), arguments=[mode, way], interrupt=True)
    assert (done.returncode, done.stdout) == (7, "begun\n() ()\n"), done.stderr
    assert done.stderr == ""


def test_ctrl_c_that_nobody_catches_ends_a_program(mode: str) -> None:
    rest = 'print("begun", flush=True); list(samples)'
    done = run_script(program(rest), arguments=[mode, "loader"], interrupt=True)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize("way", ["run", "loader"])
@pytest.mark.parametrize("leave", ["os._exit(5)", "sys.exit(5)", "return 5"])
def test_a_fork_in_the_middle_disturbs_nobody(mode: str, way: str, leave: str) -> None:
    rest = """
        from shoal.errors import StateError

        def child():
            try:
                for _ in samples:
                    pass
            except StateError as error:
                assert "fork" in str(error), error
            else:
                os._exit(9)
            mine = numbers(60).map(grown, **own).loader(4, workers=1)
            assert sum(1 for _ in mine) == 15
            LEAVE

        pid = os.fork()
        if not pid:
            sys.exit(child())
        for _ in range(150):
            next(samples)
        _, status = os.waitpid(pid, 0)
        for _ in range(150):
            next(samples)
        assert len(held().children) == (2 if mode == "process" else 0)
        print(os.waitstatus_to_exitcode(status))
    """
    done = run_script(program(rest.replace("LEAVE", leave)), arguments=[mode, way])
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert done.stderr == ""


def test_workers_are_gone_when_their_parent_is_killed(way: str) -> None:
    paths = os.pathsep.join([str(TESTS), str(Path(shoal.__file__).parents[1])])
    process = subprocess.Popen(
        [sys.executable, "-c", program('print("begun", flush=True)\nfor _ in samples: pass'), "process", way],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert wait_until(lambda: len(descendants_of(process.pid)) == 3)
    shared = named_in_shared_memory(*descendants_of(process.pid))
    process.kill()
    process.wait()
    process.stdout.close()
    assert wait_until(lambda: not descendants_of(process.pid))
    assert not any(map(os.path.exists, shared))


def test_a_thread_that_is_held_up_does_not_hold_up_the_end() -> None:
    """Somebody's function cannot be ended from outside; whoever closes waits for it a moment, and goes on."""
    let_go = threading.Event()

    def wait(sample: Sample) -> Sample:
        if sample["n"] == 200:
            let_go.wait(60)
        return sample

    before = held()
    dataset: Dataset = numbers(5000).map(wait, workers=2)
    iterator = iter(dataset.run())
    next(iterator)
    begin = time.monotonic()
    del iterator
    assert time.monotonic() - begin < 30
    let_go.set()
    assert held_again(before)

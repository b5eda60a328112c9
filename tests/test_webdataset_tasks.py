"""distributed_map_unordered: a function over many tasks, in threads or in processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import PlanError
from shoal.webdataset import distributed_map_unordered


def square(n: int) -> int:
    return n * n


def process_of(n: int) -> tuple[int, int]:
    return os.getpid(), n


def in_a_pool_of_its_own(n: int) -> int:
    with multiprocessing.Pool(2) as pool:
        return sum(pool.map(square, range(n)))


def die(n: int) -> None:
    os._exit(3)


@pytest.mark.parametrize("mode", ["auto", "thread", "process"])
def test_every_task_is_done_once(mode: str) -> None:
    assert sorted(distributed_map_unordered(square, range(20), workers=2, mode=mode)) == [n * n for n in range(20)]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_tuple_becomes_arguments(mode: str) -> None:
    got = distributed_map_unordered(lambda a, b: a + b, [("x", "y"), ("p", "q")], mode=mode)
    assert sorted(got) == ["pq", "xy"]
    assert distributed_map_unordered(len, [[1, 2]], mode=mode) == [2]


def test_results_come_as_they_are_done() -> None:
    gate = threading.Event()

    def first_waits(n: int) -> int:
        assert n > 0 or gate.wait(60)
        return n

    def tasks() -> Any:
        yield from range(4)  # as many as two workers have in hand, so that one is done before the next is asked for
        gate.set()
        yield 4

    results = distributed_map_unordered(first_waits, tasks(), workers=2, mode="thread")
    assert sorted(results) == [0, 1, 2, 3, 4]
    assert results[0] == 1
    assert results.index(0) > 0


def test_processes_are_others() -> None:
    here = os.getpid()
    got = distributed_map_unordered(process_of, range(6), workers=2, mode="process")
    assert sorted(n for _, n in got) == list(range(6))
    assert here not in {process for process, _ in got}
    assert {process for process, _ in distributed_map_unordered(process_of, range(6), mode="thread")} == {here}


def test_closures_and_what_they_hold_are_sent() -> None:
    factor = 10

    class Result:
        def __init__(self, value: int) -> None:
            self.value = value

    got = distributed_map_unordered(lambda n: Result(n * factor), [1, 2], mode="process")
    assert sorted(result.value for result in got) == [10, 20]


def test_a_pool_inside_a_process_does_not_hang() -> None:
    assert sorted(distributed_map_unordered(in_a_pool_of_its_own, [3, 4], workers=2, mode="process")) == [5, 14]


def test_what_cannot_be_sent_runs_in_threads() -> None:
    lock = threading.Lock()

    def locked(n: int) -> tuple[int, int]:
        with lock:
            return os.getpid(), n

    got = distributed_map_unordered(locked, range(3), workers=2)
    assert {process for process, _ in got} == {os.getpid()}
    with pytest.raises(PlanError, match=r'locked cannot be sent to another process.*mode="thread"'):
        distributed_map_unordered(locked, range(3), mode="process")


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_the_first_failure_names_its_task(mode: str) -> None:
    def fail(a: int, b: int) -> float:
        return a / b

    with pytest.raises(ZeroDivisionError) as caught:
        distributed_map_unordered(fail, [(1, 1), (5, 0)], workers=2, mode=mode)
    assert caught.value.__notes__[-1] == "in task (5, 0)"


def test_no_task_begins_after_a_failure() -> None:
    before, begun = set(threading.enumerate()), list[int]()  # an engine may have threads of that name, which wait

    def fail(n: int) -> None:
        begun.append(n)
        if n == 0:
            raise ValueError("the first task fails")
        time.sleep(0.02)

    with pytest.raises(ValueError, match="the first task fails"):
        distributed_map_unordered(fail, range(1000), workers=2, mode="thread")
    assert len(begun) < 20
    assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("shoal-task")]


def test_a_failing_list_of_tasks_ends_the_work() -> None:
    def tasks() -> Any:
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError):
        distributed_map_unordered(square, tasks(), mode="thread")


def test_a_worker_that_dies_is_reported() -> None:
    with pytest.raises(RuntimeError) as caught:
        distributed_map_unordered(die, range(3), workers=1, mode="process")
    assert any("a worker process died" in note for note in caught.value.__notes__)


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(PlanError, match="mode='fiber'"):
        distributed_map_unordered(square, [], mode="fiber")
    with pytest.raises(PlanError, match="workers=0"):
        distributed_map_unordered(square, [], workers=0)
    assert distributed_map_unordered(square, []) == []


def test_functions_of_a_script_are_sent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import os
from shoal.webdataset import distributed_map_unordered

offset = 100

def work(n):
    return os.getpid(), n + offset

if __name__ == "__main__":
    results = distributed_map_unordered(work, range(4), workers=2)
    assert os.getpid() not in {process for process, _ in results}
    print(sorted(n for _, n in results))
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "[100, 101, 102, 103]"

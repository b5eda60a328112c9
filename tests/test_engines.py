"""The four engines: the suite that each must pass, how one is chosen, and what is special about each."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import psutil
import pytest

import shoal
from shoal.abc import Engine
from shoal.data import XShards
from shoal.engines import current
from shoal.engines._exchange import groups_of
from shoal.engines._member import Call, serve
from shoal.engines._wire import Door, Kind, Wire
from shoal.engines.local import LocalEngine
from shoal.engines.local._hands import Gauge
from shoal.engines.local._shelf import Shelf
from shoal.errors import PlanError, StateError, WorkerDiedError
from shoal.testing import EngineSuite
from support import clusters
from support.engine import by_value, held, held_again, run_script, wait_until


class TestLocalProcesses(EngineSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        engine = LocalEngine(workers=2, mode="process")
        yield engine
        engine.close()


class TestLocalOnDisk(EngineSuite):
    """Everything that is kept is in the file."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        engine = LocalEngine(workers=2, mode="process", memory=0)
        yield engine
        engine.close()


class Chosen(EngineSuite):
    """An engine that is chosen by its name."""

    name: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Iterator[Engine]:
        clusters.close()  # it is started and ended by its name
        with shoal.init(cls.name, workers=2) as session:
            yield session.engine


class TestRay(Chosen):
    name = "ray"


class TestSpark(Chosen):
    name = "spark"


class TestDask(Chosen):
    name = "dask"


def test_the_local_engine_runs_without_being_chosen() -> None:
    try:
        assert shoal.engine().name == "local"
        assert isinstance(current(), LocalEngine)
    finally:
        shoal.shutdown()


def test_an_engine_is_chosen_once() -> None:
    with shoal.init("local", workers=2) as session:
        assert shoal.init("local", workers=2) is session
        with pytest.raises(PlanError, match=r"local is running already; call shoal.shutdown\(\)"):
            shoal.init("local", workers=1)
        assert current() is session.engine
    assert current() is not session.engine
    shoal.shutdown()
    shoal.shutdown()


def test_what_was_made_before_an_engine_was_chosen_stays() -> None:
    shoal.shutdown()
    early = XShards.from_shards([1, 2])
    with shoal.init("local", workers=1) as session:
        assert current() is session.engine
        assert early.collect() == [1, 2]
    shoal.shutdown()


def test_an_engine_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PlanError, match="did you mean 'spark'"):
        shoal.init("sparc")
    with pytest.raises(PlanError, match="at least one"):
        shoal.init("local", workers=0)
    with pytest.raises(PlanError, match="has no address"):
        shoal.init("local", address="tcp://elsewhere")


def test_threads_that_use_one_processor_together_hinder_each_other() -> None:
    free, bound, idle = Gauge(), Gauge(), Gauge()
    for gauge, processors in ((free, 2.0), (bound, 1.0), (idle, 0.1)):
        for second in range(4):
            gauge.changed(+1 if second < 2 else 0, now=second, cpu=second * processors)
    assert [gauge.hindered for gauge in (free, bound, idle)] == [False, True, False]


def test_one_thread_alone_hinders_nobody() -> None:
    gauge = Gauge()
    for second in range(4):
        gauge.changed(+1 if second % 2 == 0 else -1, now=second, cpu=second)
    assert not gauge.hindered


def spin(seconds: float) -> int:
    total = 0
    for number in range(int(seconds * 4_000_000)):
        total += number % 7
    return os.getpid()


def test_plain_python_goes_to_processes_by_itself() -> None:
    engine = LocalEngine(workers=2)
    try:
        with by_value(__name__):
            pids = list(engine.gather(engine.map(spin, engine.scatter([0.4] * 10))))
        assert pids[0] == os.getpid()
        assert pids[-1] != os.getpid()
    finally:
        engine.close()


def multiply(array: Any) -> int:
    for _ in range(6):
        array = np.sort(np.concatenate([array, array[::-1]]))[: len(array)]
    return os.getpid()


def test_numpy_stays_in_threads() -> None:
    engine = LocalEngine(workers=2)
    try:
        arrays = [np.random.default_rng(0).random(400_000)] * 8
        with by_value(__name__):
            assert set(engine.gather(engine.map(multiply, engine.scatter(arrays)))) == {os.getpid()}
    finally:
        engine.close()


def test_a_task_that_always_kills_its_worker_is_named() -> None:
    engine = LocalEngine(workers=2, mode="process")
    try:
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            list(engine.gather(engine.map(lambda _: os.kill(os.getpid(), 9), engine.scatter([1]))))
        assert list(engine.gather(engine.map(str, engine.scatter([1])))) == ["1"]
    finally:
        engine.close()


def test_a_function_that_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    def guarded(value: Any) -> Any:
        with lock:
            return value

    engine = LocalEngine(workers=1)
    with pytest.raises(PlanError, match="guarded cannot be sent"):
        engine.map(guarded, engine.scatter([1]))
    engine.close()


def test_what_nobody_wants_any_more_is_not_done(tmp_path: Path) -> None:
    engine = LocalEngine(workers=1, mode="thread")
    handle = engine.map(lambda name: Path(name).touch(), engine.scatter([str(tmp_path / f"{n}") for n in range(3)]))
    kept = engine.map(lambda _: time.sleep(0.2), engine.scatter([0]))
    unwanted = engine.map(lambda name: Path(name).touch(), engine.scatter([str(tmp_path / "unwanted")]))
    list(engine.gather(handle))
    engine.free(unwanted)
    del unwanted
    gc.collect()
    list(engine.gather(kept))
    list(engine.gather(engine.map(str, engine.scatter([1]))))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    engine.close()


def test_an_engine_that_is_shut_down_says_so() -> None:
    engine = LocalEngine(workers=1, mode="thread")
    slow = engine.map(lambda _: time.sleep(0.3), engine.scatter(range(50)))
    engine.close()
    with pytest.raises(StateError, match="shut down"):
        list(engine.gather(slow))


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_nothing_is_left_of_an_engine(mode: str) -> None:
    before = held()
    engine = LocalEngine(workers=2, mode=mode, memory=1000)
    handle = engine.map(lambda x: x * 100, engine.scatter([b"abc" * 100] * 20))
    assert len(list(engine.gather(handle))) == 20
    engine.close()
    del handle, engine
    assert held_again(before)


def test_a_program_ends_while_tasks_are_under_way() -> None:
    done = run_script(
        """
        import shoal, time
        from shoal.engines import current
        shoal.init("local", workers=2, mode="process")
        engine = current()
        handle = engine.map(lambda _: time.sleep(100), engine.scatter(range(10)))
        time.sleep(0.5)
        print("leaving")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


def test_a_dask_cluster_ends_with_the_program_that_started_it() -> None:
    program = "import shoal, time; shoal.init('dask', workers=2); print('begun', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        cluster = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert len(cluster) >= 5  # a scheduler, and two workers with a nanny each
    assert wait_until(lambda: not any(part.is_running() for part in cluster), 60)


def test_a_member_that_is_done_is_not_taken_for_lost() -> None:
    """Who waits for a result may hang up as soon as he has it; nothing is to be ended then."""
    lost: list[int] = []

    def hear(wire: Wire) -> None:
        wire.value(Kind.JOIN)
        wire.receive()
        wire.close()

    door = Door("127.0.0.1", 1, hear)
    call = Call(cloudpickle.dumps(lambda member: member.rank), "rank", 1, 0, door.address, door.token)
    for number in range(300):
        serve(call, 0, [], lambda number=number: lost.append(number))
    door.close()
    assert lost == []


def test_room_on_a_shelf_comes_back() -> None:
    shelf = Shelf(memory=100)
    first, second = shelf.keep(b"x" * 80), shelf.keep(b"y" * 80)
    assert shelf.spilled > 0
    assert bytes(first.view()) + bytes(second.view()) == b"x" * 80 + b"y" * 80
    del first
    spilled = shelf.spilled
    third = shelf.keep(b"z" * 80)
    assert shelf.spilled == spilled
    assert bytes(third.view()) == b"z" * 80
    shelf.close()


def test_who_looks_at_a_message_keeps_it() -> None:
    shelf = Shelf(memory=0)
    view = shelf.keep(b"x" * 2_000_000).view()
    other = shelf.keep(b"y" * 2_000_000)
    assert bytes(view) == b"x" * 2_000_000
    shelf.close()
    assert bytes(view) == b"x" * 2_000_000
    with pytest.raises(StateError, match="shut down"):
        other.view()


def test_exchanges_of_many_pieces_go_in_groups() -> None:
    assert len(groups_of(10, 100)) == 100
    groups = groups_of(1000, 1000)
    assert len(groups) <= 33
    assert [piece for group in groups for piece in group] == list(range(1000))

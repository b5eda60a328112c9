"""Work in processes of their own: real ones, that are really killed."""

from __future__ import annotations

import contextlib
import ctypes
import io
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
from PIL import Image

from shoal.abc import Block, Shard
from shoal.engines.local._remote import Remote, RemoteClosed
from shoal.errors import DecodeError, PlanError, ShoalError, WorkerDiedError
from support.engine import held, held_again, named_in_shared_memory, wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    """Or each worker would import pytest and hypothesis."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def remote() -> Iterator[Callable[..., Remote[Any, Any]]]:
    made: list[Remote[Any, Any]] = []

    def make(work: Callable[[Any], Any]) -> Remote[Any, Any]:
        made.append(Remote(work, name="map(test)"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def identity(item: Any) -> Any:
    return item


def test_work_is_done_in_another_process(remote: Any) -> None:
    there = remote(lambda number: (number + 1, os.getpid()))
    assert there.pid is None
    assert there(1) == (2, there.pid)
    assert there(2) == (3, there.pid)
    assert there.pid != os.getpid()
    assert there.deaths == 0


SAMPLES: dict[str, Any] = {
    "c": np.arange(24_000).reshape(20, 30, 40),
    "fortran": np.asfortranarray(np.arange(24_000.0).reshape(200, 120)),
    "strided": np.arange(24_000)[::3],
    "empty": np.empty((0, 3), np.float32),
    "scalar array": np.array(5),
    "structured": np.zeros(3000, [("a", "<i4"), ("b", "S7"), ("c", "f8", (2,))]),
    "strings": np.array(["a", "bcd", "ä" * 300]),
    "objects": np.array([1, "two", None, [4]], object),
    "dates": np.array(["2024-01-01", "NaT"], "M8[D]"),
    "numpy scalar": np.float32(1.5),
    "bytes": [bytes(size) for size in (0, 1, 1000, 40_000, 70_000, 5_000_000)],
    "nested": [{"a": [1, (2, {3}), {"b": None}]}, "text", 1.5, True],
    "text": "ä" * 100_000,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_come_back_as_they_went(remote: Any, name: str) -> None:
    got = remote(identity)({"__key__": "k", "value": SAMPLES[name]})["value"]
    assert type(got) is type(SAMPLES[name])
    if isinstance(got, np.ndarray):
        assert got.dtype == SAMPLES[name].dtype
        assert got.flags.writeable
        np.testing.assert_array_equal(got, SAMPLES[name])
    else:
        assert got == SAMPLES[name]


def test_views_blocks_and_pictures_come_back(remote: Any) -> None:
    there = remote(lambda block: (block, [type(sample["raw"]).__name__ for sample in block.samples]))
    picture = Image.effect_noise((200, 100), 50)
    samples = [{"__key__": "a", "raw": memoryview(bytes(range(256)) * size), "picture": picture} for size in (1, 400)]
    block = Block(samples, [Shard("x.tar")], np.arange(2, dtype=np.uint64), None, 7)
    got, kinds = there(block)
    assert kinds == ["memoryview", "memoryview"]
    assert [sample["raw"] for sample in got.samples] == [sample["raw"] for sample in samples]
    assert all(sample["raw"].readonly for sample in got.samples)
    assert got.samples[0]["picture"].tobytes() == picture.tobytes()
    assert (got.origins, got.salt, got.ids.tolist()) == ([Shard("x.tar")], 7, [0, 1])


def test_results_that_are_kept_stay_as_they_are(remote: Any) -> None:
    there = remote(lambda number: {"a": np.full((120, 100), number), "b": np.full(2000, number)})
    kept = [there(number) for number in range(300)]
    assert all((each["a"] == number).all() and (each["b"] == number).all() for number, each in enumerate(kept))


def keep_inputs(array: Any, kept: list[Any] = []) -> bool:  # noqa: B006
    kept.append(array)
    return all((each == number).all() for number, each in enumerate(kept))


def test_inputs_that_the_work_keeps_stay_as_they_are(remote: Any) -> None:
    there = remote(keep_inputs)
    assert all(there(np.full(20_000, number)) for number in range(150))


def test_no_descriptors_pile_up(remote: Any) -> None:
    def work(array: Any) -> Any:
        return array, len(os.listdir("/proc/self/fd"))

    there = remote(work)
    there(np.zeros(5))
    before = len(os.listdir("/proc/self/fd"))
    theirs = {there(np.zeros(20_000 + 500 * (number % 5)))[1] for number in range(500)}
    assert len(os.listdir("/proc/self/fd")) <= before
    assert max(theirs) < 20
    with open("/proc/self/maps") as maps:
        assert sum("memfd:shoal" in line for line in maps) < 20


def kill_once(args: tuple[str, Any]) -> Any:
    path, value = args
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def test_a_worker_that_is_killed_in_a_call_is_replaced(remote: Any, tmp_path: Path) -> None:
    there = remote(kill_once)
    value = np.arange(50_000)
    assert there((str(tmp_path / "there"), value)).tolist() == value.tolist()
    assert there.deaths == 1


def test_a_worker_that_is_killed_from_outside_is_replaced(remote: Any, tmp_path: Path) -> None:
    def work(folder: str) -> int:
        first = not os.listdir(folder)
        open(os.path.join(folder, str(os.getpid())), "w").close()
        time.sleep(60 if first else 0)
        return os.getpid()

    there = remote(work)

    def kill() -> None:
        assert wait_until(lambda: bool(os.listdir(tmp_path)))
        os.kill(int(os.listdir(tmp_path)[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert there(str(tmp_path)) == there.pid
    killer.join()
    assert there.deaths == 1


def test_a_worker_that_is_killed_between_calls_is_replaced(remote: Any) -> None:
    there = remote(identity)
    there(1)
    os.kill(there.pid, signal.SIGKILL)
    assert there(np.arange(90_000))[-1] == 89_999
    assert there.deaths == 1


def die(how: str) -> str:
    if how == "exit":
        os._exit(3)
    if how != "live":
        os.kill(os.getpid(), getattr(signal, how))
    return how


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [("SIGKILL", -9, "by SIGKILL"), ("SIGSEGV", -11, "by SIGSEGV"), ("exit", 3, "with exit code 3")],
)
def test_an_item_that_kills_twice_is_an_error_and_the_next_is_fine(remote: Any, how: str, code: int, text: str) -> None:
    there = remote(die)
    with pytest.raises(WorkerDiedError, match=rf"map\(test\).*{text}") as caught:
        there(how)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.exitcode, error.signal) == (code, None if code > 0 else how)
    assert error.pid == caught.value.pid
    assert str(error) == str(caught.value)
    assert there("live") == "live"
    assert there.deaths == 2


PARENT = """
import os, sys, time, threading
from shoal.engines.local._remote import Remote
import numpy as np

def busy(item):
    print(os.getpid(), flush=True)
    end = time.monotonic() + 60
    while item is not None and time.monotonic() < end:
        pass
    return np.zeros(100_000)

remote = Remote(busy, name="busy")
kept = remote(None)
remote(np.zeros(100_000))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_worker_dies_with_its_parent(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert int(parent.stdout.readline()) == worker
        shared = named_in_shared_memory(parent.pid, worker)
        parent.send_signal(how)
        parent.wait(60)
        assert wait_until(lambda: gone(worker))
    assert not any(map(os.path.exists, shared))


def test_an_interrupt_of_the_whole_group_is_left_to_the_parent(remote: Any) -> None:
    def work(number: int) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return number

    there = remote(work)
    assert [there(1), there(2)] == [1, 2]
    assert there.deaths == 0


def test_a_call_that_is_interrupted_does_not_give_its_answer_to_the_next(remote: Any) -> None:
    def work(number: int) -> int:
        time.sleep(30 if number == 1 else 0)
        return number

    there = remote(work)
    there(0)
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        there(1)
    timer.join()
    assert there(2) == 2
    assert there.deaths == 0


def test_a_fork_can_neither_use_the_worker_nor_keep_it_alive(remote: Any) -> None:
    there = remote(identity)
    kept = there(np.arange(50_000))
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            there(1)
        except ShoalError as error:
            there.close()
            os.write(theirs, str(error).encode())
        time.sleep(60)
        os._exit(0)
    try:
        assert b"belongs to the process" in os.read(ours, 1000)
        assert there(5) == 5
        assert kept.sum() == np.arange(50_000).sum()
        worker = psutil.Process(there.pid)
        there._process._channel.socket.close()  # as if this process were gone, while the child lives
        assert wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
        os.close(theirs)


def test_forks_while_calls_are_under_way(remote: Any) -> None:
    there = remote(identity)
    got: list[bool] = []

    def calls() -> None:
        got.extend((there(np.full(20_000, number)) == number).all() for number in range(300))

    thread = threading.Thread(target=calls)
    thread.start()
    context = multiprocessing.get_context("fork")
    for _ in range(10):
        child = context.Process(target=os.getpid)
        child.start()
        child.join()
        assert child.exitcode == 0
    thread.join()
    assert got == [True] * 300
    assert there.deaths == 0


def test_work_may_fork(remote: Any) -> None:
    def work(number: int) -> int:
        child = os.fork()
        if child == 0:
            os._exit(number)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    there = remote(work)
    assert [there(number) for number in range(5)] == list(range(5))
    assert there.deaths == 0


def test_close_ends_a_call_that_is_under_way(remote: Any, tmp_path: Path) -> None:
    """Even if a process that the work started, unseen by Python, still holds the worker's end of the connection."""

    def work(path: str) -> None:
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            os.closerange(0, 3)
            time.sleep(60)
            os._exit(0)
        Path(path + ".new").write_text(str(child))
        os.rename(path + ".new", path)
        time.sleep(60)

    there = remote(work)
    ended: list[BaseException] = []

    def call() -> None:
        try:
            there(str(tmp_path / "begun"))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert wait_until((tmp_path / "begun").exists)
    pid = there.pid
    there.close()
    thread.join(60)
    os.kill(int((tmp_path / "begun").read_text()), signal.SIGKILL)
    assert [type(error) for error in ended] == [RemoteClosed]
    assert gone(pid)
    assert there.pid is None


def test_close_leaves_nothing_behind() -> None:
    Remote(identity, name="first").close()
    before = held()
    for _ in range(3):
        there: Remote[Any, Any] = Remote(identity, name="identity")
        kept = there(np.arange(100_000))
        there.close()
        there.close()
        assert kept[-1] == 99_999
        assert there.pid is None
        with pytest.raises(RemoteClosed):
            there(1)
    assert held().shared == before.shared + 1
    del kept
    assert held_again(before)


def test_many_threads_that_close_at_once_are_welcome() -> None:
    before = held()
    for _ in range(5):
        there: Remote[Any, Any] = Remote(time.sleep, name="sleep")
        threads = [threading.Thread(target=call_quietly, args=(there,))]
        threads += [threading.Thread(target=there.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert held_again(before)


def call_quietly(there: Remote[Any, Any]) -> None:
    with contextlib.suppress(RemoteClosed):
        there(20)


def test_work_that_cannot_be_sent_is_refused_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(PlanError, match=r'map\(locked\) cannot be sent.*_thread\.lock.*mode="thread" can run it'):
        Remote(lambda item: lock, name="map(locked)")


def test_work_that_cannot_be_loaded_there_says_why(remote: Any) -> None:
    class Refusing:
        def __reduce__(self) -> Any:
            return eval, ("__import__('no_such_module_there')",)

        def __call__(self, item: Any) -> Any:
            return item

    there = remote(Refusing())
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module_there") as caught:
            there(1)
    assert "could not be loaded" in caught.value.__notes__[0]
    assert there.deaths == 0


def test_items_and_results_that_cannot_be_sent_are_named(remote: Any) -> None:
    there = remote(lambda item: threading.Lock() if item == "lock" else item)
    with pytest.raises(PlanError, match=r"a dict cannot be sent.*generator"):
        there({"a": (n for n in range(3))})
    with pytest.raises(PlanError, match=r"a lock cannot be sent.*'_thread\.lock'"):
        there("lock")
    assert there("fine") == "fine"
    assert there.deaths == 0


def fail(how: str) -> Any:
    if how == "note":
        error = DecodeError("bad", key="k", field="jpg")
        error.add_note("of the worker")
        raise error
    if how == "stubborn":

        class Stubborn(Exception):
            def __init__(self, one: int, two: io.StringIO) -> None:
                super().__init__(f"{one} is stubborn")
                self.two = two
                self.lock = threading.Lock()

        raise Stubborn(1, io.StringIO())
    if how == "chain":
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
    if how == "interrupt":
        raise KeyboardInterrupt
    sys.exit("leaving")


def test_exceptions_come_with_type_attributes_notes_and_traceback(remote: Any) -> None:
    there = remote(fail)
    with pytest.raises(DecodeError, match="sample 'k', field 'jpg': bad") as caught:
        there("note")
    assert (caught.value.key, caught.value.field) == ("k", "jpg")
    first, second = caught.value.__notes__
    assert first == "of the worker"
    assert second.startswith("in a worker process:")
    assert "in fail" in second
    assert "_worker.py" not in second
    with pytest.raises(ValueError, match="outer") as caught_chain:
        there("chain")
    assert "KeyError: 'inner'" in caught_chain.value.__notes__[0]
    assert there.deaths == 0


@pytest.mark.parametrize(
    ("how", "text"),
    [("stubborn", "Stubborn: 1 is stubborn"), ("interrupt", "KeyboardInterrupt"), ("exit", "SystemExit: leaving")],
)
def test_what_cannot_be_raised_here_becomes_a_text(remote: Any, how: str, text: str) -> None:
    there = remote(fail)
    with pytest.raises(ShoalError, match=text):
        there(how)
    with pytest.raises(ShoalError, match=text):
        there(how)
    assert there.deaths == 0


def run_script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_scripts_need_no_guard(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("OFFSET = 100\n")
    out = run_script(
        tmp_path,
        """
        import beside
        from dataclasses import dataclass
        from shoal.engines.local._remote import Remote

        print("once")

        @dataclass
        class Point:
            x: int

        class Odd(Exception):
            pass

        def work(point):
            if point.x == 3:
                raise Odd("three")
            print("seen", point.x)
            return Point(point.x + beside.OFFSET)

        remote = Remote(work, name="map(work)")
        assert remote(Point(1)) == Point(101)
        try:
            remote(Point(3))
        except Odd as error:
            print("odd", error)
        assert remote(Point(2)) == Point(102)
        remote.close()
        """,
    )
    assert sorted(out.split("\n")) == ["", "odd three", "once", "seen 1", "seen 2"]


def test_a_script_that_ends_without_closing_ends(tmp_path: Path) -> None:
    out = run_script(
        tmp_path,
        """
        import numpy as np
        from shoal.engines.local._remote import Remote
        remote = Remote(lambda n: np.arange(n), name="arange")
        kept = [remote(100_000) for _ in range(5)]
        print(remote.pid, sum(each.sum() for each in kept) == 5 * sum(range(100_000)))
        """,
    )
    pid, right = out.split()
    assert right == "True"
    assert wait_until(lambda: gone(int(pid)))

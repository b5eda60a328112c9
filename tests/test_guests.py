"""Calls in other environments: what they do, what they raise, how a guest ends."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.engines import current
from shoal.environments import Environment, Guest, find
from shoal.errors import (
    GuestError,
    GuestTimeoutError,
    PlanError,
    StateError,
    WorkerDiedError,
    WorkerEnvironmentError,
)
from support.engine import by_value, held, held_again, run_script, wait_until
from support.guests import bare_environment, is_running, module


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    """One of our own environment, which has everything."""
    with Guest(sys.executable, quiet=True) as started:
        yield started


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    return bare_environment(tmp_path_factory.mktemp("bare") / "venv")


def test_functions_by_name_with_folders_of_their_modules(tmp_path: Path) -> None:
    folder = module(tmp_path, """
        count = 0
        class Counter:
            @staticmethod
            def more(by=1):
                global count
                count += by
                return count
        """)  # fmt: skip
    with Guest(sys.executable, path=[folder]) as guest:
        assert [guest.call("over_there:Counter.more"), guest.call("over_there:Counter.more", by=5)] == [1, 6]
        assert guest.call("over_there:count.__int__") == 6, "the module stays"
    with (
        Guest(sys.executable) as guest,
        pytest.raises(PlanError, match=r"'over_there' names no function; write it as in 'package\.module:function'"),
    ):
        guest.call("over_there")


def test_a_function_itself_is_sent_where_python_is_the_same(bare: Path) -> None:
    """Also to an environment without cloudpickle, which borrows ours."""
    factor = 3

    def scaled(number: int) -> tuple[int, str]:
        return number * factor, sys.prefix

    with by_value(__name__), Guest(bare) as guest:
        assert guest.call(scaled, 5) == (15, str(bare))
        assert guest.call(lambda: sorted({2, 1})) == [1, 2]
        assert "cloudpickle" not in guest.environment.packages


def test_a_function_is_not_sent_to_another_python(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "_version", (3, 8))
    with pytest.raises(
        PlanError, match=r"cannot be sent from Python 3\.\d+ to 3\.8; name it as 'module:function', with path"
    ):
        guest.call(lambda: 1)


def test_objects_that_stay_with_the_guest(guest: Guest) -> None:
    text = guest.keep("io:StringIO")
    assert text.kind == "_io.StringIO"
    assert text.call("write", "hello") == 5
    assert text.call("getvalue") == "hello"
    assert guest.call("builtins:isinstance", 1, guest.keep("builtins:type", 1)) is True
    with Guest(sys.executable) as other, pytest.raises(PlanError, match="another guest keeps"):
        other.call("builtins:len", text)
    del text
    gc.collect()
    assert guest.call("builtins:abs", 1) == 1  # the next call carries the news
    with by_value(__name__):
        assert (
            guest.call(lambda: sum(type(each).__name__ == "StringIO" for each in __import__("gc").get_objects())) == 0
        )


def test_what_a_guest_raises_is_told_with_its_traceback(tmp_path: Path) -> None:
    folder = module(tmp_path, """
        class Odd(Exception):
            def __reduce__(self):
                import os
                return os._exit, (3,)  # whoever unpickled it would be gone
        def fail(text):
            raise Odd(text)
        def leave():
            raise SystemExit(4)
        """)  # fmt: skip
    with Guest(sys.executable, path=[folder]) as guest:
        with pytest.raises(GuestError, match=r"over_there:fail in .* raised over_there\.Odd: not so") as caught:
            guest.call("over_there:fail", "not so")
        assert caught.value.kind == "over_there.Odd"
        assert "in fail\n    raise Odd(text)" in (caught.value.traceback or "")
        assert "serve.py" not in (caught.value.traceback or "")
        assert "raise Odd(text)" in caught.value.__notes__[0]
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        with pytest.raises(GuestError, match="raised SystemExit: 4"):
            guest.call("over_there:leave")
        with pytest.raises(GuestError, match="raised ModuleNotFoundError: No module named 'nowhere_at_all'"):
            guest.call("nowhere_at_all:f")
        assert guest.call("builtins:abs", -2) == 2, "it goes on"


def test_what_a_guest_says_goes_to_standard_error() -> None:
    done = run_script("""
        import sys
        from shoal.environments import Guest
        with Guest(sys.executable) as guest:
            guest.call("builtins:print", "from afar")
            guest.call("os:system", "echo from its child")
        with Guest(sys.executable, quiet=True) as guest:
            guest.call("builtins:print", "not to be seen")
        """)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "from afar\nfrom its child\n"


def test_nothing_of_our_path_leads_the_guest(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, "", "only_ours")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with by_value(__name__), Guest(bare, variables={"SOME_WORD": "yes"}) as guest:
        assert guest.call("importlib.util:find_spec", "only_ours") is None
        environ = guest.call(lambda: dict(os.environ))
    assert "PYTHONPATH" not in environ
    assert environ["PATH"].startswith(f"{bare}/bin:")
    assert (environ["VIRTUAL_ENV"], environ["SOME_WORD"]) == (str(bare), "yes")


def test_threads_call_one_after_the_other(guest: Guest) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: guest.call("numpy:full", 20_000, number)[-1], range(100)))
    assert results == list(range(100))


def test_a_guest_that_is_killed_in_a_call_is_named() -> None:
    before = held()
    guest = Guest(sys.executable)
    threading.Timer(0.5, os.kill, (guest.pid, signal.SIGKILL)).start()
    with pytest.raises(WorkerDiedError, match=rf"time:sleep in .*: the guest {guest.pid} ended by SIGKILL") as caught:
        guest.call("time:sleep", 60)
    assert (caught.value.pid, caught.value.signal) == (guest.pid, "SIGKILL")
    with pytest.raises(StateError, match="has ended; start another one"):
        guest.call("builtins:abs", 1)
    assert held_again(before)


def test_the_last_words_of_a_guest_are_told(tmp_path: Path) -> None:
    folder = module(
        tmp_path, "import os, sys\ndef leave():\n    print('out of ink', file=sys.stderr)\n    os._exit(3)\n"
    )
    words = "ended with exit code 3; it last said: out of ink"
    with Guest(sys.executable, path=[folder], quiet=True) as guest, pytest.raises(WorkerDiedError, match=words):
        guest.call("over_there:leave")


def test_a_child_that_outlives_a_guest_hides_nothing() -> None:
    """It has inherited the socket and the pipe of the guest's words."""
    guest = Guest(sys.executable, quiet=True)

    def leave_a_child() -> None:
        if os.fork() == 0:
            time.sleep(100)
        os._exit(0)

    with by_value(__name__), pytest.raises(WorkerDiedError, match="exit code 0"):
        guest.call(leave_a_child)


def test_a_call_may_take_so_long_and_no_longer() -> None:
    before = held()
    with Guest(sys.executable) as guest:
        assert guest.call_within(60, "builtins:abs", -1) == 1
        with pytest.raises(
            GuestTimeoutError, match=r"time:sleep in .* took longer than 0\.2 s, and the guest was ended"
        ):
            guest.call_within(0.2, "time:sleep", 60)
        assert not guest.is_alive
    with Guest(sys.executable, timeout=0.2) as guest, pytest.raises(TimeoutError):
        guest.call("time:sleep", 60)
    assert held_again(before)


def test_closing_from_another_thread_ends_a_call() -> None:
    guest = Guest(sys.executable)
    threading.Timer(0.3, guest.close).start()
    with pytest.raises(StateError, match="was closed while it did time:sleep"):
        guest.call("time:sleep", 60)
    guest.close()


def test_a_guest_that_is_closed_ends_in_order(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    folder = module(tmp_path, """
        import atexit, pathlib
        def at_end(path):
            atexit.register(pathlib.Path(path).write_text, "ended")
        """)  # fmt: skip
    with Guest(sys.executable, path=[folder]) as guest:
        guest.call("over_there:at_end", str(mark))
    assert mark.read_text() == "ended"


def test_a_guest_that_is_forgotten_is_ended() -> None:
    before = held()
    guest = Guest(sys.executable)
    assert guest.call("builtins:abs", -1) == 1
    del guest
    gc.collect()
    assert held_again(before)


@pytest.mark.parametrize("holds_the_lock", [False, True])
def test_a_guest_dies_with_its_host(holds_the_lock: bool) -> None:
    """Also while a library holds the interpreter's lock, so that no thread of the guest could notice."""
    call = (
        'guest.call(lambda: __import__("ctypes").PyDLL(None).sleep(100))'
        if holds_the_lock
        else 'guest.call("time:sleep", 100)'
    )
    script = f"""
import sys, threading
from shoal.environments import Guest
guest = Guest(sys.executable)
threading.Timer(0.5, print, (guest.pid,), {{"flush": True}}).start()
{call}
"""
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    host.kill()
    host.wait()
    host.stdout.close()
    assert wait_until(lambda: not is_running(pid))


def test_a_guest_ends_with_a_program_that_forgot_it() -> None:
    done = run_script("""
        import sys
        from shoal.environments import Guest
        guest = Guest(sys.executable)
        print(guest.pid)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert not is_running(int(done.stdout))


@pytest.mark.parametrize(
    "garbage", [b"\0" * 100, b"HTTP/1.1 200 OK\r\n" * 10, b"SHGU\0\0\0\0" + b"\xff" * 16, b"SHGU\1\0\0\0" + bytes(16)]
)
def test_garbage_from_a_guest_is_called_so(garbage: bytes) -> None:
    before = held()
    with Guest(sys.executable) as guest, by_value(__name__):
        with pytest.raises(GuestError, match="sent what is no answer"):
            guest.call(lambda data: os.write(int(sys.argv[1]), data) and time.sleep(60), garbage)
        assert not guest.is_alive
    assert held_again(before)


def test_an_answer_that_no_encoder_makes_is_called_so() -> None:
    head, text = (
        "<4sBxxxQQ",
        b'{"tree":{"result":{"k":"array","dtype":"|O","shape":[1],"order":"C","b":0}},"sizes":[8]}',
    )

    def forge() -> None:
        import struct

        os.write(int(sys.argv[1]), struct.pack(head, b"SHGU", 0, len(text), 8) + text + bytes(8))
        time.sleep(60)

    with Guest(sys.executable) as guest, by_value(__name__), pytest.raises(GuestError, match="sent what is no answer"):
        guest.call(forge)


def test_a_file_of_memory_that_could_shrink_is_refused() -> None:
    """Whoever maps it would be ended by SIGBUS."""

    def forge() -> None:
        import array
        import socket
        import struct

        file = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, 10**6)
        text = b'{"tree":{"result":{"k":"bytes","b":0}},"sizes":[1000000]}'
        end = socket.socket(fileno=os.dup(int(sys.argv[1])))
        head = struct.pack("<4sBxxxQQ", b"SHGU", 1, len(text), 10**6)
        end.sendmsg([head + text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
        time.sleep(60)

    before = held()
    with Guest(sys.executable) as guest, by_value(__name__), pytest.raises(GuestError, match="not sealed"):
        guest.call(forge)
    assert held_again(before)


def test_a_forked_child_cannot_use_the_guest() -> None:
    done = run_script("""
        import os, sys, warnings
        from shoal.environments import Guest
        from shoal.errors import StateError
        guest = Guest(sys.executable)
        warnings.simplefilter("ignore")  # of forks with threads
        child = os.fork()
        if child == 0:
            try:
                guest.call("builtins:abs", -1)
            except StateError as error:
                print(error)
            guest.close()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        print(guest.call("builtins:abs", -5))
        guest.call("builtins:print", "still heard")
        guest.close()
        """)
    assert (done.returncode, done.stderr) == (0, "still heard\n")
    first, second = done.stdout.splitlines()
    assert "belongs to the process" in first
    assert "this is a fork of it; start one here" in first
    assert second == "5"


def test_an_interrupt_in_a_call_ends_the_guest(tmp_path: Path) -> None:
    done = run_script(
        """
        import os, sys, threading, time
        from shoal.environments import Guest
        def tell():
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
            print("ready", flush=True)
        guest = Guest(sys.executable)
        threading.Thread(target=tell, daemon=True).start()
        try:
            guest.call("os:system", f"touch {sys.argv[1]}; sleep 60")
        except KeyboardInterrupt:
            print(guest.is_alive)
        """,
        arguments=[str(tmp_path / "mark")],
        interrupt=True,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["ready", "False"])


def test_a_guest_does_not_travel_and_its_environment_does(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match="send its environment, and start one there"):
        pickle.dumps(guest)
    sent = pickle.loads(pickle.dumps(guest.environment))
    assert sent == guest.environment
    gone = Environment("/elsewhere", "/elsewhere/bin/python", "3.11.7")
    with pytest.raises(
        WorkerEnvironmentError, match=f"on host {os.uname().nodename} there is no /elsewhere/bin/python"
    ):
        Guest(gone)


def test_members_of_a_gang_start_guests_of_an_environment_that_was_sent_to_them(bare: Path) -> None:
    environment = find(bare)

    def work(member: Any) -> tuple[int, str]:
        with Guest(environment) as guest:
            return guest.call("builtins:pow", 2, member.rank), guest.call("sys:prefix.__str__")

    with shoal.init("local"), by_value(__name__), current().gang(work, 2) as gang:
        assert gang.results() == [(1, str(bare)), (2, str(bare))]

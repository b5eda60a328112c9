"""Workers that are forked from a process which has imported what they need."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.abc import Member, Resources
from shoal.engines.local._nursery import nursery
from support.engine import by_value, run_script, wait_until

MODULES = ("numpy", "shoal.engines._member", "colorsys")
WARM = Resources(modules=MODULES)


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__), shoal.init("local", workers=2):
        yield


def looked(function: Any, size: int = 2, **options: Any) -> list[Any]:
    from shoal.engines import current

    with current().gang(function, size, resources=WARM, **options) as gang:
        return gang.results()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def about(member: Member) -> dict[str, Any]:
    return {
        "parent": os.getppid(),
        "imported": "colorsys" in sys.modules,
        "folder": os.getcwd(),
        "variable": os.environ.get("NURSERY_TEST"),
        "path": list(sys.path),
        "numbers": (random.random(), float(np.random.random())),
        "open": sorted(os.listdir("/proc/self/fd")),
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    }


def test_workers_are_forks_that_have_the_place_of_who_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked(about)  # the nursery is there now
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NURSERY_TEST", "there")
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    first, second = looked(about)
    assert first["parent"] == second["parent"] != os.getpid()
    assert first["imported"]
    assert first["folder"] == str(tmp_path)
    assert first["variable"] == "there"
    assert first["path"][0] == str(tmp_path / "more")
    assert len({*first["numbers"], *second["numbers"]}) == 4
    assert first["blocked"] == set()
    third, _ = looked(about)
    assert third["parent"] == first["parent"]
    assert len(third["open"]) == len(first["open"]) == len(second["open"])


def test_what_a_worker_prints_goes_where_ours_goes(capfd: pytest.CaptureFixture[str]) -> None:
    def talks(member: Member) -> None:
        print(f"rank {member.rank} talks")
        os.write(2, b"and complains\n")

    looked(talks)
    out, error = capfd.readouterr()
    assert sorted(out.split("\n")) == ["", "rank 0 talks", "rank 1 talks"]
    assert error == "and complains\n" * 2


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    def dies_once(member: Member) -> int:
        if member.attempt == 0 and member.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(member.all_gather(member.attempt))

    assert looked(dies_once) == [2, 2]


def test_workers_that_hang_are_killed_when_the_gang_ends() -> None:
    from shoal.engines import current

    def tells_and_sleeps(member: Member) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        member.report(os.getpid())
        signal.pause()

    gang = current().gang(tells_and_sleeps, 2, resources=WARM)
    reports = gang.reports()
    pids = [next(reports)[1] for _ in range(2)]
    gang.close()
    assert wait_until(lambda: not any(map(_runs, pids)))


def test_another_nursery_comes_after_one_that_was_killed() -> None:
    first = looked(about)[0]["parent"]
    os.kill(first, signal.SIGKILL)
    assert wait_until(lambda: not _runs(first))
    assert looked(about)[0]["parent"] != first


def test_few_nurseries_are_kept() -> None:
    made = [nursery([*MODULES, name], dict(os.environ)) for name in ("wave", "chunk", "sndhdr")]
    assert [each.is_alive for each in made] == [False, True, True]
    assert nursery([*MODULES, "sndhdr"], dict(os.environ)) is made[2]


def test_it_ends_with_the_program() -> None:
    script = """
        import os, signal, sys
        import shoal
        from shoal.abc import Resources
        from shoal.engines import current

        def parent(member):
            return os.getppid()

        with current().gang(parent, 2, resources=Resources(modules=("shoal.engines._member",))) as gang:
            print(gang.results()[0], flush=True)
        if not os.fork():
            print(current().gang(parent, 1, resources=Resources(modules=("shoal.engines._member",))).results()[0])
            sys.exit()
        assert os.wait()[1] == 0
        if sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    """
    for how, code in (("end", 0), ("kill", -signal.SIGKILL)):
        done = run_script(script, arguments=[how])
        assert done.returncode == code, done.stderr
        first, second = map(int, done.stdout.split())
        assert first != second  # a fork of the program has its own
        assert wait_until(lambda: not any(map(_runs, (first, second))))  # noqa: B023  (called at once)

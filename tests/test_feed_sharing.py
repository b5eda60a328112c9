"""Several jobs share what feeders prepare: each sample is made once, and each job sees all, in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import feed
from shoal.errors import FeedError
from shoal.feed._pieces import Piece
from shoal.feed._sharing import SharedRuns
from shoal.feed._ticket import Ticket
from shoal.order import Part
from shoal.pipeline.runs import Position
from support import feed_plans
from support.feed import TOKEN, feeder_processes

PLANS = f"{Path(__file__).parent}/support/feed_plans.py"


class Source:
    """Makes pieces, and counts them."""

    def __init__(self, count: int) -> None:
        self._count, self.made, self.begun, self.closed = count, 0, list[int](), 0

    def __call__(self, ticket: Ticket) -> Iterator[Piece]:
        self.begun.append(ticket.position.slot)
        try:
            for number in range(ticket.position.slot // 4, self._count):
                self.made += 1
                yield Piece(4, marks=str(number).encode())
        finally:
            self.closed += 1


def ticket(slot: int = 0, jobs: int = 2, epoch: int = 0, job: str = "job") -> Ticket:
    return Ticket({}, Part(4, some=(0,)), Position(epoch, slot), job=job, jobs=jobs)


def numbers(pieces: Iterator[Piece]) -> list[int]:
    return [int(piece.marks) for piece in pieces]


def test_each_piece_is_made_once_and_seen_by_all() -> None:
    source = Source(50)
    runs = SharedRuns(source)
    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(lambda _: numbers(runs.course(ticket(jobs=3))), range(3)))
    assert seen == [list(range(50))] * 3
    assert (source.made, source.begun, source.closed) == (50, [0], 1)


def test_they_begin_where_the_one_is_who_is_furthest_behind() -> None:
    source = Source(30)
    runs = SharedRuns(source)
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(lambda slot: numbers(runs.course(ticket(slot))), [40, 12]))
    assert seen == [list(range(10, 30)), list(range(3, 30))]
    assert source.begun == [12]


def test_who_is_ahead_waits_for_the_others_within_a_bounded_window() -> None:
    source = Source(100)
    runs = SharedRuns(source)
    with ThreadPoolExecutor(1) as pool:
        ahead, behind = pool.submit(lambda: numbers(runs.course(ticket()))), runs.course(ticket())
        for number in range(60):
            assert int(next(behind).marks) == number
            assert source.made <= number + 10
        behind.close()  # type: ignore[attr-defined]
        assert ahead.result(30) == list(range(100))


def test_who_comes_too_late_has_a_run_of_his_own_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TIMEOUT", "0.2")
    source = Source(20)
    runs = SharedRuns(source)
    first = runs.course(ticket())  # nobody else came
    assert [int(next(first).marks) for _ in range(5)] == [0, 1, 2, 3, 4]
    late = runs.course(ticket())
    assert numbers(late) == list(range(20))
    assert numbers(first) == list(range(5, 20))
    assert len(source.begun) == 2


def test_jobs_that_differ_in_something_do_not_share() -> None:
    source = Source(3)
    runs = SharedRuns(source)
    for each in (ticket(jobs=1), ticket(jobs=1, job="other"), replace(ticket(jobs=1), part=Part(8, some=(0,)))):
        assert numbers(runs.course(each)) == [0, 1, 2]
    assert len(source.begun) == 3
    with pytest.raises(FeedError, match="jobs=0"):
        runs.course(ticket(jobs=0))


def test_who_never_asks_for_a_piece_is_not_waited_for() -> None:
    runs = SharedRuns(Source(5))
    idle = runs.course(ticket(jobs=1))
    assert numbers(runs.course(ticket(jobs=1))) == list(range(5))
    del idle


def test_an_error_is_for_everybody() -> None:
    def broken(ticket: Ticket) -> Iterator[Piece]:
        yield Piece(1, marks=b"0")
        raise ValueError("no more")

    runs = SharedRuns(broken)

    def read(_: int) -> str:
        course = runs.course(ticket())
        assert int(next(course).marks) == 0
        with pytest.raises(ValueError, match="no more") as caught:
            next(course)
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read, range(2))) == ["no more"] * 2


@pytest.mark.parametrize("shared", [True, False], ids=["in shared memory", "over the network"])
def test_jobs_in_other_threads_get_the_same_batches_of_which_each_sample_was_made_once(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes.txt"
    notes.touch()
    monkeypatch.setenv("FEED_NOTES", str(notes))
    with feeder_processes(2, f"{PLANS}:noted", tmp_path) as feeders:
        urls = [feeder.url for feeder in feeders]

        def job(number: int) -> list[str]:
            loader = feed.connect(urls, 64, token=TOKEN, share="sweep", jobs=2, shared_memory=shared)
            return feed_plans.digests(loader)

        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(job, range(2))
    assert one == other
    assert set(Counter(feed_plans.made(notes)).values()) == {1}
    assert one == feed_plans.digests(feed_plans.noted().loader(64))


def test_a_job_that_is_killed_does_not_hold_the_other_up(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
from itertools import islice
sys.path.insert(0, {str(Path(__file__).parent)!r})
from shoal import feed
loader = feed.connect(sys.argv[1:], 50, token={TOKEN!r}, share="sweep", jobs=2)
for _ in islice(loader, 5):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    expected = feed_plans.digests(feed_plans.few().loader(50))
    with feeder_processes(2, f"{PLANS}:few", tmp_path) as feeders:
        urls = [feeder.url for feeder in feeders]
        other = subprocess.Popen([sys.executable, "-c", script, *urls])
        loader = feed.connect(urls, 50, token=TOKEN, share="sweep", jobs=2)
        assert feed_plans.digests(loader) == expected
        assert other.wait(60) == -signal.SIGKILL

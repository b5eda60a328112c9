"""What every engine must do.

Make a class of this one with a fixture ``engine``, and let pytest run it::

    class TestMyEngine(EngineSuite):
        @pytest.fixture(scope="class")
        def engine(self):
            engine = MyEngine(workers=2)
            yield engine
            engine.close()
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shoal.abc import Engine, Member, Resources
from shoal.errors import PlanError, StateError, WorkerDiedError
from shoal.testing.faults import die_once

__all__ = ["EngineSuite"]


class EngineSuite:
    """Tests of an engine that has at least two workers, in processes of their own.

    >>> from shoal.engines import current
    >>> EngineSuite().test_objects_come_back_in_their_order(current())  # as pytest calls it
    """

    def test_objects_come_back_in_their_order(self, engine: Engine) -> None:
        """What is scattered is gathered, whatever it is."""
        objects = [1, "two", [3], {"four": np.arange(4)}, None, b"six"]
        found = list(engine.gather(engine.scatter(objects)))
        assert repr(found) == repr(objects)

    def test_some_shards_are_gathered_by_their_numbers(self, engine: Engine) -> None:
        """In the order that is asked for, and more than once."""
        handle = engine.scatter(range(10))
        assert list(engine.gather(handle, [7, 0, 7])) == [7, 0, 7]
        assert len(handle) == 10

    def test_no_shards_are_a_collection_too(self, engine: Engine) -> None:
        """A collection may be empty, also in a map and in an exchange."""
        handle = engine.scatter([])
        assert (len(handle), list(engine.gather(handle))) == (0, [])
        assert list(engine.gather(engine.map(str, handle))) == []
        assert list(engine.gather(engine.exchange(list, handle, 2))) == [[], []]

    def test_a_function_is_called_with_each_shard(self, engine: Engine) -> None:
        """Functions without a name in any module too."""
        plus = 3
        assert list(engine.gather(engine.map(lambda x: x + plus, engine.scatter(range(5))))) == [3, 4, 5, 6, 7]

    def test_collections_are_taken_side_by_side(self, engine: Engine) -> None:
        """A function gets one shard of each."""
        one, two, three = (engine.scatter(letters) for letters in ("abc", "def", "ghi"))
        made = engine.map(lambda *letters: "".join(letters), one, two, three)
        assert list(engine.gather(made)) == ["adg", "beh", "cfi"]

    def test_collections_of_different_lengths_are_refused(self, engine: Engine) -> None:
        """Before anything is started."""
        _raises(PlanError, "side by side", lambda: engine.map(print, engine.scatter("ab"), engine.scatter("abc")))

    def test_pieces_come_together_in_the_order_of_their_shards(self, engine: Engine) -> None:
        """Shard j of an exchange is piece j of every shard."""
        made = engine.exchange(lambda text: list(text), engine.scatter(["abc", "def", "ghi", "jkl"]), 3)
        assert list(engine.gather(made)) == [["a", "d", "g", "j"], ["b", "e", "h", "k"], ["c", "f", "i", "l"]]

    def test_many_pieces_come_together_too(self, engine: Engine) -> None:
        """Large exchanges may go another way, with the same result."""
        shards, pieces = 70, 81
        handle = engine.scatter(range(shards))
        made = engine.exchange(lambda number: [(number, piece) for piece in range(81)], handle, pieces)
        found = list(engine.gather(made, [0, 40, 80]))
        assert found == [[(number, piece) for number in range(shards)] for piece in (0, 40, 80)]

    def test_a_wrong_number_of_pieces_is_told(self, engine: Engine) -> None:
        """By whoever asks for the result."""
        made = engine.exchange(lambda text: list(text), engine.scatter(["abc", "de"]), 3)
        _raises(PlanError, "2 pieces of a shard, and not 3", lambda: list(engine.gather(made)))

    def test_a_shard_may_be_changed_by_who_gets_it(self, engine: Engine) -> None:
        """The one that is kept stays as it is, and arrays can be written to."""

        def negate(array: Any) -> Any:
            array *= -1
            return array

        handle = engine.scatter([np.arange(1000), np.ones(3)])
        for _ in range(2):
            first, second = engine.gather(engine.map(negate, handle))
            assert first.tolist() == list(range(0, -1000, -1))
            assert second.tolist() == [-1, -1, -1]
        first, _ = engine.gather(handle)
        first[0] = 7
        assert next(iter(engine.gather(handle)))[0] == 0

    def test_an_error_says_where_it_was_raised(self, engine: Engine) -> None:
        """It is of the class that was raised, and tells the shard and the line of the function."""

        def divide(number: int) -> float:
            return 1 / number

        made = engine.map(divide, engine.scatter([1, 2, 0, 4]))
        assert list(engine.gather(made, [0, 1, 3])) == [1, 0.5, 0.25]
        error = _raises(ZeroDivisionError, "division", lambda: list(engine.gather(made)))
        notes = "\n".join(getattr(error, "__notes__", ()))
        assert "shard 2 of 4" in notes
        assert "return 1 / number" in notes or "in divide" in notes

    def test_an_error_goes_through_what_follows(self, engine: Engine) -> None:
        """Nobody is called with it, and it is told in the end."""
        failed = engine.map(_refuse, engine.scatter(range(3)))
        made = engine.map(len, engine.exchange(partial(_dealt, pieces=2), engine.map(_tupled, failed), 2))
        error = _raises(LookupError, "refused 1", lambda: list(engine.gather(made)))
        assert "shard 1 of 3" in "\n".join(getattr(error, "__notes__", ()))

    def test_arrays_keep_type_and_shape(self, engine: Engine) -> None:
        """Also those that are empty, or not in the usual order."""
        arrays = [np.zeros((0, 3)), np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(["a", "bc"]), np.array(1.5)]
        for array, found in zip(arrays, engine.gather(engine.map(_same, engine.scatter(arrays))), strict=True):
            assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())

    def test_what_is_freed_is_gone(self, engine: Engine) -> None:
        """And nothing else with it."""
        one, two = engine.scatter([1]), engine.scatter([2])
        engine.free(one)
        assert list(engine.gather(two)) == [2]

    def test_a_worker_that_is_killed_in_a_map_changes_nothing(self, engine: Engine, tmp_path: Path) -> None:
        """Its tasks are done by others."""
        handle = engine.scatter(range(12))
        made = engine.map(partial(_killed_once, at=5, mark=str(tmp_path / "map")), handle)
        assert list(engine.gather(made)) == [number * 10 for number in range(12)]
        assert (tmp_path / "map").exists()

    def test_a_worker_that_is_killed_in_an_exchange_changes_nothing(self, engine: Engine, tmp_path: Path) -> None:
        """What it had made is made again, if it was lost with it."""
        handle = engine.map(_tupled, engine.scatter(range(8)))
        made = engine.exchange(partial(_killed_in_cutting, mark=str(tmp_path / "cut")), handle, 3)
        lengths = engine.map(partial(_killed_in_reading, mark=str(tmp_path / "read")), made)
        assert list(engine.gather(lengths)) == [[(number, piece) for number in range(8)] for piece in range(3)]
        assert (tmp_path / "cut").exists()
        assert (tmp_path / "read").exists()

    def test_members_of_a_gang_work_at_once_and_meet(self, engine: Engine) -> None:
        """Each in a process of its own; results and what they gather are by rank."""
        with engine.gang(_met, 2) as gang:
            first, second = gang.results()
        assert [first[0], second[0]] == [0, 1]
        assert first[1:] == second[1:]
        assert len(set(first[1])) == 2

    def test_members_report_while_they_work(self, engine: Engine) -> None:
        """What one says comes in the order in which he said it."""
        with engine.gang(_reporting, 2) as gang:
            told = list(gang.reports())
            assert gang.results() == [None, None]
        assert [value for rank, value in told if rank == 1] == ["rank 1", 1]
        assert len(told) == 4

    def test_members_have_their_share_of_shards(self, engine: Engine) -> None:
        """In the order of the shards; the first members have those that are left over."""
        shards = engine.map(_tupled, engine.scatter(range(5)))
        with engine.gang(_all_shards, 2, shards=shards) as gang:
            assert gang.results() == [[(0,), (1,), (2,)], [(3,), (4,)]]

    def test_a_gang_begins_again_as_a_whole(self, engine: Engine) -> None:
        """When the worker of a member is killed, while others wait for it."""
        with engine.gang(_killed_member, 2) as gang:
            assert gang.results() == [[1, 1], [1, 1]]

    def test_a_gang_whose_members_always_die_is_given_up(self, engine: Engine) -> None:
        """After so many times."""
        with engine.gang(_killed_always, 2, restarts=1) as gang:
            _raises(WorkerDiedError, "began 2 times", gang.results)

    def test_what_a_member_raises_is_raised_once(self, engine: Engine) -> None:
        """With its rank and its traceback; nobody begins again, and nobody waits for it."""
        with engine.gang(_failing_member, 2) as gang:
            error = _raises(LookupError, "attempt 0", gang.results)
        notes = "\n".join(getattr(error, "__notes__", ()))
        assert "rank 1 of 2" in notes
        assert "_failing_member" in notes

    def test_a_member_that_waits_for_one_that_is_done_is_told(self, engine: Engine) -> None:
        """It would wait for ever."""
        with engine.gang(_alone, 2) as gang:
            _raises(PlanError, "rank 0 waits in all_gather for rank 1", gang.results)

    def test_a_gang_can_be_closed(self, engine: Engine) -> None:
        """Whatever its members are doing; there is room for the next one then."""
        with engine.gang(_sleeping, 2) as gang:
            assert next(gang.reports())[1] == "asleep"
        _raises(StateError, "closed", gang.results)
        with engine.gang(_met, 2) as gang:
            assert len(gang.results()) == 2

    def test_a_gang_for_which_there_is_no_room_is_refused(self, engine: Engine) -> None:
        """At once."""
        _raises(PlanError, "at once, and there are", lambda: engine.gang(_met, 2, resources=Resources(1, gpus=500)))
        _raises(PlanError, "at least one", lambda: engine.gang(_met, 0))

    def test_it_tells_what_runs_where(self, engine: Engine) -> None:
        """With at least one worker."""
        info = engine.describe()
        assert info.name
        assert sum(worker.cpus for worker in info.workers) >= 1


def _met(member: Member) -> tuple[int, list[int], int]:
    return member.rank, member.all_gather(os.getpid()), member.size


def _reporting(member: Member) -> None:
    member.report(f"rank {member.rank}")
    member.report(member.rank)


def _all_shards(member: Member) -> list[Any]:
    return list(member.shards)


def _killed_member(member: Member) -> list[int]:
    if member.rank == 1 and member.attempt == 0:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    return member.all_gather(member.attempt)


def _killed_always(member: Member) -> None:
    member.all_gather(None)
    if member.rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    member.all_gather(None)


def _failing_member(member: Member) -> None:
    if member.rank == 1:
        raise LookupError(f"in attempt {member.attempt}")
    member.all_gather(None)


def _alone(member: Member) -> None:
    if member.rank == 0:
        member.all_gather(None)


def _sleeping(member: Member) -> None:
    member.report("asleep")
    time.sleep(600)


def _raises(kind: type[Exception], text: str, call: Any) -> Exception:
    try:
        call()
    except kind as error:
        caught = error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")
    assert text in str(caught), str(caught)
    return caught


def _same(value: Any) -> Any:
    return value


def _tupled(value: Any) -> Any:
    return (value,)


def _refuse(number: int) -> int:
    if number == 1:
        raise LookupError(f"refused {number}")
    return number


def _dealt(shard: Any, pieces: int) -> list[Any]:
    return [shard] * pieces


def _killed_once(number: int, *, at: int, mark: str) -> int:
    if number == at:
        die_once(mark, delay=0.2)
    return number * 10


def _killed_in_cutting(shard: tuple[int], *, mark: str) -> list[Any]:
    if shard[0] == 4:
        die_once(mark, delay=0.2)
    return [(shard[0], piece) for piece in range(3)]


def _killed_in_reading(pieces: list[Any], *, mark: str) -> list[Any]:
    if pieces[0][1] == 1:
        die_once(mark, delay=0.2)
    return pieces

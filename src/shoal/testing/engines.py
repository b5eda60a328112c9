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

from shoal.abc import Engine
from shoal.errors import PlanError

__all__ = ["EngineSuite"]


class EngineSuite:
    """Tests of an engine that has at least two workers, in processes of their own."""

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

    def test_it_tells_what_runs_where(self, engine: Engine) -> None:
        """With at least one worker."""
        info = engine.describe()
        assert info.name
        assert sum(worker.cpus for worker in info.workers) >= 1


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


def _die_once(mark: str) -> None:
    """Kill the process that this runs in, unless one was killed before."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    time.sleep(0.2)  # others are in the middle of something, too
    os.kill(os.getpid(), signal.SIGKILL)


def _killed_once(number: int, *, at: int, mark: str) -> int:
    if number == at:
        _die_once(mark)
    return number * 10


def _killed_in_cutting(shard: tuple[int], *, mark: str) -> list[Any]:
    if shard[0] == 4:
        _die_once(mark)
    return [(shard[0], piece) for piece in range(3)]


def _killed_in_reading(pieces: list[Any], *, mark: str) -> list[Any]:
    if pieces[0][1] == 1:
        _die_once(mark)
    return pieces

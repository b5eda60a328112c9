"""Streams of work: in order whatever the times, within their bounds, and gone when nobody holds them."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from shoal.abc import Pool, Step, Stream
from shoal.engines.local import LocalEngine
from shoal.engines.local import _stream as stream_module
from shoal.errors import PlanError, StateError, WorkerDiedError
from support.engine import Goods, by_value, held, held_again, no_collector, numbers, wait_until

pytestmark = pytest.mark.timeout(120)

MB = 10**6


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture
def start() -> Iterator[Callable[..., Stream[Any, Any]]]:
    made: list[Stream[Any, Any]] = []

    def make(*steps: Step, memory: int = 2**30, ahead: int = 1) -> Stream[Any, Any]:
        made.append(LocalEngine().stream(steps, memory=memory, ahead=ahead))
        return made[-1]

    yield make
    for each in made:
        each.close()


def step(work: Callable[[Any], Any], workers: Any = 2, mode: str = "thread") -> Step:
    return Step(getattr(work, "__name__", "work"), work, Pool(workers, mode))


def results(stream: Stream[Any, Any], goods: Sequence[Any]) -> Iterator[Any]:
    """Send parcels through a stream as a run does: as many as it takes, then one out."""
    coming = iter(goods)
    while True:
        while not stream.full and (parcel := next(coming, None)) is not None:
            stream.put(parcel)
        if not len(stream):
            return
        yield stream.get()


def as_it_is(goods: Goods) -> Goods:
    return goods


def now_and_then_slow(goods: Goods) -> Goods:
    time.sleep(random.Random(goods.number).choice([0, 0, 0, 0.001, 0.01]))
    return goods


# Order


@pytest.mark.parametrize("workers", [0, 1, 3, (1, 4), "auto"])
def test_parcels_leave_in_the_order_in_which_they_came(start: Any, workers: Any) -> None:
    stream = start(step(now_and_then_slow, workers), step(as_it_is, 2), step(now_and_then_slow, workers))
    assert [goods.number for goods in results(stream, list(map(Goods, range(150))))] == list(range(150))
    assert len(stream) == 0


def test_order_is_kept_between_threads_and_processes(start: Any) -> None:
    stream = start(step(as_it_is), step(now_and_then_slow, 2, "process"), step(now_and_then_slow, 3))
    assert [goods.number for goods in results(stream, list(map(Goods, range(100))))] == list(range(100))


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_each_step_has_workers_of_its_own(start: Any, mode: str) -> None:
    def who(goods: Goods) -> Goods:
        goods.nbytes = os.getpid() if mode == "process" else threading.get_ident()
        time.sleep(0.01)
        return goods

    def who_before(seen: list[set[int]]) -> Callable[[Goods], Goods]:
        def look(goods: Goods) -> Goods:
            seen[0].add(goods.nbytes)
            seen[1].add(threading.get_ident())
            return goods

        return look

    seen: list[set[int]] = [set(), set()]
    stream = start(step(who, 2, mode), step(who_before(seen), 3))
    list(results(stream, list(map(Goods, range(40)))))
    assert len(seen[0]) == 2
    assert len(seen[1]) <= 3
    assert not seen[0] & seen[1]
    assert [(reading.workers, reading.mode, reading.done) for reading in stream.readings()] == [
        (2, mode, 40),
        (3, "thread", 40),
    ]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("mode", ["thread", "process"])
def test_an_error_comes_when_it_is_its_turn_and_the_others_go_on(start: Any, workers: int, mode: str) -> None:
    def refuse_three(goods: Goods) -> Goods:
        if goods.number == 3:
            raise ValueError("three")
        time.sleep(0.02 * (goods.number < 3))
        return goods

    stream = start(step(refuse_three, workers, mode), step(as_it_is, workers))
    for number in range(6):
        stream.put(Goods(number))
    assert [stream.get().number for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        stream.get()
    assert [stream.get().number for _ in range(2)] == [4, 5]


def test_a_worker_that_dies_of_a_parcel_is_an_error_of_that_parcel(start: Any) -> None:
    def die_of_one(goods: Goods) -> Goods:
        if goods.number == 1:
            os._exit(3)
        return goods

    stream = start(step(die_of_one, 1, "process"))
    for number in range(3):
        stream.put(Goods(number))
    assert stream.get().number == 0
    with pytest.raises(WorkerDiedError, match="exit code 3"):
        stream.get()
    assert stream.get().number == 2
    assert stream.readings()[0].deaths == 2


# Bounds


class Store:
    """Counts what was made and not used up yet."""

    def __init__(self, size: int) -> None:
        self.size, self.most, self._here, self._lock = size, 0, 0, threading.Lock()

    def make(self, goods: Goods) -> Goods:
        with self._lock:
            self._here += self.size
            self.most = max(self.most, self._here)
        return Goods(goods.number, self.size)

    def use(self) -> None:
        with self._lock:
            self._here -= self.size


@pytest.mark.parametrize(("size", "memory", "fit"), [(10, 35, 3), (10, 1000, 17), (10, 10, 1), (10, 0, 1), (50, 35, 1)])
def test_memory_bounds_what_is_under_way(start: Any, size: int, memory: int, fit: int) -> None:
    store = Store(size * MB)
    stream = start(step(store.make, 8), memory=memory * MB)
    assert stream.capacity == 17
    most = 0
    for number, goods in enumerate(results(stream, list(map(Goods, range(60))))):
        assert goods.number == number
        if number == 1:  # what nobody could know before the first had been made, has been used
            wait_until(lambda: all(load.arrived for load in stream._live))
            store.most = 0
        most = max(most, len(stream) + 1)
        time.sleep(0.001)
        store.use()
    assert store.most <= max(memory, size) * MB
    if memory >= size * 17:
        assert most >= fit - 1


def test_what_is_small_before_the_last_step_counts_as_what_it_becomes(start: Any) -> None:
    let_go = threading.Semaphore(1)

    def grow(goods: Goods) -> Goods:
        let_go.acquire(timeout=30)
        return Goods(goods.number, 10 * MB)

    stream = start(step(as_it_is, 2), step(grow, 4), memory=35 * MB)
    stream.put(Goods(0))
    assert stream.get().nbytes == 10 * MB
    while not stream.full:
        stream.put(Goods(1 + len(stream)))
        time.sleep(0.05)  # the first step is soon done
    assert len(stream) == 3
    let_go.release(3)
    assert [stream.get().number for _ in range(3)] == [1, 2, 3]


def test_before_anything_is_known_about_their_size_there_is_one_parcel_for_each_worker(start: Any) -> None:
    let_go = threading.Event()

    def wait(goods: Goods) -> Goods:
        let_go.wait(30)
        return Goods(goods.number, 10 * MB)

    stream = start(step(wait, 3), step(as_it_is, 5), memory=35 * MB)
    while not stream.full:
        stream.put(Goods(len(stream)))
    assert len(stream) == 3
    let_go.set()
    assert [goods.number for goods in (stream.get(), stream.get(), stream.get())] == [0, 1, 2]


def test_capacity_bounds_the_number_of_parcels_that_weigh_nothing(start: Any) -> None:
    stream = start(step(as_it_is, 2), step(as_it_is, 1), memory=0)
    most = 0
    for _ in results(stream, list(map(Goods, range(100)))):
        most = max(most, len(stream) + 1)
    assert most <= stream.capacity == 7
    assert start(step(as_it_is, 2), ahead=40).capacity == 40


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_one_parcel_goes_however_little_memory_there_is(start: Any, workers: int) -> None:
    stream = start(step(lambda goods: Goods(goods.number, 100 * MB), workers), memory=1)
    assert [goods.number for goods in results(stream, list(map(Goods, range(10))))] == list(range(10))


# Crews that grow and shrink


@pytest.fixture
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_ADAPT_EVERY", 0.02)


def alive(name: str) -> int:
    return sum(thread.name == f"shoal-{name}" for thread in threading.enumerate())


@pytest.mark.usefixtures("_in_a_hurry")
def test_a_crew_grows_when_work_waits_and_shrinks_when_it_rests(start: Any) -> None:
    pace = [0.02]

    def paced(goods: Goods) -> Goods:
        time.sleep(pace[0])
        return goods

    stream = start(step(paced, (1, 3)))
    sizes, goods = [], results(stream, list(map(Goods, range(100_000))))
    end = time.monotonic() + 60
    while max(sizes, default=0) < 3 and time.monotonic() < end:
        next(goods)
        sizes.append(alive("paced"))
    assert max(sizes) == 3
    pace[0] = 0.0
    while sizes[-1] > 1 and time.monotonic() < end:
        next(goods)
        time.sleep(0.01)
        sizes.append(alive("paced"))
    for _ in range(100):  # it stays at one, and that one does all
        next(goods)
        time.sleep(0.002)
        sizes.append(alive("paced"))
    assert sizes[-50:] == [1] * 50
    assert min(sizes) == 1
    assert max(sizes) == 3


@pytest.mark.usefixtures("_in_a_hurry")
def test_a_crew_that_shrinks_while_all_are_busy_keeps_its_least(start: Any) -> None:
    """The one who is to go home finds out when he is done; meanwhile nobody else is sent."""
    crew = start(step(as_it_is, (2, 4)))._crews[0]
    crew.grow()
    crew.grow()
    for _ in range(20):
        crew.adapt(1.0, short=False)
        time.sleep(0.005)
    assert wait_until(lambda: alive("as_it_is") == 2)
    time.sleep(0.05)
    assert alive("as_it_is") == 2
    assert crew.reading().workers == 2


@pytest.mark.usefixtures("_in_a_hurry")
def test_processes_come_and_go_too(start: Any) -> None:
    before = held()

    def paced(goods: Goods) -> Goods:
        time.sleep(0.02)
        return goods

    stream = start(step(paced, (1, 2), "process"))
    goods = results(stream, list(map(Goods, range(100_000))))
    end = time.monotonic() + 60
    seen = {0}
    while max(seen) < 2 and time.monotonic() < end:
        next(goods)
        seen.add(len(held().children) - len(before.children))
    while len(held().children) - len(before.children) > 1 and time.monotonic() < end:
        next(goods)
        time.sleep(0.1)
    seen.add(len(held().children) - len(before.children))
    assert [next(goods).number >= 0 for _ in range(5)]
    assert seen == {0, 1, 2}
    stream.close()
    assert held_again(before)


def test_what_workers_that_left_have_done_stays_counted(start: Any) -> None:
    crew_stream = start(step(as_it_is, (1, 3)))
    crew = crew_stream._crews[0]
    crew.grow()
    list(results(crew_stream, list(map(Goods, range(30)))))
    for _ in range(10):
        crew.adapt(1.0, short=False)
        time.sleep(0.01)
    reading = crew.reading()
    assert (reading.workers, reading.done) == (1, 30)


def test_auto_is_as_many_as_there_are_processors() -> None:
    assert Pool("auto").bounds == (os.cpu_count(), os.cpu_count())
    assert Pool(3).bounds == (3, 3)
    assert Pool((2, 5)).bounds == (2, 5)
    assert Pool(0).bounds == (0, 0)


WRONG: list[Any] = [-1, True, 1.5, "many", (0, 4), (3, 2), (-1, 2), (1, 2, 3), (1,), ("a", 2), (1, 2.5), None, {}]


@pytest.mark.parametrize("workers", WRONG, ids=repr)
def test_wrong_workers_are_named(workers: Any) -> None:
    with pytest.raises(PlanError) as caught:
        Pool(workers)
    assert repr(workers) in str(caught.value)
    if workers is not None:  # which asks for nothing
        with pytest.raises(PlanError, match="workers="):
            numbers(3).map(dict, workers=workers)
    with pytest.raises(PlanError, match="workers="):
        numbers(3).loader(2, workers=workers)
    with pytest.raises(PlanError, match="workers="):
        numbers(3).run(workers=workers)


def test_wrong_modes_are_named() -> None:
    for make in (
        lambda: Pool(1, "fiber"),
        lambda: numbers(3).map(dict, mode="fiber"),
        lambda: numbers(3).filter(bool, mode="fiber"),
        lambda: numbers(3).loader(2, mode="fiber"),
        lambda: numbers(3).run(mode="fiber"),
    ):
        with pytest.raises(PlanError, match="mode='fiber'"):
            make()


# Ends


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_stream_that_nobody_holds_ends_at_once(mode: str) -> None:
    before = held()
    with no_collector():
        stream = LocalEngine().stream([step(as_it_is, 2, mode)], memory=MB)
        for number in range(3):
            stream.put(Goods(number))
        assert stream.get().number == 0
        gone = weakref.ref(stream)
        del stream
        assert gone() is None
        assert held_again(before)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_an_error_that_was_dealt_with_keeps_no_stream_alive(mode: str) -> None:
    def refuse(goods: Goods) -> Goods:
        raise ValueError(goods.number)

    before = held()
    with no_collector():
        stream = LocalEngine().stream([step(refuse, 2, mode)], memory=MB)
        goods = Goods(0)
        kept = weakref.ref(goods)
        stream.put(goods)
        del goods
        with suppress(ValueError):  # pytest.raises would keep the frames of the error
            stream.get()
        gone = weakref.ref(stream)
        del stream
        assert gone() is None
        assert kept() is None
        assert held_again(before)


def test_a_closed_stream_that_is_kept_keeps_no_parcel(start: Any) -> None:
    let_go = threading.Event()

    def wait(goods: Goods) -> Goods:
        let_go.wait(30)
        return goods

    stream = start(step(wait, 1), step(as_it_is, 1))
    goods = list(map(Goods, range(4)))
    kept = [weakref.ref(each) for each in goods]
    for each in goods:
        stream.put(each)
    del goods, each
    threading.Timer(0.1, let_go.set).start()
    stream.close()
    assert wait_until(lambda: not any(ref() for ref in kept))


def test_a_closed_stream_says_so(start: Any) -> None:
    stream = start(step(as_it_is))
    stream.put(Goods(0))
    stream.close()
    stream.close()
    with pytest.raises(StateError, match="closed"):
        stream.get()
    with pytest.raises(StateError, match="closed"):
        stream.put(Goods(1))


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_closing_frees_who_waits_in_another_thread(start: Any, mode: str) -> None:
    def sleep(goods: Goods) -> Goods:
        time.sleep(1)
        return goods

    stream = start(step(sleep, 1, mode))
    stream.put(Goods(0))
    stream.put(Goods(1))
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            stream.get()
            stream.get()
        except BaseException as error:
            caught.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.1)
    stream.close()
    waiting.join(20)
    assert not waiting.is_alive()
    assert [type(error) for error in caught] == [StateError]


def test_a_stream_that_cannot_begin_leaves_nothing_behind() -> None:
    lock = threading.Lock()
    before = held()
    with pytest.raises(PlanError, match="cannot be sent"):
        LocalEngine().stream([step(as_it_is, 3), step(lambda goods: lock and goods, 2, "process")], memory=MB)
    assert held_again(before)


def test_readings_tell_what_waits_and_what_is_done(start: Any) -> None:
    let_go = threading.Event()

    def wait(goods: Goods) -> Goods:
        let_go.wait(30)
        return goods

    stream = start(step(wait, 1), step(as_it_is, 1))
    for number in range(4):
        stream.put(Goods(number))
    assert wait_until(lambda: stream.readings()[0].waiting == 3)
    first, second = stream.readings()
    assert (first.name, first.workers, first.done, second.done) == ("wait", 1, 0, 0)
    assert first.busy > 0
    let_go.set()
    for _ in range(4):
        stream.get()
    assert [reading.done for reading in stream.readings()] == [4, 4]
    assert stream.readings()[0].busy >= first.busy


def test_a_stream_without_workers_does_the_work_when_asked(start: Any) -> None:
    done: list[int] = []

    def note(goods: Goods) -> Goods:
        done.append(threading.get_ident())
        return goods

    stream = start(step(note, 0), step(note, 0))
    stream.put(Goods(0))
    assert (done, stream.full, len(stream)) == ([], True, 1)
    stream.get()
    assert done == [threading.get_ident()] * 2
    assert [(reading.mode, reading.done) for reading in stream.readings()] == [("caller", 1)] * 2

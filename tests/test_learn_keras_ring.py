"""Sums over workers, from each to the next."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shoal
from shoal.abc import Member
from shoal.engines import current
from shoal.errors import StateError, WorkerDiedError
from shoal.learn import _ring
from shoal.learn._packed import pack, unpack
from shoal.learn._ring import Ring
from support.engine import by_value

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


@pytest.fixture(scope="module", autouse=True)
def _engine() -> Iterator[None]:
    with shoal.init("local", workers=4):
        yield


def summed(member: Member) -> list[Any]:
    ring = Ring(member)
    found: list[Any] = []
    for count in (0, 1, 2, 3, 7, 1000, 3_000_001):
        numbers = np.random.default_rng([member.rank, count]).normal(size=count).astype(np.float32)
        ring.add_up(numbers)
        found.append(numbers)
    found.append(ring.total([member.rank, 0.5]))
    mine = np.full((3, 2), member.rank, np.int64)
    ring.hand_round(mine)
    ring.close()
    return [*found, mine]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_have_the_same_sums_bit_for_bit(size: int) -> None:
    with current().gang(summed, size) as gang:
        every = gang.results()
    for place, count in enumerate((0, 1, 2, 3, 7, 1000, 3_000_001)):
        given = [np.random.default_rng([rank, count]).normal(size=count).astype(np.float32) for rank in range(size)]
        assert np.allclose(every[0][place], np.sum(given, axis=0), atol=1e-5)
        assert len({each[place].tobytes() for each in every}) == 1
    assert every[0][-2] == [sum(range(size)), size / 2]
    assert all((each[-1] == 0).all() for each in every)


def lost(member: Member) -> str:
    ring = Ring(member)
    ring.total([1.0])
    if member.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ring.add_up(np.ones(10**6))
    return "nobody was missed"


def test_a_neighbour_that_dies_is_missed() -> None:
    with current().gang(lost, 3, restarts=0) as gang, pytest.raises(WorkerDiedError, match="rank 1 died"):
        gang.results()


def test_who_does_not_know_the_secret_is_sent_away(tmp_path: Path) -> None:
    secret = b"s" * 32
    with socket.create_server(("127.0.0.1", 0)) as door:

        def knock() -> None:
            for said in (b"x" * 32, b"short", secret):
                with socket.create_connection(door.getsockname()) as end:
                    end.sendall(said)
                    if said is secret:
                        time.sleep(1)

        guest = threading.Thread(target=knock)
        guest.start()
        with _ring._accepted(door, secret) as end:
            guest.join()
            assert end.recv(1) == b""


def test_arrays_of_all_kinds_come_back_as_they_were() -> None:
    given = [np.array(3.0), np.zeros((0, 2), np.int8), np.arange(6).reshape(2, 3)[:, ::2], np.array([True, False])]
    given.append(np.array([1.5, -2], ml_dtypes.bfloat16))
    found = unpack(pack(given, ["a", "b", "c", "d", "e"]))
    assert list(found) == ["a", "b", "c", "d", "e"]
    for one, other in zip(given, found.values(), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert (one == other).all()
    with pytest.raises(StateError, match="not the arrays"):
        unpack(b"nothing of the kind")
    with pytest.raises(StateError, match="not the arrays"):
        unpack(pack(given)[:-40])

"""Samples shared out to consumers in threads, processes and on Ray, and how batches are cut for that."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.engines._batch_parts import cut, rebatched
from shoal.errors import PlanError, StallWarning, StateError
from support.clusters import running
from support.engine import by_value, held, held_again, numbers, wait_until


@pytest.fixture
def closing() -> Iterator[Callable[[list[Any]], list[Any]]]:
    made: list[Any] = []

    def keep(shares: list[Any]) -> list[Any]:
        made.extend(shares)
        return shares

    yield keep
    for share in made:
        share.close()


def consumed(shares: list[Any], read: Callable[[Any], Any] = list) -> list[Any]:
    """Read all shares at the same time."""
    with ThreadPoolExecutor(len(shares)) as pool:
        return list(pool.map(read, shares))


def keys(samples: list[Any]) -> list[int]:
    return [sample["n"] for sample in samples]


@pytest.mark.parametrize(("total", "n", "each"), [(1000, 2, 500), (1, 2, 0), (1000, 3, 333), (150, 4, 37), (13, 3, 4)])
def test_equal_shares_leave_a_rest_out(total: int, n: int, each: int, closing: Any) -> None:
    shares = closing(numbers(total).split(n))
    for _ in range(2):
        found = [keys(samples) for samples in consumed(shares)]
        assert [len(samples) for samples in found] == [each] * n
        assert len({key for samples in found for key in samples}) == each * n


@pytest.mark.parametrize(("total", "n"), [(1000, 3), (1, 2), (100, 3), (7, 7), (0, 2)])
def test_unequal_shares_have_everything(total: int, n: int, closing: Any) -> None:
    found = [keys(samples) for samples in consumed(closing(numbers(total).split(n, equal=False)))]
    assert sorted(key for samples in found for key in samples) == list(range(total))


def test_shares_are_dealt_in_the_order_of_the_loader(closing: Any) -> None:
    dataset = numbers(128).shuffle("full", seed=3)
    batches = list(dataset.loader(64))
    first, second = consumed(closing(dataset.split(2)))
    for batch, at in zip(batches, (0, 32), strict=True):
        assert keys(first[at : at + 32]) == batch["n"][:32].tolist()
        assert keys(second[at : at + 32]) == batch["n"][32:].tolist()


def test_each_epoch_is_shuffled_anew(closing: Any) -> None:
    (share,) = closing(numbers(100).shuffle("full", seed=1).split(1))
    one, two = keys(list(share)), keys(list(share))
    assert one != two
    assert sorted(one) == sorted(two) == list(range(100))


def test_batches_are_of_the_size_that_is_asked_for(closing: Any) -> None:
    shares = closing(numbers(150).split(4))
    sizes = consumed(shares, lambda share: [len(batch["n"]) for batch in share.iter_batches(8)])
    assert sizes == [[8, 8, 8, 8, 5]] * 4
    sizes = consumed(shares, lambda share: [len(batch["n"]) for batch in share.iter_batches(8, drop_last=True)])
    assert sizes == [[8, 8, 8, 8]] * 4
    kinds = consumed(shares, lambda share: {type(batch["n"]).__name__ for batch in share.iter_torch_batches(16)})
    assert kinds == [{"Tensor"}] * 4


def test_samples_that_are_filtered_count_for_nobody(closing: Any) -> None:
    dataset = numbers(1000).filter(lambda sample: sample["n"] % 3 == 0)
    found = consumed(closing(dataset.split(2)))
    assert [len(samples) for samples in found] == [167, 167]


def test_an_epoch_waits_for_all(closing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_STALL", "0.2")
    first, second = closing(numbers(10).split(2))
    told: list[str] = []

    def read() -> None:
        with pytest.warns(StallWarning) as caught:
            told.extend(map(str, keys(list(first))))
        told.append(str(caught[0].message))

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(0.6)
    assert reader.is_alive()
    assert keys(list(second)) == [5, 6, 7, 8, 9]
    reader.join(20)
    assert told[:5] == ["0", "1", "2", "3", "4"]
    assert "share 0 of 2 has waited 0.2 s" in told[5]


def test_a_share_has_one_reader(closing: Any) -> None:
    first, _ = closing(numbers(10).split(2))
    said: list[str] = []

    def read() -> None:
        with pytest.raises(StateError) as caught:
            list(first)
        said.append(str(caught.value))

    reader = threading.Thread(target=read)
    reader.start()
    assert wait_until(lambda: bool(first._server._coming))
    with pytest.raises(StateError, match="being read by somebody else"):
        list(pickle.loads(pickle.dumps(first)))
    first.close()
    reader.join(20)
    assert "ended in the middle" in said[0]


def test_who_leaves_early_can_come_again(closing: Any) -> None:
    first, second = closing(numbers(2000).split(2))

    def leaves(share: Any) -> int:
        return next(iter(share))["n"]

    assert consumed([first, second], leaves) == [0, 32]
    assert [len(samples) for samples in consumed([first, second])] == [1000, 1000]


def test_one_who_leaves_does_not_stop_the_others(closing: Any) -> None:
    first, second = closing(numbers(2000).split(2))
    reads = [lambda: next(iter(first))["n"], lambda: len(list(second))]
    with ThreadPoolExecutor(2) as pool:
        assert [future.result() for future in [pool.submit(read) for read in reads]] == [0, 1000]


def test_an_error_is_told_to_all(closing: Any) -> None:
    def broken(sample: Any) -> Any:
        return {"n": 1 / (sample["n"] - 900)}

    def tried(share: Any) -> str:
        with pytest.raises(ZeroDivisionError) as caught:
            list(share)
        return "\n".join(caught.value.__notes__)

    for notes in consumed(closing(numbers(1000).map(broken).split(2)), tried):
        assert "at sample 'k900'" in notes


def test_a_run_that_was_closed_is_told() -> None:
    first, _ = numbers(10).split(2)
    first.close()
    with pytest.raises(StateError, match="has ended"):
        list(first)
    with pytest.raises(StateError, match="only the process that made"):
        pickle.loads(pickle.dumps(first)).close()
    with pytest.raises(PlanError, match="at least one consumer"):
        numbers(10).split(0)


def test_nothing_is_left_when_all_was_read_and_nobody_holds_it() -> None:
    before = held()
    copies = [pickle.loads(pickle.dumps(share)) for share in numbers(100).split(2)]
    assert [len(samples) for samples in consumed(copies)] == [50, 50]
    assert held_again(before)


def test_shares_are_read_in_other_processes(closing: Any, tmp_path: Path) -> None:
    shares = closing(numbers(1000, size=1000).split(2))
    program = (
        "import pickle, sys\n"
        "share = pickle.load(sys.stdin.buffer)\n"
        "for _ in range(2):\n"
        "    print(sum(batch['n'].sum() for batch in share.iter_batches(16)))\n"
    )
    readers = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in shares
    ]
    for reader, share in zip(readers, shares, strict=True):
        assert reader.stdin is not None
        reader.stdin.write(pickle.dumps(share))
        reader.stdin.flush()
    found = [list(map(int, reader.communicate(timeout=60)[0].split())) for reader in readers]
    assert [reader.returncode for reader in readers] == [0, 0]
    assert [one + two for one, two in zip(*found, strict=True)] == [499_500] * 2


@pytest.mark.slow
def test_the_iris_are_shared_out_to_workers_on_ray(tmp_path: Path) -> None:
    import ray
    from sklearn.datasets import load_iris

    frame = load_iris(as_frame=True).frame
    frame.insert(0, "number", np.arange(len(frame)))
    frame.to_csv(tmp_path / "iris.csv", index=False)
    with running("ray", workers=2), by_value(__name__):
        # The seed's snippet, with our names for reading and sharing out.
        @ray.remote(num_cpus=0.4)
        class Worker:
            def train(self, data_iterator: Any) -> tuple[list[int], list[int]]:
                batches = list(data_iterator.iter_batches(batch_size=8))
                return [len(batch["number"]) for batch in batches], [n for b in batches for n in b["number"].tolist()]

        ds = shoal.read_csv(str(tmp_path / "iris.csv"))
        workers = [Worker.remote() for _ in range(4)]
        shards = ds.split(n=4, equal=True)
        found = ray.get([w.train.remote(s) for w, s in zip(workers, shards, strict=True)])
        shards[0].close()
    assert [sizes for sizes, _ in found] == [[8, 8, 8, 8, 5]] * 4
    seen = [number for _, some in found for number in some]
    assert len(seen) == len(set(seen)) == 148


@given(st.integers(1, 6), st.integers(1, 9), st.data())
def test_batches_are_cut_and_put_together(parts: int, size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, parts * size))
    batch = {"__key__": [str(n) for n in range(count)], "x": np.arange(count), "words": ["a"] * count}
    whole = [part for part in cut(batch, parts, size, equal=False) if part is not None]
    assert [n for part in whole for n in part["x"].tolist()] == list(range(count))
    same = cut(batch, parts, size, equal=True)
    assert {0 if part is None else len(part["x"]) for part in same} == {count // parts}
    wanted = data.draw(st.integers(1, 7))
    batches = list(rebatched(iter(whole), wanted, drop_last=False))
    assert [n for each in batches for n in each["x"].tolist()] == list(range(count))
    assert [len(each["words"]) for each in batches[:-1]] == [wanted] * max(len(batches) - 1, 0)


def test_rows_of_padding_are_nobodys() -> None:
    batch = {"__key__": list("abcd"), "x": np.arange(4), "__mask__": np.array([True, True, True, False])}
    first, second = cut(batch, 2, 2, equal=False)
    assert first is not None
    assert second is not None
    assert (first["__key__"], second["__key__"], second["x"].tolist()) == (["a", "b"], ["c"], [2])
    assert "__mask__" not in first

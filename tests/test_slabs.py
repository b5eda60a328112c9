"""Memory of batches: theirs as long as anybody looks at it, and used again after that."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shoal._slabs import Slabs, whole_slab
from shoal.abc import Sample
from shoal.pipeline import Dataset
from support.engine import by_value, no_collector, numbers, run_script

SHAPE, DTYPE = (4, 512, 1024), np.dtype("u1")


@pytest.fixture(autouse=True)
def _functions_of_this_file_travel_by_value() -> Iterator[None]:
    with by_value(__name__):
        yield


def grown(sample: Sample) -> Sample:
    return {"picture": np.full((256, 256), sample["n"] % 251, np.uint8), "n": sample["n"]}


def pictures(count: int = 320, **own: Any) -> Dataset:
    """Make batches of 32 that are large enough for a slab."""
    return numbers(count).map(grown, **own)


def is_right(batch: Any) -> bool:
    return all((np.asarray(p) == int(n) % 251).all() for p, n in zip(batch["picture"], batch["n"], strict=True))


def address(array: Any) -> int:
    return int(np.asarray(array).__array_interface__["data"][0])


# Slabs by themselves


def test_memory_comes_back_when_the_array_goes() -> None:
    slabs = Slabs()
    with no_collector():
        first = slabs.empty(SHAPE, DTYPE)
        at = address(first)
        del first
        assert address(slabs.empty(SHAPE, DTYPE)) == at


LOOKS: dict[str, Any] = {
    "rows": lambda array: array[1:3],
    "view of view": lambda array: array[0][0][::7],
    "other type": lambda array: array.reshape(-1)[6:].view("u2"),
    "transposed": lambda array: array.T,
    "memoryview": lambda array: memoryview(array)[1:],
    "buffer": lambda array: np.frombuffer(array, np.uint8)[100:],
    "DLPack": np.from_dlpack,
    "torch": lambda array: torch.from_numpy(array)[1],
    "torch by DLPack": lambda array: torch.from_dlpack(array)[1],
}


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_keeps_the_memory(look: str) -> None:
    slabs = Slabs()
    array = slabs.empty(SHAPE, DTYPE)
    array[:] = 7
    at, view = address(array), LOOKS[look](array)
    before = bytes(np.asarray(view).tobytes())
    del array
    gc.collect()
    others = [slabs.empty(SHAPE, DTYPE) for _ in range(4)]
    for other in others:
        other[:] = 9
    assert at not in [address(other) for other in others]
    assert np.asarray(view).tobytes() == before
    del view
    gc.collect()
    assert address(slabs.empty(SHAPE, DTYPE)) == at


def test_only_a_few_are_kept() -> None:
    slabs = Slabs(keep=2)
    lent = [slabs.empty(SHAPE, DTYPE) for _ in range(6)]
    del lent
    gc.collect()
    assert sum(map(len, slabs._free.values())) == 2


@pytest.mark.parametrize("shape", [(0, 3), (), (3,), (1, 2**20 - 1), (1, 2**20), (3, 500_001)])
def test_any_shape_can_be_had(shape: tuple[int, ...]) -> None:
    for dtype in ("u1", "f8", "O", "U3"):
        array = Slabs().empty(shape, np.dtype(dtype))
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.ctypes.data % 64 == 0 or dtype == "O"
        assert array.flags.writeable


def test_similar_sizes_share_memory() -> None:
    slabs = Slabs()
    first = slabs.empty((1000, 2000), DTYPE)
    at = address(first)
    del first
    gc.collect()
    assert address(slabs.empty((1000, 1990), DTYPE)) == at


def test_slabs_may_be_given_back_in_any_thread() -> None:
    slabs, wrong = Slabs(), []

    def work(number: int) -> None:
        for _ in range(100):
            array = slabs.empty((3, 2**19), DTYPE)
            array[:] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_whole_slab_is_recognised() -> None:
    slab = Slabs().empty(SHAPE, DTYPE)
    assert whole_slab(list(slab)) is slab
    assert whole_slab(list(slab[:3])) is None
    assert whole_slab(list(slab[::-1])) is None
    assert whole_slab([slab[0], slab[1], slab[3], slab[2]]) is None
    assert whole_slab([row.copy() for row in slab]) is None
    assert whole_slab([row[:100] for row in slab]) is None
    assert whole_slab([np.zeros(3)]) is None


# Batches of a loader

WAYS: list[dict[str, Any]] = [{"workers": 0}, {"workers": 2}, {"workers": 1, "mode": "process"}]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_batches_that_are_kept_stay_as_they_are(options: dict[str, Any]) -> None:
    loader = pictures().loader(32, **options)
    kept = [*loader, *loader]
    assert len({address(batch["picture"]) for batch in kept}) == len(kept) == 20
    assert all(map(is_right, kept))


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_row_of_each_batch_is_safe_to_keep(options: dict[str, Any]) -> None:
    kept = [(batch["picture"][5], int(batch["n"][5])) for batch in pictures().loader(32, **options)]
    assert all((row == number % 251).all() for row, number in kept)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_memory_of_batches_that_are_dropped_is_used_again(options: dict[str, Any]) -> None:
    loader = pictures(960).loader(32, **options)
    seen, right = set(), True
    for batch in loader:
        seen.add(address(batch["picture"]))
        right = right and is_right(batch)
    assert right
    assert len(seen) <= 4
    assert {address(batch["picture"]) for batch in loader} & seen


def test_tensors_keep_the_memory_of_their_batch() -> None:
    kept = list(pictures().loader(32, workers=2, to="torch"))
    assert all(isinstance(batch["picture"], torch.Tensor) for batch in kept)
    assert all(map(is_right, kept))
    rows = [(batch["picture"][3].clone(), batch["picture"][3]) for batch in kept]
    del kept
    list(pictures().loader(32, workers=2, to="torch"))
    assert all(torch.equal(before, now) for before, now in rows)


def test_the_last_batch_is_padded_in_memory_of_its_own() -> None:
    *_, before, last = pictures(330).loader(32, workers=2)
    assert is_right(before)
    assert last["__mask__"].tolist() == [True] * 10 + [False] * 22
    assert is_right({name: values[:10] for name, values in last.items()})


def pss() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1])


def test_memory_is_flat_over_epochs() -> None:
    """In a process of its own: what this one shares with others counts for more when they end."""
    done = run_script(
        """
        import gc
        from itertools import islice
        from test_slabs import pictures, pss

        loader = pictures(640, workers=2).loader(32, workers=2)
        for _ in range(3):
            assert sum(1 for _ in loader) == 20
        gc.collect()
        before = pss()
        for _ in range(6):
            assert sum(1 for _ in islice(loader, 15)) == 15
        gc.collect()
        print(pss() - before)
        """
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 30 * 2**20  # an epoch is 42 MB

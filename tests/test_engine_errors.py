"""Samples that cannot be used: the error, the skip, the ledger and the replay of each kind."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

import shoal
from shoal.errors import DecodeError, ErrorBudgetError, MissingFieldError, PlanError, SampleError, TrustError
from shoal.pipeline import Dataset, Failure, Ledger
from shoal.shards import ShardWriter

BAD = 17
COUNT = 40


def jpeg() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 48, 3), np.uint8)
    data: bytes = simplejpeg.encode_jpeg(pixels, 90, "RGB", "420")
    return data


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def bomb() -> bytes:
    """A small file of a picture that claims to be very large."""
    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b""))
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def raises_at_bad(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["__key__"] == f"{BAD:04d}":
        raise ZeroDivisionError("nothing to divide by")
    return sample


def nothing_at_bad(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["__key__"] == f"{BAD:04d}" else sample


def dies_at_bad(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["__key__"] == f"{BAD:04d}":
        os.kill(os.getpid(), 9)
    return sample


def unpickled(sample: dict[str, Any]) -> dict[str, Any]:
    return {"value": shoal.shards.codecs.decode("pkl", sample["pkl"]) if sample["pkl"] else None}


def decoded(dataset: Dataset) -> Dataset:
    return dataset.decode()


def cropped(dataset: Dataset) -> Dataset:
    return dataset.apply(shoal.image.random_resized_crop(32), shoal.image.flip(), shoal.image.normalize())


#: what is wrong: field, its bytes in the bad sample, those of the others, the stages, the error, what its text says
KINDS: dict[str, tuple[str, bytes, bytes, Callable[[Dataset], Dataset], type[Exception], str]] = {
    "a jpeg that is cut": ("jpg", jpeg()[:-300], jpeg(), decoded, DecodeError, "picture"),
    "an empty file": ("jpg", b"", jpeg(), decoded, DecodeError, "picture"),
    "text for a picture": ("jpg", b"<html>not found</html>", jpeg(), cropped, DecodeError, "picture"),
    "a cut jpeg in the fused stage": ("jpg", jpeg()[:-300], jpeg(), cropped, DecodeError, "jpg"),
    "a bomb": ("jpg", bomb(), jpeg(), decoded, DecodeError, "60000 x 60000"),
    "a bomb in the fused stage": ("jpg", bomb(), jpeg(), cropped, DecodeError, "60000 x 60000"),
    "a class that is no number": ("cls", b"seven", b"7", decoded, DecodeError, "seven"),
    "json that is cut": ("json", b'{"a": [1, 2', b"{}", decoded, DecodeError, "JSON"),
    "an array that is cut": ("npy", npy(np.arange(99))[:-9], npy(np.arange(99)), decoded, DecodeError, "783 bytes"),
    "text in no known encoding": ("txt", b"caf\xe9", b"tea", decoded, DecodeError, "text"),
    "a pickle": ("pkl", pickle.dumps(print), b"", lambda ds: ds.map(unpickled), TrustError, "trust"),
    "a field that is missing": ("cls", b"7", b"7", lambda ds: ds.select("cls", "ok"), MissingFieldError, "ok"),
    "a function that fails": ("cls", b"7", b"7", lambda ds: ds.map(raises_at_bad), ZeroDivisionError, "divide"),
    "a function that gives nothing": ("cls", b"7", b"7", lambda ds: ds.map(nothing_at_bad), PlanError, "NoneType"),
    "a worker that dies": (
        "cls", b"7", b"7", lambda ds: ds.map(dies_at_bad, workers=1, mode="process"), SampleError, "died",
    ),
}  # fmt: skip


def write(folder: Path, kind: str) -> str:
    field, bad, good, *_ = KINDS[kind]
    with ShardWriter(f"{folder}/s-%d.tar", maxcount=10) as writer:
        for number in range(COUNT):
            ok = {} if kind == "a field that is missing" and number == BAD else {"ok": b"1"}
            writer.write({"__key__": f"{number:04d}", field: bad if number == BAD else good, **ok})
    return f"{folder}/s-{{0..3}}.tar"


def keys(batches: Iterator[Any]) -> list[str]:
    return [key for batch in batches for key, real in zip(batch["__key__"], mask(batch), strict=True) if real]


def mask(batch: dict[str, Any]) -> Any:
    return batch.get("__mask__", np.ones(len(batch["__key__"]), bool))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_names_the_sample(kind: str, tmp_path: Path) -> None:
    *_, stages, error, text = KINDS[kind]
    dataset = stages(shoal.read_tar(write(tmp_path, kind)))
    for run in (lambda: list(dataset.loader(8)), lambda: list(dataset.run(workers=2)), lambda: list(dataset)):
        with pytest.raises(error) as caught:
            run()
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        assert text in said
        assert f"{BAD:04d}" in said
        assert "s-1.tar" in said


@pytest.mark.parametrize("kind", KINDS)
def test_skipped_samples_are_in_the_ledger_and_can_be_replayed(kind: str, tmp_path: Path) -> None:
    *_, stages, error, text = KINDS[kind]
    dataset = stages(shoal.read_tar(write(tmp_path, kind)).shuffle("full", seed=3))
    loader = dataset.loader(8, on_error="skip", error_budget=1)
    found = keys(iter(loader))
    assert sorted(found) == [f"{number:04d}" for number in range(COUNT) if number != BAD]
    (failure,) = loader.ledger
    assert failure.shard is not None
    assert failure.shard.endswith("s-1.tar")
    assert (failure.key, failure.offset, failure.epoch) == (f"{BAD:04d}", BAD - 10, 0)
    assert failure.error == error.__name__
    assert text in failure.message
    assert text in str(loader.ledger)
    assert loader.statistics().skipped == 1

    loader.ledger.save(tmp_path / "skipped.jsonl")
    (again,) = Ledger.load(tmp_path / "skipped.jsonl")
    assert again == failure
    if kind == "a worker that dies":
        return  # replayed in this process, it would be this one
    with pytest.raises(error, match=text):
        dataset.replay(again)


def test_a_run_in_storage_order_keeps_a_ledger_too(tmp_path: Path) -> None:
    dataset = shoal.read_tar(write(tmp_path, "a jpeg that is cut")).decode()
    run = dataset.run(workers=2, on_error="skip", error_budget=1)
    assert [sample["__key__"] for sample in run] == [f"{number:04d}" for number in range(COUNT) if number != BAD]
    (failure,) = run.ledger
    assert (failure.offset, failure.stage) == (BAD - 10, "decode()")
    assert run.statistics().skipped == 1


def test_a_sample_that_was_mended_is_given_back_by_the_replay(tmp_path: Path) -> None:
    urls = write(tmp_path, "a function that fails")
    loader = shoal.read_tar(urls).map(raises_at_bad).loader(8, on_error="skip", error_budget=1)
    list(loader)
    mended = shoal.read_tar(urls).map(lambda sample: {"found": sample["cls"]})
    assert mended.replay(loader.ledger.failures[0]) == [{"__key__": f"{BAD:04d}", "found": b"7"}]


def test_a_replay_is_as_random_as_the_run_was(tmp_path: Path) -> None:
    def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        if sample["__key__"] == f"{BAD:04d}":
            raise ValueError(f"drew {rng.integers(10**9)}")
        return {"n": 0}

    urls = write(tmp_path, "a function that fails")
    dataset = shoal.read_tar(urls).shuffle("full", seed=5).map(drawn, random=True)
    loader = dataset.loader(8, on_error="skip", error_budget=2)
    list(loader)
    list(loader)
    first, second = loader.ledger
    assert (first.epoch, second.epoch) == (0, 1)
    assert first.message != second.message
    for failure in loader.ledger:
        with pytest.raises(ValueError, match=failure.message):
            dataset.replay(failure)


def test_a_function_decides(tmp_path: Path) -> None:
    asked: list[Failure] = []

    def decide(failure: Failure) -> bool:
        asked.append(failure)
        return failure.error == "DecodeError"

    urls = write(tmp_path, "a class that is no number")
    assert len(keys(iter(shoal.read_tar(urls).decode().loader(8, on_error=decide)))) == COUNT - 1
    assert [failure.key for failure in asked] == [f"{BAD:04d}"]
    urls = write(tmp_path, "a function that fails")
    with pytest.raises(ZeroDivisionError):
        list(shoal.read_tar(urls).map(raises_at_bad).loader(8, on_error=decide))


def test_a_budget_ends_the_run_with_the_last_failure_named(tmp_path: Path) -> None:
    urls = write(tmp_path, "a function that fails")

    def odd(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["__key__"]) % 2:
            raise ValueError("odd")
        return sample

    with pytest.raises(ErrorBudgetError, match=r"4 samples have failed, more than the error budget of 3; .*odd"):
        list(shoal.read_tar(urls).map(odd).run(on_error="skip", error_budget=3))
    assert len(list(shoal.read_tar(urls).map(odd).run(on_error="skip", error_budget=20))) == COUNT // 2
    # A share is judged when a hundred samples have been seen, so few samples may fail more often.
    assert len(list(shoal.read_tar(urls).map(odd).run(on_error="skip", error_budget=0.1))) == COUNT // 2
    many = shoal.read_tar([urls] * 5).map(odd)
    with pytest.raises(ErrorBudgetError, match=r"error budget of 10\.0%"):
        list(many.loader(8, on_error="skip", error_budget=0.1))


def test_skipping_is_exact_on_any_resume(tmp_path: Path) -> None:
    def picky(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["__key__"]) % 7 == 3:
            raise ValueError("not this one")
        return sample

    dataset = shoal.read_tar(write(tmp_path, "a function that fails")).shuffle("full", seed=1).map(picky)
    options: dict[str, Any] = {"on_error": "skip", "error_budget": 100}
    whole = [batch["__key__"] for batch in dataset.loader(4, **options)]
    first = dataset.loader(4, workers=1, **options)
    batches = iter(first)
    begun = [next(batches)["__key__"] for _ in range(3)]
    state = json.loads(json.dumps(first.state_dict()))
    second = dataset.loader(4, workers=2, **options)
    second.load_state_dict(state)
    assert begun + [batch["__key__"] for batch in second] == whole
    with pytest.raises(shoal.errors.StateError, match="errors was"):
        dataset.loader(4).load_state_dict(state)


def test_samples_that_fail_behind_a_batch_are_skipped_whole(tmp_path: Path) -> None:
    def check(batch: dict[str, Any]) -> dict[str, Any]:
        if f"{BAD:04d}" in batch["__key__"]:
            raise ValueError("a bad one is in it")
        return batch

    dataset = shoal.read_tar(write(tmp_path, "a function that fails")).batch(4).map(check)
    for workers in (0, 2):
        run = dataset.run(workers=workers, on_error="skip", error_budget=1)
        assert len(list(run)) == COUNT // 4 - 1
        loader = dataset.lanes(1).loader(1, workers=workers, on_error="skip", error_budget=1)
        assert len(list(loader)) == COUNT // 4 - 1
        for ledger in (run.ledger, loader.ledger):
            (failure,) = ledger
            assert f"{BAD:04d}" in failure.key
            with pytest.raises(PlanError, match="several samples"):
                dataset.replay(failure)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_error": "ignore"}, "on_error='ignore'"),
        ({"on_error": "skip", "error_budget": -1}, "error_budget=-1"),
        ({"on_error": "skip", "error_budget": 1.5}, "error_budget=1.5"),
        ({"on_error": "skip", "error_budget": True}, "error_budget=True"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    dataset = shoal.read_tar(write(tmp_path, "a function that fails"))
    with pytest.raises(PlanError, match=text):
        dataset.loader(8, **options)
    with pytest.raises(PlanError, match=text):
        dataset.run(**options)


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(PlanError, match=r"line 1 of .*other\.jsonl is not of a ledger"):
        Ledger.load(path)


def test_a_replay_of_another_dataset_is_refused(tmp_path: Path) -> None:
    urls = write(tmp_path, "a function that fails")
    loader = shoal.read_tar(urls).map(raises_at_bad).loader(8, on_error="skip", error_budget=1)
    list(loader)
    (failure,) = loader.ledger
    with pytest.raises(PlanError, match=r"shard 1 of the dataset is not .*s-1\.tar"):
        shoal.read_tar(sorted(map(str, tmp_path.glob("*.tar")), reverse=True)).replay(failure)


def test_an_exception_that_cannot_be_packed_is_described(tmp_path: Path) -> None:
    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(f"{a} and {b}")

    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["__key__"] == f"{BAD:04d}":
            raise Odd(1, 2)
        return sample

    dataset = shoal.read_tar(write(tmp_path, "a function that fails"))
    for mode in ("thread", "process"):
        loader = dataset.map(fail, workers=1, mode=mode).loader(8, on_error="skip", error_budget=1)
        list(loader)
        (failure,) = loader.ledger
        assert (failure.error, failure.message, failure.exception) == ("Odd", "1 and 2", None)
        assert "raise Odd(1, 2)" in failure.trace

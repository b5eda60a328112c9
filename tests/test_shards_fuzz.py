"""Whatever the bytes are, reading them ends in samples that are in them or in an error that says where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

import fuzz_tar

HARNESS = Path(fuzz_tar.__file__)


def fuzz(folder: Path, count: int, seeds: list[int]) -> dict[str, int]:
    """Run inputs in processes of their own, so that a crash is seen; give back how many were of which kind."""
    command = [sys.executable, HARNESS, "--count", str(count)]
    running = [
        subprocess.Popen(
            [*command, "--seed", str(seed)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for seed in seeds
    ]
    kinds: dict[str, int] = {}
    try:
        for process in running:
            output, errors = process.communicate(timeout=280)
            assert (process.returncode, errors[-3000:]) == (0, "")
            for line in output.splitlines():
                times, _, kind = line.strip().partition(" ")
                kinds[kind] = kinds.get(kind, 0) + int(times)
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert list(folder.iterdir()) == []
    assert sum(kinds.values()) == count * len(seeds)
    return kinds


def check_shares(kinds: dict[str, int]) -> None:
    """Make sure that the inputs reach deep: many are read, and few are beyond comparison with tarfile."""
    total = sum(kinds.values())
    compared = ["read", "collision", "CorruptShardError", "TruncatedShardError", "UnsupportedMemberError"]
    assert all(kinds[kind] > 0 for kind in compared)
    assert sum(kinds[kind] for kind in compared) > 0.85 * total
    assert kinds["read"] > 0.25 * total


def test_some_hundred_hostile_tars(tmp_path: Path) -> None:
    check_shares(fuzz(tmp_path, 400, [1]))


@pytest.mark.soak
@pytest.mark.slow
def test_many_thousand_hostile_tars(tmp_path: Path) -> None:
    check_shares(fuzz(tmp_path, min(100 * hypothesis.settings.default.max_examples, 30_000), [2, 3]))


def test_the_honest_archives_are_read() -> None:
    assert [fuzz_tar.check(data) for data in fuzz_tar.bases()] == ["read"] * len(fuzz_tar.bases())


def test_the_harness_makes_the_same_inputs_again() -> None:
    assert fuzz_tar.input_of(1, 17) == fuzz_tar.input_of(1, 17) != fuzz_tar.input_of(1, 18)


@pytest.mark.parametrize("lost", [0, 1])
def test_the_harness_would_notice_a_lost_sample(lost: int) -> None:
    data = fuzz_tar.bases()[0]
    outcome = fuzz_tar.read_mapped(data)
    del outcome.samples[lost]
    with pytest.raises(AssertionError, match="tarfile finds"):
        fuzz_tar._check_complete(data, outcome)

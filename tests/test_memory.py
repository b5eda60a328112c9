"""Memory that was freed is used again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.shards import TarWriter

SAMPLES = 300

PROGRAM = """
import resource, sys
import shoal
from shoal.webdataset import WebDataset

make = {"read_tar": shoal.read_tar, "WebDataset": WebDataset}[sys.argv[1]]
for number in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for sample in make(sys.argv[2]):
        pass
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.parametrize("reader", ["read_tar", "WebDataset"])
def test_reading_does_not_ask_for_fresh_pages_with_every_sample(reader: str, tmp_path: Path) -> None:
    """A sample of 100 kB has 25 pages; looking at the mapped file takes a few faults, fresh memory would take 25."""
    with TarWriter(tmp_path / "a.tar") as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number:04d}", "bin": bytes(100_000)})
    command = [sys.executable, "-c", PROGRAM, reader, str(tmp_path / "a.tar")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10 * SAMPLES

"""Tars that come along a pipe, of any length, and how much memory a command needs for one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from support.shell import environment

__all__ = ["peak_memory"]

#: Samples of 100 kB, whose keys are in no order.
_GENERATED = """
import random, sys
from shoal.shards import TarWriter
numbers = random.Random(1)
with TarWriter("-") as writer:
    for number in range(int(sys.argv[1])):
        writer.write({"__key__": f"{numbers.getrandbits(64):016x}", "bin": numbers.randbytes(1000) * 100})
"""


def peak_memory(command: Sequence[str], samples: int, output: Path) -> int:
    """Send samples through a command into a file; give back the bytes of memory that it came to."""
    with output.open("wb") as file:
        source = subprocess.Popen(
            [sys.executable, "-c", _GENERATED, str(samples)], stdout=subprocess.PIPE, env=environment()
        )
        process = subprocess.Popen(command, stdin=source.stdout, stdout=file, env=environment())
        assert source.stdout is not None
        source.stdout.close()
        peak = 0
        while process.poll() is None:
            peak = max(peak, _high_water(process.pid))
            time.sleep(0.02)
        assert (source.wait(), process.returncode) == (0, 0)
    assert peak, "nothing was seen of the command while it ran"
    return peak


def _high_water(pid: int) -> int:
    """Read the most memory that a process has had since it became what it is, after the fork."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)

"""Make samples in the format of one library: ``python -m benchmarks.prepare KIND COUNT STORE FOLDER``.

It runs in a process of its own, so that no writer's library is loaded where contestants are started, and once: the
folder appears when it is complete.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

ROOM = Path("~/.cache/shoal-bench").expanduser()
SHARDS = {"images": 8, "small": 16}


def prepare(kind: str, count: int, stores: set[str]) -> Path:
    """Make what is missing of ``stores`` and give the folder that holds them."""
    folder = ROOM / f"{kind}-{count}"
    for store in sorted(stores):
        if not (folder / store).exists():
            print(f"making {kind} as {store} in {folder}", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "benchmarks.prepare", kind, str(count), store, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"could not make {store}:\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
    return folder


def small_samples(count: int) -> list[dict[str, Any]]:
    """Give byte strings of 200, each beginning with its number."""
    noise = Random(0)
    return [{"bin": number.to_bytes(8, "little") + noise.randbytes(192)} for number in range(count)]


def image_samples(count: int) -> list[dict[str, Any]]:
    """Give pictures whose label is their number, so that one sees whether all of them came."""
    from benchmarks.images import images

    return [{"jpg": data, "cls": number} for number, data in enumerate(images(count))]


def main() -> None:
    """Write one store."""
    from benchmarks.stores import STORES

    kind, count, store, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    unfinished = folder / f"{store}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    samples = {"images": image_samples, "small": small_samples}[kind](count)
    STORES[store](samples, unfinished, -(-count // SHARDS[kind]))
    unfinished.rename(folder / store)


if __name__ == "__main__":
    main()

"""A million samples in the viewer, in a real browser: ``python -m benchmarks.view``.

Tar shards of small pictures are written once, with their indexes. Then `shoal view` is started, its link is opened in
Chromium, and it is noted when the first pictures are there; then the grid is scrolled, and all that the browser asks
for is counted. The same without indexes.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import numpy as np
import psutil
from playwright.sync_api import sync_playwright

from shoal.shards import ShardWriter
from shoal.shards.codecs import encode

SAMPLES, SHARDS = 1_000_000, 100
PICTURES = 100
ROUNDS = 5
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_FLAGS += ["--disable-component-update", "--disable-sync"]


def write(folder: Path, samples: int) -> None:
    """Write shards of pictures of 48 x 48 pixels with a class each, and their indexes."""
    rows, columns = np.mgrid[0:48, 0:48] * 5
    pictures = [encode("jpg", np.dstack([rows, columns, rows * 0 + 2 * n]).astype(np.uint8)) for n in range(PICTURES)]
    with ShardWriter(str(folder / "train-%04d.tar"), maxcount=samples // SHARDS, index=True) as writer:
        for number in range(samples):
            picture = pictures[number % PICTURES]
            writer.write({"__key__": f"{number:09d}", "cls": number * 7919 % 1000, "jpg": picture})


@dataclass
class Traffic:
    """What a browser asked for."""

    requests: int = 0
    bytes: int = 0
    samples: set[int] = field(default_factory=set)
    pictures: int = 0

    def watch(self, page: Any) -> None:
        """Count from now on."""
        line = page.context.new_cdp_session(page)
        line.send("Network.enable")
        line.on("Network.requestWillBeSent", lambda event: self._asked(event["request"]["url"]))
        line.on("Network.loadingFinished", lambda event: self._add(int(event["encodedDataLength"])))

    def _add(self, size: int) -> None:
        self.bytes += size

    def _asked(self, url: str) -> None:
        self.requests += 1
        parts = urlsplit(url)
        self.pictures += parts.path.startswith("/thumbnail/")
        if parts.path == "/api/samples":
            asked = parse_qs(parts.query)
            start = int(asked["start"][0])
            self.samples |= set(range(start, start + int(asked["count"][0])))

    def row(self, what: str) -> str:
        """Write a line of a table."""
        return f"| {what} | {self.requests} | {self.bytes / 1000:,.0f} | {len(self.samples)} | {self.pictures} |"


class Opening(NamedTuple):
    """How it went until the first pictures were there."""

    printed: float
    """Seconds until the link was printed."""
    there: float
    """Seconds until the first pictures were there."""
    busy: float
    """Seconds of a processor that the command took until then."""
    rows: list[str]
    """What was asked for, then and while scrolling."""


@contextmanager
def served(folder: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """Start the command, and give the link it prints, and the number of its process."""
    command = [sys.executable, "-c", "from shoal.cli.view import run; run()", str(folder)]
    own = {**os.environ, "SHOAL_CACHE": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=own)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait()


def opened(browser: Any, folder: Path, cache: Path) -> Opening:
    """Open the page, and scroll."""
    begun = time.perf_counter()
    with served(folder, cache) as (link, process):
        printed = time.perf_counter() - begun
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        traffic = Traffic()
        traffic.watch(page)
        page.goto(link)
        page.wait_for_selector(".tile img.there")
        there = time.perf_counter() - begun
        busy = sum(psutil.Process(process).cpu_times()[:2])
        page.wait_for_timeout(500)
        rows = [traffic.row("opening"), *_scrolled(page)]
        page.close()
    return Opening(printed, there, busy, rows)


def _scrolled(page: Any) -> Iterator[str]:
    grid = page.locator(".grid")
    page.mouse.move(600, 500)
    for what, steps in (("20 turns of the wheel", 20), ("a fling through half of it, and to its end", 0)):
        traffic = Traffic()
        traffic.watch(page)
        for _ in range(steps):
            page.mouse.wheel(0, 400)
            page.wait_for_timeout(150)
        if not steps:
            for share in np.linspace(0, 0.5, 40):
                grid.evaluate(f"grid => {{ grid.scrollTop = grid.scrollHeight * {share}; }}")
                page.wait_for_timeout(16)
            page.wait_for_timeout(800)
            grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
        page.wait_for_timeout(800)
        yield traffic.row(what)


def counted(folder: Path, cache: Path) -> float:
    """Give the seconds until all samples are counted."""
    program = "import sys, shoal; print(shoal.read_tar(sys.argv[1]).count())"
    begun = time.perf_counter()
    own = {**os.environ, "SHOAL_CACHE": str(cache)}
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, stdout=subprocess.DEVNULL, env=own)
    return time.perf_counter() - begun


def run(samples: int, rounds: int) -> Iterator[str]:
    """Yield the results, piece by piece."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name, sync_playwright() as playwright:
        folder, cache = Path(name, "shards"), Path(name, "cache")
        folder.mkdir()
        write(folder, samples)
        size = sum(path.stat().st_size for path in folder.glob("*.tar"))
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=_FLAGS)
        times = [opened(browser, folder, cache) for _ in range(rounds)]
        yield f"{samples:,} samples in {SHARDS} tar shards, {size / 1e9:.1f} GB, with their indexes."
        yield "| | best, s | median, s |\n|---|---|---|\n" + "\n".join(
            f"| {what} | {min(taken):.2f} | {median(taken):.2f} |"
            for what, taken in (
                ("the command, until its link is printed", [each.printed for each in times]),
                ("the link, until the first pictures are there", [each.there - each.printed for each in times]),
                ("both", [each.there for each in times]),
                ("processor time of the command until then", [each.busy for each in times]),
            )
        )
        head = "| | requests | kB | samples asked for | pictures |\n|---|---|---|---|---|"
        yield "\n".join([head, *times[-1].rows])
        all_counted = counted(folder, cache)
        for path in folder.glob("*"):
            if path.suffix != ".tar":
                path.unlink()
        bare = opened(browser, folder, Path(name, "other"))
        bare_counted = counted(folder, Path(name, "third"))
        browser.close()
        yield (
            f"Without indexes the first pictures are there after {bare.there:.2f} s, when the first shard has been\n"
            f"walked through; all samples are counted after {bare_counted:.1f} s (with indexes {all_counted:.1f} s),\n"
            "and from then on there are indexes."
        )


def main() -> None:
    """Measure, print and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    load = f"{os.getloadavg()[0]:.0f} programs wanted to run at a time"
    made = (
        f"`make bench-view` on {date.today()}: {machine}; shoal {version('shoal')}, Chromium without a screen; {load}."
    )
    text = "\n\n".join(["# Results: the viewer", made, *run(options.samples, options.rounds)]) + "\n"
    print(text)
    Path(__file__).with_name("RESULTS-view.md").write_text(text)


if __name__ == "__main__":
    main()

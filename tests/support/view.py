"""Data to look at, with a field of each kind, and a real browser to look with."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from shoal.shards import ShardWriter
from shoal.shards.codecs import encode

__all__ = ["BROKEN", "Visit", "browser", "write_samples"]

#: The sample whose picture breaks off.
BROKEN = 7

#: As root in a container, and without what Chromium does of its own accord on the network.
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_FLAGS += ["--disable-component-update", "--disable-sync"]
_SECONDS = 60.0


def write_samples(folder: Path, count: int, *, maxcount: int = 100) -> None:
    """Write shards of pictures, masks, sound, text, documents, arrays and bytes."""
    random = np.random.default_rng(0)
    tone = np.sin(np.arange(4000) / 8).astype(np.float32) * 0.5
    with ShardWriter(str(folder / "train-%03d.tar"), maxcount=maxcount) as writer:
        for number in range(count):
            width = 40 + number % 50
            rows, columns = np.mgrid[0:48, 0:width]
            picture = np.dstack([rows * 5, columns * 2, np.full_like(rows, number * 7 % 256)]).astype(np.uint8)
            jpeg = encode("jpg", picture)
            writer.write(
                {
                    "__key__": f"{'dog' if number % 2 else 'cat'}/{number:04d}",
                    "jpg": jpeg[: len(jpeg) // 3] if number == BROKEN else jpeg,
                    "seg.png": (columns > width // 2).astype(np.uint8) * 2,
                    "cls": number % 5,
                    "txt": f"picture number {number}",
                    "json": {"size": {"width": width}, "tags": ["one", "two"]},
                    "wav": {"array": tone, "sampling_rate": 8000},
                    "row.npy": random.normal(size=300).astype(np.float32),
                    "table.npy": random.normal(size=(6, 9)).astype(np.float32),
                    "blob.bin": bytes(range(64)),
                }
            )


@contextmanager
def browser() -> Iterator[Any]:
    """Start Debian's Chromium, with nothing remembered from before."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as home:
        context = playwright.chromium.launch_persistent_context(
            home, executable_path="/usr/bin/chromium", args=_FLAGS, viewport={"width": 1200, "height": 800}
        )
        context.set_default_timeout(1000 * _SECONDS)
        try:
            yield context
        finally:
            context.close()


class Visit:
    """A tab of the browser that remembers all it asked for, and all that went wrong."""

    def __init__(self, context: Any, link: str) -> None:
        self.page = context.new_page()
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._heard)
        self.home = link.partition("?")[0]
        self.page.goto(link)

    def open(self, address: str) -> None:
        """Go to a place of the page."""
        self.page.goto(f"{self.home}#{address}")

    def until(self, holds: str) -> None:
        """Wait until something holds on the page; the page forbids what the browser's driver would do for that."""
        deadline = time.monotonic() + _SECONDS
        while not self.page.evaluate(f"Boolean({holds})"):
            assert time.monotonic() < deadline, f"{holds} does not come true"
            self.page.wait_for_timeout(25)

    def samples_asked_for(self) -> set[int]:
        """Tell which places of the grid were asked for."""
        asked = [parse_qs(urlsplit(url).query) for url in self.asked if "/api/samples?" in url]
        ranges = (range(int(one["start"][0]), int(one["start"][0]) + int(one["count"][0])) for one in asked)
        return {number for some in ranges for number in some}

    def close(self) -> None:
        """Close the tab; nothing went wrong, and nothing was asked of anybody else."""
        self.page.close()
        assert self.wrong == []
        assert [url for url in self.asked if not url.startswith(self.home)] == []

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

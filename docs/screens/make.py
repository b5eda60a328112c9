"""Make the pictures of the README and the pages: ``make pictures``.

Screenshots are of the viewer in a real browser, over data that is made here; the recording is of a real run of the demo
in a terminal, as an animated SVG. All go to this folder.
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_sample_image

import shoal
from shoal.shards import ShardWriter

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

#: What a recording waits at most between two lines, however long the program took.
PAUSE = 0.9
LETTER, LINE, EDGE = 8.43, 20, 18


def write_samples(folder: Path) -> None:
    """Write crops of two photos, with masks, texts, sound, and arrays."""
    random = np.random.default_rng(0)
    photos = {"temple": load_sample_image("china.jpg"), "flower": load_sample_image("flower.jpg")}
    words = ["roof", "clouds", "petals", "stones", "garden", "light", "water", "morning", "wide", "old", "green"]
    seconds = np.arange(16_000) / 16_000
    with ShardWriter(str(folder / "train-%03d.tar"), maxcount=100) as writer:
        for number in range(400):
            name = ("temple", "flower")[number % 2]
            height, width = random.integers(150, 300), random.integers(200, 380)
            top, left = random.integers(0, 427 - height), random.integers(0, 640 - width)
            crop = photos[name][top : top + height, left : left + width]
            tone = np.sin(2 * np.pi * (200 + number) * seconds) * np.exp(-3 * seconds)
            writer.write(
                {
                    "__key__": f"{name}/{number:05d}",
                    "jpg": crop,
                    "seg.png": np.digitize(crop[..., 0].astype(int) - crop[..., 2], [40]).astype(np.uint8),
                    "cls": int(random.choice(6, p=[0.3, 0.25, 0.18, 0.13, 0.09, 0.05])),
                    "txt": " ".join(random.choice(words, 14)),
                    "json": {"camera": {"iso": int(random.choice([100, 200, 400]))}, "size": [int(width), int(height)]},
                    "wav": {"array": tone.astype(np.float32), "sampling_rate": 16_000},
                    "x.npy": np.cumsum(random.normal(size=400)).astype(np.float32),
                }
            )


def take_pictures() -> None:
    """Open the viewer, and take pictures of its pages."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        write_samples(Path(name))
        os.chdir(name)  # so that the page shows no path of this machine
        dataset = shoal.read_tar("train-*.tar", fields=["jpg", "cls"]).decode().map(_resized, workers=2).shuffle("full")
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        with shoal.view.serve("train-*.tar") as view:
            page = browser.new_page(viewport={"width": 1120, "height": 680})
            page.goto(view.url)
            page.wait_for_selector(".tile img.there >> nth=12")
            _save(page, "grid")
            page.goto(f"http://127.0.0.1:{view.port}/#samples/4")
            page.wait_for_selector(".card img.over")
            _save(page, "sample")
        with shoal.view.serve(dataset) as view:
            page = browser.new_page(viewport={"width": 1120, "height": 560}, color_scheme="dark")
            page.goto(view.url)
            page.goto(f"http://127.0.0.1:{view.port}/#plan")
            page.get_by_role("button", name="Run it").click()
            page.wait_for_timeout(4000)
            _save(page, "pipeline")
        browser.close()
        os.chdir(ROOT)


def _resized(sample: dict[str, Any]) -> dict[str, Any]:
    picture = Image.fromarray(sample["jpg"]).resize((224, 224))
    return {"x": np.asarray(picture, np.float32) / 255, "y": sample["cls"]}


def _save(page: Any, name: str) -> None:
    page.wait_for_timeout(700)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        FOLDER / f"{name}.png", optimize=True
    )


class Printed(NamedTuple):
    """A line of a terminal, and when it came."""

    seconds: float
    text: str


def recorded(command: list[str]) -> Iterator[Printed]:
    """Run a command in a terminal of its own, and give its lines as they come.

    The terminal is a plain one, so that nothing is written over: a drawing of lines has them once.
    """
    main, other = pty.openpty()
    begun = time.monotonic()
    process = subprocess.Popen(
        command, stdout=other, stderr=other, stdin=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "TERM": "dumb"}
    )
    os.close(other)
    with closing(open(main, encoding="utf-8", errors="replace")) as lines:
        while True:
            try:
                line = lines.readline()
            except OSError:  # what a terminal gives when its last program is gone
                break
            if not line:
                break
            yield Printed(time.monotonic() - begun, line.rstrip())
    assert process.wait() == 0, "the demo failed"


def animated(typed: str, lines: list[Printed]) -> str:
    """Draw a terminal in which lines appear one after the other, again and again."""
    at, before, times = 1.6, 0.0, []
    for line in lines:
        at += min(line.seconds - before, PAUSE)
        before = line.seconds
        times.append(at)
    whole = at + 6
    width = round(max(len(line.text) for line in lines) * LETTER + 2 * EDGE)
    height = (len(lines) + 1) * LINE + 2 * EDGE + 26
    shown = [f"$ {typed}", *(line.text for line in lines)]
    rows, styles = [], []
    for number, (text, begin) in enumerate(zip(shown, [0.6, *times], strict=True)):
        share = 100 * begin / whole
        styles.append(f"@keyframes l{number}{{0%,{share:.2f}%{{opacity:0}}{share + 0.01:.2f}%,100%{{opacity:1}}}}")
        styles.append(f".l{number}{{animation:l{number} {whole:.1f}s infinite}}")
        y = EDGE + 26 + (number + 1) * LINE - 5
        colour = "#7ddcf5" if number == 0 else "#8ee6b5" if number == len(lines) else "#dfe8ef"
        rows.append(f'<text class="l{number}" x="{EDGE}" y="{y}" fill="{colour}">{escape(text)}</text>')
    places = zip((EDGE + 4, EDGE + 22, EDGE + 40), ("#ff5f57", "#febc2e", "#28c840"), strict=True)
    dots = "".join(f'<circle cx="{x}" cy="20" r="5.5" fill="{colour}"/>' for x, colour in places)
    font = "14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<style>text{{font:{font};white-space:pre}}{''.join(styles)}</style>"
        f'<rect width="{width}" height="{height}" rx="10" fill="#101a22"/>{dots}{"".join(rows)}</svg>\n'
    )


def main() -> None:
    """Make all pictures."""
    FOLDER.mkdir(exist_ok=True)
    take_pictures()
    lines = [line for line in recorded([sys.executable, "examples/digits.py"]) if line.text]
    (FOLDER / "demo.svg").write_text(animated("make demo", lines))


if __name__ == "__main__":
    main()

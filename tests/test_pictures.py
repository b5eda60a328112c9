"""The pictures of the documentation are what the functions that decide the order make of them."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
PICTURES = runpy.run_path(str(FOLDER / "draw.py"))["PICTURES"]


def test_each_picture_has_a_drawing() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(PICTURES)


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_what_is_drawn_today(name: str) -> None:
    """If the order has changed, runs cannot go on: then ``python docs/pictures/draw.py`` is the least to do."""
    kept = (FOLDER / f"{name}.svg").read_text()
    assert kept == str(PICTURES[name]())
    assert ElementTree.fromstring(kept).tag.endswith("svg")

"""Draw the pictures of the documentation with the functions that decide the order: ``python docs/pictures/draw.py``.

Each picture is a text that follows from `shoal.order` alone, so a test can compare what lies here with what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from shoal.order import ElementOrder, Mixing, Part, Shuffle, Walk, Weights, own_lanes, rank_part, slot_owner

__all__ = ["PICTURES"]

#: Colours that are told apart without seeing colours well, too: light to dark, and round the circle.
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
CELL, GAP, LEFT = 22, 2, 150


class Picture:
    """Boxes and words, which become an SVG."""

    def __init__(self, title: str) -> None:
        self._title, self._parts = title, list[str]()
        self._width = self._height = 0

    def cell(self, x: float, y: float, colour: str, text: object = "", *, size: int = CELL) -> None:
        """Draw a box with something in it."""
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{size}" height="{CELL}" rx="3" fill="{colour}"/>')
        if text != "":
            self.words(x + size / 2, y + CELL - 7, text, anchor="middle", size=10)
        self._grow(x + size, y + CELL)

    def words(self, x: float, y: float, text: object, *, anchor: str = "start", size: int = 12) -> None:
        """Write something."""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{text}</text>')
        self._grow(x + (0.6 * size * len(str(text)) if anchor == "start" else 0), y)

    def _grow(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, int(x) + 12), max(self._height, int(y) + 12)

    def __str__(self) -> str:
        size = f'width="{self._width}" height="{self._height}" viewBox="0 0 {self._width} {self._height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" role="img">'
        back = f'<rect width="{self._width}" height="{self._height}" fill="#ffffff"/>'
        return "\n".join([head, f"<title>{self._title}</title>", back, *self._parts, "</svg>", ""])


def lanes() -> Picture:
    """Draw the slots of three batches as they lie in eight lanes, and who owns them with one, two and three ranks."""
    picture, batch = Picture("Slots in lanes, and the ranks that own them"), 8
    for block, world in enumerate((1, 2, 3)):
        top = 40 + block * 3 * (CELL + GAP) + block * 46
        picture.words(10, top - 12, f"{world} rank{'s' if world > 1 else ''}: slot g lies in lane g mod 8")
        for number in range(3):
            slots = np.arange(number * batch, (number + 1) * batch)
            owners = slot_owner(slots, Part(batch, world_size=world, lanes=8))
            picture.words(10, top + number * (CELL + GAP) + 16, f"global batch {number}")
            for slot, owner in zip(slots, owners, strict=True):
                x = LEFT + int(slot) % 8 * (CELL + GAP) * 1.5
                picture.cell(x, top + number * (CELL + GAP), COLOURS[int(owner)], int(slot), size=int(CELL * 1.5))
        owned = (f"rank {rank}: {list(own_lanes(Part(batch, rank, world, lanes=8)))}" for rank in range(world))
        picture.words(LEFT + 8 * (CELL + GAP) * 1.5 + 12, top + 16, "lanes of " + ", ".join(owned), size=11)
    return picture


def shuffles() -> Picture:
    """Draw an epoch of eight shards with sixteen samples each: which shard each sample of the order is of."""
    picture, shards, length = Picture("What each shuffle does to the order of samples"), 8, 16
    ways = {
        "as it lies": None,
        'shuffle("shards", window=2)': Shuffle("shards", window=2, chunk=4),
        'shuffle("shards", window=8)': Shuffle("shards", window=8, chunk=4),
        'shuffle("full")': Shuffle("full"),
    }
    for row, (name, shuffle) in enumerate(ways.items()):
        walk = Walk(shuffle, epoch=0, shards=shards, lanes=8)
        order = ElementOrder(walk, lambda numbers: np.full(len(numbers), length))
        found = order.locate(np.arange(shards * length)).shards
        picture.words(10, 24 + row * 46, name)
        for place, shard in enumerate(found.tolist()):
            picture.cell(10 + place * 7, 30 + row * 46, COLOURS[shard], size=6)
    picture.words(10, 34 + len(ways) * 46, "one colour is one shard; an epoch is read from left to right", size=11)
    return picture


def resume() -> Picture:
    """Draw a run of two ranks that stops after three batches, and goes on with three ranks."""
    picture, batch = Picture("A run that goes on with another number of ranks"), 6
    for number in range(6):
        world = 2 if number < 3 else 3
        picture.words(10, 26 + number * (CELL + GAP), f"batch {number}, {world} ranks")
        for rank in range(world):
            slots, _ = rank_part(number * batch, Part(batch, rank, world, lanes=12))
            for slot in slots.tolist():
                x = LEFT + (slot - number * batch) * (CELL + GAP) * 1.5
                picture.cell(x, 10 + number * (CELL + GAP), COLOURS[rank], slot, size=int(CELL * 1.5))
    after = LEFT + batch * (CELL + GAP) * 1.5 + 10
    picture.words(after, 26 + 2 * (CELL + GAP), "the state: 18 slots delivered", size=11)
    picture.words(after, 26 + 3 * (CELL + GAP), "goes on with slot 18, whoever owns it", size=11)
    return picture


def mixture() -> Picture:
    """Draw what lanes draw from two datasets with the weights 3 and 1."""
    picture, count = Picture("Draws of four lanes from two datasets, weights 3 and 1"), 16
    for lane in range(4):
        mixing = Mixing(Weights.of([3, 1]), lanes=4, phase=lane)
        picture.words(10, 26 + lane * (CELL + GAP), f"lane {lane}")
        for place, component in enumerate(mixing.draw() for _ in range(count)):
            picture.cell(70 + place * (CELL + GAP), 10 + lane * (CELL + GAP), COLOURS[component], "ab"[component])
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "lanes": lanes,
    "shuffles": shuffles,
    "resume": resume,
    "mixture": mixture,
}


def write(names: Iterable[str] | Sequence[str] = tuple(PICTURES)) -> None:
    """Write the pictures beside this file."""
    for name in names:
        Path(__file__).with_name(f"{name}.svg").write_text(str(PICTURES[name]()))


if __name__ == "__main__":
    write()

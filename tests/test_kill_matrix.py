"""Cells of the kill matrix: some of them here, all of them in `make soak`; and the page of the last whole run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from kill_matrix.cells import CELLS, ENGINES, FAULTS, SAMPLE, SOURCES, Cell
from kill_matrix.ground import Ground, ground
from kill_matrix.judge import Delivery, Reference, complaints
from kill_matrix.page import PAGE, RESULTS, rendered
from kill_matrix.runner import run

CHOSEN = CELLS if os.environ.get("SHOAL_TEST_PROFILE") == "soak" else SAMPLE


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(tmp_path_factory.mktemp("kill-matrix")) as made:
        yield made


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", sorted(CHOSEN, key=lambda cell: ENGINES.index(cell.engine)), ids=lambda cell: cell.name
)
def test_a_cell_holds(cell: Cell, there: Ground) -> None:
    assert run(cell, there).complaints == ()


def test_there_are_enough_cells_and_each_is_one_of_its_kind() -> None:
    assert len(CELLS) >= 100
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert {cell.source for cell in CELLS} == {*SOURCES}
    assert {cell.fault for cell in CELLS} == {*FAULTS}
    assert {cell.engine for cell in CELLS} == {*ENGINES}
    assert all(cell.before != cell.after for cell in CELLS)
    assert len(SAMPLE) == 7


def test_the_page_shows_what_was_recorded_and_all_of_it_holds() -> None:
    results = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == rendered(results)
    recorded = {
        tuple(cell[name] for name in ("source", "fault", "engine", "before", "after", "seed"))
        for cell in results["cells"]
    }
    assert recorded == {(*(getattr(cell, name) for name in cell.__slots__), cell.seed) for cell in CELLS}
    assert [cell for cell in results["cells"] if not cell["holds"]] == []


CALM = Reference((("a", "b", "c"), ("d", "e", "f"), ("g",)), "order")


def noted(*steps: str, begin: int = 1) -> dict[int, list[str]]:
    return {number: list(rows) for number, rows in enumerate(steps, begin)}


def test_the_judge_lets_exact_runs_pass() -> None:
    """Two ranks of which one is lost after a batch, two again, then one alone, which sees a batch of padding."""
    first = [Delivery("0", "a-0", 2, noted("ac", "df")), Delivery("1", "a-0", 2, noted("b"))]
    again = [Delivery("0", "a-1", 2, noted("ac", "df")), Delivery("1", "a-1", 2, noted("b", "e"))]
    rest = [Delivery("0", "b-0", 1, noted("", "g", begin=3))]
    assert complaints(CALM, [*first, *again, *rest], "order") == []


@pytest.mark.parametrize(
    ("ranks", "digest", "text"),
    [
        ([("abc", "def")], "order", "never came"),
        ([("abc", "def", "g", "h")], "order", "batch 4 has other rows"),
        ([("bac", "def", "g")], "order", "batch 1 has other rows, or in another order"),
        ([("ab", "def", "g")], "order", "the ranks' parts of batch 1 are not the batch"),
        ([("ab", "d", "g"), ("bc", "ef", "")], "order", "the ranks' parts of batch 1 are not the batch"),
        ([("abc", "def", "g")], "another", "the digest of the order"),
    ],
)
def test_the_judge_finds_what_is_lost_doubled_or_out_of_order(
    ranks: list[tuple[str, ...]], digest: str, text: str
) -> None:
    given = [Delivery(str(rank), "a-0", len(ranks), noted(*steps)) for rank, steps in enumerate(ranks)]
    found = complaints(CALM, given, digest)
    assert any(text in each for each in found), found

"""The page on capacity shows what the simulation says, and the simulation does what arithmetic says it must."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def capacity() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from benchmarks import feed_capacity

        yield feed_capacity
    sys.modules.pop("benchmarks.feed_capacity", None)


def test_the_page_shows_the_tables_of_the_simulation(capacity: Any) -> None:
    page = (ROOT / "docs" / "feed-capacity.md").read_text()
    for title, lines in capacity.tables():
        assert f"<!-- {title} -->\n\n" + "\n".join(lines) + "\n" in page


def test_without_anything_in_short_supply_gpus_learn_all_the_time(capacity: Any) -> None:
    assert capacity.simulated(capacity.Training(16, 100), capacity.Site(), capacity.AS_BYTES, 8) > 0.999


def test_half_of_what_is_needed_keeps_gpus_busy_for_half_of_the_time(capacity: Any) -> None:
    training = replace(capacity.Training(8, 1000), spread=0.0)
    site = capacity.Site()
    cost = replace(capacity.AS_BYTES, prepare=0.016, send=0.0)  # 128 cores of preparation: two hosts of 64
    assert capacity.simulated(training, site, cost, 1) == pytest.approx(0.5, rel=0.02)
    assert capacity.simulated(training, site, cost, 2) == pytest.approx(1.0, rel=0.02)
    slow = replace(site, trainer_network=0.25 * 8 * 1000 * cost.sent)
    assert capacity.simulated(training, slow, cost, 2) == pytest.approx(0.25, rel=0.02)
    disks = replace(site, disks=0.5 * 8 * 1000 * cost.read / site.disk)
    assert capacity.simulated(training, disks, cost, 2) == pytest.approx(0.5, rel=0.02)


def test_more_feeders_never_make_it_slower_and_uneven_ones_do(capacity: Any) -> None:
    training, site, cost = capacity.Training(64, 1500), capacity.Site(), capacity.HEAVY
    shares = [capacity.simulated(training, site, cost, count) for count in (2, 4, 8, 16, 32)]
    assert shares == sorted(shares)
    assert capacity.simulated(replace(training, spread=1.0), site, cost, 12) < shares[-1]

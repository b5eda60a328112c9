"""The page of the viewer, in a real browser: what one sees, clicks and types."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import store, view
from shoal.learn._events import EventWriter
from support.view import BROKEN, Visit, browser, write_samples

COUNT = 1500


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_samples(folder, COUNT, maxcount=500)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as context:
        yield context


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visit]]:
    views: list[view.View] = []
    visits: list[Visit] = []

    def opened(*what: object, **options: Any) -> Visit:
        views.append(view.serve(*what, **options))
        visits.append(Visit(chromium, views[-1].url))
        return visits[-1]

    yield opened
    for each in visits:
        each.close()
    for served in views:
        served.close()


@pytest.fixture
def samples(visit: Callable[..., Visit], shards: Path) -> Visit:
    made = visit(shards)
    made.until(f"document.querySelector('.state')?.textContent === '{COUNT:,} samples in 3 shards'")
    made.page.wait_for_selector(".tile img.there")
    return made


def keys(page: Any) -> list[str]:
    return list(page.locator(".tile .key").all_inner_texts())


def settled(visit: Visit) -> None:
    """Wait until all that is seen of the grid is there."""
    visit.until("document.querySelector('.tile') && !document.querySelector('.tile.waiting')")


def test_the_grid_shows_pictures_keys_and_classes(samples: Visit) -> None:
    page = samples.page
    assert keys(page)[:3] == ["cat/0000", "dog/0001", "cat/0002"]
    assert page.locator(".tile .label").first.inner_text() == "0"
    samples.until("""document.querySelector('.tile[data-index="1"] img')?.naturalWidth > 0""")


def test_unseen_samples_are_not_asked_for(samples: Visit) -> None:
    page = samples.page
    seen = page.locator(".tile").count()
    first = samples.samples_asked_for()
    assert len(first) <= 3 * seen
    assert max(first) < 3 * seen
    page.locator(".grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight / 2; }")
    samples.until(f"document.querySelector('.tile')?.dataset.index > {COUNT // 4}")
    page.wait_for_selector(".tile img.there >> nth=3")
    settled(samples)
    later = samples.samples_asked_for() - first
    assert later
    assert len(later) <= 3 * seen, "what was scrolled past is not loaded"
    assert min(later) > COUNT // 4
    assert page.locator(".tile").count() <= 2 * seen, "only what is seen is in the page"
    thumbnails = [url for url in samples.asked if "/thumbnail/" in url]
    assert len(thumbnails) <= 6 * seen


def test_the_last_sample_is_reached_by_key(samples: Visit) -> None:
    page = samples.page
    page.locator(".tile").first.focus()
    page.keyboard.press("End")
    page.wait_for_selector(f'.tile[data-index="{COUNT - 1}"] .key')
    assert keys(page)[-1] == f"dog/{COUNT - 1:04d}"
    page.keyboard.press("Home")
    page.wait_for_selector('.tile[data-index="0"] .key')


def test_millions_of_rows_scroll_to_their_ends_and_in_small_steps(visit: Callable[..., Visit]) -> None:
    count = 3_000_000
    made = visit(shoal.from_arrays(x=np.arange(count)))
    page = made.page
    page.wait_for_selector(".tile .facts")
    page.locator(".tile").first.focus()
    page.keyboard.press("End")
    page.wait_for_selector(f'.tile[data-index="{count - 1}"] .facts')
    top = "grid => grid.querySelector('.tile').dataset.index"
    page.locator(".grid").evaluate("grid => { grid.scrollTop = grid.scrollHeight / 2; }")
    made.until("Math.abs(document.querySelector('.tile .key')?.textContent - 1500000) < 20000")
    before = int(page.locator(".grid").evaluate(top))
    page.mouse.move(400, 400)
    page.mouse.wheel(0, 300)
    made.until(f"Number(document.querySelector('.tile')?.dataset.index) > {before}")
    settled(made)
    assert 0 < int(page.locator(".grid").evaluate(top)) - before < 100, "a turn of the wheel is a few rows"


def test_arrows_walk_through_the_grid_and_enter_opens(samples: Visit) -> None:
    page = samples.page
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.index") == "2"
    page.keyboard.press("ArrowDown")
    below = int(page.evaluate("document.activeElement.dataset.index"))
    assert below > 3
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog.detail .card")
    assert page.locator("#detail-title").inner_text().endswith(f"{below:04d}")
    page.keyboard.press("ArrowRight")
    samples.until(f"document.querySelector('#detail-title').textContent.endsWith('{below + 1:04d}')")
    page.keyboard.press("Escape")
    samples.until(f"document.activeElement.dataset.index === '{below + 1}'")
    assert page.locator("dialog.detail").is_hidden()


def test_every_kind_of_field_is_drawn(samples: Visit) -> None:
    page = samples.page
    page.locator(".tile").nth(1).click()
    page.wait_for_selector("dialog.detail .card")

    def card(name: str) -> Any:
        return page.locator(f'.card[data-field="{name}"]')

    assert card("cls").locator(".value").inner_text() == "1"
    assert card("txt").locator(".prose").inner_text() == "picture number 1"
    assert "width: 41" in card("json").inner_text()
    assert card("blob.bin").locator(".hex").inner_text().startswith("000000")
    assert card("row.npy").locator("svg .curve").count() == 1
    assert len(card("wav").locator("svg.wave path").get_attribute("d")) > 1000
    seconds = """async audio => {
        audio.load();
        await new Promise(resolve => { audio.onloadedmetadata = resolve; });
        return audio.duration;
    }"""
    assert card("wav").locator("audio").evaluate(seconds) == pytest.approx(0.5)
    for name in ("jpg", "seg.png", "table.npy"):
        image = card(name).locator("img").first
        image.scroll_into_view_if_needed()
        samples.until(f"""document.querySelector('.card[data-field="{name}"] img').naturalWidth > 0""")


def test_a_mask_lies_over_its_picture_and_can_be_taken_off(samples: Visit) -> None:
    page = samples.page
    samples.open("samples/2")
    over = page.locator('.card[data-field="jpg"] img.over')
    over.wait_for()
    assert over.evaluate("image => image.style.opacity") == "0.55"
    slider = page.get_by_label("How strong masks are")
    slider.fill("20")
    assert over.evaluate("image => image.style.opacity") == "0.2"
    page.get_by_label("seg.png", exact=True).uncheck()
    over.wait_for(state="hidden")


def test_keys_are_searched_as_one_types(samples: Visit) -> None:
    page = samples.page
    page.keyboard.press("/")
    page.keyboard.type("DOG/012")
    samples.until("document.querySelector('.state').textContent.startsWith('5 of')")
    settled(samples)
    assert keys(page) == [f"dog/{number:04d}" for number in (121, 123, 125, 127, 129)]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "tile"


def test_samples_are_filtered_by_an_expression(samples: Visit) -> None:
    page = samples.page
    page.keyboard.press("f")
    page.keyboard.type("cls == 3 and width > 80")
    samples.until("document.querySelector('.state').textContent.startsWith('60 of 1,500')")
    settled(samples)
    assert set(page.locator(".tile .label").all_inner_texts()) == {"3"}
    page.locator("#where").fill("cls ===")
    page.wait_for_selector(".state .wrong")
    page.locator("#where").fill("cls == 99")
    page.wait_for_selector("text=No sample is like that.")
    samples.wrong = [text for text in samples.wrong if "400" not in text]  # the browser tells of the refused filter


def test_a_class_is_chosen_from_the_list_and_from_a_histogram(samples: Visit) -> None:
    page = samples.page
    page.locator("#class").focus()
    samples.until("document.querySelectorAll('#class option').length === 6")
    page.locator("#class").select_option("4")
    samples.until("document.querySelector('.state').textContent.startsWith('300 of')")
    samples.open("histograms")
    page.wait_for_selector("text=1,500 of 1,500 samples")
    page.locator(".classes button", has_text=re.compile("^2")).click()
    samples.until("document.querySelector('.state')?.textContent.startsWith('300 of')")
    assert page.locator("#where").input_value() == "cls == 2"


def test_histograms_count_classes_sizes_and_sides(samples: Visit) -> None:
    page = samples.page
    samples.open("histograms")
    page.wait_for_selector("text=1,500 of 1,500 samples")
    assert page.locator(".classes button").count() == 5
    assert page.locator(".classes .many").first.inner_text() == "300 (20 %)"
    text = page.locator(".boards").inner_text()
    assert "40 to 89 pixels" in text
    assert "always 64 B" in text


def test_broken_samples_are_found_by_a_check(samples: Visit) -> None:
    page = samples.page
    page.wait_for_selector(f'.tile[data-index="{BROKEN}"] .sign.broken')
    samples.open("broken")
    page.get_by_role("button", name="Check all samples").click()
    page.wait_for_selector("text=1,500 of 1,500 samples were decoded")
    page.get_by_role("link", name=f"dog/{BROKEN:04d}").first.click()
    page.wait_for_selector('.card[data-field="jpg"] .problem, .card[data-field="jpg"] img')
    assert page.locator("#detail-title").inner_text() == f"dog/{BROKEN:04d}"


def test_dark_and_light_follow_the_system_and_the_button(chromium: Any, samples: Visit) -> None:
    page = samples.page
    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    samples.until("document.documentElement.dataset.theme === 'dark'")
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    samples.until("document.documentElement.dataset.theme === 'light'")
    assert page.evaluate(ground) != dark
    page.keyboard.press("d")
    assert page.evaluate(ground) == dark
    page.reload()
    page.wait_for_selector(".tile")
    assert page.evaluate(ground) == dark, "what was chosen is remembered"


@pytest.mark.parametrize(
    "place", ["samples", "samples/1", "results", "results/1", "histograms", "broken", "plan", "runs", "store"]
)
def test_nothing_is_wider_than_a_phone(place: str, everything: Visit) -> None:
    page = everything.page
    page.set_viewport_size({"width": 360, "height": 740})
    everything.open(place)
    page.wait_for_selector("dialog.detail .card" if "/" in place else ".tile, .card")
    wide = """[...document.querySelectorAll('body, main, .page, .body, .grid, .toolbar, .card')]
        .filter(element => element.scrollWidth > 360 && element.getClientRects().length)
        .map(element => element.className)"""
    everything.until(f"!{wide}.length")


@pytest.fixture
def everything(visit: Callable[..., Visit], shards: Path, tmp_path: Path) -> Visit:
    for run, end in (("slow", 0.5), ("quick", 0.2)):
        for part in ("train", "validation"):
            events = EventWriter(tmp_path / "runs" / run / part)
            for step in range(1, 21):
                events.add("Loss", step, end + 1 / step)
            events.close()
    shelf = store.connect(tmp_path / "shelf", memory="10MB")
    shelf.put(np.zeros((50, 50)), name="weights", persist=True)
    dataset = shoal.read_tar(f"{shards}/*.tar", fields=["jpg", "cls"]).map(dict).filter(_slow, workers=1)
    made = visit(dataset, tmp_path / "runs", tmp_path / "shelf")
    made.page.wait_for_selector(".tile")
    return made


def _slow(sample: Any) -> bool:
    threading.Event().wait(0.001)
    return True


def test_a_pipeline_runs_and_its_bottleneck_is_lit(everything: Visit) -> None:
    page = everything.page
    everything.open("plan")
    page.wait_for_selector(".flow .node")
    names = page.locator(".flow .node h3").all_inner_texts()
    assert names == ["read", "select()", "map(dict)", "filter(_slow)", "consumer"]
    page.get_by_role("button", name="Run it").click()
    page.wait_for_selector(".node.hot .badge")
    everything.until("document.querySelector('.node.hot h3')?.textContent === 'filter(_slow)'")
    everything.until("parseFloat(document.querySelector('.node.hot .rate')?.textContent) > 0")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Run it").wait_for()


def test_results_of_a_pipeline_are_beside_what_it_reads(visit: Callable[..., Visit], shards: Path) -> None:
    read = shoal.read_tar(f"{shards}/*.tar", fields=["jpg", "cls"])
    made = visit(read.decode().map(_flipped).filter(_is_even))
    page = made.page
    page.wait_for_selector(".tile")
    page.keyboard.press("2")
    made.until("document.querySelector('.state')?.textContent.includes('after')")
    page.wait_for_selector(".tile img.there")
    assert page.locator(".state").inner_text().endswith("after select() → decode() → map(_flipped) → filter(_is_even)")
    assert "left out by filter(_is_even)" in page.locator('.tile[data-index="1"]').inner_text()
    page.locator('.tile[data-index="2"]').click()
    page.wait_for_selector("dialog.detail .card")
    assert made.page.url.endswith("#results/2")
    assert "uint8 48 \u00d7 42 \u00d7 3" in page.locator('.card[data-field="jpg"]').inner_text()
    made.until("""document.querySelector('.card[data-field="jpg"] img').naturalWidth === 42""")
    page.keyboard.press("Escape")
    made.until("document.activeElement.dataset.index === '2'")
    page.keyboard.press("1")
    made.until("document.querySelector('.state')?.textContent === '1,500 samples in 3 shards'")
    page.wait_for_selector('.tile[data-index="1"] img.there')


def _flipped(sample: Any) -> Any:
    return {**sample, "jpg": np.ascontiguousarray(sample["jpg"][:, ::-1])}


def _is_even(sample: Any) -> bool:
    return int(sample["cls"]) % 2 == 0


def test_curves_of_runs_lie_over_each_other(everything: Visit) -> None:
    page = everything.page
    everything.open("runs")
    page.wait_for_selector('.card[data-tag="Loss"] .curve')
    assert page.locator('.card[data-tag="Loss"] .curve').count() == 4
    page.get_by_role("button", name="slow").click()
    assert page.locator('.card[data-tag="Loss"] .curve').count() == 2
    page.locator('.card[data-tag="Loss"] svg').hover()
    assert "quick" in page.locator(".tip:visible").inner_text()
    page.get_by_label("Smoothing").fill("60")
    assert page.locator('.card[data-tag="Loss"] .curve.raw').count() == 2


def test_a_store_tells_what_is_in_it_and_who_holds_it(everything: Visit) -> None:
    page = everything.page
    everything.open("store")
    page.wait_for_selector("text=weights")
    assert "20 kB" in page.locator("tbody tr").first.inner_text()
    page.get_by_role("button", name="type").click()
    assert page.locator('th[aria-sort="ascending"]').inner_text().startswith("type")


def test_help_opens_with_a_key_and_closes_with_escape(samples: Visit) -> None:
    page = samples.page
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Keys").wait_for(state="hidden")


def test_a_link_opens_the_page_once(chromium: Any, shards: Path) -> None:
    with view.serve(shards) as served:
        link = served.url
        first = Visit(chromium, link)
        first.page.wait_for_selector(".tile")
        assert first.page.url == first.home, "the token is not in the address any more"
        assert first.page.evaluate("document.cookie") == "", "no script can read the cookie"
        again = Visit(chromium, link)
        again.page.wait_for_selector(".tile")
        for each in (first, again):
            each.page.wait_for_load_state("networkidle")
        chromium.clear_cookies()  # as another browser
        again.page.goto(link)
        assert "This link does not work" in again.page.content()
        again.page.close()  # of what was refused the browser tells as of something wrong
        first.close()

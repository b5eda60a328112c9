"""The documentation as a site: it builds without a warning, its links lead somewhere, and it needs nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
#: It imports every engine and framework, and renders every page, which takes its time on a machine that is busy.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

#: Attributes by which a page asks for something as soon as it is shown, or links to something.
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """What a page has: places that can be linked to, links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found[name] or "" for name in ("id", "name") if name in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        if tag in LOADED and found.get(LOADED[tag]):
            self.loads.append(found[LOADED[tag]] or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it, as ``make docs`` does."""
    out = tmp_path_factory.mktemp("site") / "docs"
    program = [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(out)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}


def targets(pages: dict[str, Page]) -> Iterator[tuple[str, str, str]]:
    """Give each link inside the site: where it is, and the page and the anchor that it leads to."""
    for name, page in pages.items():
        for link in page.links:
            if not urlsplit(link).scheme:
                path, anchor = urldefrag(urljoin(f"http://site/{name}", link))
                yield name, unquote(urlsplit(path).path.lstrip("/")), unquote(anchor)


def test_links_and_anchors_lead_somewhere(site: Path, pages: dict[str, Page]) -> None:
    wrong = []
    for name, path, anchor in targets(pages):
        if not (site / path).is_file() or (anchor and path in pages and anchor not in pages[path].anchors):
            wrong.append(f"{name} links to {path}#{anchor}")
    assert wrong == []


def test_links_elsewhere_are_well_formed(pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme in ("http", "https", "mailto"), f"{name} links to {link}"
                assert "." in parts.netloc or parts.scheme == "mailto", f"{name} links to {link}"
                assert not set(link) & set(" <>\"'"), f"{name} links to {link}"


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    asked = {load for page in pages.values() for load in page.loads if urlsplit(load).netloc}
    sheets = {
        path.name for path in site.rglob("*.css") if "url(http" in path.read_text() or "@import" in path.read_text()
    }
    assert (asked, sheets) == (set(), set())


def test_every_public_name_has_a_place(pages: dict[str, Page]) -> None:
    """Under its own name, or as a module."""
    anchors = {anchor for name, page in pages.items() if name.startswith("docs/reference/") for anchor in page.anchors}
    names = (ROOT / "tests" / "public_names.txt").read_text().split()
    assert [name for name in names if not {name, f"module-{name}"} & anchors] == []


def test_every_page_of_the_project_is_in_the_site(pages: dict[str, Page]) -> None:
    """Sphinx complains about a page that no list leads to, so each can be found, too."""
    written = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written <= pages.keys()

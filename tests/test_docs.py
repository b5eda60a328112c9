"""Every code block in the README and the docs is run, in order, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.showing import shown

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A block with the comment in front of it, if it has one. Readers do not see it, and who edits the page does.
MARKED = re.compile(r"^(?:<!-- ([^\n]*) -->\n+)?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: In front of a text: that blocks before it print it, which is compared; or why nobody runs the block.
PRINTED, REASON = "printed", re.compile(r"not run: \w.{10,}")


def blocks(page: Path, kind: str) -> list[str]:
    return [text for info, text in FENCE.findall(page.read_text()) if info == kind]


def printed(page: Path) -> list[str]:
    """Give what the blocks of a page print, as the page shows it."""
    return [text for mark, info, text in MARKED.findall(page.read_text()) if (info, mark) == ("text", PRINTED)]


def is_run(info: str, text: str) -> bool:
    """Tell whether all of a block is run: texts are not, nor calls of pip and make, which take minutes."""
    return info != "text" and not (info == "sh" and re.search(r"^(make|pip) ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_of_a_kind_that_is_run(page: Path) -> None:
    """``python`` and ``sh`` are run, ``text`` is output; anything else would escape the tests.

    Pages of commands show terminals, which tests/test_command_pages.py runs.
    """
    known = {"python", "sh", "text"} | ({"console"} if page.parent.name == "commands" else set())
    assert {info for info, _ in FENCE.findall(page.read_text())} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_that_are_not_run_say_why(page: Path) -> None:
    """In a comment before it: ``<!-- not run: ... -->``, or ``<!-- printed -->`` where it is compared with what is."""
    for mark, info, text in MARKED.findall(page.read_text()):
        if not is_run(info, text):
            told = REASON.fullmatch(mark) or (info == "text" and mark == PRINTED)
            assert told, f"a block of {page.name} is not run, and does not say why: {text[:60]!r}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(blocks(page, "python")))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert shown(done.stdout, "...".join(["", *printed(page), ""])), (
        f"{page.name} prints something else:\n{done.stdout}"
    )


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.name)
def test_shell_blocks_hold(page: Path, tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in "".join(blocks(page, "sh")).splitlines():
        command = line.partition("#")[0].strip()
        if command.startswith("make "):  # what it does is shown by running it; here, that the target is there
            done = subprocess.run(["make", "--dry-run", *command.split()[1:]], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        elif command.startswith("pip install"):
            for group in re.findall(r"shoal\[([^\]]*)\]", command):
                assert set(group.split(",")) <= extras.keys()
        elif command:
            done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", FENCE.sub("", page.read_text())):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""Every command has a page, and what its pages show in a terminal is what a terminal shows."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Context

from shoal.cli._main import command
from support.shell import environment
from support.showing import shown

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "commands"
PAGES = sorted(FOLDER.glob("*.md"))
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Names of commands that are other commands, too.
ALIASES = {"tarscat": "tarcat"}


def typed(page: Path) -> Iterator[tuple[str, str]]:
    """Give what is typed in a page (behind ``$``, continued behind ``>``), each with what it prints."""
    for block in CONSOLE.findall(page.read_text()):
        lines, output = [], []
        for line in block.splitlines():
            if line.startswith("$ "):
                if lines:
                    yield "\n".join(lines), "\n".join(output)
                lines, output = [line[2:]], []
            elif line.startswith("> ") and lines and not output:
                lines.append(line[2:])
            else:
                output.append(line)
        yield "\n".join(lines), "\n".join(output)


def commands() -> set[str]:
    """Name all commands as they are typed, with a hyphen for a blank."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    parts = {name for name in command.list_commands(Context(command)) if name != "tar"}
    return {ALIASES.get(name, name) for name in scripts if name != "shoal"} | {f"shoal-{name}" for name in parts}


def test_every_command_has_a_page() -> None:
    assert {page.stem for page in PAGES} == commands()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_a_terminal_shows(page: Path, tmp_path: Path) -> None:
    examples = list(typed(page))
    assert any(page.stem.replace("-", " ") in line for line, _ in examples), "it shows the command itself"
    for line, expected in examples:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert shown(done.stdout.rstrip("\n"), expected.rstrip("\n")), f"$ {line}\n{done.stdout}"


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("a\nb", "a\nb", True),
        ("a\nb", "a", False),
        ("took 3.21 s", "took ... s", True),
        ("1\n2\n3", "1\n...\n3", True),
        ("[x] *?", "[x] *?", True),
        ("[x] y", "[x] *", False),
    ],
)
def test_only_dots_stand_for_anything(output: str, expected: str, same: bool) -> None:
    assert shown(output, expected) is same

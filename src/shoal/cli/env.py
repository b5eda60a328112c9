"""``shoal env``: Python environments for workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from shoal.cli._fields import human, many, printable
from shoal.cli._tool import FAILED, Tools, main, say, tool
from shoal.environments import Built, Recipe, build, built, check, find, recipe, recipe_names, remove
from shoal.errors import PlanError, WorkerEnvironmentError

__all__ = ["command", "run"]

_HOMES = {
    "create": "shoal.cli.env:create",
    "list": "shoal.cli.env:listing",
    "check": "shoal.cli.env:verify",
    "rm": "shoal.cli.env:rm",
}
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("env", cls=Tools, homes=_HOMES, context_settings=_SETTINGS)
def command() -> None:
    """Build and look after Python environments in which workers run that need other versions than you have.

    They lie in ~/.cache/shoal/environments, or where SHOAL_ENVIRONMENTS says.
    """


@tool("create", example="shoal env create vineyard mxnet")
@click.option("--force", is_flag=True, help="Build it anew, also if it is there.")
@click.option("--python", metavar="PYTHON", help="The Python to build with.  [default: one that fits the recipe]")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def create(names: Sequence[str], force: bool, python: str | None) -> None:
    """Build environments: by NAME those that come with Shoal, by the path of a TOML file those of your own.

    All versions are exact. What is there already is left as it is. The log of pip is kept, and its end is shown when
    something fails.
    """
    for made in [recipe(name) for name in names]:
        with _progress(made) as tell:
            environment = build(made, python=python, force=force, progress=tell)
        say(f"# {made.name}: Python {environment.version} with {many(len(environment.packages), 'package')}")


@tool("list", example="shoal env list")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def listing(as_json: bool) -> None:
    """List the environments that are here, and those that could be built."""
    here = built()
    known = [recipe(name) for name in recipe_names() if name not in {each.name for each in here}]
    rows = [_row(each) for each in here] + [_missing(made) for made in known]
    rows.sort(key=lambda row: str(row["name"]))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _print_table(rows)


@tool("check", example="shoal env check mxnet")
@click.argument("names", nargs=-1, metavar="[NAME...]")
def verify(names: Sequence[str]) -> None:
    """Import everything in environments, and compare versions; without NAME in all that are complete.

    NAME is a name or a path. Each problem is a line; the exit code is 1 if there is any.
    """
    chosen = names or sorted({each.name for each in built() if each.state == "complete" and not each.is_outdated})
    problems = [text for name in chosen for text in _problems(name)]
    for text in problems:
        click.echo(printable(text))
    say(f"# {many(len(chosen), 'environment')}: {many(len(problems), 'problem') if problems else 'all sound'}")
    if problems:
        raise click.exceptions.Exit(FAILED)


@tool("rm", example="shoal env rm mxnet")
@click.option(
    "--outdated", is_flag=True, help="Only those that were built from older recipes; of all names without any."
)
@click.argument("names", nargs=-1, metavar="NAME...")
def rm(names: Sequence[str], outdated: bool) -> None:
    """Remove environments, in all their versions."""
    if not names and not outdated:
        raise PlanError("which environments? `shoal env list` shows what there is")
    for name in names:
        if not built(name):
            raise PlanError(f"there is no environment {name!r} to remove; `shoal env list` shows what there is")
    chosen: Sequence[str | None] = names or (None,)
    for folder in [folder for name in chosen for folder in remove(name, outdated=outdated)]:
        say(f"# removed {folder.name}")


def _problems(name: str) -> list[str]:
    try:
        return [f"{name}: {text}" for text in check(find(name))]
    except WorkerEnvironmentError as error:
        return [f"{name}: {error}"]


@contextmanager
def _progress(made: Recipe) -> Iterator[Callable[[str, str], None]]:
    """Show how far a build is: a line that changes on a terminal, and a line for each step elsewhere."""
    if not sys.stderr.isatty():
        steps: list[str] = []

        def tell(what: str, line: str) -> None:
            if steps[-1:] != [what]:
                steps.append(what)
                say(f"# {made.name}: {what}")

        yield tell
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(f"{made.name}") as status:

        def show(what: str, line: str) -> None:
            status.update(escape(printable(f"{made.name}: {what}  {line[:60]}")))

        yield show


def _row(each: Built) -> dict[str, Any]:
    state = "outdated" if each.is_outdated and each.state == "complete" else each.state
    wanted = each.recipe.pins if each.recipe is not None else {}
    versions = {name: version for name, version in each.packages.items() if name in wanted}
    folder = str(each.folder)
    return {
        "name": each.name, "state": state, "python": each.version, "bytes": each.size(), "folder": folder,
        "versions": versions, "imports": list(each.recipe.imports) if each.recipe is not None else [],
    }  # fmt: skip


def _missing(made: Recipe) -> dict[str, Any]:
    return {
        "name": made.name, "state": "not built", "python": "", "bytes": 0, "folder": None,
        "versions": made.pins, "imports": list(made.imports),
    }  # fmt: skip


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("name", "state", "Python", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("size", justify="right")
    table.add_column("versions", overflow="fold")
    for row in rows:
        size = human(row["bytes"]) if row["bytes"] else ""
        cells = (row["name"], row["state"], row["python"], size, _versions(row))
        table.add_row(*(escape(printable(cell)) for cell in cells))
    Console(soft_wrap=False).print(table)


def _versions(row: dict[str, Any]) -> str:
    """Name the packages that it is for: those that are imported, or all if none is known by its module's name."""
    tops = {module.partition(".")[0].lower().replace("_", "-") for module in row["imports"]}
    chosen = {name: text for name, text in row["versions"].items() if name.partition("-")[0] in tops or name in tops}
    return ", ".join(f"{name} {version}" for name, version in sorted((chosen or row["versions"]).items()))


def run() -> None:
    """Be the command ``shoal env``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal env", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal env ...
    """
    main(command)

"""``shoal store``: what is in an object store, and what holds its memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from shoal import settings
from shoal.cli._fields import human, many, printable
from shoal.cli._tool import Tools, main, say, tool
from shoal.errors import PlanError, StoreError
from shoal.store import BaseStore, Listed, ObjectID, Status, Store, connect, listing

__all__ = ["command", "run"]

_HOMES = {
    "status": "shoal.cli.store:status",
    "ls": "shoal.cli.store:ls",
    "rm": "shoal.cli.store:rm",
    "gc": "shoal.cli.store:gc",
    "serve": "shoal.cli._store_serve:serve",
}
_WIDEST = 10_000
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("store", cls=Tools, homes=_HOMES, context_settings=_SETTINGS)
def command() -> None:
    """Look at objects in shared memory, remove them, and serve them to other hosts.

    Without --store it is the store that SHOAL_STORE names, or else the one of this user on this host.
    """


def _store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    token = click.Path(exists=True, dir_okay=False, path_type=Path)
    function = click.option("--token-file", type=token, help="The token of a store at a URL.")(function)
    return click.option("--store", "where", metavar="PATH_OR_URL", help="The store, by its folder or URL.")(function)


def _connected(where: str | None, token_file: Path | None) -> BaseStore:
    named = where or settings.current().store
    if named and "://" not in named and not Path(named, "config.json").exists():
        raise StoreError(f"there is no store at {named}; the first program that connects to one makes it")
    options: dict[str, Any] = {} if token_file is None else {"token": token_file}
    found: BaseStore = connect(where, **options)
    return found


@tool("status", example="shoal store status\nshoal store status --store grpc://10.0.0.2:8816 --token-file token --json")
@_store_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def status(where: str | None, token_file: Path | None, as_json: bool) -> None:
    """Tell how much memory is used, who has put something, and who looks at it."""
    with _connected(where, token_file) as store:
        found = store.status()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    _print_table(_facts(found))
    if processes := _processes(found):
        click.echo()
        _print_table(processes, right=(1, 2, 3, 4))


@tool("ls", example="shoal store ls\nshoal store ls 'vineyard::DataFrame*' --json")
@_store_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.argument("pattern", default="*", metavar="[PATTERN]")
def ls(where: str | None, token_file: Path | None, as_json: bool, pattern: str) -> None:
    """List objects; PATTERN chooses some by their type or one of their names."""
    with _connected(where, token_file) as store:
        rows = listing(store)
    chosen = [row for row in rows if any(fnmatchcase(text, pattern) for text in (row.type, *row.names))]
    if as_json:
        click.echo(json.dumps([asdict(row) for row in chosen], indent=2))
    elif chosen:
        header = ["id", "type", "bytes", "where", "persisted", "names"]
        _print_table([header, *map(_cells, chosen)], right=(2,))
    else:
        say("# no objects")


@tool("rm", example="shoal store rm o0123456789abcdef train/images\nshoal store rm --all")
@_store_options
@click.option("--force", is_flag=True, help="Remove members, too, that other objects have.")
@click.option("--all", "everything", is_flag=True, help="Remove all objects and names.")
@click.argument("objects", nargs=-1, metavar="ID|NAME...")
def rm(where: str | None, token_file: Path | None, force: bool, everything: bool, objects: Sequence[str]) -> None:
    """Remove objects with their members, unless other objects have these, too.

    Who looks at one keeps what he sees; its memory comes free when nobody does any more.
    """
    if bool(objects) == everything:
        raise PlanError("which objects? Give ids or names, or --all; `shoal store ls` shows what there is")
    with _connected(where, token_file) as store:
        chosen = list(store.ids()) if everything else [_number(store, text) for text in objects]
        if everything:
            store.clear()
        else:
            store.delete(chosen, force=force)
    say(f"# removed {many(len(chosen), 'object')}")


@tool("gc", example="shoal store gc")
@_store_options
def gc(where: str | None, token_file: Path | None) -> None:
    """Remove what dead processes left, and what was deleted and nobody looks at any more.

    Whoever connects does this, too, and whoever needs memory.
    """
    with _connected(where, token_file) as store:
        if not isinstance(store, Store):
            raise PlanError(f"{where} is collected on its own host: `shoal store gc` there")
        store.collect()
        found = store.status()
    say(f"# {human(found.memory_usage)} of memory are in use, by {many(found.objects, 'object')}")


def _facts(found: Status) -> list[list[str]]:
    used = f"{human(found.memory_usage)} of {human(found.memory_limit)}"
    share = found.memory_usage / found.memory_limit if found.memory_limit else 0.0
    on_disk = f"{human(found.spilled_bytes)} in {many(found.spilled, 'object')}"
    return [
        ["store", found.path],
        ["memory", f"{used} ({share:.0%}), {human(found.aside)} set aside"],
        ["on disk", on_disk],
        ["objects", f"{found.objects}, {found.persisted} of them persisted"],
        ["deleted, still looked at", str(found.zombies)],
        ["names", str(found.names)],
    ]


def _processes(found: Status) -> list[list[str]]:
    """Tell of each process what it has put, and how many large objects it looks at."""
    if not found.holders and not found.viewers:
        return []
    rows = []
    for holder in found.holders:
        looks = found.viewers.get(holder.pid, 0)
        alive = "" if holder.alive else "has ended"
        rows.append([str(holder.pid), str(holder.objects), human(holder.aside), str(looks), alive])
    known = {holder.pid for holder in found.holders}
    rows += [[str(pid), "0", "0 B", str(looks), ""] for pid, looks in sorted(found.viewers.items()) if pid not in known]
    return [["process", "objects", "set aside", "looks at", ""], *rows]


def _number(store: BaseStore, text: str) -> ObjectID:
    """Give the object that is meant by an id or a name."""
    try:
        return ObjectID(text)
    except StoreError:
        return ObjectID(store.get_name(text))


def _cells(row: Listed) -> list[str]:
    kept = "yes" if row.persisted else "no"
    return [row.id, row.type, human(row.bytes), row.where, kept, ", ".join(row.names)]


def _print_table(rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    header, *others = rows
    has_header = bool(right)
    table = Table(box=SIMPLE_HEAD if has_header else None, pad_edge=False, show_edge=False, show_header=has_header)
    for place, title in enumerate(header):
        table.add_column(title, justify="right" if place in right else "left", overflow="fold")
    for row in others if has_header else [header, *others]:
        table.add_row(*(escape(printable(cell)) for cell in row))
    console = Console()
    if console.is_terminal:
        console.print(table)
        return
    wide = Console(width=Console(width=_WIDEST).measure(table).maximum)  # for who reads lines, each object is one
    with wide.capture() as captured:
        wide.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def run() -> None:
    """Be the command ``shoal store``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal store", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal store ...
    """
    main(command)

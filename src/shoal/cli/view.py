"""``shoal view``: look at data, a pipeline, trainings or a store in the browser."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli._serving import FILE, until_interrupted
from shoal.cli._tool import main, say, tool
from shoal.view import serve

if TYPE_CHECKING:
    from shoal.pipeline import Failure

__all__ = ["command", "run"]


@tool("view", example="shoal view 'train-{0000..0147}.tar'\nshoal view pipeline.py:dataset\nshoal view runs/a runs/b")
@click.option("--port", default=0, metavar="PORT", help="The port to listen on.  [default: any that is free]")
@click.option("--classes", metavar="FIELD", help="The field that holds the class.  [default: cls, label, class, ...]")
@click.option("--ledger", type=FILE, help="Samples that a run has skipped, as Ledger.save wrote them.")
@click.option("--store", "own_store", is_flag=True, help="Show the store of this user, too.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--trust", is_flag=True, help="Decode pickles, too, which can run code: the data is yours.")
@click.argument("what", nargs=-1, metavar="[URL|FILE.py:NAME|FOLDER]...")
def command(
    what: tuple[str, ...],
    port: int,
    classes: str | None,
    ledger: Path | None,
    own_store: bool,
    opens: bool,
    trust: bool,
) -> None:
    """Show data, a pipeline, trainings or a store in the browser, until it is interrupted.

    URLs are tars, Parquet, Arrow, TFRecord, CSV or JSON files, with braces and globs, or their folders. FILE.py:NAME
    is a dataset in a Python file, or a function that makes one. A FOLDER may also be that of a training, or of
    several, which are laid over each other, or that of a store.

    The link is written to standard output. It works once, in one browser, and only on this machine.
    """
    given = [_named(each) for each in what]
    if own_store:
        from shoal.store import connect  # a page of data is there sooner without

        with connect() as store:
            given.append(store.status().path)
    ended = until_interrupted()
    with serve(*given, port=port, class_field=classes, failures=_failures(ledger), trust=trust) as view:
        say(f"# showing {', '.join([*what, *(['the store'] if own_store else [])])}; Ctrl-C ends it")
        click.echo(view.url)
        sys.stdout.flush()
        if opens:
            webbrowser.open(view.url)
        ended.wait()


# A page of data is there sooner without pipelines, so these are imported where somebody asks for one.


def _named(what: str) -> object:
    """Give the dataset that an argument names, or the argument."""
    if ":" not in what or "://" in what:
        return what
    from shoal.cli._pipelines import dataset_named, names_dataset

    return dataset_named(what) if names_dataset(what) else what


def _failures(ledger: Path | None) -> Iterable[Failure]:
    if ledger is None:
        return ()
    from shoal.pipeline import Ledger

    return Ledger.load(ledger)


def run() -> None:
    """Be the command ``shoal view``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal view", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()  # doctest: +ELLIPSIS
    Usage: shoal view ...
    """
    main(command)

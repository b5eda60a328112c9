"""``shoal serve``: prepare batches on this host for trainers on others."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import click

from shoal.abc import Workers
from shoal.cli._fields import many
from shoal.cli._pipelines import dataset_named
from shoal.cli._progress import clear_line
from shoal.cli._serving import FILE, text_of, tls_of, tls_options, until_interrupted, warn_if_exposed
from shoal.cli._tool import main, say, tool
from shoal.errors import PlanError
from shoal.feed import Feeder, serve
from shoal.settings import current

__all__ = ["command", "run"]

#: Trainers find a feeder there unless they are told another port.
PORT = 8817
_INTERVAL = 1.0
#: Seconds in which others may take over what it does, once it is told to end.
_LEAVE = 5.0


@tool("serve", example="shoal serve pipeline.py:dataset --listen 10.0.0.2:8817 --workers 16 --token-file token")
@click.option("--listen", default=f"127.0.0.1:{PORT}", show_default=True, metavar="HOST:PORT",
              help="The address to listen on; port 0 for any that is free.")  # fmt: skip
@click.option("--workers", default="auto", show_default=True, help="Workers for stages that have none of their own.")
@click.option("--mode", default="thread", show_default=True, type=click.Choice(["thread", "process"]),
              help="What these workers are.")  # fmt: skip
@click.option("--batch-size", type=click.IntRange(1), help="For trainers who do not say another.")
@click.option("--join", "peers", multiple=True, metavar="URL", help="A feeder of the same dataset, with all it knows.")
@click.option("--advertise", metavar="HOST", help="The address by which others reach this host, if it is another.")
@click.option("--token-file", type=FILE, help="The token that trainers must know; without, one is made and kept.")
@tls_options
@click.argument("what", metavar="FILE.py:NAME")
def command(
    listen: str,
    workers: str,
    mode: str,
    batch_size: int | None,
    peers: tuple[str, ...],
    advertise: str | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_root: Path | None,
    what: str,
) -> None:
    """Prepare batches on this host for trainers on others, until it is interrupted.

    FILE.py:NAME is a dataset in a Python file, or in a module (package.module:NAME), or a function that makes one. Its
    URL is written to standard output. A trainer takes it with shoal.feed.connect([...]), and several feeders as well.
    """
    host, port = _address(listen)
    feeder = serve(
        dataset_named(what), host=host, port=port, workers=_workers(workers), mode=mode, batch_size=batch_size,
        token=text_of(token_file), tls=tls_of(tls_cert, tls_key, tls_root), advertise=advertise, join=peers,
    )  # fmt: skip
    with feeder:
        ended = until_interrupted()
        where = token_file or current().cache / "feed" / "token"
        say(f"# serving {what}; the token is in {where}")
        warn_if_exposed(feeder.is_exposed, "all samples")
        click.echo(feeder.url)
        sys.stdout.flush()
        _show(feeder, ended)
        feeder.leave(_LEAVE)


def _show(feeder: Feeder, ended: threading.Event) -> None:
    """Say on a terminal how it goes, until it ends."""
    live = sys.stderr.isatty()
    while not ended.wait(_INTERVAL if live else None):
        now = feeder.load()
        rates = f"{now.samples_per_second:,.0f} samples/s, {now.megabytes_per_second:,.0f} MB/s"
        clear_line()
        click.echo(f"{many(now.courses, 'course')} under way, {rates}", nl=False, err=True)
    clear_line()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise PlanError(f"--listen {listen}; it is an address and a port, such as 127.0.0.1:{PORT}")
    return host.strip("[]"), int(port)


def _workers(text: str) -> Workers:
    return int(text) if text.isdigit() else text


def run() -> None:
    """Be the command ``shoal serve``.

    >>> import contextlib
    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["shoal serve", "--help"]), contextlib.suppress(SystemExit):  # as a shell calls it
    ...     run()
    Usage: shoal serve ...
    """
    main(command)

"""The ``shoal`` command."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli._tool import Tools, main

__all__ = ["command", "run"]

_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_TAR = {
    "cat": "shoal.cli.tar.cat:command",
    "create": "shoal.cli.tar.create:command",
    "first": "shoal.cli.tar.first:command",
    "pcat": "shoal.cli.tar.pcat:command",
    "proc": "shoal.cli.tar.proc:command",
    "show": "shoal.cli.tar.show:command",
    "sort": "shoal.cli.tar.sort:command",
    "split": "shoal.cli.tar.split:command",
    "tsv": "shoal.cli.tar.tsv:command",
}

_COMMANDS = {
    "info": "shoal.cli.info:command",
    "verify": "shoal.cli.verify:command",
    "index": "shoal.cli.index:command",
    "convert": "shoal.cli.convert:command",
    "bench": "shoal.cli.bench:command",
    "run": "shoal.cli.run:command",
    "env": "shoal.cli.env:command",
    "store": "shoal.cli.store:command",
    "serve": "shoal.cli.serve:command",
    "view": "shoal.cli.view:command",
    "tar": "shoal.cli._main:tar",
}


@click.group("tar", cls=Tools, homes=_TAR, context_settings=_SETTINGS)
def tar() -> None:
    """Tools for tar shards; each is also a command of its own, such as tarcat."""


@click.group("shoal", cls=Tools, homes=_COMMANDS, context_settings=_SETTINGS)
@click.version_option(package_name="shoal")
def command() -> None:
    """Data from where it lies into models that learn: look at it, check it, convert it, process it.

    Completion in bash: eval "$(_SHOAL_COMPLETE=bash_source shoal)"; zsh and fish alike.
    """


def run() -> None:
    """Be the command ``shoal``."""
    main(command)

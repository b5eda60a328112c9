"""What commands that serve something to other hosts have in common."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._tool import say
from shoal.errors import PlanError

if TYPE_CHECKING:
    from shoal.store import Tls

__all__ = ["FILE", "text_of", "tls_of", "tls_options", "until_interrupted", "warn_if_exposed"]

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def tls_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options by which others check who serves."""
    for name, text in (
        ("--tls-root", "The certificate that others check it by, if it is not its own."),
        ("--tls-key", "Its key."),
        ("--tls-cert", "The certificate of this host, in PEM."),
    ):
        function = click.option(name, type=FILE, help=text)(function)
    return function


def tls_of(certificate: Path | None, key: Path | None, root: Path | None) -> Tls | None:
    """Read what `tls_options` name."""
    if (certificate is None) != (key is None) or (root is not None and certificate is None):
        raise PlanError("--tls-cert and --tls-key come together, and --tls-root with them")
    if certificate is None or key is None:
        return None
    from shoal.store import Tls  # brings Arrow Flight, which not everybody who serves needs

    return Tls(certificate.read_text(), key.read_text(), text_of(root))


def text_of(file: Path | None) -> str | None:
    """Read a file, if one is given."""
    return None if file is None else file.read_text().strip()


def warn_if_exposed(is_exposed: bool, what: str) -> None:
    """Say that others may listen in."""
    if is_exposed:
        say(f"warning: without TLS, who can listen in on the network reads the token and {what}; see --tls-cert")


def until_interrupted() -> threading.Event:
    """Give an event that Ctrl-C and a termination set."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended

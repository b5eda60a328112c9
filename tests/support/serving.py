"""Servers in processes of their own, which write to their standard output where they are."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["started_server"]

_SECONDS = 120.0


def started_server(command: Sequence[str], errors: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server, wait until it says its URL, and give both; what it says beside goes to a file."""
    with errors.open("a") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
    url = process.stdout.readline().strip() if ready else ""
    assert url, errors.read_text()
    return process, url

"""Commands as a shell runs them, with those of this environment first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["environment", "shell"]


def environment() -> dict[str, str]:
    """Give an environment in which the installed commands are found first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def shell(text: str, cwd: Path, *, seconds: float = 120.0, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a line, or several, in bash, in a folder."""
    command = ["bash", "-c", text]
    return subprocess.run(command, cwd=cwd, env=environment(), input=stdin, capture_output=True, timeout=seconds)

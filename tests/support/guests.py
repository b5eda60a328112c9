"""Guests of tests: modules for them, and values there and back."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from shoal.environments import Guest

__all__ = ["back", "bare_environment", "is_running", "module"]


def module(folder: Path, text: str, name: str = "over_there") -> Path:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def bare_environment(folder: Path) -> Path:
    """Make a virtual environment with nothing in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def back(guest: Guest, value: Any) -> Any:
    """Send a value to a guest, where it is put into something, and take it back."""
    return guest.call("builtins:dict", value=value)["value"]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

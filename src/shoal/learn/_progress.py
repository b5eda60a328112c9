"""How a training goes, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["shown"]


def shown(reports: Iterable[tuple[int, Any]], progress: bool | None) -> None:
    """Follow what workers report, and show it: on a terminal, or where it is wanted."""
    show = sys.stderr.isatty() if progress is None else progress
    begin, last = time.monotonic(), 0
    for _, told in reports:
        if not show or not isinstance(told, dict) or "loss" not in told:
            continue
        steps = f"/{told['steps']}" if told["steps"] else ""
        rate = told["rows"] * told["world"] / max(time.monotonic() - begin, 1e-9)
        line = f"epoch {told['epoch']}  step {told['step']}{steps}  loss {told['loss']:.4f}  {rate:,.0f} samples/s"
        sys.stderr.write(f"\r{line:<{last}}")
        sys.stderr.flush()
        last = len(line)
    if last:
        sys.stderr.write("\n")

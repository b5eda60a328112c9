"""Which of many cases are run each time, and which in `make soak` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["first"]


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """Give the cases of a test, of which those behind the first so many are long: they run in `make soak`."""
    return [case if at < count else _long(case) for at, case in enumerate(cases)]


def _long(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)

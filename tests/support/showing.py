"""Whether something printed what a page says that it prints."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

__all__ = ["shown"]


def shown(output: str, expected: str) -> bool:
    """Tell whether the output is what was expected; ``...`` stands for anything."""
    pattern = re.sub(r"([*?\[])", r"[\1]", expected).replace("...", "*")
    return fnmatchcase(output, pattern)

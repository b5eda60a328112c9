"""Something whose methods give it back, as those of many libraries do."""

from __future__ import annotations

from typing import Any

__all__ = ["Fluent"]


class Fluent:
    def __init__(self, *items: Any) -> None:
        self.items = list(items)

    def add(self, item: Any) -> Fluent:
        self.items.append(item)
        return self

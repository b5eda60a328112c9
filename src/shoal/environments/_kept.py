"""Objects that stay with a guest."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.environments._guest import Guest

__all__ = ["Kept"]


class Kept:
    """An object that stays with a guest; it can be an argument of calls, and its methods can be called.

    >>> import sys
    >>> from shoal.environments import Guest
    >>> with Guest(sys.executable) as guest:
    ...     counts = guest.keep("collections:Counter", "banana")
    ...     counts.call("most_common", 1)
    [('a', 3)]
    """

    def __init__(self, guest: Guest, number: int, kind: str, released: deque[int]) -> None:
        self.guest, self.number = guest, number
        self.kind = kind
        """Its class, as text."""
        weakref.finalize(self, released.append, number).atexit = False  # the next call tells the guest

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of it, and give the result."""
        function = {"kept": self.number, "name": method}
        return self.guest._ask(self.guest.timeout, f"{self.kind}.{method}", function, arguments, options)["result"]

    def __repr__(self) -> str:
        return f"<{self.kind}, kept by {self.guest!r}>"

"""What may run: commands and pickles only where the program says so, and nothing where ``WDS_SECURE`` forbids it."""

from __future__ import annotations

from shoal import settings
from shoal.errors import TrustError
from shoal.files import display, scheme

__all__ = ["check_url", "trusted"]


def trusted(trust: bool) -> bool:
    """Tell whether data may run code: the program must say so, and ``WDS_SECURE`` must not forbid it.

    >>> trusted(True), trusted(False)
    (True, False)
    """
    return trust and not _is_secured()


def check_url(url: str) -> None:
    """Refuse local files and commands where ``WDS_SECURE`` forbids them, whatever the program says.

    >>> check_url("a.tar")
    """
    if _is_secured() and scheme(url) in ("file", "pipe"):
        raise TrustError(f"WDS_SECURE is set, which forbids local files and commands: {display(url)}")


def _is_secured() -> bool:
    return settings.variable("WDS_SECURE") not in (None, "", "0")

"""What Shoal is tested with, for those who build on it: suites that any engine must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.testing.engines import EngineSuite

__all__ = ["EngineSuite"]

__getattr__, __dir__ = attach(__name__, {"engines": ("EngineSuite",)})

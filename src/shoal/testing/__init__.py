"""What Shoal is tested with, for those who build on it: suites that any engine and any framework must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.testing.engines import EngineSuite
    from shoal.testing.frameworks import FrameworkTests

__all__ = ["EngineSuite", "FrameworkTests"]

__getattr__, __dir__ = attach(__name__, {"engines": ("EngineSuite",), "frameworks": ("FrameworkTests",)})

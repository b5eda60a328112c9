"""What Shoal is tested with, for those who build on it: suites for engines and frameworks, and `faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.testing import faults
    from shoal.testing.engines import EngineSuite
    from shoal.testing.frameworks import FrameworkTests

__all__ = ["EngineSuite", "FrameworkTests", "faults"]

__getattr__, __dir__ = attach(__name__, {"engines": ("EngineSuite",), "faults": (), "frameworks": ("FrameworkTests",)})

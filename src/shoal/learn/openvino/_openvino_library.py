"""OpenVINO itself, without the part of it that tells its makers of each import and each conversion."""

from __future__ import annotations

import sys
from typing import Any

from shoal._optional import require

__all__ = ["ov"]

_TELLING = "openvino_telemetry"


def _imported() -> Any:
    """Import it as if that part were not installed, unless somebody has imported it before."""
    if _TELLING in sys.modules or "openvino" in sys.modules:
        return require("openvino", "shoal.learn.openvino")
    sys.modules[_TELLING] = None  # type: ignore[assignment]
    try:
        return require("openvino", "shoal.learn.openvino")
    finally:
        del sys.modules[_TELLING]


ov: Any = _imported()

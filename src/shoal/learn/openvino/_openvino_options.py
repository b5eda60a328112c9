"""How a model is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal import settings
from shoal.errors import PlanError

__all__ = ["OpenVINOOptions", "allotted"]

_HINTS = (None, "throughput", "latency")
_PRECISIONS = (None, "f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class OpenVINOOptions:
    """How a model is run.

    >>> OpenVINOOptions(hint="latency").properties(threads=2)["INFERENCE_NUM_THREADS"]
    2
    """

    device: str = "CPU"
    hint: str | None = "throughput"
    """Whether all batches are to be done soon (``throughput``), or each (``latency``); None for OpenVINO's choice."""
    precision: str | None = "f32"
    """What it computes with, ``f32``, ``f16`` or ``bf16``; with None it depends on the processor."""
    requests: int | None = None
    """Batches that are under way at a time; by default twice as many as the device does at once."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Properties of OpenVINO by their names, which go before all others."""

    def __post_init__(self) -> None:
        for name, given, known in (("hint", self.hint, _HINTS), ("precision", self.precision, _PRECISIONS)):
            if given not in known:
                raise PlanError(f"{name}={given!r}; known are {', '.join(map(repr, known))}")
        if self.requests is not None and self.requests < 1:
            raise PlanError(f"requests={self.requests}; at least one batch has to be under way")

    def properties(self, threads: int | None = None) -> dict[str, Any]:
        """Give the properties that a model is compiled with."""
        found: dict[str, Any] = {}
        if self.hint is not None:
            found["PERFORMANCE_HINT"] = self.hint.upper()
        if self.precision is not None:
            found["INFERENCE_PRECISION_HINT"] = self.precision
        if threads is not None and self.device == "CPU":
            found["INFERENCE_NUM_THREADS"] = threads
        return {**found, **self.config}


def allotted() -> int | None:
    """Say how many threads this process is to have: engines tell it to each of several workers of a machine.

    They do so for OpenMP, of which OpenVINO takes no notice. None is for all processors.
    """
    told = (settings.variable("OMP_NUM_THREADS") or "").partition(",")[0].strip()
    return int(told) if told.isdigit() and int(told) else None

"""A device as a plan has it: nothing is looked for before a run begins."""

from __future__ import annotations

import threading
from typing import Any

from shoal import registry
from shoal.abc import Device
from shoal.errors import MissingDeviceError, PlanError

__all__ = ["Site"]


class Site:
    """A device by its name, or what implements it; it is found once in each process, when it is needed there.

    >>> site = Site.of("cpu")
    >>> site, site.find("map(f)").name
    (Site('cpu'), 'cpu')
    """

    def __init__(self, wanted: str | Device) -> None:
        self.wanted = wanted
        self._lock = threading.Lock()
        self._found: Device | None = None

    @classmethod
    def of(cls, wanted: Any) -> Site:
        """Look at what a user gave as ``device=``."""
        if type(wanted).__module__ == "torch" and type(wanted).__name__ == "device":
            wanted = str(wanted)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            wanted = f"cuda:{wanted}"
        if not isinstance(wanted, str | Device):
            kinds = 'a name like "cuda:1", a torch.device, or an object with all that shoal.abc.Device has'
            raise PlanError(f"device={wanted!r}; it is {kinds}")
        return cls(wanted)

    def __repr__(self) -> str:
        return f"Site({self.wanted!r})"

    def __reduce__(self) -> Any:
        return Site, (self.wanted,)

    @property
    def name(self) -> str:
        """What it is called: as it was asked for, until it is found."""
        if self._found is not None:
            return self._found.name
        return self.wanted if isinstance(self.wanted, str) else self.wanted.name

    def find(self, stage: str) -> Device:
        """Give the device; the text of an error says which stage asks for it."""
        with self._lock:
            if self._found is None:
                self._found = self._looked_for(stage)
            return self._found

    def _looked_for(self, stage: str) -> Device:
        if not isinstance(self.wanted, str):
            return self.wanted
        try:
            found: Device = registry.load("device", "torch")(self.wanted)
        except MissingDeviceError as error:
            raise MissingDeviceError(f"{stage} asks for {error}") from None
        return found

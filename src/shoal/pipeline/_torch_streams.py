"""Copies to and from an accelerator of torch's, beside what it computes.

Work of an accelerator is queued in streams, and an event marks a place in one. Copies have streams of their own, so
they go on while others compute; who needs what was copied lets his stream wait for the event, and goes on himself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from shoal.abc import Sample

__all__ = ["Streams", "UnderWay"]


class UnderWay(dict[str, Any]):
    """A sample that may be used after an event."""

    __slots__ = ("event",)

    def __init__(self, sample: Sample, event: Any) -> None:
        super().__init__(sample)
        self.event = event


class Streams:
    """The streams of one device; ``library`` is what torch has for its kind, such as `torch.cuda`."""

    def __init__(self, library: Any, device: Any) -> None:
        self._library, self._device = library, device
        self._there, self._back = library.Stream(device=device), library.Stream(device=device)
        self._lock = threading.Lock()
        self._lent: deque[tuple[Any, Any]] = deque()

    @classmethod
    def of(cls, torch: ModuleType, device: Any) -> Streams | None:
        """Give those of a device; None for one that has none, such as the processor."""
        library = getattr(torch, device.type, None)
        has_streams = all(hasattr(library, name) for name in ("Stream", "stream", "current_stream"))
        return cls(library, device) if device.type != "cpu" and has_streams else None

    def copying(self) -> Any:
        """Let copies that are begun inside of it be made beside everything else."""
        return self._library.stream(self._there)

    def copied(self, sample: Sample, memory: Any) -> UnderWay:
        """Note the end of copies; the memory that they read is kept until they are made."""
        event = self._there.record_event()
        with self._lock:
            self._lent.append((event, memory))
        self._take_back()
        return UnderWay(sample, event)

    def arrive(self, sample: Sample, tensors: Iterable[Any]) -> Sample:
        """Let what this thread computes next wait for a sample, whose memory it uses from then on."""
        stream = self._library.current_stream(self._device)
        if isinstance(sample, UnderWay):
            stream.wait_event(sample.event)
        return self._used(sample, tensors, stream)

    def computed(self, sample: Sample) -> UnderWay:
        """Note the end of what this thread has computed."""
        return UnderWay(sample, self._library.current_stream(self._device).record_event())

    def returning(self, sample: Sample) -> Any:
        """Let copies that are made inside of it wait for a sample, and for nothing else."""
        self._take_back()
        if isinstance(sample, UnderWay):
            self._back.wait_event(sample.event)
        return self._library.stream(self._back)

    def stay(self, sample: Sample, tensors: Iterable[Any]) -> Sample:
        """Wait for a sample, so that anybody may use it."""
        if isinstance(sample, UnderWay):
            sample.event.synchronize()
        self._take_back()
        return self._used(sample, tensors, self._library.current_stream(self._device))

    def _used(self, sample: Sample, tensors: Iterable[Any], stream: Any) -> Sample:
        """Keep memory from being given to others before a stream is done with it."""
        for tensor in tensors:
            if tensor.device == self._device:
                tensor.record_stream(stream)
        return dict(sample)

    def _take_back(self) -> None:
        """Let go of memory that has been read."""
        with self._lock:
            while self._lent and self._lent[0][0].query():
                self._lent.popleft()

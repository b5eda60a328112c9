"""Where stages compute, if not in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from shoal.abc.source import Sample

__all__ = ["Device"]


@runtime_checkable
class Device(Protocol):
    """Takes samples to another memory, lets stages compute there, and brings back what they make.

    Neighbouring stages of one device are a group. A thread of its own calls `there` on each sample, ahead of the
    computing, and another one `back` at the end. In between, the thread that computes calls `ready` before its first
    stage and `made` after its last; so nobody waits for more than the sample in hand. Several threads may call at once.

    It must be possible to pickle it, if stages are done in processes: it is used there, then.

    >>> class Nowhere:
    ...     name = "nowhere"
    ...     def built(self, make): return make()
    ...     def there(self, sample): return sample
    ...     ready = made = back = stay = there
    >>> isinstance(Nowhere(), Device)
    True
    """

    name: str
    """What it is called in statistics and messages; devices of one name are the same."""

    def built(self, make: Callable[[], Any]) -> Any:
        """Call ``make``, so that what it builds is there, and give that."""

    def there(self, sample: Sample) -> Sample:
        """Begin to take a sample there, without waiting; what is given is for `ready`."""

    def ready(self, sample: Sample) -> Sample:
        """Give the sample as stages see it; what the calling thread computes from now on comes after its copy."""

    def made(self, sample: Sample) -> Sample:
        """Note that what the calling thread has computed so far is to be done before anybody uses the sample."""

    def back(self, sample: Sample) -> Sample:
        """Wait until a sample is made, and give it as arrays."""

    def stay(self, sample: Sample) -> Sample:
        """Wait until a sample is made, and give it as it is, for whoever uses it there."""

"""A device that is far away: it does everything late, and says so when somebody does not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from shoal.abc import Sample

__all__ = ["Away", "Far", "doubled", "plain"]

_PATIENCE = 60.0


class Away:
    """An array on a device. Whoever looks at it must be there, after its copy; and it never leaves the process."""

    def __init__(self, device: str, array: np.ndarray[Any, Any], done: threading.Event) -> None:
        self.device, self._array, self._done = device, array, done
        self.nbytes = array.nbytes

    def __reduce__(self) -> Any:
        raise AssertionError(f"an array on {self.device} was sent to another process")

    def at(self, device: str) -> np.ndarray[Any, Any]:
        """Look at it, being on a device."""
        assert device == self.device, f"an array on {self.device} was used on {device}"
        assert self._done.is_set(), f"an array was used before its copy to {self.device} was made"
        return self._array

    def times(self, number: int) -> Away:
        """Compute with it, where it is."""
        return Away(self.device, self.at(self.device) * number, self._done)


class _Way(dict[str, Any]):
    """A sample that is on its way, or is being computed: somebody has to wait for it."""

    def __init__(self, sample: Sample, wanted: SimpleQueue[Any]) -> None:
        super().__init__(sample)
        self.done = threading.Event()
        self._wanted = wanted

    def wait(self) -> None:
        """Let it be done now, by another thread: no earlier than somebody waits, so who does not is caught."""
        self._wanted.put(self.done)
        assert self.done.wait(_PATIENCE)


class Far:
    """A device whose copies are made late, by a thread of its own, and which writes down what it is told."""

    def __init__(self, name: str = "far:0") -> None:
        self.name = name
        self.log: list[tuple[str, Any]] = []
        """What was called, with the key of the sample."""
        self.builders: list[int] = []
        """Threads in which something was built."""
        self.changed = threading.Condition()
        self._here = threading.local()
        self._wanted: SimpleQueue[threading.Event] = SimpleQueue()
        threading.Thread(target=self._copy, name="far", daemon=True).start()

    def __reduce__(self) -> Any:
        return Far, (self.name,)

    def built(self, make: Callable[[], Any]) -> Any:
        self._here.building = True
        self.builders.append(threading.get_ident())
        made = make()
        self._here.building = False
        return made

    def is_building(self) -> bool:
        """Tell whether this thread is building something here."""
        return getattr(self._here, "building", False)

    def there(self, sample: Sample) -> Sample:
        assert not isinstance(sample, _Way), "a sample was moved twice"
        way = _Way(sample, self._wanted)
        for name, value in sample.items():
            assert not isinstance(value, Away), f"{name} of {sample['__key__']} was there already"
            if isinstance(value, np.ndarray):
                way[name] = Away(self.name, value.copy(), way.done)
        return self._note("there", way)

    def ready(self, sample: Sample) -> Sample:
        assert isinstance(sample, _Way), "a sample was not moved"
        sample.wait()
        return dict(self._note("ready", sample))

    def made(self, sample: Sample) -> Sample:
        assert not isinstance(sample, _Way), "nobody has waited for a sample before it was computed with"
        return self._note("made", _Way(sample, self._wanted))

    def back(self, sample: Sample) -> Sample:
        assert isinstance(sample, _Way), "nobody has said that a sample is made"
        sample.wait()
        found = {name: value.at(self.name) if isinstance(value, Away) else value for name, value in sample.items()}
        return self._note("back", found)

    def stay(self, sample: Sample) -> Sample:
        assert isinstance(sample, _Way), "nobody has said that a sample is made"
        sample.wait()
        return dict(self._note("stay", sample))

    def count(self, what: str) -> int:
        """Tell how often something was called."""
        return sum(name == what for name, _ in self.log)

    def await_until(self, true: Callable[[], bool]) -> bool:
        """Wait until something holds that is decided by what was called."""
        with self.changed:
            return self.changed.wait_for(true, _PATIENCE)

    def _note(self, what: str, sample: Sample) -> Sample:
        with self.changed:
            self.log.append((what, sample["__key__"]))
            self.changed.notify_all()
        return sample

    def _copy(self) -> None:
        while True:
            self._wanted.get().set()


def doubled(sample: Sample) -> Sample:
    """Compute where the sample is."""
    return {**sample, "x": sample["x"].times(2)}


def plain(sample: Sample) -> Sample:
    """Compute here; what is elsewhere cannot be used."""
    assert isinstance(sample["x"], np.ndarray), "a stage without a device got something from one"
    return {**sample, "x": sample["x"] + 1}

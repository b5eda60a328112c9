"""Sound: how long it is, how it goes up and down, and as a file that every browser plays."""

from __future__ import annotations

import io
import wave
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.shards.codecs import decode
from shoal.view._cells import decimated

__all__ = ["Sound", "is_sound", "sound_of"]

_MAGIC = ((0, b"fLaC"), (0, b"OggS"), (0, b"ID3"), (8, b"WAVE"))
_FULL = 32767


class Sound(NamedTuple):
    """Samples, (frames,) or (frames, channels) from -1 to 1, and how many a second has."""

    array: NDArray[Any]
    rate: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.array) / max(self.rate, 1)

    @property
    def channels(self) -> int:
        """How many there are."""
        return 1 if self.array.ndim == 1 else self.array.shape[1]

    def peaks(self, count: int) -> list[list[float | None]]:
        """Give the lowest and highest point of so many pieces, over all channels together."""
        mono = self.array if self.array.ndim == 1 else self.array.mean(axis=1)
        return decimated(mono, count)

    def wav(self) -> bytes:
        """Write it as a WAV file of 16 bits.

        >>> Sound(np.zeros(160, np.float32), 16000).wav()[:4]
        b'RIFF'
        """
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(self.channels)
            out.setsampwidth(2)
            out.setframerate(self.rate)
            out.writeframes((np.clip(self.array, -1, 1) * _FULL).astype("<i2").tobytes())
        return file.getvalue()


def is_sound(data: bytes | memoryview) -> bool:
    """Tell by its first bytes whether a file is sound.

    >>> is_sound(b"RIFF....WAVEfmt "), is_sound(b"text")
    (True, False)
    """
    head = bytes(data[:12])
    return any(head.startswith(magic, offset) for offset, magic in _MAGIC)


def sound_of(name: str, value: Any) -> Sound:
    """Decode sound: a file, or a dict of ``array`` and ``sampling_rate``."""
    if isinstance(value, bytes | memoryview):
        value = decode(f"{name}.wav", value)  # the file says which format it has
    array = np.asarray(value["array"])
    if array.dtype.kind in "iu":
        array = array / max(np.iinfo(array.dtype).max, 1)
    return Sound(array, int(value["sampling_rate"]))

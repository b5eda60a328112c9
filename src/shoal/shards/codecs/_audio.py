"""Sound, through soundfile."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._optional import require
from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions

__all__ = ["AudioCodec"]

_FORMATS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS")}
_FULL = 2**15
_SLACK = 0.001


@dataclass(frozen=True, slots=True)
class AudioCodec:
    """Read sound as a dict of ``array`` and ``sampling_rate``, and write such a dict.

    The array is float32 in [-1, 1], (frames,) for one channel and (frames, channels) for more. wav and flac are written
    with 16 bits, so sound that was read from 16 bits is written again without loss; ogg is lossy, and carries a random
    stream number, so only its sound is the same every time. mp3 is only read.

    >>> tone = {"array": np.zeros(160, np.float32), "sampling_rate": 16000}
    >>> AudioCodec("wav").decode(AudioCodec("wav").encode(tone, EncodeOptions()), DecodeOptions())["sampling_rate"]
    16000
    """

    extension: str
    kind = "sound"

    def decode(self, data: Data, options: DecodeOptions) -> dict[str, Any]:
        """Decode all frames."""
        with _library().SoundFile(io.BytesIO(data)) as file:
            size = 4 * file.frames * file.channels
            if size > options.max_bytes:
                raise DecodeError(f"the sound is {size} bytes long, more than the {options.max_bytes} of max_bytes")
            return {"array": file.read(dtype="float32"), "sampling_rate": int(file.samplerate)}

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write float samples in [-1, 1], or int16 samples as they are."""
        if not isinstance(value, Mapping) or not {"array", "sampling_rate"} <= value.keys():
            raise EncodeError("sound is written from a dict with 'array' and 'sampling_rate'")
        if self.extension not in _FORMATS:
            raise EncodeError(f"{self.extension} is only read; write one of: {' '.join(_FORMATS)}")
        container, subtype = _FORMATS[self.extension]
        file = io.BytesIO()
        samples = _samples(np.asarray(value["array"]))
        _library().write(file, samples, int(value["sampling_rate"]), format=container, subtype=subtype)
        return file.getvalue()


def _samples(array: NDArray[Any]) -> NDArray[np.int16]:
    if array.ndim not in (1, 2):
        raise EncodeError(f"sound has the shape (frames,) or (frames, channels), not {array.shape}")
    if array.dtype == np.int16:
        return array
    if not np.issubdtype(array.dtype, np.floating):
        raise EncodeError(f"sound is written from float or int16 samples, not {array.dtype}")
    peak = float(np.abs(array).max(initial=0))
    if not peak <= 1 + _SLACK:
        raise EncodeError(f"float sound goes from -1 to 1, this one reaches {peak:g}; scale it down")
    samples: NDArray[np.int16] = np.clip(np.rint(array * _FULL), -_FULL, _FULL - 1).astype(np.int16)
    return samples


def _library() -> Any:
    return require("soundfile", "reading and writing sound")

"""Video, through PyAV."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal._optional import require
from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._pillow import check_size

__all__ = ["VideoCodec"]

_CONTAINERS = {"mp4": "mp4", "mov": "mov", "mkv": "matroska"}


@dataclass(frozen=True, slots=True)
class VideoCodec:
    """Read video as a uint8 array (frames, height, width, 3), and write such an array as H.264.

    Sound tracks, frame times and rotation marks are not read. Written are mp4, mov and mkv, with colours at half the
    width and height (4:2:0), so sizes must be even and pixels come back close, not equal.

    >>> movie = np.zeros((3, 16, 32, 3), np.uint8)
    >>> VideoCodec("mp4").decode(VideoCodec("mp4").encode(movie, EncodeOptions()), DecodeOptions()).shape
    (3, 16, 32, 3)
    """

    extension: str
    kind = "a video"

    def decode(self, data: Data, options: DecodeOptions) -> NDArray[np.uint8]:
        """Decode all frames of the first video track."""
        with _library().open(io.BytesIO(data), format=_demuxer(bytes(data[:16]))) as container:
            return np.stack(list(_frames(container, options)))

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Write the frames at ``options.video_fps``."""
        if self.extension not in _CONTAINERS:
            raise EncodeError(f"{self.extension} is only read; write one of: {' '.join(_CONTAINERS)}")
        frames = _check(np.asarray(value))
        file = io.BytesIO()
        # bitexact keeps library versions, random ids and dates out of the file
        flags = {"fflags": "+bitexact"}
        with _library().open(file, "w", format=_CONTAINERS[self.extension], container_options=flags) as container:
            _write(container, frames, options)
        return file.getvalue()


def _demuxer(head: bytes) -> str:
    # Named, since a guess could take hostile bytes for a playlist, which makes the library open other files and URLs.
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    return "avi" if head[8:11] == b"AVI" else "mov"


def _frames(container: Any, options: DecodeOptions) -> Iterator[NDArray[np.uint8]]:
    if not container.streams.video:
        raise DecodeError("the file has no video track")
    stream = container.streams.video[0]
    check_size(stream.width, stream.height, options.max_pixels)
    total = 0
    for frame in container.decode(stream):
        check_size(frame.width, frame.height, options.max_pixels)
        total += 3 * frame.width * frame.height
        if total > options.max_bytes:
            raise DecodeError(f"the video's frames take more than the {options.max_bytes} bytes of max_bytes")
        yield frame.to_ndarray(format="rgb24")


def _check(frames: NDArray[Any]) -> NDArray[np.uint8]:
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape:
        raise EncodeError(
            f"a video is written from a uint8 array (frames, height, width, 3), not {frames.dtype} {frames.shape}"
        )
    if frames.shape[1] % 2 or frames.shape[2] % 2:
        raise EncodeError(f"H.264 needs even sizes, not {frames.shape[1]} x {frames.shape[2]}; pad or crop by one")
    return frames


def _write(container: Any, frames: NDArray[np.uint8], options: EncodeOptions) -> None:
    stream = container.add_stream("h264", rate=options.video_fps)
    stream.height, stream.width = frames.shape[1:3]
    stream.pix_fmt = "yuv420p"
    # The same bytes everywhere: else they follow from how many threads there are, and from what a processor can do.
    # With AVX-512, x264 was seen to differ from itself, once in some thousand times.
    stream.codec_context.thread_count = 1
    stream.options = {"crf": "18", "flags": "+bitexact", "x264-params": "cpu-independent=1"}
    for pixels in frames:
        container.mux(stream.encode(_library().VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")))
    container.mux(stream.encode())


def _library() -> Any:
    return require("av", "reading and writing video")

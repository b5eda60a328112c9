"""What a caller may choose about decoding and encoding."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from shoal import settings
from shoal.errors import PlanError
from shoal.shards.codecs._spec import SPECS

__all__ = ["DecodeOptions", "EncodeOptions"]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How to decode fields. Build it once and pass it on: it reads the settings when it is made, not for each field.

    >>> DecodeOptions(images="torchrgb").images
    'torchrgb'
    """

    images: str = "rgb8"
    """What a picture becomes.

    ``l8 rgb8 rgba8``: uint8 array, (height, width) or (height, width, channels); ``l rgb rgba``: float32 in [0, 1].
    The same after ``torch`` (``torchrgb8``; ``torch`` is ``torchrgb``): tensors with channels first, (height, width)
    for the ``l`` ones. ``pill pilrgb pilrgba`` (``pil`` is ``pilrgb``): loaded PIL images; ``pilraw`` keeps
    the mode of the file, as labels in a palette need it. ``bytes``: left alone.
    Alpha is dropped, not blended; 16-bit samples keep their high byte; of an animation the first picture is taken;
    an EXIF orientation is not applied.
    """
    trust: bool = False
    """Whether data that can run code when decoded (pickle, pth, object arrays) may do so."""
    max_pixels: int = field(default_factory=lambda: settings.current().max_pixels)
    """Pictures and video frames of more pixels are refused before they are decoded; by default the setting's number."""
    max_bytes: int = 4 * 2**30
    """What a compressed field (gz, npz, audio, video) may expand to; more is refused."""

    def __post_init__(self) -> None:
        if self.images not in SPECS:
            near = difflib.get_close_matches(self.images, SPECS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise PlanError(f"there is no image spec {self.images!r}{hint} Known are: {', '.join(SPECS)}")


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How to encode fields. Pictures are lossless in every format but jpg (always 4:2:0) and gif (256 colours).

    >>> EncodeOptions(jpeg_quality=80).jpeg_quality
    80
    """

    jpeg_quality: int = 95
    """1 to 100; 100 is still not lossless and about twice the size of 95."""
    video_fps: int = 25
    """Frames a second, which an array of frames does not tell."""

    def __post_init__(self) -> None:
        if not 1 <= self.jpeg_quality <= 100:
            raise PlanError(f"jpeg_quality is {self.jpeg_quality}; it must be from 1 to 100")
        if self.video_fps < 1:
            raise PlanError(f"video_fps is {self.video_fps}; it must be at least 1")

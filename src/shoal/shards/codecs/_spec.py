"""The names of what a picture may become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SPECS", "ImageSpec"]


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """One form of a decoded picture: its channels, its container, and whether samples are floats in [0, 1]."""

    mode: Literal["L", "RGB", "RGBA", "raw"]
    """Pillow's name of the channels; ``raw`` stands for those of the file."""
    container: Literal["numpy", "torch", "pil"]
    floating: bool = False


#: name -> form; None stands for bytes left alone
SPECS: dict[str, ImageSpec | None] = {
    "l8": ImageSpec("L", "numpy"),
    "rgb8": ImageSpec("RGB", "numpy"),
    "rgba8": ImageSpec("RGBA", "numpy"),
    "l": ImageSpec("L", "numpy", floating=True),
    "rgb": ImageSpec("RGB", "numpy", floating=True),
    "rgba": ImageSpec("RGBA", "numpy", floating=True),
    "torchl8": ImageSpec("L", "torch"),
    "torchrgb8": ImageSpec("RGB", "torch"),
    "torchrgba8": ImageSpec("RGBA", "torch"),
    "torchl": ImageSpec("L", "torch", floating=True),
    "torchrgb": ImageSpec("RGB", "torch", floating=True),
    "torch": ImageSpec("RGB", "torch", floating=True),
    "torchrgba": ImageSpec("RGBA", "torch", floating=True),
    "pill": ImageSpec("L", "pil"),
    "pil": ImageSpec("RGB", "pil"),
    "pilrgb": ImageSpec("RGB", "pil"),
    "pilrgba": ImageSpec("RGBA", "pil"),
    "pilraw": ImageSpec("raw", "pil"),
    "bytes": None,
}

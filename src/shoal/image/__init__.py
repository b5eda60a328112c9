"""Crop, flip and normalise pictures: stages that become one pass from a JPEG's bytes to its row of the batch.

>>> from shoal.image import flip, normalize, random_resized_crop
>>> stages = random_resized_crop(224), flip(), normalize()
>>> [type(stage).__name__ for stage in stages]
['RandomResizedCrop', 'Flip', 'Normalize']
"""

from shoal.image._dali import dali
from shoal.image._stages import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    center_crop,
    flip,
    normalize,
    random_resized_crop,
)

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "center_crop",
    "dali",
    "flip",
    "normalize",
    "random_resized_crop",
]

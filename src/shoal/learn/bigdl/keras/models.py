"""Models of BigDL in the manner of Keras.

Names stand for those of `bigdl.dllib.keras.models`, which is in the environment of BigDL and not here.

>>> from shoal.learn.bigdl.keras.models import Sequential
>>> Sequential()
<bigdl.dllib.keras.models.Sequential(...), which is made where it is sent>
"""

from __future__ import annotations

from shoal.learn.bigdl._bigdl_names import stand_ins

__all__ = [  # noqa: F822 - they are made when they are asked for
    "Model",
    "Sequential",
]

__getattr__ = stand_ins("bigdl.dllib.keras.models", __all__)

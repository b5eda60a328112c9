"""How the weights of BigDL's layers begin.

Names stand for those of `bigdl.dllib.nn.initialization_method`, which is in the environment of BigDL and not here.

>>> from shoal.learn.bigdl.nn.initialization_method import Xavier
>>> Xavier()
<bigdl.dllib.nn.initialization_method.Xavier(...), which is made where it is sent>
"""

from __future__ import annotations

from shoal.learn.bigdl._bigdl_names import stand_ins

__all__ = [  # noqa: F822 - they are made when they are asked for
    "BilinearFiller",
    "ConstInitMethod",
    "InitializationMethod",
    "MsraFiller",
    "Ones",
    "RandomNormal",
    "RandomUniform",
    "Xavier",
    "Zeros",
]

__getattr__ = stand_ins("bigdl.dllib.nn.initialization_method", __all__)

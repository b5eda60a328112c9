"""What BigDL makes of a row before a model takes it.

Names stand for those of `bigdl.dllib.feature.common`, which is in the environment of BigDL and not here.

>>> from shoal.learn.bigdl.feature.common import SeqToTensor
>>> SeqToTensor([28, 28])
<bigdl.dllib.feature.common.SeqToTensor(...), which is made where it is sent>
"""

from __future__ import annotations

from shoal.learn.bigdl._bigdl_names import stand_ins

__all__ = [  # noqa: F822 - they are made when they are asked for
    "ArrayToTensor",
    "ChainedPreprocessing",
    "ScalarToTensor",
    "SeqToMultipleTensors",
    "SeqToTensor",
]

__getattr__ = stand_ins("bigdl.dllib.feature.common", __all__)

"""How BigDL learns: methods, schedules of the rate, and penalties.

Names stand for those of `bigdl.dllib.optim.optimizer`, which is in the environment of BigDL and not here.

>>> from shoal.learn.bigdl.optim.optimizer import Adam
>>> Adam(learningrate=0.01)
<bigdl.dllib.optim.optimizer.Adam(...), which is made where it is sent>
"""

from __future__ import annotations

from shoal.learn.bigdl._bigdl_names import stand_ins

__all__ = [  # noqa: F822 - they are made when they are asked for
    "LBFGS",
    "SGD",
    "ActivityRegularization",
    "Adadelta",
    "Adagrad",
    "Adam",
    "Adamax",
    "Default",
    "Exponential",
    "Ftrl",
    "L1L2Regularizer",
    "L1Regularizer",
    "L2Regularizer",
    "MultiStep",
    "ParallelAdam",
    "Plateau",
    "Poly",
    "RMSprop",
    "SequentialSchedule",
    "Step",
    "Warmup",
]

__getattr__ = stand_ins("bigdl.dllib.optim.optimizer", __all__)

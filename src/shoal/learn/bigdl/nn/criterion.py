"""Losses of BigDL.

Names stand for those of `bigdl.dllib.nn.criterion`, which is in the environment of BigDL and not here.

>>> from shoal.learn.bigdl.nn.criterion import MSECriterion
>>> MSECriterion()
<bigdl.dllib.nn.criterion.MSECriterion(...), which is made where it is sent>
"""

from __future__ import annotations

from shoal.learn.bigdl._bigdl_names import stand_ins

__all__ = [  # noqa: F822 - they are made when they are asked for
    "AbsCriterion",
    "BCECriterion",
    "CategoricalCrossEntropy",
    "ClassNLLCriterion",
    "ClassSimplexCriterion",
    "CosineDistanceCriterion",
    "CosineEmbeddingCriterion",
    "CosineProximityCriterion",
    "Criterion",
    "CrossEntropyCriterion",
    "DiceCoefficientCriterion",
    "DistKLDivCriterion",
    "DotProductCriterion",
    "GaussianCriterion",
    "HingeEmbeddingCriterion",
    "KLDCriterion",
    "KullbackLeiblerDivergenceCriterion",
    "L1Cost",
    "L1HingeEmbeddingCriterion",
    "MSECriterion",
    "MarginCriterion",
    "MarginRankingCriterion",
    "MeanAbsolutePercentageCriterion",
    "MeanSquaredLogarithmicCriterion",
    "MultiCriterion",
    "MultiLabelMarginCriterion",
    "MultiLabelSoftMarginCriterion",
    "MultiMarginCriterion",
    "PGCriterion",
    "ParallelCriterion",
    "PoissonCriterion",
    "SmoothL1Criterion",
    "SmoothL1CriterionWithWeights",
    "SoftMarginCriterion",
    "SoftmaxWithCriterion",
    "TimeDistributedCriterion",
    "TimeDistributedMaskCriterion",
    "TransformerCriterion",
]

__getattr__ = stand_ins("bigdl.dllib.nn.criterion", __all__)

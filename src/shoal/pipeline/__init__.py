"""The plan of what is done to samples, and the loader that trains from it."""

from shoal.pipeline._dataset import Dataset, mix
from shoal.pipeline._loader import Loader
from shoal.pipeline.ledger import Failure, Ledger
from shoal.pipeline.statistics import Statistics

__all__ = ["Dataset", "Failure", "Ledger", "Loader", "Statistics", "mix"]

"""The plan of what is done to samples, and the loader that trains from it."""

from shoal.pipeline._dataset import Dataset, mix
from shoal.pipeline._loader import Loader

__all__ = ["Dataset", "Loader", "mix"]

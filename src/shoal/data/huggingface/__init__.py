"""Hugging Face datasets in and out: their rows as samples, and export to Parquet files that need nothing else."""

from __future__ import annotations

from shoal.data.huggingface._export import export_parquet
from shoal.data.huggingface._reading import features_of, from_huggingface

__all__ = ["export_parquet", "features_of", "from_huggingface"]

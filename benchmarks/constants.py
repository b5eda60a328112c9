"""The work that all image loaders do, in numbers."""

from __future__ import annotations

import numpy as np

SIDE, BATCH, WORKERS = 224, 64, 2
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""Share of the area and ratio of the sides of a random resized crop."""
MEAN = np.array([123.675, 116.28, 103.53], np.float32)
STD = np.array([58.395, 57.12, 57.375], np.float32)

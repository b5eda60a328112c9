"""torchvision beside a torch built for the CPU only.

Its compiled operators are not there; it imports, and its transforms work, once the two operators that it registers
something for are declared. Import this before torchvision.
"""

from __future__ import annotations

import torch

library = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

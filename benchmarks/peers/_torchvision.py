"""Let torchvision import beside a torch built for the CPU only.

Its compiled operators do not load there, and it fails at the two that it registers something for. Declared, they let
it import, and its transforms work as ever. Import this before anything that imports torchvision.
"""

from __future__ import annotations

import torch

_library = None

if "+cpu" in torch.__version__:
    _library = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

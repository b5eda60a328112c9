"""Samples in a grid: of each what tells most of it at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.abc import Sample
from shoal.shards.codecs import DecodeOptions
from shoal.view._cells import decimated
from shoal.view._looks import Look, fields_of, label_of, look_of, plain

__all__ = ["class_field_of", "main_look", "tile_of"]

#: What a tile shows of a sample that has several: the first of these kinds.
_RANK = ("picture", "video", "sound", "array", "text", "json", "number", "bytes", "broken", "none")
#: Names that a field with classes usually has.
_CLASSES = ("cls", "label", "class", "category", "labels", "target", "y", "coarse_label", "fine_label")
_LETTERS = 280
_FACTS = 8
_POINTS = 60


def class_field_of(sample: Sample, chosen: str | None) -> str | None:
    """Name the field that holds the class: the one that was chosen, or one with a usual name.

    >>> class_field_of({"__key__": "a", "jpg": b"", "label": 3}, None)
    'label'
    """
    names = fields_of(sample)
    if chosen is not None:
        return chosen
    return next((name for name in _CLASSES if name in names), None)


def main_look(sample: Sample, options: DecodeOptions, apart: str | None) -> Look | None:
    """Choose the field that a tile shows; the class is told apart, and a mask is not what one looks for."""
    names = [name for name in fields_of(sample) if name != apart]
    looks = [look_of(name, sample[name], options) for name in names]
    return min(looks, key=lambda look: (_RANK.index(look.kind), look.is_mask), default=None)


def tile_of(number: int, sample: Sample, options: DecodeOptions, class_field: str | None) -> dict[str, Any]:
    """Describe a sample for the grid."""
    look = main_look(sample, options, class_field)
    tile: dict[str, Any] = {"number": number, "key": plain(sample.get("__key__", "")), "kind": "none"}
    label = sample.get(class_field) if class_field else None
    if label is not None:
        tile["label"] = label_of(label)
    if look is not None:
        tile |= {"kind": look.kind, "field": look.name, **_shown(look, sample, options, class_field)}
    return tile


def _shown(look: Look, sample: Sample, options: DecodeOptions, class_field: str | None) -> dict[str, Any]:
    match look.kind:
        case "text":
            return {"text": plain(look.value[:_LETTERS])}
        case "array" if look.value.ndim == 1 and look.value.dtype.kind in "iufb":
            return {"points": decimated(look.value, _POINTS)}
        case "array" if look.value.dtype.kind not in "iufb":
            return {"kind": "json", "text": plain(str(look.value)[:_LETTERS])}
        case "json" | "number":
            return {"facts": _facts(sample, options, class_field)}
        case "broken":
            return {"text": look.problem}
    return {}


def _facts(sample: Sample, options: DecodeOptions, class_field: str | None) -> list[Sequence[str]]:
    """List names and values of a sample that has nothing but such."""
    names = [name for name in fields_of(sample) if name != class_field][:_FACTS]
    return [(name, _short(look_of(name, sample[name], options).value)) for name in names]


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float | np.floating) else str(plain(value))
    return text[:80]

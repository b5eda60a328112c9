"""Which fields of samples are decoded, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from shoal.data.image._cells import array_of
from shoal.data.image._schema import FeatureType, Schema
from shoal.shards.codecs import DecodeOptions, decode, is_picture

__all__ = ["Decoders", "decoders"]


class Decoders(NamedTuple):
    """The fields to decode, and functions for those whose names do not say what they are."""

    fields: list[str]
    codecs: Mapping[str, Callable[[bytes], Any]]


def decoders(schema: Schema, images: str) -> Decoders:
    """Choose how to decode the columns of a table.

    >>> from shoal.data.image import DType, SchemaField
    >>> column = SchemaField(FeatureType.IMAGE, DType.UINT8)
    >>> found = decoders({"image": column, "mask": column}, "rgb8")
    >>> found.fields, list(found.codecs)
    (['image', 'mask'], ['mask'])
    """
    options = DecodeOptions(images=images)
    arrays = [name for name, field in schema.items() if field.feature_type is FeatureType.NDARRAY]
    pictures = [name for name, field in schema.items() if field.feature_type is FeatureType.IMAGE]
    if images == "bytes":
        pictures = []
    # A picture that is called one is left to the codecs, because the stages of `shoal.image` can join with these.
    own = {name: partial(decode, "image", options=options) for name in pictures if not is_picture(name)}
    return Decoders([*arrays, *pictures], {**dict.fromkeys(arrays, partial(array_of, options=options)), **own})

"""Whether Arrow data can be touched that was taken as it lies in a file: an offset that leads elsewhere is followed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["check_sound"]


def check_sound(array: pa.Array) -> None:
    """Raise pyarrow's error, or a ValueError, about an array that points outside of itself.

    pyarrow checks indices into a dictionary even where they mean nothing, below a null, and writes such files itself.
    So arrays that hold dictionaries are checked part by part, and their indices when they are looked up.

    >>> check_sound(pa.array([[1, 2], None, [3]]))
    """
    if not _holds_dictionary(array.type):
        array.validate(full=True)
        return
    array.validate()
    for part in _parts(array):
        check_sound(part)


def _holds_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(number).type) for number in range(kind.num_fields))


def _parts(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return [array.storage]
    if pa.types.is_dictionary(kind):
        return [array.dictionary]
    if pa.types.is_struct(kind):
        return [array.field(number) for number in range(kind.num_fields)]
    if pa.types.is_fixed_size_list(kind):
        return [array.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        _check_offsets(array)
        return [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    array.validate(full=True)
    return []


def _check_offsets(array: pa.Array) -> None:
    offsets = np.asarray(array.offsets)
    count = len(array.keys if pa.types.is_map(array.type) else array.values)
    if len(offsets) and not (offsets[0] >= 0 and (offsets[:-1] <= offsets[1:]).all() and offsets[-1] <= count):
        raise ValueError("the offsets of a list are out of order")

"""TensorFlow: stored frames, tables, arrays and partitions as `tf.data.Dataset`, read from the memory of the store.

>>> from shoal.store import resolver_context
>>> with resolver_context() as resolvers:
...     register_tf_types(None, resolvers)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal._optional import require
from shoal.errors import PlanError
from shoal.store._contexts import BuilderContext, ResolverContext, context
from shoal.store._meta import Object, ObjectMeta
from shoal.store._rows import chosen, columns, frame_of, full_columns, plain_resolvers

if TYPE_CHECKING:
    from shoal.store._base import BaseStore

__all__ = ["register_tensorflow_types", "register_tf_types", "tensorflow_context"]

tf: Any = require("tensorflow", "shoal.store.tensorflow")
#: Bytes up to which a dataset has a copy of its own: TensorFlow reads that fastest.
_SMALL = 2**23
#: Bytes that are taken out of the store at once.
_BLOCK = 2**20
_BATCH = 4096
#: How a frame or an array that was a dataset becomes one again.
_KIND = "dataset_"


def register_tf_types(builder_ctx: BuilderContext | None = None, resolver_ctx: ResolverContext | None = None) -> None:
    """Register what puts datasets and tensors, and what makes them of stored objects; either may be None.

    In such a context ``get(id, data="x", label="y")`` gives a dataset of these two columns; without ``data`` all but
    the label are a dict, and the label is the column ``label`` if none is named. Of an object in partitions the
    dataset has those of this worker, in their order.

    >>> import pandas, tempfile
    >>> from shoal.store import connect, resolver_context
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> made = store.put(pandas.DataFrame({"x": [0, 1, 2], "y": [0, 2, 4]}))
    >>> with resolver_context() as resolvers:
    ...     register_tf_types(None, resolvers)
    ...     [(int(x), int(y)) for x, y in store.get(made, data="x", label="y")]
    [(0, 0), (1, 2), (2, 4)]
    """
    if builder_ctx is not None:
        builder_ctx.register(tf.data.Dataset, build_dataset)
        builder_ctx.register(tf.Tensor, build_tensor)
    if resolver_ctx is not None:
        resolver_ctx.register("vineyard::Tensor", resolve_array)
        for name in ("DataFrame", "RecordBatch", "Table"):
            resolver_ctx.register(f"vineyard::{name}", resolve_rows)
        for name in ("GlobalTensor", "GlobalDataFrame", "GlobalShards"):
            resolver_ctx.register(f"vineyard::{name}", resolve_partitions)


register_tensorflow_types = register_tf_types


@contextmanager
def tensorflow_context() -> Iterator[tuple[BuilderContext, ResolverContext]]:
    """Put and get datasets of TensorFlow for a while.

    >>> import pandas, tempfile
    >>> from shoal.store import connect
    >>> store = connect(tempfile.mkdtemp(), memory="10MB")
    >>> made = store.put(pandas.DataFrame({"x": [0, 1, 2], "y": [0, 2, 4]}))
    >>> with tensorflow_context():
    ...     len(store.get(made, data="x", label="y"))
    3
    """
    with context() as (builders, resolvers):
        register_tf_types(builders, resolvers)
        yield builders, resolvers


def build_tensor(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe a tensor; outside of a context it comes back as an array."""
    meta = builder(store, value.numpy())
    meta[_KIND] = "tensor"
    return meta


def build_dataset(store: BaseStore, value: Any, builder: BuilderContext) -> ObjectMeta:
    """Describe a dataset, all of it: of tensors as an array, of pairs or dicts as a frame."""
    if value.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise PlanError("this dataset has no end; put what it repeats, or take() some of it")
    kind, names = _structure(value.element_spec)
    parts = [_arrays(names, kind, batch) for batch in value.batch(_BATCH).as_numpy_iterator()]
    if not parts:
        raise PlanError("this dataset has no elements, of which something could be put")
    found = {name: np.concatenate([part[name] for part in parts]) for name in names}
    meta = builder(store, found["data"] if kind == "rows" else frame_of(found))
    meta[_KIND] = kind
    return meta


def resolve_array(obj: Object) -> Any:
    """Give a dataset of the rows of an array, or the tensor that was put; within something else it stays an array."""
    array = plain_resolvers()(obj)
    if obj.id is None:
        return array
    if obj.meta.get(_KIND) == "tensor" or not array.ndim:
        return tf.convert_to_tensor(array)
    return _dataset([_checked({"x": array})["x"]])


def resolve_rows(obj: Object, data: Any = None, label: Any = None) -> Any:
    """Give a dataset of the columns of a frame or a table."""
    return _dataset([_part(obj, columns(obj), data, label)])


def resolve_partitions(
    obj: Object,
    data: Any = None,
    label: Any = None,
    partitions: str = "mine",
    rank: int | None = None,
    world_size: int | None = None,
) -> Any:
    """Give a dataset of the partitions of this worker, in their order."""
    parts = full_columns(obj, partitions, rank, world_size)
    return _dataset([_part(part, found, data, label) for part, found in parts])


def _part(obj: Object, found: dict[Any, Any], data: Any, label: Any) -> Any:
    """Give the arrays of a part, in the structure that elements are to have."""
    if obj.typename.startswith("vineyard::Tensor"):
        return _checked(found)["x"]
    if data is None and obj.meta.get(_KIND) == "pair":
        data = "data"
    rows = chosen(found, data, label)
    names = data if isinstance(data, str) else "data"
    inputs = _checked(rows.data if isinstance(rows.data, dict) else {names: rows.data})
    features = inputs if isinstance(rows.data, dict) else inputs[names]
    return features if rows.label is None else (features, _checked({label or "label": rows.label})[label or "label"])


def _checked(found: dict[Any, Any]) -> dict[str, Any]:
    """Take arrays that TensorFlow has a type for; texts are objects in numpy."""
    made = {str(name): _texts(array) if array.dtype.kind in "OT" else array for name, array in found.items()}
    for name, array in made.items():
        if array is None or not _has_type(array.dtype):
            text = f"column {name!r} ({found[name].dtype}) holds what TensorFlow has no type for"
            raise PlanError(
                f"{text}; choose others, as in get(id, data='x', label='y'), or convert it before it is put"
            )
    return made


def _has_type(dtype: Any) -> bool:
    try:
        tf.as_dtype(dtype)
    except TypeError:
        return False
    return True


def _texts(array: Any) -> Any:
    """Give texts as bytes, as TensorFlow has them; None if there is anything else."""
    made = np.empty(array.shape, object)
    for place, value in enumerate(array.flat):
        if not isinstance(value, str | bytes | memoryview):
            return None
        made.flat[place] = value.encode() if isinstance(value, str) else bytes(value)
    return made


def _dataset(parts: Sequence[Any]) -> Any:
    """Make a dataset of parts of one structure."""
    flat = [tf.nest.flatten(part) for part in parts]
    if sum(array.nbytes for part in flat for array in part) <= _SMALL:
        whole = [np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for arrays in zip(*flat, strict=True)]
        return tf.data.Dataset.from_tensor_slices(tf.nest.pack_sequence_as(parts[0], whole))
    return _in_blocks(parts[0], flat)


def _in_blocks(structure: Any, parts: list[list[Any]]) -> Any:
    """Take rows out of the store in blocks as they are needed: TensorFlow would copy all that it is given at once."""
    cuts: list[tuple[int, int, int]] = []
    for number, arrays in enumerate(parts):
        rows = len(arrays[0])
        step = max(1, _BLOCK * rows // max(sum(array.nbytes for array in arrays), 1))
        cuts += [(number, low, min(low + step, rows)) for low in range(0, rows, step)]
    types = [tf.as_dtype(np.result_type(*(array.dtype for array in column))) for column in zip(*parts, strict=True)]

    def taken(cut: Any) -> list[Any]:
        number, low, high = cuts[cut]
        pairs = zip(parts[number], types, strict=True)
        return [np.asarray(array[low:high], kind.as_numpy_dtype) for array, kind in pairs]

    def block(cut: Any) -> Any:
        made = tf.numpy_function(taken, [cut], types, stateful=False)
        for tensor, array in zip(made, parts[0], strict=True):
            tensor.set_shape((None, *array.shape[1:]))
        return tf.data.Dataset.from_tensor_slices(tf.nest.pack_sequence_as(structure, made))

    count = sum(len(arrays[0]) for arrays in parts)
    return tf.data.Dataset.range(len(cuts)).flat_map(block).apply(tf.data.experimental.assert_cardinality(count))


def _structure(spec: Any) -> tuple[str, list[Any]]:
    """Tell what the elements of a dataset are: tensors (rows), pairs, dicts, or dicts with a label; and the columns."""
    if isinstance(spec, tf.TensorSpec):
        return "rows", ["data"]
    if isinstance(spec, dict) and all(isinstance(each, tf.TensorSpec) for each in spec.values()):
        return "dict", list(spec)
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], tf.TensorSpec):
        if isinstance(spec[0], tf.TensorSpec):
            return "pair", ["data", "label"]
        inner, names = _structure(spec[0])
        if inner == "dict" and "label" not in names:
            return "labelled", [*names, "label"]
    text = f"a dataset of {spec} cannot be put"
    raise PlanError(f"{text}; elements are tensors, (tensor, tensor), dicts of tensors, or (dict, label)")


def _arrays(names: list[Any], kind: str, batch: Any) -> dict[Any, Any]:
    if kind == "dict":
        return dict(batch)
    if kind == "labelled":
        return {**batch[0], "label": batch[1]}
    return dict(zip(names, batch if kind == "pair" else [batch], strict=True))

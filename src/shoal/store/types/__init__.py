"""The types that a store knows by itself, each in a file of its own that is loaded when one is met."""

from __future__ import annotations

from shoal.store._contexts import BuilderContext, ResolverContext

__all__ = ["default_builders", "default_resolvers"]

_HERE = "shoal.store.types"
_PANDAS = {
    "DataFrame": ("pandas.DataFrame", "pandas.core.frame.DataFrame"),
    "Series": ("pandas.Series", "pandas.core.series.Series"),
    "Index": ("pandas.Index", "pandas.core.indexes.base.Index"),
}
_SPARSE = ("scipy.sparse._base._spbase", "scipy.sparse._base.spmatrix")

#: Collections and tensors of other libraries, with what puts them.
_BRIDGES = {
    "torch.Tensor": "shoal.store.torch:build_tensor",
    "torch.utils.data.dataset.Dataset": "shoal.store.torch:build_dataset",
    "torch.nn.modules.module.Module": "shoal.store.torch:build_module",
    "tensorflow.python.framework.tensor.Tensor": "shoal.store.tensorflow:build_tensor",
    "tensorflow.python.data.ops.dataset_ops.DatasetV2": "shoal.store.tensorflow:build_dataset",
    "dask.array.core.Array": "shoal.store.dask:build_array",
    "dask.bag.core.Bag": "shoal.store.dask:build_bag",
    "dask.dataframe.dask_expr._collection.FrameBase": "shoal.store.dask:build_frame",
    "pyspark.sql.dataframe.DataFrame": "shoal.store.pyspark:build_frame",
    "ray.data.dataset.Dataset": "shoal.store.ray:build_dataset",
    "shoal.data._xshards.XShards": "shoal.data._store:build_shards",
}


def default_builders() -> BuilderContext:
    """Make the context of the builders that need not be registered.

    >>> isinstance(default_builders(), BuilderContext)
    True
    """
    plain = f"{_HERE}._plain"
    made = BuilderContext()
    kinds: dict[str, tuple[type, ...]] = {
        "build_scalar": (type(None), bool, int, float, complex, str),
        "build_bytes": (bytes, bytearray, memoryview),
        "build_sequence": (tuple, list, set, frozenset),
    }
    for function, some in kinds.items():
        for kind in some:
            made.register(kind, f"{plain}:{function}")
    made.register(dict, f"{plain}:build_map")
    made.register("shoal.store._ids.ObjectID", f"{plain}:build_id")
    made.register("numpy.ndarray", f"{_HERE}._arrays:build_array")
    for name in ("generic", "str_", "bytes_"):  # the latter two are texts and bytes of Python's as well
        made.register(f"numpy.{name}", f"{_HERE}._arrays:build_number")
    made.register("numpy.ma.MaskedArray", f"{_HERE}._arrays:build_masked")
    for name in _PANDAS["DataFrame"]:
        made.register(name, f"{_HERE}._frames:build_frame")
    for name in _PANDAS["Series"]:
        made.register(name, f"{_HERE}._frames:build_series")
    for name in _PANDAS["Index"]:
        made.register(name, f"{_HERE}._frames:build_index")
    made.register("pandas.api.extensions.ExtensionArray", f"{_HERE}._columns:build_column")
    made.register("pandas.core.arrays.base.ExtensionArray", f"{_HERE}._columns:build_column")
    for name in ("Array", "ChunkedArray", "Schema", "RecordBatch", "Table"):
        made.register(f"pyarrow.lib.{name}", f"{_HERE}._arrow:build_{name.lower()}")
    for name in _SPARSE:
        made.register(name, f"{_HERE}._sparse:build_sparse")
    for name, function in _BRIDGES.items():
        made.register(name, function)
    return made


def default_resolvers() -> ResolverContext:
    """Make the context of the resolvers that need not be registered.

    >>> isinstance(default_resolvers(), ResolverContext)
    True
    """
    plain = f"{_HERE}._plain"
    found = {
        "vineyard::Scalar": f"{plain}:resolve_scalar",
        "vineyard::Blob": f"{plain}:resolve_bytes",
        "vineyard::Sequence": f"{plain}:resolve_sequence",
        "vineyard::Map": f"{plain}:resolve_map",
        "vineyard::PickleBuffer": f"{plain}:resolve_pickle",
        "vineyard::Tensor": f"{_HERE}._arrays:resolve_array",
        "vineyard::Tensor<torch.": "shoal.store.torch:resolve_tensor",
        "vineyard::MaskedTensor": f"{_HERE}._arrays:resolve_masked",
        "vineyard::DataFrame": f"{_HERE}._frames:resolve_frame",
        "vineyard::Series": f"{_HERE}._frames:resolve_series",
        "vineyard::Index": f"{_HERE}._frames:resolve_index",
        "vineyard::Column": f"{_HERE}._columns:resolve_column",
        "vineyard::ArrowArray": f"{_HERE}._arrow:resolve_array",
        "vineyard::ChunkedArray": f"{_HERE}._arrow:resolve_chunkedarray",
        "vineyard::SchemaProxy": f"{_HERE}._arrow:resolve_schema",
        "vineyard::RecordBatch": f"{_HERE}._arrow:resolve_recordbatch",
        "vineyard::Table": f"{_HERE}._arrow:resolve_table",
        "vineyard::SparseMatrix": f"{_HERE}._sparse:resolve_sparse",
        "vineyard::GlobalTensor": "shoal.store._globals:resolve_tensor",
        "vineyard::GlobalDataFrame": "shoal.store._globals:resolve_frame",
        "vineyard::GlobalShards": "shoal.store._globals:resolve_shards",
    }
    return ResolverContext(found)

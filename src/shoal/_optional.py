"""Libraries that are not always there: a missing one is one sentence with the pip command."""

from __future__ import annotations

import importlib
from types import ModuleType

from shoal.errors import MissingExtraError

__all__ = ["EXTRAS", "is_tensor", "missing_extra", "require", "tensor_library"]

#: module -> the extra of ``shoal`` that brings it
EXTRAS = {
    "aiohttp": "http",
    "av": "video",
    "cbor2": "cbor",
    "dask": "dask",
    "datasets": "huggingface",
    "distributed": "dask",
    "gcsfs": "gcs",
    "google_crc32c": "tfrecord",
    "huggingface_hub": "huggingface",
    "jax": "jax",
    "moto": "testing",
    "msgpack": "msgpack",
    "nvidia.dali": "dali",
    "openvino": "openvino",
    "pandas": "tables",
    "pyarrow": "tables",
    "pyspark": "spark",
    "ray": "ray",
    "s3fs": "s3",
    "safetensors": "safetensors",
    "scipy": "audio",
    "soundfile": "audio",
    "starlette": "view",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "uvicorn": "view",
    "zmq": "tensorcom",
}


#: where frameworks define their tensors, by top-level module and name -> the framework
_TENSORS = {("jaxlib", "ArrayImpl"): "jax", ("tensorflow", "EagerTensor"): "tensorflow", ("torch", "Tensor"): "torch"}


def tensor_library(value: object) -> str | None:
    """Name the framework a tensor is of, without importing any; None for everything else.

    >>> tensor_library([1, 2]) is None
    True
    """
    origins = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__)
    return next((_TENSORS[origin] for origin in origins if origin in _TENSORS), None)


def is_tensor(value: object) -> bool:
    """Tell whether a value is a torch tensor, without importing torch for values that are not.

    >>> is_tensor([1, 2])
    False
    """
    return tensor_library(value) == "torch"


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or say in one sentence what brings it.

    >>> require("json", "reading JSON").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        missing = module if module in EXTRAS else top  # other packages may have the same top
        if error.name is not None and error.name.partition(".")[0] != top:
            raise  # the library is there, but something of its own is broken: that is its story to tell
        raise missing_extra(missing, purpose) from None


def missing_extra(library: str, purpose: str) -> MissingExtraError:
    """Say in one sentence what brings a library that is not there."""
    extra = EXTRAS.get(library)
    command = f'pip install "shoal[{extra}]"' if extra else f"pip install {library}"
    return MissingExtraError(f"{purpose} needs {library}, which is not installed: {command}", name=library)

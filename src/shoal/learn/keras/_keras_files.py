"""Models of Keras in files that Keras itself reads and writes."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from shoal._optional import require
from shoal.errors import PlanError, StateError
from shoal.learn.keras import _keras_variables as variables

__all__ = ["file_of", "loaded", "opened", "packed", "unpacked"]

_INFO = "estimator.json"
_HDF5 = b"\x89HDF"


def packed(model: Any, info: Mapping[str, Any] | None, name: str) -> bytes:
    """Give the file of a model; what else is told lies beside it in the archive, where Keras does not look.

    Without ``info`` it is the file of the weights alone, as it is under a name that ends in ``.weights.h5``, which has
    the optimizer's, too.
    """
    if name.endswith(".safetensors"):
        raise PlanError(f"Keras writes no .safetensors; let {name} end in .ckpt, .keras or .weights.h5")
    if info is None:
        return _alone(model)
    if name.endswith(".weights.h5"):
        return _written(model.save_weights, ".weights.h5")
    buffer = io.BytesIO(file_of(model))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(_INFO, json.dumps(dict(info)))
    return buffer.getvalue()


def unpacked(model: Any, data: bytes, name: str) -> dict[str, Any]:
    """Let a model have the weights in a file, whoever wrote it; give what else is told there. No code of it is run."""
    if not model.built:
        raise StateError(f"the model has no weights for those in {name}: give it an Input, or let it fit first")
    variables.optimizer_variables(model)
    try:
        has_optimizer = _has_optimizer(data)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise StateError(f"{name} is no file of Keras: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{'.weights.h5' if data.startswith(_HDF5) else '.keras'}"
        path.write_bytes(data)
        with nullcontext() if has_optimizer else _without_optimizer(model):
            model.load_weights(path)
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return dict(json.loads(archive.read(_INFO))) if _INFO in archive.namelist() else {}


def opened(data: bytes) -> Any:
    """Make a model of a file, unless there is code in it."""
    return loaded(require("keras", "a file of Keras"), data, trust=False)


def file_of(model: Any) -> bytes:
    """Give the file that Keras makes of a model."""
    return _written(model.save, ".keras")


def loaded(library: Any, data: bytes, objects: Mapping[str, Any] | None = None, *, trust: bool = True) -> Any:
    """Make a model of such a file; with ``trust`` also of one that has code in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(data)
        return library.saving.load_model(path, custom_objects=dict(objects or {}), safe_mode=not trust)


def _alone(model: Any) -> bytes:
    """Give the file of the weights; Keras would put those of the optimizer in, if it saw one."""
    with _without_optimizer(model):
        return _written(model.save_weights, ".weights.h5")


@contextmanager
def _without_optimizer(model: Any) -> Iterator[None]:
    optimizer = getattr(model, "optimizer", None)
    model.optimizer = None
    try:
        yield
    finally:
        model.optimizer = optimizer


def _has_optimizer(data: bytes) -> bool:
    """Tell whether there are numbers of an optimizer in a file."""
    weights = data
    if not data.startswith(_HDF5):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            weights = archive.read("model.weights.h5")
    with require("h5py", "a file of Keras").File(io.BytesIO(weights), "r") as file:
        return len(file.get("optimizer/vars", ())) > 0


def _written(save: Callable[[Path], None], suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{suffix}"
        save(path)
        return path.read_bytes()

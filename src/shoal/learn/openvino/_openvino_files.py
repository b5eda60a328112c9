"""Models of OpenVINO as files in memory: an ``.xml`` with the graph and a ``.bin`` with the weights."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.errors import PlanError, StateError, UrlNotFoundError
from shoal.files import exists, is_file, local_path, open_read, open_write
from shoal.learn.openvino._openvino_library import ov

__all__ = ["files_of", "model_of", "packed", "written"]


_GRAPH, _WEIGHTS = "model.xml", "model.bin"


def files_of(given: Any) -> dict[str, bytes]:
    """Read a model: a pair of files at any URL, a model in memory, or what else OpenVINO reads from this machine."""
    if isinstance(given, ov.Model):
        return packed(given)
    if not isinstance(given, str | os.PathLike):
        raise PlanError(f"model_path={given!r}; give the path of an .xml file, or an openvino.Model")
    url = os.fspath(given)
    if not exists(url):
        raise UrlNotFoundError(f"there is no model at {url}; give the path of an .xml file with its .bin beside it")
    return _pair(url) if url.endswith(".xml") else packed(_foreign(url))


def model_of(files: Mapping[str, bytes], name: str = "the model") -> Any:
    """Make a model of its files."""
    try:
        return ov.Core().read_model(files[_GRAPH], files[_WEIGHTS])
    except (RuntimeError, KeyError) as error:
        raise StateError(f"{name} is no model that OpenVINO {ov.__version__} reads: {error}") from error


def packed(model: Any) -> dict[str, bytes]:
    """Make files of a model, with its weights as they are."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        graph = Path(folder, _GRAPH)
        ov.save_model(model, graph, compress_to_fp16=False)
        return {name: Path(folder, name).read_bytes() for name in (_GRAPH, _WEIGHTS)}


def written(files: Mapping[str, bytes], url: str) -> str:
    """Write the pair of files; the graph comes last, so that it never stands without its weights."""
    target = url if url.endswith(".xml") else f"{url}.xml"
    for name, data in ((_beside(target), files[_WEIGHTS]), (target, files[_GRAPH])):
        with open_write(name) as file:
            file.write(data)
    return target


def _pair(url: str) -> dict[str, bytes]:
    beside = _beside(url)
    has_weights = is_file(beside)
    files = {_GRAPH: _read(url), _WEIGHTS: _read(beside) if has_weights else b""}
    try:
        model_of(files, url)
    except StateError as error:
        if has_weights:
            raise
        raise UrlNotFoundError(f"the weights of {url} are missing: there is no {beside}") from error
    return files


def _foreign(url: str) -> Any:
    """Let OpenVINO read a model of another kind: ONNX, TensorFlow, TensorFlow Lite, PaddlePaddle."""
    path = local_path(url)
    if path is None:
        raise PlanError(f"{url} is elsewhere; models are read from there as a pair of .xml and .bin only")
    try:
        return ov.Core().read_model(path)
    except RuntimeError as error:
        raise StateError(f"{url} is no model that OpenVINO {ov.__version__} reads: {error}") from error


def _beside(url: str) -> str:
    return f"{url.removesuffix('.xml')}.bin"


def _read(url: str) -> bytes:
    with open_read(url) as file:
        return bytes(file.read())

"""Names that stand for classes which are imported only when asked for.

A room may need something from a room above it (a plan is run by an engine, a batch becomes a torch tensor). It asks
here by kind and name, so that no import points upwards. Other packages add their own through an entry point: group
``shoal.<kind>``, for example ``shoal.engine``.
"""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import Any

from shoal.errors import PlanError

__all__ = ["load", "names"]

_ENTRIES = {
    "device": {
        "torch": "shoal.pipeline._torch:Device",
    },
    "engine": {
        "dask": "shoal.engines._dask:DaskEngine",
        "local": "shoal.engines.local:LocalEngine",
        "ray": "shoal.engines._ray:RayEngine",
        "spark": "shoal.engines._pyspark:SparkEngine",
    },
    "format": {
        "arrow": "shoal.pipeline._arrow:to_arrow",
        "jax": "shoal.pipeline._jax:to_jax",
        "numpy": "shoal.pipeline._collate:to_numpy",
        "pandas": "shoal.pipeline._pandas:to_pandas",
        "tensorflow": "shoal.pipeline._tensorflow:to_tensorflow",
        "torch": "shoal.pipeline._torch:to_torch",
    },
    "adapter": {
        "tensorflow": "shoal.pipeline._tensorflow_dataset:loaded",
        "torch": "shoal.pipeline.groups._torch:LoaderDataset",
    },
    "group": {
        "torch": "shoal.pipeline.groups._torch:torch_group",
    },
    "join": {
        "jax": "shoal.pipeline._jax:join",
        "tensorflow": "shoal.pipeline._tensorflow:join",
        "torch": "shoal.pipeline._torch:join",
    },
    "look": {
        "plan": "shoal.view._notebook:plan_html",
        "samples": "shoal.view:show",
    },
    "session": {
        "engine": "shoal.engines:current",
        "split": "shoal.engines:split",
    },
    "stack": {
        "jax": "shoal.pipeline._jax:stack",
        "tensorflow": "shoal.pipeline._tensorflow:stack",
        "torch": "shoal.pipeline._torch:stack",
    },
    "worker": {
        "torch": "shoal.pipeline.groups._torch:torch_worker",
    },
}


def names(kind: str) -> list[str]:
    """List the known names of a kind.

    >>> "local" in names("engine")
    True
    """
    return sorted({*_ENTRIES.get(kind, {}), *(point.name for point in entry_points(group=f"shoal.{kind}"))})


def load(kind: str, name: str) -> Any:
    """Import what a name stands for.

    >>> load("format", "numpy").__name__
    'to_numpy'
    """
    target = _ENTRIES.get(kind, {}).get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)
    for point in entry_points(group=f"shoal.{kind}"):
        if point.name == name:
            return point.load()
    near = difflib.get_close_matches(name, names(kind), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise PlanError(f"there is no {kind} named {name!r}{hint} Known are: {', '.join(names(kind))}")

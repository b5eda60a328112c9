"""Which Keras there is: Keras 3 with one of its backends, or the Keras 2 that is called tf_keras."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from shoal import settings
from shoal.errors import PlanError

__all__ = ["backend_for", "backend_of", "choose", "chosen", "is_creator", "library_of", "modules_for", "seeded"]

#: Variables that say which Keras a process is to have.
_CHOICES = ("KERAS_BACKEND", "TF_USE_LEGACY_KERAS")
#: What takes a worker seconds to import, by what Keras computes with; it starts no threads before it computes.
_SLOW = {"tensorflow": ("tensorflow",), "torch": ("keras", "torch._dynamo")}


def chosen() -> dict[str, str]:
    """Say which Keras this process has, or would have."""
    choices = {name: text for name in _CHOICES if (text := settings.variable(name)) is not None}
    keras = sys.modules.get("keras")
    return choices if keras is None else {**choices, "KERAS_BACKEND": keras.backend.backend()}


def modules_for(choices: Mapping[str, str]) -> tuple[str, ...]:
    """Name what workers may import beforehand, if with the variables of this process they come to the same choice."""
    told, wanted = settings.variable("KERAS_BACKEND"), choices.get("KERAS_BACKEND", "tensorflow")
    if wanted != (told or "tensorflow"):  # it was said in a file of Keras, or in the program
        return ()
    return _SLOW.get(wanted, ())


def library_of(model: Any) -> ModuleType:
    """Tell which Keras a model is of."""
    names = (kind.__module__.partition(".")[0] for kind in type(model).__mro__)
    found = next((name for name in names if name in ("keras", "tf_keras")), None)
    if found is None:
        raise PlanError(f"the model is {model!r}, and no model of Keras; give one, or a function that makes one")
    return import_module(found)


def is_creator(given: Any) -> bool:
    """Tell a function that makes a model from a model, which can be called, too."""
    return callable(given) and not hasattr(given, "get_weights") and not hasattr(given, "made")


def choose(choices: Mapping[str, str]) -> None:
    """Let this process have the Keras that the one has which sent something."""
    keras, wanted = sys.modules.get("keras"), choices.get("KERAS_BACKEND")
    if keras is not None and wanted is not None and keras.backend.backend() != wanted:
        here = keras.backend.backend()
        text = f"this process has Keras with the backend {here} already, and the model is for {wanted}"
        raise PlanError(f"{text}; set KERAS_BACKEND={wanted} where workers are started")
    if any(settings.variable(name) != text for name, text in choices.items()):
        settings.set_environment(settings.environment({}, choices))


def seeded(seed: int) -> None:
    """Let models begin alike on all workers."""
    for name in ("keras", "tf_keras"):
        if name in sys.modules:
            sys.modules[name].utils.set_random_seed(seed)


def backend_of(model: Any) -> str:
    """Name what a model computes with."""
    library: Any = library_of(model)
    return "tensorflow" if library.__name__ == "tf_keras" else str(library.backend.backend())


def backend_for(name: str | None) -> str | None:
    """Say where workers are, of what other systems call a backend."""
    if name == "horovod":
        text = "Horovod cannot be built with the TensorFlow of today"
        raise PlanError(f"{text}; leave backend out: gradients are averaged over workers without it")
    return None if name == "tf2" else name

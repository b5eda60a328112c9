"""A model of Keras on its way to another process: as the file that Keras makes of it, with the user's own classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

from shoal.errors import PlanError
from shoal.learn.keras._keras_choice import library_of
from shoal.learn.keras._keras_files import file_of, loaded

__all__ = ["Sent", "sent"]

#: Packages whose names another process knows by itself.
_KNOWN = {"builtins", "jax", "keras", "ml_dtypes", "numpy", "tensorflow", "tf_keras", "torch"}


@dataclass(frozen=True, slots=True)
class Sent:
    """What a model is made of again."""

    library: str
    data: bytes
    objects: Mapping[str, Any]
    """Classes and functions that are not of Keras, by the names under which it looks for them."""

    def made(self) -> Any:
        """Make the model."""
        library = import_module(self.library)
        try:
            return loaded(library, self.data, self.objects)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            text = "the model cannot be made again in a worker"
            raise PlanError(f"{text}; give a function that makes it, model_creator=: {error}") from error


def sent(model: Any) -> Sent:
    """Take a model apart."""
    library = library_of(model)
    try:
        data = file_of(model)
    except (TypeError, ValueError, NotImplementedError) as error:
        text = f"{type(model).__name__} cannot be sent to workers"
        raise PlanError(f"{text}; give a function that makes it, model_creator=: {error}") from error
    objects: dict[str, Any] = {}
    for each in _own(model):
        objects |= {each.__name__: each, library.saving.get_registered_name(each): each}
    return Sent(library.__name__, data, objects)


def _own(model: Any) -> Iterator[Any]:
    """Find classes and functions of the user in a model: those of layers, of what they hold, and of how it learns."""
    seen: set[int] = set()
    layers = list(model._flatten_layers(include_self=True, recursive=True))
    held = [getattr(model, name, None) for name in ("optimizer", "loss", "_compile_config")]
    waiting = [*layers, *held, *_compiled(model)]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, type | FunctionType):
            if _is_own(value):
                yield value
        elif hasattr(value, "get_config") or hasattr(value, "config"):
            waiting.append(type(value))
            waiting += [each for each in _held(value) if _is_worth_a_look(each)]


def _held(value: Any) -> Iterator[Any]:
    """Give what something has of its own; Keras puts methods into instances, wrapped, and these are of the class."""
    return (each for name, each in getattr(value, "__dict__", {}).items() if not hasattr(type(value), name))


def _compiled(model: Any) -> list[Any]:
    """Give what a model was compiled with."""
    config = getattr(model, "_compile_config", None)
    return [] if config is None else [getattr(config, "config", config)]


def _is_own(value: Any) -> bool:
    return value.__module__.partition(".")[0] not in _KNOWN and value.__name__ != "<lambda>"


def _is_worth_a_look(value: Any) -> bool:
    plain = isinstance(value, FunctionType | type | Mapping | list | tuple)
    return plain or hasattr(value, "get_config")

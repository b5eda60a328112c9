"""Models of other frameworks as models of OpenVINO."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any

from shoal.errors import PlanError
from shoal.learn.openvino._openvino_library import ov
from shoal.learn.openvino._openvino_rows import is_free

__all__ = ["of_keras", "of_torch"]


def of_torch(module: Any, example: Any, shapes: Any = None) -> Any:
    """Make a model of a torch module, which is traced with an example of its inputs.

    Rows are of the shape that they have in the example, unless ``shapes`` says otherwise.
    """
    if not hasattr(module, "modules"):
        raise PlanError(f"the model is {module!r}, and no torch.nn.Module")
    modes = [(each, each.training) for each in module.modules()]
    options = {} if shapes is None else {"input": shapes}
    try:
        with _quiet():
            made = ov.convert_model(module.eval(), example_input=example, **options)
    except Exception as error:  # of whatever the module does, and of the converter
        raise PlanError(f"the module cannot be made a model of OpenVINO: {error}") from error
    finally:
        for each, learns in modes:
            each.training = learns
    return _like(made, example) if shapes is None else made


def of_keras(model: Any) -> Any:
    """Make a model of one of Keras, by way of the format of TensorFlow; inputs and outputs come as they do there."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        try:
            with _quiet():
                model.export(folder)
                made = ov.convert_model(folder)
        except Exception as error:  # of whatever layers do, and of the converter
            raise PlanError(f"the model of Keras cannot be made one of OpenVINO: {error}") from error
    inputs = [str(each.name).partition(":")[0] for each in getattr(model, "inputs", None) or ()]
    numbered = [f"output_{number}" for number in range(len(made.outputs))]
    outputs = _ordered(made.outputs, numbered) or _ordered(made.outputs, getattr(model, "output_names", ()))
    return _arranged(made, _ordered(made.inputs, inputs), outputs)


def _ordered(ports: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Give ports in the order of their names; nothing, if these are other names."""
    found = {name: port for port in ports for name in port.get_names()}
    return [found[name] for name in names] if len(names) == len(ports) and found.keys() >= {*names} else []


def _arranged(made: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """Put inputs and outputs in order: a converter sorts them by their names."""
    for ports, order, what in ((made.inputs, inputs, "inputs"), (made.outputs, outputs, "outputs")):
        if len(ports) > 1 and not order:
            names = ", ".join(sorted(name for port in ports for name in port.get_names()))
            text = f"which of the {what} of the model comes first cannot be told from their names, {names}"
            raise PlanError(f"{text}; convert it with openvino.convert_model, and give the result to from_openvino")
    nodes = [
        [port.get_node() for port in order or ports]
        for ports, order in ((made.outputs, outputs), (made.inputs, inputs))
    ]
    return ov.Model(*nodes, made.get_friendly_name())


def _like(made: Any, example: Any) -> Any:
    """Fix what a row looks like, and where it has to be how many there are: a converter takes shapes for examples."""
    if isinstance(example, Mapping):
        given: list[Any] = [
            next((example[name] for name in port.get_names() if name in example), None) for port in made.inputs
        ]
    else:
        given = list(example) if isinstance(example, list | tuple) else [example]
    if len(given) != len(made.inputs) or not all(getattr(each, "ndim", 0) for each in given):
        return made
    for first in ([-1], None):  # any number of rows, or that of the example
        copy = made.clone()
        shapes = [[*each.shape] if first is None else [*first, *each.shape[1:]] for each in given]
        with suppress(RuntimeError):
            copy.reshape({port: ov.PartialShape(shape) for port, shape in zip(copy.inputs, shapes, strict=True)})
            if first is None or all(map(is_free, copy.outputs)):
                return copy
    return made


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what exporters say of their own old ways."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield

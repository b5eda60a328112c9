"""Models that take any number of rows: the first dimension of all inputs and outputs is made free where it can be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.errors import PlanError
from shoal.learn.openvino._inputs import Input
from shoal.learn.openvino._openvino_library import ov

__all__ = ["Rowwise", "is_free", "named", "rowwise"]


@dataclass(frozen=True, slots=True)
class Rowwise:
    """A model that takes rows."""

    model: Any
    batch: int | None
    """How many rows it takes at a time, if it is no other number than this."""
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    known: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)
    """Shapes of rows that go through the model, where there may be several."""

    def check(self, rows: tuple[tuple[int, ...], ...]) -> None:
        """Refuse rows of shapes that do not go through the model: at work it would not notice, and give nonsense."""
        if rows in self.known or not any(each.row is None or None in each.row for each in self.inputs):
            return
        copy, count = self.model.clone(), self.batch or -1
        try:
            copy.reshape({port: ov.PartialShape([count, *row]) for port, row in zip(copy.inputs, rows, strict=True)})
        except RuntimeError as error:
            came = ", ".join(map(str, rows))
            raise PlanError(f"rows of {came} do not go through the model: {error}") from error
        self.known.add(rows)


def rowwise(model: Any) -> Rowwise:
    """Make a model take any number of rows, or say how many it takes."""
    for port in model.inputs:
        if port.partial_shape.rank.is_static and not len(port.partial_shape):
            raise PlanError(f"input {named(port)!r} of the model is one number, and has no place for rows")
    model, batch = _freed(_in_numpy(model))
    inputs = tuple(Input(named(port), _row(port), _dtype(port)) for port in model.inputs)
    return Rowwise(model, batch, inputs, tuple(map(named, model.outputs)))


def named(port: Any) -> str:
    """Give the name of an input or output; those without one are called as the node is."""
    names = port.get_names()
    return min(names) if names else str(port.get_node().get_friendly_name())


def _freed(model: Any) -> tuple[Any, int | None]:
    if all(map(is_free, (*model.inputs, *model.outputs))):
        return model, None
    found = _reshaped(model, -1)
    if found is not None and all(map(is_free, found.outputs)):
        return found, None
    return _fixed(model)


def _fixed(model: Any) -> tuple[Any, int]:
    """Find the number of rows that a model takes which has one built in."""
    counts = {port.partial_shape[0].get_length() for port in model.inputs if not is_free(port)}
    count = next(iter(counts), 0)
    found = _reshaped(model, count) if len(counts) == 1 else None
    if found is None or not all(_has_rows(port, count) for port in found.outputs):
        takes = ", ".join(f"{named(port)} {port.partial_shape}" for port in model.inputs)
        gives = ", ".join(f"{named(port)} {port.partial_shape}" for port in model.outputs)
        text = "a model has to have a row of each output for each row of its inputs, along the first dimension"
        raise PlanError(f"{text}; this one takes {takes} and gives {gives}")
    return found, count


def _reshaped(model: Any, count: int) -> Any:
    """Give a copy with so many rows in all inputs, or None if it cannot be."""
    copy = model.clone()
    known = [port for port in copy.inputs if port.partial_shape.rank.is_static]
    shapes = {port: ov.PartialShape([ov.Dimension(count), *list(port.partial_shape)[1:]]) for port in known}
    try:
        copy.reshape(shapes)
    except RuntimeError:
        return None
    return copy


def is_free(port: Any) -> bool:
    """Tell whether an input or output may have any number of rows."""
    shape = port.partial_shape
    return bool(shape.rank.is_dynamic or (len(shape) and shape[0].is_dynamic))


def _has_rows(port: Any, count: int) -> bool:
    shape = port.partial_shape
    return is_free(port) or bool(len(shape) and shape[0].get_length() == count)


def _row(port: Any) -> tuple[int | None, ...] | None:
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        return None
    return tuple(None if each.is_dynamic else each.get_length() for each in list(shape)[1:])


def _dtype(port: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(port.element_type.to_dtype())
    except RuntimeError:
        kind = port.element_type.get_type_name()
        raise PlanError(f"input {named(port)!r} of the model takes {kind}, which numpy does not have") from None
    return found


def _in_numpy(model: Any) -> Any:
    """Let a model take and give 32 bits where it would be bfloat16, which numpy lacks."""
    coats = ov.preprocess.PrePostProcessor(model)
    found = False
    for ports, coat in ((model.inputs, coats.input), (model.outputs, coats.output)):
        for number, port in enumerate(ports):
            if port.element_type == ov.Type.bf16:
                coat(number).tensor().set_element_type(ov.Type.f32)
                found = True
    return coats.build() if found else model

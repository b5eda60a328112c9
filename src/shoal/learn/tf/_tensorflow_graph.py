"""A graph of TensorFlow 1, and the steps in it that learn: as bytes and names, which can be sent anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal._optional import require
from shoal.errors import PlanError, StateError

__all__ = ["Graph", "graph_of", "listed", "read", "started", "written"]

tf: Any = require("tensorflow", "shoal.learn.tf")
v1: Any = tf.compat.v1


@dataclass(frozen=True, slots=True)
class Graph:
    """The names of what is fed and fetched, and the graph in which these are."""

    meta: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    loss: str | None = None
    metrics: tuple[tuple[str, str], ...] = ()
    updates: tuple[str, ...] = ()
    gradients: str | None = None
    """All gradients in one array."""
    averaged: str | None = None
    """Where they are fed after others were heard, for a step to be taken."""
    step: str | None = None
    moving: tuple[str, ...] = ()
    """Variables that change by updates, and not by gradients."""
    slots: tuple[str, ...] = ()
    """Variables of the optimizer."""


def graph_of(
    ends: Mapping[str, Any], optimizer: Any, updates: Any, clips: Mapping[str, Any]
) -> tuple[Graph, Any, list[Any]]:
    """Put the steps of training into a graph; give it as bytes, too, and the variables that were made."""
    inputs, outputs, labels = (listed(ends[name]) for name in ("inputs", "outputs", "labels"))
    if not inputs:
        raise PlanError("inputs is None; name the placeholders that are fed")
    graph = inputs[0].graph
    named: dict[str, Any] = {}
    before = _variables(graph)
    with graph.as_default():
        loss = None if ends["loss"] is None else tf.reduce_mean(ends["loss"])
        if loss is not None and optimizer is not None:
            named = _learning(loss, optimizer, clips)
    ups = tuple(each.name for each in listed(updates))
    made = [each for each in _variables(graph) if all(each is not other for other in before)]
    learnt = {id(each) for each in graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)}
    moving = tuple(each.name for each in before if ups and id(each) not in learnt and each.dtype.base_dtype.is_floating)
    metrics = tuple((name, tensor.name) for name, tensor in (ends["metrics"] or {}).items())
    found = Graph(
        v1.train.export_meta_graph(graph=graph, clear_devices=True).SerializeToString(),
        _names(inputs),
        _names(outputs),
        _names(labels),
        None if loss is None else loss.name,
        metrics,
        ups,
        moving=moving,
        slots=_names(made),
        **named,
    )
    return found, graph, made


def started(found: Graph, config: bytes | None = None) -> tuple[Any, list[Any]]:
    """Make the graph again, and a session for it; give the session and all variables."""
    graph = tf.Graph()
    proto = v1.MetaGraphDef.FromString(found.meta)
    with graph.as_default():
        v1.train.import_meta_graph(proto, clear_devices=True)
        begin = [v1.local_variables_initializer(), v1.tables_initializer()]
    session = v1.Session(graph=graph, config=None if config is None else v1.ConfigProto.FromString(config))
    session.run(begin)
    return session, _variables(graph)


def read(session: Any, variables: Sequence[Any]) -> dict[str, Any]:
    """Give the values of variables by their names."""
    return dict(zip(_names(variables), session.run(list(variables)), strict=True)) if variables else {}


def written(session: Any, variables: Sequence[Any], values: Mapping[str, Any]) -> None:
    """Set those variables for which there is a value."""
    some = [each for each in variables if each.name in values]
    if values and not some:
        text = "these are the variables of another graph: none of them is in this one"
        raise StateError(f"{text}, the first is {next(iter(values))}")
    with session.graph.as_default():
        fed = {each.initializer.inputs[1]: values[each.name] for each in some}
        session.run([each.initializer for each in some], fed)


def listed(given: Any) -> list[Any]:
    """Make a list of one or several."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _learning(loss: Any, optimizer: Any, clips: Mapping[str, Any]) -> dict[str, str]:
    """Add gradients as one array, and a step that is taken with such an array."""
    if not hasattr(optimizer, "compute_gradients"):
        text = f"{type(optimizer).__name__} is no optimizer for a graph"
        raise PlanError(f"{text}; take one of tf.compat.v1.train, such as AdamOptimizer")
    pairs = [(gradient, variable) for gradient, variable in optimizer.compute_gradients(loss) if gradient is not None]
    if not pairs:
        raise PlanError("the loss depends on no variable that can be trained")
    dense = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
    kind = tf.float64 if any(each.dtype == tf.float64 for each in dense) else tf.float32
    flat = tf.concat([tf.reshape(tf.cast(each, kind), [-1]) for each in dense], 0, name="shoal_gradients")
    shapes = [variable.shape for _, variable in pairs]
    sizes = [shape.num_elements() for shape in shapes]
    fed = v1.placeholder(kind, [sum(sizes)], name="shoal_averaged")
    whole = _clipped(fed, clips)
    cut = zip(tf.split(whole, sizes), dense, shapes, strict=True)
    parts = [tf.cast(tf.reshape(part, shape), each.dtype) for part, each, shape in cut]
    applied = zip(parts, [variable for _, variable in pairs], strict=True)
    step = optimizer.apply_gradients(applied, global_step=v1.train.get_global_step())
    return {"gradients": flat.name, "averaged": fed.name, "step": step.name}


def _clipped(flat: Any, clips: Mapping[str, Any]) -> Any:
    value, norm = clips["clip_value"], clips["clip_norm"]
    if value is not None:
        low, high = value if isinstance(value, tuple | list) else (-value, value)
        if low >= high:
            raise PlanError(f"clip_value={value!r}; it is a number above 0, or a pair of the least and the most")
        flat = tf.clip_by_value(flat, low, high)
    return flat if norm is None else tf.clip_by_norm(flat, norm)


def _variables(graph: Any) -> list[Any]:
    return list(graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES))


def _names(tensors: Sequence[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in tensors)

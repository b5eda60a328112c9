"""The graph of a tf.data pipeline: bytes of which any process makes the pipeline again, whole or a share of it.

A pipeline is shared out at its source: each worker has some of the files, or of the elements, and all that follows is
done with these. That is the same as to do it with all of them if every step looks at one element at a time, or mixes
elements; `take`, `zip` and the like count them, so that a pipeline with one of them is not shared out.
"""

from __future__ import annotations

import importlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal._optional import require

__all__ = ["Recipe"]

tf: Any = require("tensorflow", "tf.data")

_SOURCES = {"TensorSliceDataset": "Toutput_types", "RangeDataset": "output_types"}
#: Who makes batches, and which of its inputs says that a last one which is not full is dropped.
_BATCHES = {"BatchDatasetV2": 2, "ParallelBatchDataset": 3, "PaddedBatchDatasetV2": -1, "GroupByWindowDataset": None}
#: What gives other elements than it gets, so that nothing is known of batches before it.
_UNBATCHED = re.compile(r"(Unbatch|FlatMap|Window|Interleave\w*|Generator|TensorSlice)Dataset(V\d)?$")
#: What may be done with a share of the elements in place of all.
_SHAREABLE = re.compile(
    r"((Parallel)?(Map|Interleave)|FlatMap|LegacyParallelInterleave|Filter|Shuffle|(Parallel)?Batch|PaddedBatch|Prefetch"
    r"|Options|Cache|Unbatch|ParseExample|IgnoreErrors|Repeat)Dataset(V\d)?$"
)
_DATASET = re.compile(r"Dataset(V\d)?$")
_READERS = re.compile(r"(TextLine|TFRecord|FixedLengthRecord|CSV|LMDB)Dataset(V\d)?$|ReadFile$|MatchingFiles$")
#: What draws random numbers, and which of its inputs are the seeds; two zeros mean any.
_DRAWN = {"ShuffleDatasetV3": (2, 3), "ShuffleAndRepeatDatasetV2": (2, 3), "RandomDatasetV2": (0, 1)}
#: What has a state that may be another one in another process.
_HARMLESS = re.compile(
    r"Random|TruncatedNormal|Multinomial|Table|Assert|Print|Dataset|SeedGenerator|(Stateful)?PartitionedCall|^(If|While|_Arg|_Retval)$"
)
_OWN_STATE = re.compile(r"SeedGenerator|MemoryCache")
_SENT = 2**26  # bytes of a graph that are sent to each worker
_COPIED = 2**28  # bytes of data of which a copy is made with the graph
_IGNORE = 1  # say nothing of state that is not in the graph


@dataclass(frozen=True, slots=True)
class Recipe:
    """A pipeline as a graph."""

    graph: bytes
    spec: Any
    """What its elements are."""
    source: str = ""
    """The name of what is shared out."""
    files: tuple[str, ...] = ()
    reason: str = ""
    """Why it cannot be run elsewhere, if that is so."""
    batched: bool = False
    rows: int | None = None
    """How many rows a batch has, if it is known."""
    drawn: bool = False
    """Whether it has an order that is drawn anew in each pass."""
    nested: bool = False
    """Whether there is such an order inside a function, which would be the same in each pass."""
    seed: int = 0

    @classmethod
    def of(cls, dataset: Any, seed: int) -> Recipe:
        """Take the graph of a dataset; one that holds much data, or belongs to a session, is left as it is."""
        spec = dataset.element_spec
        if _held(dataset) > _COPIED:
            return cls(b"", spec, reason="it holds much data", **_walked(dataset))
        try:
            graph = _graph(dataset)
        except (tf.errors.OpError, ValueError, AttributeError, TypeError):
            return cls(b"", spec, reason="its graph cannot be had", **_walked(dataset))
        chain = list(_chain(graph))
        batch = _batch(chain)
        drawn = [node for node in graph.node if node.op in _DRAWN]
        nested = any(_unseeded(function.node_def, node) for function, node in _in_functions(graph))
        source, files, reason = _shared_out(graph, chain)
        rows = None if batch is None else _number(graph, batch, 1)
        facts: dict[str, Any] = {"batched": batch is not None, "rows": rows, "drawn": bool(drawn)}
        return cls(_seeded(graph, seed), spec, source, files, reason, **facts, nested=nested, seed=seed)

    def made(self, number: int, count: int = 1, index: int = 0) -> Any:
        """Make the pipeline, or the share of one of several, at a pass over the data."""
        graph = tf.compat.v1.GraphDef.FromString(self.graph)
        for node in graph.node:
            for handle in _handles(node):
                if _OWN_STATE.search(handle.maybe_type_name):
                    handle.name = uuid.uuid4().hex  # so that nobody shares its order, or what it has cached
        if self.nested:
            for function, node in _in_functions(graph):
                _set_seeds(function.node_def, node, self.seed, number + 1, ":output:0")
        if count > 1:
            _cut(graph, self.source, count, index)
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
        return tf.data.experimental.from_variant(variant, self.spec)


def _before(dataset: Any) -> list[Any]:
    """Give the datasets that a dataset is made of."""
    return list(getattr(dataset, "_inputs", list)())


def _held(dataset: Any) -> int:
    """Count the bytes of data that a pipeline holds in memory."""
    tensors = tf.nest.flatten(getattr(dataset, "_tensors", ()), expand_composites=True)
    sizes = (each.shape.num_elements() * each.dtype.size for each in tensors if each.dtype.size)
    return int(sum(sizes)) + sum(map(_held, _before(dataset)))


def _walked(dataset: Any) -> dict[str, Any]:
    """Look for batches without the graph: by the kinds of datasets that a dataset is made of."""
    node = dataset
    while True:
        kind = type(node).__name__.lstrip("_")
        if kind in ("BatchDataset", "ParallelBatchDataset", "PaddedBatchDataset"):
            size = node._batch_size
            return {"batched": True, "rows": None if tf.is_symbolic_tensor(size) else int(size)}
        if _UNBATCHED.match(kind) or not _before(node):
            return {"batched": False}
        node = _before(node)[0]


def _graph(dataset: Any) -> Any:
    variant = tf.data.experimental.to_variant(dataset)
    options = {"external_state_policy": _IGNORE, "strip_device_assignment": False}
    return tf.compat.v1.GraphDef.FromString(tf.raw_ops.DatasetToGraphV2(input_dataset=variant, **options).numpy())


def _inputs(nodes: Any, node: Any) -> list[Any]:
    """Give the nodes that a node hears from, by the place at which it does; those of control come last."""
    named = {each.name: each for each in nodes}
    return [named.get(name.lstrip("^").partition(":")[0]) for name in node.input]


def _chain(graph: Any) -> Iterator[Any]:
    """Give the steps of a pipeline, from its end to its source; of several sources it is the first."""
    (node,) = (each for each in graph.node if each.op == "_Retval")
    while True:
        before = [each for each in _inputs(graph.node, node) if each is not None and _DATASET.search(each.op)]
        if not before:
            return
        node = before[0]
        yield node


def _batch(chain: list[Any]) -> Any:
    """Find the step that makes the batches."""
    for node in chain:
        if node.op in _BATCHES or _UNBATCHED.match(node.op):
            return node if node.op in _BATCHES else None
    return None


def _number(graph: Any, node: Any, place: int | None) -> Any:
    """Give a number that a node is given, if it is written in the graph."""
    given = None if place is None or len(node.input) <= 1 else _inputs(graph.node, node)[place]
    return _value(given).item() if given is not None and given.op == "Const" else None


def _value(node: Any) -> Any:
    """Give the array that a node of the graph is."""
    tensor = node.attr["value"].tensor
    return np.asarray(tf.io.parse_tensor(tensor.SerializeToString(), tf.as_dtype(tensor.dtype)))


def _handles(node: Any) -> Any:
    """Give what a node refers to that is not in the graph; an attribute that is only asked for would be made."""
    return node.attr["value"].tensor.resource_handle_val if node.op == "Const" else ()


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _shared_out(graph: Any, chain: list[Any]) -> tuple[str, tuple[str, ...], str]:
    """Say which node is shared out, the files that it names, or why that cannot be done."""
    reason = _bound(graph) or _counted(graph, chain)
    source = chain[-1]
    if not reason and source.op not in _SOURCES:
        reason = f"it begins with {source.op}"
    files: tuple[str, ...] = ()
    if not reason and any(_READERS.search(node.op) for node in _nodes(graph)):
        files = _names(graph, source)
        reason = "" if files else "it reads files whose names are not in its graph"
    return source.name, files, reason


def _bound(graph: Any) -> str:
    """Say what of a pipeline belongs to this process."""
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    for node in _nodes(graph):
        known = registry.get(node.op)
        if "PyFunc" in node.op or node.op == "GeneratorDataset":
            return "it calls Python functions of this process"
        if known is not None and known.is_stateful and not _HARMLESS.search(node.op):
            return f"{node.op} has a state of this process"
        if any(not _OWN_STATE.search(each.maybe_type_name) for each in _handles(node)):
            return "it uses a variable of this process"
    return f"its graph has {graph.ByteSize()} bytes" if graph.ByteSize() > _SENT else ""


def _counted(graph: Any, chain: list[Any]) -> str:
    """Say which step cannot be done with a share of the elements."""
    if sum(bool(_DATASET.search(node.op)) for node in graph.node) != len(chain):
        return "it puts several datasets together"
    for node in chain[:-1]:
        if not _SHAREABLE.match(node.op):
            return f"{node.op} needs all elements"
        if node.op.startswith("Cache") and _number(graph, node, 1) != b"":
            return "it is cached in a file"
    batches = [node for node in chain if node.op in _BATCHES]
    if len(batches) > 1 or any(_number(graph, node, _BATCHES[node.op]) is not False for node in batches):
        return "it makes batches of batches, or drops a last one that is not full"
    return ""


def _names(graph: Any, source: Any) -> tuple[str, ...]:
    """Give the names of files that a source lists."""
    columns = [node for node in _inputs(graph.node, source) if node is not None and node.op == "Const"]
    texts = [node for node in columns if node.attr["dtype"].type == tf.string.as_datatype_enum]
    lists = [[name.decode() for name in _value(node).ravel()] for node in texts]
    here = [names for names in lists if names and tf.io.gfile.exists(names[0])]
    return tuple((here or lists or [[]])[0])


def _in_functions(graph: Any) -> Iterator[tuple[Any, Any]]:
    """Give what draws random numbers in functions, each with its function."""
    for function in graph.library.function:
        yield from ((function, node) for node in function.node_def if node.op in _DRAWN)


def _unseeded(nodes: Any, node: Any) -> bool:
    given = [_inputs(nodes, node)[place] for place in _DRAWN[node.op]]
    if any(each is None or each.op != "Const" for each in given):
        return False
    return all(not _value(each).any() for each in given)


def _seeded(graph: Any, seed: int) -> bytes:
    """Let an order that is any order follow from a number, so that it can be found again after a restart."""
    for number, node in enumerate([each for each in graph.node if each.op in _DRAWN], 1):
        if _unseeded(graph.node, node):
            _set_seeds(graph.node, node, seed, number, "")
    made: bytes = graph.SerializeToString()
    return made


def _set_seeds(nodes: Any, node: Any, seed: int, number: int, output: str) -> None:
    if not _unseeded(nodes, node):
        return
    for place, value in zip(_DRAWN[node.op], (seed, number), strict=True):
        node.input[place] = _constant(nodes, f"{node.name}/seed{place}", value) + output


def _constant(nodes: Any, name: str, value: int) -> str:
    made = nodes.add(name=name, op="Const")
    made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
    made.attr["dtype"].type = tf.int64.as_datatype_enum
    return name


def _cut(graph: Any, source: str, count: int, index: int) -> None:
    """Put a step behind the source that leaves elements to others."""
    (origin,) = (node for node in graph.node if node.name == source)
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name.partition(":")[0] == source:
                node.input[place] = "share"
    numbers = [_constant(graph.node, "share/count", count), _constant(graph.node, "share/index", index)]
    made = graph.node.add(name="share", op="ShardDataset", input=[source, *numbers])
    made.attr["output_types"].CopyFrom(origin.attr[_SOURCES[origin.op]])
    made.attr["output_shapes"].CopyFrom(origin.attr["output_shapes"])
    made.attr["require_non_empty"].b = False

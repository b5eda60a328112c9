"""What becomes of a row before a model of BigDL takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.errors import PlanError
from shoal.learn.bigdl._bigdl_jvm import Jvm

__all__ = ["Preprocessing"]


class Preprocessing:
    """Makes inputs or targets of arrays.

    ``given`` is nothing, the sizes of a row in several tensors, or a preprocessing of BigDL.
    """

    def __init__(self, jvm: Jvm, given: Any) -> None:
        self._jvm, self._given = jvm, given

    def arrays(self, columns: Sequence[Any]) -> list[Any]:
        """Make arrays as the model takes them, of 32 bits."""
        found = [np.ascontiguousarray(each, np.float32) for each in columns]
        if self._given is None:
            return found
        rows = np.concatenate([each.reshape(len(each), -1) for each in found], axis=1)
        if isinstance(self._given, list | tuple):
            return cut(rows, self._given)
        return self._by_bigdl(rows)

    def _by_bigdl(self, rows: Any) -> list[Any]:
        """Let BigDL make tensors of each row, which it wants as a number or as a sequence."""
        values = self._jvm.loads([row.tolist() if len(row) > 1 else float(row[0]) for row in rows.astype(np.float64)])
        scala = self._jvm.names.scala.collection.JavaConverters
        if rows.shape[1] > 1:
            sequences = self._jvm.names.java.util.ArrayList()
            for row in values:
                sequences.add(scala.asScalaBufferConverter(row).asScala().toSeq())
            values = sequences
        found = self._given.value.apply(scala.asScalaIteratorConverter(values.iterator()).asScala()).toList()
        tensors = [self._tensors(each) for each in scala.seqAsJavaListConverter(found).asJava()]
        return [np.stack(each) for each in zip(*tensors, strict=True)]

    def _tensors(self, made: Any) -> list[Any]:
        several = [made] if hasattr(made, "storage") and hasattr(made, "getClass") else list(made)
        return [self._jvm.call("toJTensor", each).to_ndarray() for each in several]


def cut(rows: Any, sizes: Sequence[Any]) -> list[Any]:
    """Cut rows of numbers into tensors of these sizes.

    >>> [each.shape for each in cut(np.zeros((5, 7), np.float32), [[1], [2], [2, 2]])]
    [(5, 1), (5, 2), (5, 2, 2)]
    >>> [each.shape for each in cut(np.zeros((5, 4), np.float32), [2, 2])]
    [(5, 2, 2)]
    """
    shapes = [tuple(each) for each in sizes] if isinstance(sizes[0], list | tuple) else [tuple(sizes)]
    counts = [int(np.prod(shape)) for shape in shapes]
    if sum(counts) != rows.shape[1]:
        text = f"tensors of the sizes {[list(shape) for shape in shapes]} have {sum(counts)} numbers"
        raise PlanError(f"{text}, and a row has {rows.shape[1]}; look at the columns and at the preprocessing")
    ends = np.cumsum(counts)[:-1]
    parts = zip(np.split(rows, ends, axis=1), shapes, strict=True)
    return [np.ascontiguousarray(part).reshape(len(rows), *shape) for part, shape in parts]

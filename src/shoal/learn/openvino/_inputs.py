"""Arrays as a model takes them: checked, converted where that changes nothing, and filled up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import PlanError

__all__ = ["Input", "filled", "taken"]


@dataclass(frozen=True, slots=True)
class Input:
    """What a model takes in one place.

    >>> Input("x", (3, None), np.dtype(np.float32))
    x: rows of (3, any) float32
    """

    name: str
    row: tuple[int | None, ...] | None
    """The shape of a row, with None where it may be anything; None alone if nothing is known."""
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        return f"{self.name}: rows of {'any shape' if self.row is None else _shape(self.row)} {self.dtype}"

    def taken(self, given: Any) -> NDArray[Any]:
        """Give an array as the model takes it, or refuse it."""
        array = self._shaped(np.asarray(given))
        if array.ndim == 0 or not self._fits(array.shape[1:]):
            raise self._refusal(array)
        if array.dtype != self.dtype:
            array = self._converted(array)
        # OpenVINO reads it where it is, and for that wants it in one piece that could be written to.
        return np.require(array, requirements=("C", "W"))

    def _shaped(self, array: NDArray[Any]) -> NDArray[Any]:
        """Make rows of one number each of a column."""
        return array[:, None] if array.ndim == 1 and self.row == (1,) else array

    def _fits(self, row: tuple[int, ...]) -> bool:
        if self.row is None:
            return True
        pairs = zip(self.row, row, strict=False)
        return len(row) == len(self.row) and all(wanted in (None, have) for wanted, have in pairs)

    def _converted(self, array: NDArray[Any]) -> NDArray[Any]:
        kinds = array.dtype.kind, self.dtype.kind
        whole = all(kind in "iu" for kind in kinds)
        if not whole and not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise self._refusal(array)
        if whole and array.size and not np.can_cast(array.dtype, self.dtype, "safe"):
            room, low, high = np.iinfo(self.dtype), int(array.min()), int(array.max())
            if low < room.min or high > room.max:
                text = f"the model takes {self}, and there are numbers from {low} to {high}"
                raise PlanError(f"{text}, which {self.dtype} cannot hold")
        return array.astype(self.dtype)

    def _refusal(self, array: NDArray[Any]) -> PlanError:
        came = f"rows of {_shape(array.shape[1:])} {array.dtype}" if array.ndim else f"one {array.dtype}"
        return PlanError(f"the model takes {self}; what came are {came}")


def taken(inputs: Sequence[Input], given: Sequence[Any]) -> list[NDArray[Any]]:
    """Give arrays as a model takes them: one for each input, of equally many rows.

    >>> taken([Input("x", (2,), np.dtype(np.float32))], [np.zeros((3, 2))])[0].dtype
    dtype('float32')
    """
    if len(given) != len(inputs):
        names = ", ".join(map(repr, inputs))
        raise PlanError(f"the model has {len(inputs)} inputs ({names}), and the data has {len(given)}")
    arrays = [each.taken(values) for each, values in zip(inputs, given, strict=True)]
    if len({len(array) for array in arrays}) > 1:
        counts = ", ".join(f"{each.name} {len(array)}" for each, array in zip(inputs, arrays, strict=True))
        raise PlanError(f"the inputs of a model belong together row by row, and there are of {counts} rows")
    return arrays


def filled(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Fill an array up to so many rows with its last one, or with nothing if it has none.

    >>> filled(np.array([1, 2]), 4)
    array([1, 2, 2, 2])
    """
    if len(array) == rows:
        return array
    if not len(array):
        return np.zeros((rows, *array.shape[1:]), array.dtype)
    return np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])


def _shape(row: Sequence[int | None]) -> str:
    sizes = ["any" if size is None else str(size) for size in row]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"

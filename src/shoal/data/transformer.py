"""Columns of frames in shards made ready for models: texts as numbers, numbers on a scale.

What is learnt from the columns does not depend on the engine, nor on how rows lie in shards: counts are added, and so
are sums that are exact (see `_exact_sums`), which come out the same in any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shoal._optional import require
from shoal.data._moments import Moments
from shoal.errors import PlanError

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["MinMaxScaler", "StandardScaler", "StringIndexer"]


class _Transformer(ABC):
    """Something that learns from columns of shards, and then changes shards."""

    @abstractmethod
    def fit(self, shards: XShards) -> Self:
        """Learn from the columns."""

    @abstractmethod
    def transform(self, shards: XShards) -> XShards:
        """Change shards by what was learnt."""

    def fit_transform(self, shards: XShards) -> XShards:
        """Learn from shards, and change them."""
        return self.fit(shards).transform(shards)


class StringIndexer(_Transformer):
    """Numbers the texts of a column from 1 on: the most frequent first, and equally frequent ones by the alphabet.

    The numbers take the place of the texts. 0 is free, for padding; a text that was not there to learn from, and one
    that is missing, has no number (null).

    >>> import pandas as pd
    >>> from shoal.data import XShards
    >>> shards = XShards.from_shards([pd.DataFrame({"pet": ["dog", "cat"]}), pd.DataFrame({"pet": ["cat", "ant"]})])
    >>> indexer = StringIndexer(inputCol="pet")
    >>> indexer.fit_transform(shards).to_pandas()["pet"].tolist(), indexer.labels
    ([3, 1, 1, 2], ['cat', 'ant', 'dog'])
    """

    def __init__(self, inputCol: str) -> None:  # noqa: N803  (the name that users know)
        self._column = inputCol
        self._labels: list[str] | None = None

    @property
    def labels(self) -> list[str]:
        """The texts, in the order of their numbers."""
        labels: list[str] = _learnt(self._labels, self)
        return labels

    def fit(self, shards: XShards) -> Self:
        """Count the texts of all shards."""
        counts: Counter[str] = Counter()
        for part in shards.transform_shard(partial(_text_counts, column=self._column)):
            counts.update(part)
        self._labels = sorted(counts, key=lambda text: (-counts[text], text))
        return self

    def transform(self, shards: XShards) -> XShards:
        """Put numbers in the place of texts."""
        numbers = {text: number for number, text in enumerate(self.labels, 1)}
        return shards.transform_shard(partial(_indexed, column=self._column, numbers=numbers))


class _Scale(NamedTuple):
    """A value becomes ``(value - origin) / span * factor + shift``: the ends of a range come out exactly."""

    origin: float
    span: float = 1.0
    factor: float = 1.0
    shift: float = 0.0


class _Scaler(_Transformer):
    """Scales columns, one by one, and puts those of a row together as an array."""

    def __init__(self, columns: str | Sequence[str] | None, output: str | None) -> None:
        for name, given in (("inputCol", columns), ("outputCol", output)):
            if not given:
                raise PlanError(f'{name} is not said; {type(self).__name__}(inputCol=["a", "b"], outputCol="scaled")')
        assert columns is not None
        assert output is not None
        self._columns = [columns] if isinstance(columns, str) else list(columns)
        self._output = output
        self._moments: list[Moments] | None = None

    @abstractmethod
    def _scale(self, moments: Moments) -> _Scale:
        """Say what becomes of the values of a column."""

    def fit(self, shards: XShards) -> Self:
        """Learn the scales from all shards; what is missing is passed over."""
        self._moments = None
        for number, part in enumerate(shards.transform_shard(partial(_moments_of, columns=self._columns))):
            if part is not None:
                self._moments = _added(self._moments, part, number)
        if self._moments is None:
            raise PlanError("there are no rows to learn a scale from")
        return self

    def transform(self, shards: XShards) -> XShards:
        """Add a column that holds an array of scaled values for each row; what is missing stays missing."""
        scales = [self._scale(moments) for moments in _learnt(self._moments, self)]
        return shards.transform_shard(partial(_scaled, columns=self._columns, output=self._output, scales=scales))


class MinMaxScaler(_Scaler):
    """Scales columns so that their least value becomes ``min`` and their most ``max``.

    A column with only one value lies in the middle. ``inputCol`` is a column or several, of numbers or of arrays.

    >>> import pandas as pd
    >>> from shoal.data import XShards
    >>> shards = XShards.from_shards([pd.DataFrame({"a": [0, 5], "b": [1, 1]}), pd.DataFrame({"a": [10], "b": [1]})])
    >>> scaler = MinMaxScaler(inputCol=["a", "b"], outputCol="scaled")
    >>> [row.tolist() for row in scaler.fit_transform(shards).to_pandas()["scaled"]]
    [[0.0, 0.5], [0.5, 0.5], [1.0, 0.5]]
    """

    def __init__(
        self,
        min: float = 0.0,
        max: float = 1.0,
        inputCol: str | Sequence[str] | None = None,  # noqa: N803
        outputCol: str | None = None,  # noqa: N803
    ) -> None:
        if not min < max:
            raise PlanError(f"min={min} and max={max}; min must be less than max")
        super().__init__(inputCol, outputCol)
        self._min, self._max = min, max

    def _scale(self, moments: Moments) -> _Scale:
        if not moments.least < moments.most:
            return _Scale(0.0, 1.0, 0.0, (self._min + self._max) / 2)
        return _Scale(moments.least, moments.most - moments.least, self._max - self._min, self._min)


class StandardScaler(_Scaler):
    """Divides columns by their standard deviation (``withStd``), after taking their mean away (``withMean``).

    The deviation is that of a sample. A column with only one value becomes 0 if it is divided. ``inputCol`` is a column
    or several, of numbers or of arrays.

    >>> import pandas as pd
    >>> from shoal.data import XShards
    >>> shards = XShards.from_shards([pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [3.0]})])
    >>> scaler = StandardScaler(withMean=True, inputCol="a", outputCol="scaled")
    >>> [row.tolist() for row in scaler.fit_transform(shards).to_pandas()["scaled"]]
    [[-1.0], [0.0], [1.0]]
    """

    def __init__(
        self,
        withMean: bool = False,  # noqa: N803
        withStd: bool = True,  # noqa: N803
        inputCol: str | Sequence[str] | None = None,  # noqa: N803
        outputCol: str | None = None,  # noqa: N803
    ) -> None:
        super().__init__(inputCol, outputCol)
        self._with_mean, self._with_std = withMean, withStd

    def _scale(self, moments: Moments) -> _Scale:
        origin, deviation = moments.mean if self._with_mean else 0.0, moments.deviation
        if not self._with_std:
            return _Scale(origin)
        return _Scale(origin, deviation) if deviation else _Scale(origin, factor=0.0)


def _learnt(what: Any, of: Any) -> Any:
    if what is None:
        raise PlanError(f"the {type(of).__name__} has learnt nothing yet: call fit or fit_transform first")
    return what


def _frames() -> Any:
    require("pandas", "transforming frames")
    from shoal.data import _frames

    return _frames


def _column(frame: Any, name: str) -> Any:
    frames = _frames()
    frames.check_columns(frames.check_frame(frame, "transformers"), [name])
    return frame[name]


def _text_counts(frame: Any, column: str) -> dict[str, int]:
    values = _column(frame, column).dropna()
    odd = next((value for value in values.unique() if not isinstance(value, str)), None)
    if odd is not None:
        seen = f"column {column!r} holds {odd}, which is of type {type(odd).__name__}"
        raise PlanError(f"{seen}; StringIndexer numbers texts, so make them some with astype(str)")
    return {str(text): int(count) for text, count in values.value_counts().items() if count}


def _indexed(frame: Any, column: str, numbers: dict[str, int]) -> Any:
    values = _column(frame, column).astype(object)
    return frame.assign(**{column: values.map(numbers).astype("Int64")})


def _matrix(frame: Any, columns: Sequence[str]) -> NDArray[np.float64]:
    """Put columns side by side, each of numbers or of arrays of one length."""
    parts = [_numbers(_column(frame, name), name) for name in columns]
    return np.concatenate(parts, axis=1)


def _numbers(column: Any, name: str) -> NDArray[np.float64]:
    import pandas as pd

    try:
        if pd.api.types.is_numeric_dtype(column.dtype):
            return np.asarray(column.to_numpy(np.float64, na_value=np.nan)).reshape(len(column), 1)
        return np.array(column.to_list(), np.float64).reshape(len(column), -1)
    except (TypeError, ValueError) as error:
        text = f"column {name!r} ({column.dtype}) holds neither numbers nor arrays of one length: {error}"
        raise PlanError(text) from error


def _moments_of(frame: Any, columns: Sequence[str]) -> list[Moments] | None:
    if not len(_frames().check_frame(frame, "transformers")):
        return None
    return [Moments.of(column) for column in _matrix(frame, columns).T]


def _added(before: list[Moments] | None, part: list[Moments], number: int) -> list[Moments]:
    if before is None:
        return part
    if len(before) != len(part):
        raise PlanError(f"shard {number} has {len(part)} values in a row, and those before it have {len(before)}")
    return [one + other for one, other in zip(before, part, strict=True)]


def _scaled(frame: Any, columns: Sequence[str], output: str, scales: Sequence[_Scale]) -> Any:
    if not len(_frames().check_frame(frame, "transformers")):
        return frame.assign(**{output: np.empty(0, object)})
    values = _matrix(frame, columns)
    if values.shape[1] != len(scales):
        raise PlanError(f"a row has {values.shape[1]} values, and the scale was learnt of rows with {len(scales)}")
    origin, span, factor, shift = np.array(scales).T
    cells = np.empty(len(frame), object)
    cells[:] = list((values - origin) / span * factor + shift)
    return frame.assign(**{output: cells})

"""Rows of Arrow columns as samples.

A column is turned into Python values as a whole, and the rows are dealt out of the columns; or they stay columns.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shoal.abc import Columns, Sample
from shoal.errors import DecodeError, DuplicateFieldError, MissingFieldError, PlanError
from shoal.files import display
from shoal.sources._batches import UNFIT, RowPool, indices
from shoal.sources._columns import column
from shoal.sources._values import values

__all__ = ["Picked", "RowForm", "Rows"]

T = TypeVar("T")

#: From so many numbers on, a call of Arrow is quicker than Python.
_MANY = 64
_DIGITS = 9
#: What a row costs beside its values: its key, and where these lie, for each column.
_ROW, _VIEW = 48, 16


@dataclass(frozen=True, slots=True)
class RowForm:
    """Which columns of a file become fields, and what becomes the key.

    >>> form = RowForm.of(pa.schema({"name": pa.string(), "age": pa.int64()}), "pets.parquet", "pets", ["age"], None)
    >>> form.fields, form.keys(pa.record_batch({"age": [3, 5]}), [0, 1])
    (('age',), ['pets-000000000', 'pets-000000001'])
    """

    url: str
    stem: str
    """Begins the keys of a file that has none of its own."""
    fields: tuple[str, ...]
    key: str | None

    @classmethod
    def of(cls, schema: pa.Schema, url: str, stem: str, columns: Sequence[str] | None, key: str | None) -> RowForm:
        """Check what is asked for against what is there."""
        names: list[str] = schema.names
        key = "__key__" if key is None and "__key__" in names else key
        chosen = dict.fromkeys(names if columns is None else columns)
        form = cls(url, stem, tuple(name for name in chosen if name != "__key__"), key)
        counts = Counter(names)
        for name in (*chosen, *form.columns):
            _check_present(name, counts, url)
        if key is not None and pa.types.is_nested(schema.field(key).type):
            raise PlanError(f"the column {key!r} of {display(url)} holds {schema.field(key).type}, which makes no keys")
        return form

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return [*self.fields, *([] if self.key is None or self.key in self.fields else [self.key])]

    def converted(self, batch: pa.RecordBatch, name: str, convert: Callable[[pa.Array], T]) -> T:
        """Convert a column; what cannot be had in Python is an error that names it."""
        array = batch.column(name)
        try:
            return convert(array)
        except UNFIT as error:
            text = f"its values, of type {array.type}, cannot be had in Python: {error}"
            raise DecodeError(text, field=name, shard=display(self.url)) from error

    def keys(self, batch: pa.RecordBatch, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """Make the keys of some rows."""
        if self.key is None:
            return _numbered(f"{self.stem}-", rows)
        found = self.converted(batch, self.key, values)
        if None in found:
            text = f"row {rows[found.index(None)]} has no value here, and so no key"
            raise MissingFieldError(text, field=self.key, shard=display(self.url))
        return [_text(key) for key in found]


def _numbered(begin: str, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
    """Write a word and numbers with nine digits."""
    if len(rows) < _MANY:
        return [f"{begin}{row:09d}" for row in rows]
    keys: list[str] = _numbered_array(begin, np.asarray(rows, np.int64)).to_pylist()
    return keys


def _numbered_array(begin: str, rows: NDArray[np.int64]) -> pa.Array:
    """Write a word and numbers with nine digits as Arrow holds text, many at once."""
    if len(rows) and int(rows.max()) >= 10**_DIGITS:
        return pa.array([f"{begin}{row:09d}" for row in rows.tolist()], pa.string())
    word = np.frombuffer(begin.encode("utf-8", "surrogateescape"), np.uint8)
    text = np.empty((len(rows), len(word) + _DIGITS), np.uint8)
    text[:, : len(word)] = word
    rest = rows.astype(np.uint32)
    for place in range(text.shape[1] - 1, len(word) - 1, -1):
        tenth = rest // np.uint32(10)
        text[:, place] = rest - tenth * np.uint32(10) + np.uint32(ord("0"))
        rest = tenth
    ends = np.arange(0, text.size + 1, text.shape[1], dtype=np.int32)
    return pa.StringArray.from_buffers(len(rows), pa.py_buffer(ends), pa.py_buffer(text))


def _text(key: Any) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)


def _check_present(name: str, names: Counter[str], url: str) -> None:
    if names[name] > 1:
        raise DuplicateFieldError("several columns have this name", field=name, shard=display(url))
    if not names[name]:
        near = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(names) or 'none'}"
        raise MissingFieldError(f"the file has no such column; {hint}", field=name, shard=display(url))


class Rows:
    """Consecutive rows of a file, as Arrow holds them.

    >>> batch = pa.record_batch({"name": ["Rex", "Mia"], "age": [3, 5]})
    >>> form = RowForm.of(batch.schema, "pets.parquet", "pets", ["age"], "name")
    >>> Rows(batch, 10, form).samples([11])
    [{'__key__': 'Mia', 'age': 5}]
    """

    def __init__(self, batch: pa.RecordBatch, first: int, form: RowForm) -> None:
        self._batch = batch.select(form.columns)
        self._form = form
        self.first = first
        self.stop = first + int(batch.num_rows)
        self._pool: list[RowPool | None] = []

    @property
    def nbytes(self) -> int:
        """The memory that is held for them, also for picking from them."""
        beside = (self.stop - self.first) * (_ROW + _VIEW * len(self._form.fields))
        return int(self._batch.get_total_buffer_size()) + beside

    def samples(self, rows: Sequence[int]) -> list[Sample]:
        """Make samples of some of the rows, which are counted from the beginning of the file."""
        if not rows:
            return []
        run = range(rows[0], rows[0] + len(rows))
        if rows == run or list(rows) == list(run):
            return self._made(self._batch.slice(run.start - self.first, len(run)), run)
        try:
            batch = self._batch.take(indices(np.asarray(rows, np.int64) - self.first))
        except pa.ArrowNotImplementedError:
            # pyarrow cannot pick from all of its newer types, but it can slice them.
            return [sample for row in rows for sample in self.samples(range(row, row + 1))]
        return self._made(batch, rows)

    def picked(self, rows: NDArray[np.int64]) -> Picked | None:
        """Pick some of the rows, at least one; None where pyarrow cannot."""
        first, count = int(rows[0]), len(rows)
        if int(rows[-1]) - first == count - 1 and (np.diff(rows) == 1).all():
            return Picked(self._batch.slice(first - self.first, count), rows, self._form)
        try:
            return Picked(self._batch.take(indices(rows - self.first)), rows, self._form)
        except pa.ArrowNotImplementedError:
            return None

    def pool(self) -> RowPool | None:
        """Give them with their keys as the first column, to be picked from; None where these are not plain text."""
        if not self._pool:
            self._pool.append(self._with_keys())
        return self._pool[0]

    def _with_keys(self) -> RowPool | None:
        form = self._form
        if "__key__" in form.fields:
            return None
        if form.key is None:
            keys = _numbered_array(f"{form.stem}-", np.arange(self.first, self.stop))
        else:
            keys = self._batch.column(form.key)
            if not pa.types.is_string(keys.type) or keys.null_count:
                return None
        columns = [keys, *(self._batch.column(name) for name in form.fields)]
        return RowPool(pa.RecordBatch.from_arrays(columns, ["__key__", *form.fields]))

    def _made(self, batch: pa.RecordBatch, rows: Sequence[int]) -> list[Sample]:
        form = self._form
        columns = [form.converted(batch, name, values) for name in form.fields]
        names = ("__key__", *form.fields)
        return [dict(zip(names, row, strict=True)) for row in zip(form.keys(batch, rows), *columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows that were picked, from one or several places of a file."""

    batch: pa.RecordBatch
    rows: NDArray[np.int64]
    form: RowForm

    def columns(self) -> Columns | None:
        """Make columns of them, as a batch has them; None where a type is none whose values are known beforehand."""
        columns: Columns = {}
        for name in self.form.fields:
            found = self.form.converted(self.batch, name, column)
            if found is None:
                return None
            columns[name] = found
        return {"__key__": self.form.keys(self.batch, self.rows), **columns}

    @classmethod
    def joined(cls, parts: Sequence[Picked], order: NDArray[np.int64]) -> Picked | None:
        """Put the rows of several parts into an order; None where pyarrow cannot."""
        try:
            table = pa.Table.from_batches([part.batch for part in parts]).take(indices(order)).combine_chunks()
        except pa.ArrowNotImplementedError:
            return None
        # More than 2 GiB of text or bytes do not fit into one batch.
        batches = table.to_batches()
        rows = np.concatenate([part.rows for part in parts])[order]
        return cls(batches[0], rows, parts[0].form) if len(batches) == 1 else None

"""Values as a tree of JSON and a list of buffers; the one file that both sides of a guest use.

Plain values are JSON as they are. Everything else is an object that names its kind: ``{"k": "tuple", "v": [...]}``.
Bytes, arrays and Arrow data lie in buffers, which the tree names by number. Nothing that is decoded can run code.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Decoder", "Encoder", "Malformed", "Unsendable"]

#: Levels of lists and dicts; what is deeper most likely holds itself.
_DEPTH = 100

#: Bytes; what is smaller is copied, so that keeping it does not keep all that came with it.
_SMALL = 4096

_LETTERS = frozenset("biufcSUVmM")
_MISSING = "it has missing values, and there is no Arrow"
_SIMPLE = frozenset([type(None), bool, str, float])


class Unsendable(TypeError):  # noqa: N818  (it is told as a text)
    """A value that does not cross.

    >>> Encoder().encode({"a lock": object()})
    Traceback (most recent call last):
        ...
    shoal.environments._inside.codec.Unsendable: ...
    """


class Malformed(ValueError):  # noqa: N818  (it is told as a text)
    """What was received is not what an `Encoder` makes.

    >>> Decoder([]).decode({"k": "no such kind"})
    Traceback (most recent call last):
        ...
    shoal.environments._inside.codec.Malformed: ...
    """


class Encoder:
    """Makes a tree of one value after the other, and collects their buffers; ``theirs`` names libraries over there.

    >>> encoder = Encoder()
    >>> encoder.encode({"size": (1, 2), "data": b"abc"})
    {'k': 'dict', 'v': [['size', {'k': 'tuple', 'v': [1, 2]}], ['data', {'k': 'bytes', 'b': 0}]]}
    >>> [bytes(each) for each in encoder.buffers]
    [b'abc']
    """

    def __init__(self, theirs: Sequence[str] = ()) -> None:
        self.buffers: list[memoryview] = []
        self._theirs = frozenset(theirs)
        self._place: list[str] = []

    def encode(self, value: Any) -> Any:
        """Make a tree."""
        kind = type(value)
        if kind in _SIMPLE:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else {"k": "int", "v": hex(value)}
        if len(self._place) > _DEPTH:
            raise Unsendable(f"it is nested deeper than {_DEPTH} levels, or holds itself")
        if kind is list:
            return self._list(value)
        rich = self._rich(value)
        return self._plain(value) if rich is None else rich

    def _list(self, value: list[Any]) -> list[Any]:
        kinds = set(map(type, value))
        if kinds <= _SIMPLE or (kinds == {int} and min(value) >= -(2**63) and max(value) < 2**63):
            return value
        return [self._inside(f"[{number}]", item) for number, item in enumerate(value)]

    def _inside(self, place: str, value: Any) -> Any:
        self._place.append(place)
        tree = self.encode(value)
        self._place.pop()
        return tree

    def _plain(self, value: Any) -> Any:
        """Encode what the language itself has; a subclass goes as its base."""
        if isinstance(value, (bool, int)):
            return self.encode(int(value))
        if isinstance(value, (str, float)):
            return str.__str__(value) if isinstance(value, str) else float(value)
        if isinstance(value, complex):
            return {"k": "complex", "v": [value.real, value.imag]}
        for kind in (bytes, bytearray, memoryview):
            if isinstance(value, kind):
                return {"k": kind.__name__, "b": self._keep(memoryview(value))}
        if isinstance(value, dict):
            items = [
                [self._inside(f"key {key!r}", key), self._inside(f"[{key!r}]", item)] for key, item in value.items()
            ]
            return {"k": "dict", "v": items}
        for sort in (list, tuple, set, frozenset):
            if isinstance(value, sort):
                return {"k": sort.__name__, "v": self._list(list(value))}
        raise self._refused(value)

    def _rich(self, value: Any) -> Any:
        """Encode what libraries have that are loaded here; None for all else."""
        loaded: list[Any] = [sys.modules.get(name) for name in ("numpy", "pandas", "pyarrow")]
        numpy, pandas, pyarrow = loaded
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(numpy, value)
        if pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ())):
            return self._frame(value)
        if pandas is not None and isinstance(value, getattr(pandas, "Series", ())):
            series: Any = value
            return {"k": "series", "name": self.encode(series.name), "v": self._frame(series.to_frame(name="0"))}
        if pyarrow is not None and isinstance(value, getattr(pyarrow, "Table", ())):
            return self._table(pyarrow, value, "table")
        if pyarrow is not None and isinstance(value, getattr(pyarrow, "RecordBatch", ())):
            return self._table(pyarrow, pyarrow.Table.from_batches([value]), "batch")
        if pyarrow is not None and isinstance(value, (pyarrow.Array, pyarrow.ChunkedArray)):
            return self._table(pyarrow, pyarrow.table({"0": value}), "column", chunked=hasattr(value, "chunks"))
        return None

    def _array(self, numpy: Any, value: Any) -> Any:
        self._need("numpy", "arrays")
        array = numpy.asarray(value)
        if isinstance(value, numpy.ma.MaskedArray):
            raise self._refused(value, "send its data and its mask")
        dtype = self._dtype(array.dtype)
        is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        laid = numpy.ascontiguousarray(array.T if is_fortran else array)
        raw = memoryview(laid.reshape(-1).view(numpy.uint8)) if laid.nbytes else memoryview(b"")
        kind, order = "scalar" if isinstance(value, numpy.generic) else "array", "F" if is_fortran else "C"
        return {"k": kind, "dtype": dtype, "shape": list(array.shape), "order": order, "b": self._keep(raw)}

    def _dtype(self, dtype: Any) -> Any:
        if dtype.subdtype is not None:
            return {"base": self._dtype(dtype.subdtype[0]), "shape": list(dtype.subdtype[1])}
        if dtype.names is not None:
            fields = [dtype.fields[name] for name in dtype.names]
            formats = [self._dtype(field[0]) for field in fields]
            offsets = [field[1] for field in fields]
            return {"names": list(dtype.names), "formats": formats, "offsets": offsets, "size": dtype.itemsize}
        plain: str = dtype.str
        if dtype.kind not in _LETTERS or sys.modules["numpy"].dtype(plain) != dtype:
            raise Unsendable(self._text(f"an array of type {dtype}", "make it one of numbers, text or dates"))
        return plain

    def _frame(self, frame: Any) -> Any:
        """Send a frame as Arrow where both sides have that, and as its columns otherwise."""
        if "pyarrow" in self._theirs and _have("pyarrow"):
            pyarrow = importlib.import_module("pyarrow")
            try:
                return self._table(pyarrow, pyarrow.Table.from_pandas(frame), "frame")
            except (pyarrow.ArrowException, TypeError) as error:
                raise Unsendable(self._text("a frame", f"Arrow cannot hold it: {error}")) from None
        if not _is_default_index(frame.index):
            raise Unsendable(self._text("a frame with an index", "call reset_index() first, for there is no Arrow"))
        if frame.columns.has_duplicates:
            raise Unsendable(self._text("a frame", "two of its columns have the same name"))
        columns = [self._column(name, self._values(name, frame[name])) for name in frame.columns]
        return {"k": "columns", "v": columns}

    def _table(self, pyarrow: Any, table: Any, form: str, *, chunked: bool = True) -> Any:
        if "pyarrow" not in self._theirs:
            columns = [self._column(name, _to_numpy(name, table[name])) for name in table.column_names]
            return columns[0][1] if form == "column" else {"k": "columns", "v": columns}
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return {"k": "arrow", "form": form, "chunked": chunked, "b": self._keep(memoryview(sink.getvalue()))}

    def _values(self, name: Any, series: Any) -> Any:
        if not isinstance(series.dtype, sys.modules["numpy"].dtype) and series.isna().any():
            raise Unsendable(self._text(f"the column {name!r} of a table", _MISSING))
        return series.to_numpy()

    def _column(self, name: Any, values: Any) -> list[Any]:
        if values.dtype.kind == "O":
            if not all(type(item) is str for item in values):
                plain = "numbers, texts and dates without missing ones are, where there is no Arrow"
                raise Unsendable(self._text(f"the column {name!r} of a table", f"it is not plain; {plain}"))
            values = values.astype(str)
        return [self._inside(f"column {name!r}", name), self._inside(f"column {name!r}", values)]

    def _keep(self, raw: memoryview) -> int:
        if not raw.contiguous:
            raw = memoryview(raw.tobytes())
        self.buffers.append(raw.cast("B") if raw.nbytes else memoryview(b""))
        return len(self.buffers) - 1

    def _need(self, library: str, what: str) -> None:
        if library not in self._theirs:
            raise Unsendable(self._text(what, f"the other side has no {library}"))

    def _refused(self, value: Any, hint: str = "") -> Unsendable:
        kind = type(value)
        crossing = (
            "what does are None, numbers, text, bytes, lists, tuples, dicts, sets, numpy arrays, Arrow and pandas"
        )
        return Unsendable(self._text(f"a {kind.__module__}.{kind.__qualname__}", hint or crossing))

    def _text(self, what: str, why: str) -> str:
        place = f" (at {''.join(self._place)})" if self._place else ""
        return f"{what}{place} does not cross: {why}"


class Decoder:
    """Makes values again, whose arrays are views of the buffers they came in.

    >>> encoder = Encoder()
    >>> tree = encoder.encode({"size": (1, 2), "data": b"abc"})
    >>> Decoder(encoder.buffers).decode(tree)
    {'size': (1, 2), 'data': b'abc'}
    """

    def __init__(self, buffers: Sequence[memoryview], *, is_shared: bool = False) -> None:
        self._buffers, self._is_shared = buffers, is_shared

    def decode(self, tree: Any) -> Any:
        """Make a value of a tree."""
        try:
            return self._decoded(tree)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error

    def _decoded(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return tree if set(map(type, tree)) <= (_SIMPLE | {int}) else [self._decoded(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        return _DECODERS[tree["k"]](self, tree)

    def _raw(self, tree: dict[str, Any]) -> memoryview:
        number: int = tree["b"]
        if not 0 <= number < len(self._buffers):
            raise IndexError(f"there is no buffer {number}")
        raw: memoryview = self._buffers[number]
        return raw

    def _array(self, tree: dict[str, Any]) -> Any:
        numpy = importlib.import_module("numpy")
        dtype, shape, raw = _dtype(numpy, tree["dtype"]), tuple(tree["shape"]), self._raw(tree)
        if self._is_shared and raw.nbytes < _SMALL:
            raw = memoryview(bytearray(raw))
        if _count(shape) * dtype.itemsize != raw.nbytes:
            raise ValueError("the bytes of an array are not as many as its shape says")
        if not raw.nbytes:
            array = numpy.zeros(shape, dtype)
        else:
            array = numpy.ndarray(shape if tree["order"] == "C" else shape[::-1], dtype, buffer=raw)
            array = array if tree["order"] == "C" else array.T
        return array[()] if tree["k"] == "scalar" else array

    def _arrow(self, tree: dict[str, Any]) -> Any:
        pyarrow = importlib.import_module("pyarrow")
        try:
            with pyarrow.ipc.open_stream(pyarrow.py_buffer(self._raw(tree))) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except pyarrow.ArrowException as error:
            raise ValueError(str(error)) from error
        if tree["form"] == "frame" and _have("pandas"):
            return table.to_pandas()
        if tree["form"] == "batch":
            batches = table.combine_chunks().to_batches()
            return batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema=table.schema)
        if tree["form"] == "column":
            column = table.column(0)
            return column if tree["chunked"] else _one(pyarrow, column)
        return table

    def _columns(self, tree: dict[str, Any]) -> Any:
        columns = {self._decoded(name): self._decoded(values) for name, values in tree["v"]}
        return importlib.import_module("pandas").DataFrame(columns) if _have("pandas") else columns

    def _series(self, tree: dict[str, Any]) -> Any:
        name, values = self._decoded(tree["name"]), self._decoded(tree["v"])
        if isinstance(values, dict):
            return values["0"]
        column = values.column(0) if hasattr(values, "column") else values["0"]
        return column.rename(name) if hasattr(column, "rename") else column


_DECODERS: dict[str, Callable[[Decoder, dict[str, Any]], Any]] = {
    "int": lambda decoder, tree: int(tree["v"], 16),
    "complex": lambda decoder, tree: complex(*tree["v"]),
    "bytes": lambda decoder, tree: bytes(decoder._raw(tree)),
    "bytearray": lambda decoder, tree: bytearray(decoder._raw(tree)),
    "memoryview": lambda decoder, tree: decoder._raw(tree),
    "dict": lambda decoder, tree: {decoder._decoded(key): decoder._decoded(item) for key, item in tree["v"]},
    "list": lambda decoder, tree: decoder._decoded(tree["v"]),
    "tuple": lambda decoder, tree: tuple(decoder._decoded(tree["v"])),
    "set": lambda decoder, tree: set(decoder._decoded(tree["v"])),
    "frozenset": lambda decoder, tree: frozenset(decoder._decoded(tree["v"])),
    "array": Decoder._array,
    "scalar": Decoder._array,
    "arrow": Decoder._arrow,
    "columns": Decoder._columns,
    "series": Decoder._series,
}


def _dtype(numpy: Any, tree: Any) -> Any:
    if isinstance(tree, str):
        dtype = numpy.dtype(tree)
        if dtype.hasobject:
            raise ValueError(f"an array of {dtype} cannot have crossed")
        return dtype
    if "base" in tree:
        return numpy.dtype((_dtype(numpy, tree["base"]), tuple(tree["shape"])))
    formats = [_dtype(numpy, each) for each in tree["formats"]]
    fields = {"names": tree["names"], "formats": formats, "offsets": tree["offsets"], "itemsize": tree["size"]}
    return numpy.dtype(fields)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for length in shape:
        if length < 0:
            raise ValueError("a shape has a negative length")
        count *= length
    return count


def _have(library: str) -> bool:
    """Tell whether a library can be imported; a broken one counts as missing."""
    try:
        importlib.import_module(library)
    except Exception:  # a library that does not fit its environment fails in its own way
        return False
    return True


def _is_default_index(index: Any) -> bool:
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1 and index.name is None


def _to_numpy(name: str, column: Any) -> Any:
    if column.null_count:
        raise Unsendable(f"the column {name!r} of a table does not cross: {_MISSING}")
    return column.to_numpy()


def _one(pyarrow: Any, column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pyarrow.array([], column.type)

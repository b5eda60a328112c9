"""Conditions on samples, as people type them: ``cls == 3 and width > 200``.

The text is parsed as an expression of Python and never run as one: each node that is known becomes a small function,
and everything else is refused. Names are fields of the sample; what no sample can say (a missing field, text compared
with a number) is simply not true.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from shoal.errors import PlanError

__all__ = ["Condition", "parse"]

#: What a part of a condition is: a function of the values of a sample.
_Part: TypeAlias = "Callable[[Mapping[str, Any]], Any]"

_LONGEST = 1000
_DEEPEST = 40
#: Numbers beyond this are not multiplied any further.
_LARGEST = 2**64


class _Missing:
    """What a sample does not have."""

    def __bool__(self) -> bool:
        return False


_MISSING = _Missing()

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


def _checked(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Compute with numbers only: text times a million would be a large text."""

    def computed(one: Any, other: Any) -> Any:
        if not isinstance(one, int | float | np.generic) or not isinstance(other, int | float | np.generic):
            raise TypeError("not numbers")
        one, other = _plain(one), _plain(other)
        if abs(one) > _LARGEST or abs(other) > _LARGEST:
            raise OverflowError("too large")
        return compute(one, other)

    return computed


_COMPUTE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _checked(operator.add),
    ast.Sub: _checked(operator.sub),
    ast.Mult: _checked(operator.mul),
    ast.Div: _checked(operator.truediv),
    ast.FloorDiv: _checked(operator.floordiv),
    ast.Mod: _checked(operator.mod),
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "len": len,
    "lower": lambda text: str(text).lower(),
    "max": lambda values: np.max(np.asarray(values)).item(),
    "mean": lambda values: float(np.mean(np.asarray(values))),
    "min": lambda values: np.min(np.asarray(values)).item(),
    "round": round,
    "shape": np.shape,
    "sum": lambda values: np.sum(np.asarray(values)).item(),
}
_TEXT_METHODS = ("startswith", "endswith")


class Condition:
    """A condition, and the names that it asks for.

    >>> condition = parse("cls == 3 and info.width > 200")
    >>> sorted(condition.names)
    ['cls', 'info.width']
    >>> condition({"cls": 3, "info": {"width": 640}}), condition({"cls": 3})
    (True, False)
    """

    def __init__(self, text: str, part: _Part, names: frozenset[str]) -> None:
        self.text, self.names = text, names
        self._part = part

    def __call__(self, values: Mapping[str, Any]) -> bool:
        """Tell whether it holds for the values of a sample."""
        try:
            return _truth(self._part(values))
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError):
            return False


def parse(text: str) -> Condition:
    """Read a condition; what it says that is not known is told with its place.

    >>> parse("open(key)")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    shoal.errors.PlanError: open(...) is not known in a condition; known are abs, has, len, ...
    """
    if len(text) > _LONGEST:
        raise PlanError(f"the condition has {len(text)} letters, and may have {_LONGEST}")
    try:
        tree = _tree(text.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        raise PlanError(f"{text!r} is no condition ({told}); write it as in: cls == 3 and width > 200") from None
    reader = _Reader()
    return Condition(text, reader.part(tree.body, 0), frozenset(reader.names))


def _tree(text: str) -> ast.Expression:
    try:
        return ast.parse(text, mode="eval")
    except SystemError:  # CPython 3.11 counts the depth of trees for all threads together, and may find it wrong
        return ast.parse(text, mode="eval")


class _Reader:
    """Makes functions of nodes."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def part(self, node: ast.expr, depth: int) -> _Part:
        """Make a function of a node, or refuse it."""
        if depth > _DEEPEST:
            raise PlanError("the condition has too many parentheses")
        match node:
            case ast.Constant(value=value) if isinstance(value, int | float | str | None):
                return lambda _: value
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                parts = [self.part(item, depth + 1) for item in items]
                return lambda values: [part(values) for part in parts]
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.BoolOp(op=op, values=given):
                parts = [self.part(each, depth + 1) for each in given]
                join = all if isinstance(op, ast.And) else any
                return lambda values: join(_truth(part(values)) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                part = self.part(inner, depth + 1)
                return lambda values: not _truth(part(values))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                part = self.part(inner, depth + 1)
                return lambda values: -part(values)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTE:
                compute, one, other = _COMPUTE[type(op)], self.part(left, depth + 1), self.part(right, depth + 1)
                return lambda values: compute(one(values), other(values))
            case ast.Compare():
                return self._comparison(node, depth)
            case ast.Subscript(value=held, slice=place):
                inner_part, index = self.part(held, depth + 1), self.part(place, depth + 1)
                return lambda values: inner_part(values)[index(values)]
            case ast.Call(func=called, args=arguments, keywords=[]):
                return self._call(called, arguments, depth)
        raise PlanError(f"{ast.unparse(node)!r} cannot be part of a condition; compare fields, as in: cls == 3")

    def _name(self, node: ast.expr) -> _Part:
        """Find a field by its name, which may have dots, or what is inside of a field."""
        path = _path(node)
        self.names.add(".".join(path))
        return lambda values: _found(values, path)

    def _comparison(self, node: ast.Compare, depth: int) -> _Part:
        parts = [self.part(each, depth + 1) for each in (node.left, *node.comparators)]
        if unknown := next((op for op in node.ops if type(op) not in _COMPARE), None):
            raise PlanError(f"{ast.unparse(node)!r}: {type(unknown).__name__} is not known; write == or !=")
        compares = [_COMPARE[type(op)] for op in node.ops]

        def compared(values: Mapping[str, Any]) -> bool:
            found = [part(values) for part in parts]
            if any(value is _MISSING for value in found):
                return False
            pairs = zip(compares, found, found[1:], strict=False)
            return all(_truth(compare(_plain(one), _plain(other))) for compare, one, other in pairs)

        return compared

    def _call(self, called: ast.expr, arguments: list[ast.expr], depth: int) -> _Part:
        match called, arguments:
            case ast.Name(id="has"), [ast.Name() | ast.Attribute() as field]:
                part = self._name(field)
                return lambda values: part(values) is not _MISSING
            case ast.Name(id=name), [only] if name in _FUNCTIONS:
                function, part = _FUNCTIONS[name], self.part(only, depth + 1)
                return lambda values: function(part(values))
            case ast.Attribute(value=held, attr=name), [only] if name in _TEXT_METHODS:
                text, argument = self.part(held, depth + 1), self.part(only, depth + 1)
                return lambda values: getattr(str(_plain(text(values))), name)(str(argument(values)))
        known = ", ".join(sorted([*_FUNCTIONS, "has"]))
        raise PlanError(f"{ast.unparse(called)}(...) is not known in a condition; known are {known}")


def _path(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    raise PlanError(f"{ast.unparse(node)!r} is not the name of a field")


def _found(values: Mapping[str, Any], path: list[str]) -> Any:
    """Take the longest beginning that is a field, and look for the rest inside of it."""
    for cut in range(len(path), 0, -1):
        name = ".".join(path[:cut])
        if name in values:
            found = values[name]
            for part in path[cut:]:
                found = found.get(part, _MISSING) if isinstance(found, Mapping) else _MISSING
            return found
    return _MISSING


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    return value.item() if isinstance(value, np.generic) else value


def _truth(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.size) and bool(value.all())
    return bool(value) and not (isinstance(value, float) and math.isnan(value))

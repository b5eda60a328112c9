"""Conditions on samples: a small part of Python's expressions, compiled by hand and never evaluated as code.

The sample is ``_``. A field is ``_["seg.png"]`` or ``_.cls``, and is bytes; ``"cls" in _`` asks whether it is there.
Bytes and text compare as text. There are comparisons, ``in``, ``and``, ``or``, ``not``, constants, lists of them, and
``int``, ``float``, ``len`` and ``str``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from shoal.abc import Sample
from shoal.errors import MissingFieldError, PlanError, SampleError

__all__ = ["Condition", "condition"]

Condition: TypeAlias = Callable[[Sample], bool]
_Value: TypeAlias = Callable[[Sample], Any]

_ALLOWED = 'comparisons, in, and, or, not, constants, int(), float(), len(), str(), _["field"] and _.field'
_CONSTANTS = (bool, int, float, str, bytes, type(None))


def condition(text: str) -> Condition:
    """Compile a condition; whatever is not in the language is refused by its name.

    >>> matches = condition('int(_["cls"]) == 180 and "jpg" in _')
    >>> matches({"__key__": "a", "cls": b"180", "jpg": b""}), matches({"__key__": "b", "cls": b"7"})
    (True, False)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
        value = _compiled(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"the condition {text!r} cannot be read: {error}") from error
    return lambda sample: bool(_asked(value, sample, text))


def _asked(value: _Value, sample: Sample, text: str) -> Any:
    try:
        return value(sample)
    except SampleError:
        raise
    except (ValueError, TypeError) as error:
        raise SampleError(
            f"the condition {text!r} fails: {error}", key=sample["__key__"], shard=sample.get("__source__")
        ) from error


def _compiled(node: ast.expr) -> _Value:
    match node:
        case ast.Constant(value=value) if isinstance(value, _CONSTANTS):
            return lambda sample: value
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return _listed([_compiled(element) for element in elements])
        case ast.Name(id="_"):
            return lambda sample: sample
        case ast.Subscript(value=ast.Name(id="_"), slice=ast.Constant(value=str() as name)):
            return _field(name)
        case ast.Attribute(value=ast.Name(id="_"), attr=name):
            return _field(name)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _called(_FUNCTIONS[name], _compiled(argument))
        case ast.UnaryOp(op=ast.Not() | ast.USub() as sign, operand=operand):
            return _called(operator.not_ if isinstance(sign, ast.Not) else operator.neg, _compiled(operand))
        case ast.BoolOp(op=joint, values=values):
            return _joined(isinstance(joint, ast.And), [_compiled(value) for value in values])
        case ast.Compare(left=left, ops=signs, comparators=others):
            return _compared([_compiled(each) for each in (left, *others)], [_comparison(sign) for sign in signs])
    raise PlanError(f"{ast.unparse(node)} is a {type(node).__name__}, which a condition has not; it has {_ALLOWED}")


def _field(name: str) -> _Value:
    def value(sample: Sample) -> Any:
        if name not in sample:
            text = f'there is no such field; to pass over samples without it, write "{name}" in _ and ...'
            raise MissingFieldError(text, key=sample["__key__"], field=name, shard=sample.get("__source__"))
        return sample[name]

    return value


def _listed(values: list[_Value]) -> _Value:
    return lambda sample: [value(sample) for value in values]


def _called(function: Callable[[Any], Any], argument: _Value) -> _Value:
    return lambda sample: function(argument(sample))


def _joined(every: bool, values: list[_Value]) -> _Value:
    def value(sample: Sample) -> Any:
        return (all if every else any)(each(sample) for each in values)

    return value


def _compared(values: list[_Value], comparisons: list[Callable[[Any, Any], bool]]) -> _Value:
    def value(sample: Sample) -> bool:
        left = values[0](sample)
        for compare, right in zip(comparisons, values[1:], strict=True):
            following = right(sample)
            if not compare(left, following):
                return False
            left = following
        return True

    return value


def _comparison(sign: ast.cmpop) -> Callable[[Any, Any], bool]:
    if type(sign) not in _COMPARISONS:
        raise PlanError(f"{type(sign).__name__} is no comparison that a condition has; it has {_ALLOWED}")
    return _COMPARISONS[type(sign)]


def _alike(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Compare bytes with text as text."""

    def compared(left: Any, right: Any) -> bool:
        if isinstance(left, str) != isinstance(right, str):
            left, right = (_text(side) if isinstance(side, bytes) else side for side in (left, right))
        return compare(left, right)

    return compared


def _is_in(member: Any, whole: Any) -> bool:
    if isinstance(whole, list):
        return any(_COMPARISONS[ast.Eq](member, each) for each in whole)
    if isinstance(whole, Mapping) or isinstance(member, bytes) == isinstance(whole, bytes):
        return member in whole
    return _text(member) in _text(whole)


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "len": len, "str": _text}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: _alike(operator.eq),
    ast.NotEq: _alike(operator.ne),
    ast.Lt: _alike(operator.lt),
    ast.LtE: _alike(operator.le),
    ast.Gt: _alike(operator.gt),
    ast.GtE: _alike(operator.ge),
    ast.In: _is_in,
    ast.NotIn: lambda member, whole: not _is_in(member, whole),
}

"""Stages that treat one sample at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from shoal.errors import MissingFieldError, SampleError
from shoal.webdataset._handlers import Handler, reraise_exception
from shoal.webdataset._stage import Stage, attempt, each

__all__ = ["associate", "map", "map_dict", "map_tuple", "rename", "select", "to_tuple"]


def map(f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Stage:
    """Turn each sample into what a function makes of it; None drops it, and a dict keeps the key of its sample.

    >>> list(map(lambda n: n * 2 if n else None)([0, 1, 2]))
    [2, 4]
    """
    return partial(_map, f=f, handler=handler)


def _map(samples: Iterable[Any], f: Callable[[Any], Any], handler: Handler) -> Iterator[Any]:
    for sample, result in attempt(f, samples, handler):
        if result is None:
            continue
        if isinstance(sample, dict) and isinstance(result, dict) and "__key__" in sample:
            result["__key__"] = sample["__key__"]
        yield result


def select(predicate: Callable[[Any], Any]) -> Stage:
    """Keep the samples for which a function is true.

    >>> list(select(lambda n: n > 1)([1, 2, 3]))
    [2, 3]
    """
    return partial(_select, predicate=predicate)


def _select(samples: Iterable[Any], predicate: Callable[[Any], Any]) -> Iterator[Any]:
    for sample, keep in attempt(predicate, samples, reraise_exception):
        if keep:
            yield sample


def map_dict(handler: Handler = reraise_exception, **functions: Callable[[Any], Any]) -> Stage:
    """Apply a function to each of the named fields, in the sample itself.

    >>> list(map_dict(cls=str)([{"__key__": "a", "cls": 1}]))
    [{'__key__': 'a', 'cls': '1'}]
    """
    return partial(each, f=partial(_map_fields, functions=functions), handler=handler)


def _map_fields(sample: dict[str, Any], functions: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    for name, function in functions.items():
        if name not in sample:
            raise MissingFieldError(f"there is only {_names(sample)}", key=sample.get("__key__"), field=name)
        sample[name] = function(sample[name])
    return sample


def to_tuple(
    *fields: str | Sequence[str],
    missing_is_error: bool = True,
    none_is_error: bool | None = None,
    handler: Handler = reraise_exception,
) -> Stage:
    """Turn dicts into tuples of these fields; ``"png;jpg"`` takes the first that is there, ``"png cls"`` is two fields.

    >>> list(to_tuple("png;jpg cls")([{"jpg": "picture", "cls": 1}]))
    [('picture', 1)]
    """
    none_is_error = missing_is_error if none_is_error is None else none_is_error
    extract = partial(
        _extract, fields=field_names(*fields), missing_is_error=missing_is_error, none_is_error=none_is_error
    )
    return partial(each, f=extract, handler=handler)


def field_names(*fields: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Read the names of fields and of what may stand in for them.

    >>> field_names("png;jpg cls"), field_names(["png", "jpg"], "cls")
    ((('png', 'jpg'), ('cls',)), (('png', 'jpg'), ('cls',)))
    """
    words = fields[0].split() if len(fields) == 1 and isinstance(fields[0], str) else fields
    return tuple(tuple(word.split(";") if isinstance(word, str) else word) for word in words)


def first_of(sample: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Find the first of some names that a sample has.

    >>> first_of({"jpg": 1}, ["png", "jpg"])
    'jpg'
    """
    return next((name for name in names if name in sample), None)


def _extract(
    sample: dict[str, Any], fields: tuple[tuple[str, ...], ...], missing_is_error: bool, none_is_error: bool
) -> tuple[Any, ...]:
    return tuple(_value(sample, names, missing_is_error, none_is_error) for names in fields)


def _value(sample: dict[str, Any], names: tuple[str, ...], missing_is_error: bool, none_is_error: bool) -> Any:
    name = first_of(sample, names)
    wanted, key = ";".join(names), sample.get("__key__")
    if name is None and missing_is_error:
        raise MissingFieldError(f"there is only {_names(sample)}", key=key, field=wanted)
    value = None if name is None else sample[name]
    if name is not None and value is None and none_is_error:
        raise SampleError("the value is None; pass none_is_error=False if that is meant", key=key, field=wanted)
    return value


def map_tuple(*functions: Callable[[Any], Any] | None, handler: Handler = reraise_exception) -> Stage:
    """Apply functions place by place; places without one, and those where it is None, stay as they are.

    >>> list(map_tuple(str, None)([(1, 2, 3)]))
    [('1', 2, 3)]
    """
    return partial(each, f=partial(_map_places, functions=functions), handler=handler)


def _map_places(sample: Sequence[Any], functions: Sequence[Callable[[Any], Any] | None]) -> tuple[Any, ...]:
    places = list(sample)
    for number, function in enumerate(functions[: len(places)]):
        if function is not None:
            places[number] = function(places[number])
    return tuple(places)


def rename(handler: Handler = reraise_exception, keep: bool = True, **names: str) -> Stage:
    """Give fields new names, ``new="old;older"``; ``keep`` says whether the other fields stay.

    >>> list(rename(image="png;jpg")([{"__key__": "a", "jpg": "picture", "cls": 1}]))
    [{'__key__': 'a', 'cls': 1, 'image': 'picture'}]
    """
    wanted = {new: tuple(old.split(";")) for new, old in names.items()}
    return partial(each, f=partial(_rename, wanted=wanted, keep=keep), handler=handler)


def _rename(sample: dict[str, Any], wanted: Mapping[str, tuple[str, ...]], keep: bool) -> dict[str, Any]:
    renamed = {}
    for new, olds in wanted.items():
        old = first_of(sample, olds)
        if old is None:
            raise MissingFieldError(f"there is only {_names(sample)}", key=sample.get("__key__"), field=";".join(olds))
        renamed[new] = sample[old]
    gone = {old for olds in wanted.values() for old in olds}
    rest = {name: value for name, value in sample.items() if name not in gone} if keep else {}
    return rest | renamed


def associate(associator: Mapping[str, Any] | Callable[[str], Any], **extra: Any) -> Stage:
    """Add to each sample what belongs to its key, from a dict or a function.

    >>> list(associate({"a": {"age": 3}})([{"__key__": "a"}]))
    [{'__key__': 'a', 'age': 3}]
    """
    return partial(each, f=partial(associated, associator=associator, extra=extra), handler=reraise_exception)


def associated(
    sample: dict[str, Any], associator: Mapping[str, Any] | Callable[[str], Any], extra: Mapping[str, Any]
) -> dict[str, Any]:
    """Add to one sample what belongs to its key.

    >>> associated({"__key__": "a"}, {"a": {"age": 3}}, {})
    {'__key__': 'a', 'age': 3}
    """
    key = sample["__key__"]
    found = associator(key) if callable(associator) else associator.get(key)
    return {**sample, **(found or {}), **extra}


def _names(sample: Mapping[str, Any]) -> str:
    return ", ".join(sorted(name for name in sample if not name.startswith("__"))) or "nothing"

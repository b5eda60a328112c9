"""What features become: one value, a list of any length, or an array of a shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.errors import DecodeError, MissingFieldError, PlanError
from shoal.sources._tfrecord_example import Values, parse_example

__all__ = ["Feature", "Features"]

_KINDS = (bytes, str, int, float)
_HINT = "write int for one number, [int] for any number of them, (int, (2, 3)) for an array; or float, bytes, str"


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: its name, what its values are, and how many there are."""

    name: str
    kind: type
    shape: tuple[int, ...] | None = ()
    """The shape of an array; () for one value, None for a list of any length."""

    @classmethod
    def of(cls, name: str, given: Any) -> Feature:
        """Read what a user wrote.

        >>> Feature.of("box", (float, (4,)))
        Feature(name='box', kind=<class 'float'>, shape=(4,))
        """
        kind: Any = given
        shape: Any = ()
        if isinstance(given, list) and len(given) == 1:
            kind, shape = given[0], None
        elif isinstance(given, tuple) and len(given) == 2:
            kind, shape = given[0], tuple(given[1])
        if kind not in _KINDS or (shape and kind in (bytes, str)):
            raise PlanError(f"the feature {name!r} is {given!r}; {_HINT}")
        return cls(name, kind, shape)

    def value(self, found: Values) -> Any:
        """Make the value of a sample; what does not fit is an error without its place."""
        if found is None or not len(found):
            return self._nothing()
        values = self._checked(found)
        if self.shape is None:
            return values
        if len(values) != int(np.prod(self.shape)):
            what = "one value" if not self.shape else f"an array of {self.shape}"
            raise DecodeError(f"it has {len(values)} values, and should be {what}; {_HINT}", field=self.name)
        if self.shape:
            assert isinstance(values, np.ndarray)
            return values.reshape(self.shape)
        return values[0] if isinstance(values, list) else values[0].item()

    def _nothing(self) -> Any:
        if self.shape is None:
            return [] if self.kind in (bytes, str) else np.empty(0, np.int64 if self.kind is int else np.float32)
        raise MissingFieldError("the example has no such feature, or nothing in it", field=self.name)

    def _checked(self, found: list[bytes] | np.ndarray[Any, Any]) -> Any:
        seen = "bytes" if isinstance(found, list) else found.dtype.name
        wanted = {int: "int64", float: "float32"}.get(self.kind, "bytes")
        if seen != wanted:
            raise DecodeError(f"it holds {seen}, and should hold {wanted}; {_HINT}", field=self.name)
        if self.kind is not str:
            return found
        try:
            return [text.decode() for text in found]
        except UnicodeDecodeError as error:
            raise DecodeError(f"it is no text: {error}", field=self.name) from error


@dataclass(frozen=True, slots=True)
class Features:
    """Those features that are read, in their order; all of them, as lists, if none are named.

    >>> from shoal.sources import pack_example
    >>> Features.of(None).parsed(pack_example({"age": [3], "name": [b"Rex"]}))["age"]
    array([3])
    """

    named: tuple[Feature, ...] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Features:
        """Check what a user gave."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping) or not given:
            text = f"features is {given!r}, but must say what each of them is"
            raise PlanError(f"{text}, as in {{'image': bytes, 'label': int}}")
        return cls(tuple(Feature.of(name, each) for name, each in given.items()))

    def parsed(self, data: bytes) -> dict[str, Any]:
        """Parse an example.

        >>> data = b"\\n\\x0f\\n\\r\\n\\x03age\\x12\\x06\\x1a\\x04\\n\\x02\\x03\\x05"
        >>> Features.of({"age": [int]}).parsed(data), Features.of({"age": (int, (1, 2))}).parsed(data)
        ({'age': array([3, 5])}, {'age': array([[3, 5]])})
        """
        if self.named is None:
            return dict(parse_example(data))
        found = parse_example(data, {feature.name for feature in self.named})
        return {feature.name: feature.value(found.get(feature.name)) for feature in self.named}

"""Names of a library that is installed elsewhere: what is done with them here is written down, and done over there."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from shoal.errors import PlanError

__all__ = ["StandIn", "stand_in"]

#: A call of a method: of which result (None is the object itself), its name, and what it is called with.
_Call: TypeAlias = "tuple[int | None, str, Sequence[Any], Mapping[str, Any]]"


def stand_in(module: str) -> StandIn:
    """Give something to write in place of a module that another environment has.

    Functions that use it can be sent there, and so can what is made with it; where they are unpickled, they have the
    module itself, and all that was done is done with it, in the same order.

    >>> import cloudpickle, pickle
    >>> collections = stand_in("collections")
    >>> counts = collections.Counter("banana")
    >>> _ = counts.update("nnnn")
    >>> counts
    <collections.Counter(...), which is made where it is sent>
    >>> pickle.loads(cloudpickle.dumps(counts)).most_common(1)
    [('n', 6)]
    """
    return StandIn(module, importlib.import_module, (module,))


class StandIn:
    """A module, a name in it, or an object that is made with them, of another environment.

    >>> fractions = stand_in("fractions")
    >>> fractions.Fraction(1, 3)
    <fractions.Fraction(...), which is made where it is sent>
    """

    __slots__ = ("__owner", "__story", "__text", "__way", "__with")

    def __init__(
        self, text: str, way: Any, given: tuple[Any, ...], story: _Story | None = None, owner: StandIn | None = None
    ) -> None:
        self.__text, self.__way, self.__with = text, way, given
        self.__story, self.__owner = story, owner

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):  # what Python itself asks for is answered by this class, or not at all
            raise AttributeError(f"{self!r} has no {name} here")
        return StandIn(f"{self.__text}.{name}", getattr, (self, name), owner=self)

    def __call__(self, *arguments: Any, **options: Any) -> StandIn:
        """Write down a call; a method of an object that was made may change it, so its calls stay in their order."""
        owner = self.__owner
        story = None if owner is None else owner.__story
        if owner is None or story is None:
            story, place = _Story(self, arguments, options), None
        else:
            if any(isinstance(each, StandIn) and each.__story is story for each in (*arguments, *options.values())):
                raise PlanError(f"{self.__text} cannot be called with a part of itself before it is made")
            place = story.add(owner.__with[1], self.__with[1], arguments, options)
        return StandIn(f"{self.__text}(...)", operator.getitem, (story, place), story=story)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise PlanError(f"a class cannot be derived from {self!r}; define it inside the function that is sent there")

    def __repr__(self) -> str:
        return f"<{self.__text}, which is made where it is sent>"

    def __reduce__(self) -> tuple[Any, ...]:
        return self.__way, self.__with

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, memo: Any) -> StandIn:
        return self


class _Story:
    """How an object is made, and what is done with it after that; where it is unpickled, it is done."""

    __slots__ = ("_calls", "_made")

    def __init__(self, *made: Any) -> None:
        self._made, self._calls = made, list[_Call]()

    def add(self, target: int | None, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> int:
        """Add the call of a method, and give the number of its result."""
        self._calls.append((target, name, arguments, options))
        return len(self._calls) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        return _told, (*self._made, self._calls)


def _told(
    make: Any, arguments: Sequence[Any], options: Mapping[str, Any], calls: Sequence[_Call]
) -> dict[int | None, Any]:
    """Make the object, call its methods, and give all results."""
    found: dict[int | None, Any] = {None: make(*arguments, **options)}
    for number, (target, name, given, named) in enumerate(calls):
        found[number] = getattr(found[target], name)(*given, **named)
    return found

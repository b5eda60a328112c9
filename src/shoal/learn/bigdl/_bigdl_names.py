"""Names of BigDL that can be used where it is not installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.environments import StandIn, stand_in

__all__ = ["stand_ins"]


def stand_ins(module: str, names: Sequence[str]) -> Callable[[str], StandIn]:
    """Make a module's ``__getattr__``, which gives stand-ins for the names of a module over there.

    >>> stand_ins("bigdl.dllib.nn.layer", ["Linear"])("Linear")(2, 1)
    <bigdl.dllib.nn.layer.Linear(...), which is made where it is sent>
    """
    there, known = stand_in(module), frozenset(names)

    def get(name: str) -> StandIn:
        if name not in known:
            raise AttributeError(f"{module} of BigDL has no public class {name!r}")
        found: StandIn = getattr(there, name)
        return found

    return get

"""A loader's position as data that any format can keep: JSON, small, mergeable over ranks."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.errors import StateError

__all__ = ["MARKS", "Position", "Saved", "differences", "merge_states", "pack", "read_states", "state_of", "unpack"]

#: What a description has only to tell which of the shards differ.
MARKS = "marks"
_VERSION = 1
_LARGEST = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Position:
    """Where an epoch is, after what the user has received.

    >>> Position(epoch=2, step=10, slot=640).slot
    640
    """

    epoch: int = 0
    slot: int = 0
    """Slots of the epoch that were delivered, over all ranks."""
    step: int = 0
    """Batches of the epoch that were delivered."""
    lanes: Mapping[int, Any] | None = None
    """What each lane says about where it is."""
    anchors: tuple[Any, ...] = ()
    """What each leaf has to know beside that; of those of several ranks, the smallest reaches back furthest."""
    ways: tuple[str, ...] = ()
    """How each leaf is read."""
    weights: Any = None
    """The weights of mixtures at that time."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The states of one moment, of one or all ranks, as they were read."""

    epoch: int
    slot: int
    step: int
    ranks: str
    """Whose they are, in words."""
    plan: Any
    """The description of the plan that they were made with."""
    parts: list[list[Any]]

    @property
    def ways(self) -> tuple[str, ...]:
        """How each leaf was read."""
        return tuple(self.parts[0][2])


def pack(value: Any) -> str:
    """Make a short text of numbers and texts in lists and dicts.

    >>> unpack(pack({"a": [1, 2]}))
    {'a': [1, 2]}
    """
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.b85encode(zlib.compress(data, 9)).decode()


def unpack(text: str) -> Any:
    """Read what `pack` made."""
    try:
        reader = zlib.decompressobj()
        data = reader.decompress(base64.b85decode(text), _LARGEST)
        if not reader.eof:
            raise ValueError("too long, or cut off")
        return json.loads(data)
    except (ValueError, TypeError, zlib.error) as error:
        raise StateError(f"the state of a loader is damaged: {error}") from error


def state_of(position: Position, plan: Mapping[str, Any], *, rank: int, world_size: int) -> dict[str, Any]:
    """Make the state of one rank."""
    lanes = None if position.lanes is None else [[lane, *mark] for lane, mark in position.lanes.items()]
    inner = [lanes, position.anchors, position.ways, position.weights]
    return {
        "shoal": _VERSION,
        "epoch": position.epoch,
        "step": position.step,
        "slot": position.slot,
        "rank": rank,
        "world_size": world_size,
        "plan": pack(plan),
        "position": pack(inner),
    }


def read_states(states: Any) -> Saved:
    """Read the state of one rank, or those of all."""
    several = not isinstance(states, Mapping) and isinstance(states, Iterable)
    every = [_checked(state) for state in (states if several else [states])]
    if not every:
        raise StateError("there is no state to load: give one, or the list of all ranks' states")
    _agree(every)
    first, ranks = every[0], sorted(state["rank"] for state in every)
    whose = f"ranks {ranks} of {first['world_size']}" if len(ranks) > 1 else f"rank {ranks[0]} of {first['world_size']}"
    parts = [_parts(state["position"]) for state in every]
    return Saved(first["epoch"], first["slot"], first["step"], whose, unpack(first["plan"]), parts)


def merge_states(saved: Saved, lanes: Sequence[int]) -> Position:
    """Say where these lanes go on."""
    begun = [part for part in saved.parts if part[0] is not None]
    ways, weights = saved.ways, saved.parts[0][3]
    if not begun:
        return Position(saved.epoch, saved.slot, saved.step, ways=ways, weights=weights)
    known = {lane: mark for part in begun for lane, *mark in part[0]}
    missing = sorted(set(lanes) - known.keys())
    if missing:
        raise StateError(
            f"the state of {saved.ranks} does not know {len(missing)} of the lanes that are needed here (lane "
            f"{missing[0]}, ...); with another number of ranks, load the list of all ranks' states"
        )
    anchors = tuple(min(part[1][leaf] for part in begun) for leaf in range(len(begun[0][1])))
    own = {lane: known[lane] for lane in lanes}
    return Position(saved.epoch, saved.slot, saved.step, lanes=own, anchors=anchors, ways=ways, weights=weights)


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Say in words how two descriptions of plans differ.

    >>> differences({"lanes": 64, "seed": 1}, {"lanes": 32, "seed": 1})
    ['lanes was 64 and is 32']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            text
            for key in dict.fromkeys([*before, *now])
            if key != MARKS
            for text in differences(before.get(key), now.get(key), f"{name} {key}".strip())
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now) and name.endswith("components"):
        pairs = enumerate(zip(before, now, strict=True))
        return [text for at, (a, b) in pairs for text in differences(a, b, f"component {at}")]
    return [] if before == now else [f"{name} was {_short(before)} and is {_short(now)}"]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _checked(state: Any) -> Mapping[str, Any]:
    if not isinstance(state, Mapping) or "position" not in state or "plan" not in state:
        raise StateError("this is not the state of a loader: load what state_dict() gave, or a list of it")
    if state.get("shoal") != _VERSION:
        raise StateError(f"the state is of version {state.get('shoal')}, this program reads version {_VERSION}")
    for name in ("epoch", "slot", "step", "rank", "world_size"):
        if not isinstance(state.get(name), int):
            raise StateError(f"the state of a loader is damaged: its {name} is {state.get(name)!r}, not a number")
    return state


def _parts(text: str) -> list[Any]:
    inner = unpack(text)
    if not isinstance(inner, list) or len(inner) != 4:
        raise StateError("the state of a loader is damaged: its position is not what state_dict() makes")
    return inner


def _agree(states: Sequence[Mapping[str, Any]]) -> None:
    for name in ("epoch", "slot", "step", "plan", "world_size"):
        values = {state[name] for state in states}
        if len(values) > 1:
            seen = "" if name == "plan" else f": {', '.join(map(str, sorted(values)))}"
            raise StateError(f"the states are not of one moment of one run, they differ in {name}{seen}")

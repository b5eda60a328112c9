"""The keyword arguments of `WebDataset`, old and new, sorted into what they are about."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shoal.errors import PlanError
from shoal.webdataset._handlers import ignore_and_continue, reraise_exception, warn_and_continue
from shoal.webdataset._read import ReadOptions
from shoal.webdataset._source import ShardOptions
from shoal.webdataset._split import split_by_worker
from shoal.webdataset._tuples import SampleOptions

__all__ = ["Options", "parse"]

_SHARDS, _READING, _SAMPLES = (
    frozenset(each.name for each in fields(kind)) for kind in (ShardOptions, ReadOptions, SampleOptions)
)
#: Old arguments that are another spelling of a new one.
_SPELLINGS = frozenset({"errors", "prepare_for_worker"})
_OLD = _SAMPLES | _SPELLINGS | {"epochs", "length"}
_HANDLERS = {True: reraise_exception, False: ignore_and_continue, "warn": warn_and_continue}
_NOT_HERE = {
    "keys": "members are grouped by the rule of WebDataset; rename_files= can change their names before",
    "opener": "every URL that fsspec knows is opened; for others write pipe:command and pass trust=True",
    "url_to_name": "the names in the cache are its own business",
    "mode": "folders are listed once, when reading begins",
}


@dataclass(frozen=True, slots=True)
class Options:
    """All that can be said about a dataset besides its URLs."""

    shards: ShardOptions = field(default_factory=ShardOptions)
    reading: ReadOptions = field(default_factory=ReadOptions)
    samples: SampleOptions | None = None
    """What the old dialect does to samples; None in the new one."""
    length: int | None = None


def parse(given: Mapping[str, Any]) -> Options:
    """Check arguments and sort them; one that only the old API has makes it the old dialect.

    >>> parse({"shardshuffle": 100}).samples is None, parse({"extensions": "jpg cls"}).samples.decoder
    (True, 'rgb')
    """
    for name, value in given.items():
        if name in _NOT_HERE and value is not None:
            raise TypeError(f"WebDataset has no argument {name!r} here: {_NOT_HERE[name]}")
        if name not in _SHARDS | _READING | _OLD | _NOT_HERE.keys():
            raise _unknown(name)
    if _OLD.isdisjoint(given):
        return Options(ShardOptions(**_part(given, _SHARDS)), ReadOptions(**_part(given, _READING)))
    return _old(given)


def _old(given: Mapping[str, Any]) -> Options:
    samples = SampleOptions(**_part(given, _SAMPLES))
    shuffled = samples.shuffle > 0
    shards = {
        "nodesplitter": None,
        "workersplitter": _worker_splitter(given.get("prepare_for_worker", True)),
        "shardshuffle": shuffled,
        "detshuffle": True,
    }
    reading = {"empty_check": False, "handler": _handler(given.get("errors", True))}
    for old, new in (("prepare_for_worker", "workersplitter"), ("errors", "handler"), ("shuffle", "shardshuffle")):
        if old in given and new in given:
            raise PlanError(f"{old}= and {new}= are the old and the new word for the same: give one of them")
    return Options(
        ShardOptions(**shards | _part(given, _SHARDS)),
        ReadOptions(**reading | _part(given, _READING)),
        samples,
        given.get("length"),
    )


def _part(given: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in names}


def _handler(errors: Any) -> Any:
    if errors not in (True, False, "warn"):
        raise PlanError(f'errors={errors!r}; it is True to raise, "warn", or False to skip')
    return _HANDLERS[errors]


def _worker_splitter(prepare: Any) -> Any:
    return prepare if callable(prepare) else split_by_worker if prepare else None


def _unknown(name: str) -> TypeError:
    known = sorted(_SHARDS | _READING | _OLD)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
    return TypeError(f"WebDataset has no argument {name!r}; {hint}")

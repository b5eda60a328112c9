"""What the environment may change, and the only place that reads it.

Each field of `Settings` is read from ``SHOAL_<FIELD>`` (``SHOAL_CACHE``, ``SHOAL_RETRIES``, ...). Nothing is kept:
`current` reads the environment each time, so a change is seen by the next call and nothing is shared behind the scenes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shoal.errors import SettingsError

__all__ = ["Process", "Settings", "current", "parse_bytes", "process", "processors", "variable"]

_UNITS = {"": 1, **{unit: 1000**n for n, unit in enumerate("kmgtp", 1)}}
_UNITS |= {f"{unit}i": 1024**n for n, unit in enumerate("kmgtp", 1)}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of this process.

    >>> Settings().retries
    5
    """

    cache: Path = Path("~/.cache/shoal")
    """Folder for shard indexes and, where asked for, downloaded shards."""
    cache_size: int = 50 * 10**9
    """Bytes of downloaded shards kept, least recently used ones going first; in the environment also ``1.5TB``."""
    environments: Path = Path("~/.cache/shoal/environments")
    """Folder for Python environments that are built for workers."""
    store: str | None = None
    """Folder or URL of the object store; without, a folder in shared memory that is this user's own."""
    store_memory: int = 0
    """Bytes of shared memory that a new store may use; 0 for half of what there is."""
    retries: int = 5
    """Attempts to go on with a broken transfer before giving up; progress resets the count."""
    backoff: float = 0.25
    """Seconds before the first new attempt; doubled each time, up to 30."""
    timeout: float = 30.0
    """Seconds without a byte after which a connection counts as broken."""
    max_pixels: int = 512 * 10**6
    """Pictures of more pixels than this are refused as bombs."""
    keep_freed: int = 64 * 2**20
    """Bytes of freed memory that a process which reads samples keeps for the next ones; 0 for what the system does."""
    memory: int = 2**30
    """Bytes of samples that a run may hold ahead of the one who uses them."""
    stall: float = 60.0
    """Seconds without anything delivered after which a run says what it waits for; 0 for never."""

    def __post_init__(self) -> None:
        for name in ("cache", "environments"):
            object.__setattr__(self, name, Path(getattr(self, name)).expanduser())
        for name in (
            "cache_size",
            "store_memory",
            "retries",
            "backoff",
            "timeout",
            "max_pixels",
            "keep_freed",
            "memory",
            "stall",
        ):
            if getattr(self, name) < 0:
                raise SettingsError(f"the setting {name} is {getattr(self, name)}; it must not be negative")


@dataclass(frozen=True, slots=True)
class Process:
    """Which of several cooperating processes this is, as launchers such as torchrun tell it.

    >>> Process(rank=3, world_size=8).world_size
    8
    """

    rank: int | None = None
    world_size: int | None = None
    worker: int | None = None
    num_workers: int | None = None
    local_rank: int | None = None
    """Its number among those on this host."""
    local_world_size: int | None = None


def current(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    >>> current({"SHOAL_RETRIES": "2", "SHOAL_CACHE_SIZE": "20GB"}).cache_size
    20000000000
    """
    environ = os.environ if environ is None else environ
    given: dict[str, Any] = {}
    for field in fields(Settings):
        text = environ.get(f"SHOAL_{field.name.upper()}")
        if text is not None:
            given[field.name] = _parse(field.name, text)
    return Settings(**given)


def process(environ: Mapping[str, str] | None = None) -> Process:
    """Read rank and worker number as launchers set them (``RANK``, ``WORLD_SIZE``, ``WORKER``, ...; ``TF_CONFIG``).

    >>> process({"RANK": "1", "WORLD_SIZE": "4"}).rank
    1
    >>> hosts = {"worker": ["a:1", "b:1", "b:2"]}
    >>> process({"TF_CONFIG": json.dumps({"cluster": hosts, "task": {"type": "worker", "index": 2}})})
    Process(rank=2, world_size=3, worker=None, num_workers=None, local_rank=1, local_world_size=2)
    """
    environ = os.environ if environ is None else environ
    given = {
        field.name: int(environ[field.name.upper()])
        for field in fields(Process)
        if environ.get(field.name.upper(), "").isdigit()
    }
    if "rank" not in given and (text := environ.get("TF_CONFIG")):
        given |= _tensorflow_process(text)
    return Process(**given)


def _tensorflow_process(text: str) -> dict[str, int]:
    """Read which of TensorFlow's workers this is; the chief is the first of them."""
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        workers = [*cluster.get("chief", []), *cluster.get("worker", [])]
        rank = int(task["index"]) + (len(cluster.get("chief", [])) if task["type"] == "worker" else 0)
        hosts = [address.rpartition(":")[0] for address in workers]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"TF_CONFIG says {text!r}, which is no description of a cluster: {error!r}") from None
    if task["type"] not in ("chief", "worker") or rank >= len(workers):
        return {}
    here = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    own = {"local_rank": here.index(rank), "local_world_size": len(here)}
    return {"rank": rank, "world_size": len(workers), **own}


def processors() -> int:
    """Count the processors of this machine.

    >>> processors() >= 1
    True
    """
    return os.cpu_count() or 1


def gpus(environ: Mapping[str, str] | None = None, devices: str = "/dev") -> list[str]:
    """Name the graphics processors that this process may use, as ``CUDA_VISIBLE_DEVICES`` does.

    >>> gpus({"CUDA_VISIBLE_DEVICES": "2,3"}), gpus({}, devices="/nowhere")
    (['2', '3'], [])
    """
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path(devices).glob("nvidia*"))
    return sorted((match[1] for match in found if match), key=int)


def environment(
    defaults: Mapping[str, str], changes: Mapping[str, str], without: Collection[str] = ()
) -> dict[str, str]:
    """Give the environment for another process: this one's, what it lacks from ``defaults``, and what is changed.

    Names in ``without`` are left out of this one's.
    """
    kept = {name: text for name, text in os.environ.items() if name not in without}
    return {**defaults, **kept, **changes}


def set_environment(variables: Mapping[str, str]) -> None:
    """Let this process have the environment that `environment` gave for it: it is a fork of one with another."""
    os.environ.clear()
    os.environ.update(variables)


def variable(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Read one variable that a user names himself, such as ``WDS_DATA`` for ``${DATA}`` in a WebDataset URL.

    >>> variable("WDS_DATA", {"WDS_DATA": "/data"})
    '/data'
    """
    return (os.environ if environ is None else environ).get(name)


def parse_bytes(text: str | float) -> int:
    """Turn ``"20GB"``, ``"1.5GiB"``, ``"1e9"`` or a number into bytes; ``"8Mb"``, and only so written, is in bits.

    >>> parse_bytes("1.5GiB"), parse_bytes("1e9"), parse_bytes(3e16), parse_bytes("8Mb"), parse_bytes("8mb")
    (1610612736, 1000000000, 30000000000000000, 1000000, 8000000)
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e\+?[0-9]+)?)\s*([kmgtp]i?)?b?\s*", str(text).lower())
    is_bits = re.search(r"[KMGTP]b\s*$", str(text)) is not None
    try:
        size = int(float(match[1]) * _UNITS[match[2] or ""])  # type: ignore[index]
        return size // 8 if is_bits else size
    except (TypeError, ValueError, OverflowError):
        raise SettingsError(f"{text!r} is not a number of bytes; write it like 500MB, 1.5GiB or 1e9") from None


def _parse(name: str, text: str) -> Path | int | float | str:
    if name in ("cache", "environments"):
        return Path(text)
    if name == "store":
        return text
    if name in ("cache_size", "store_memory", "keep_freed", "memory"):
        return parse_bytes(text)
    try:
        return float(text) if name in ("backoff", "timeout", "stall") else int(text)
    except ValueError:
        raise SettingsError(f"SHOAL_{name.upper()} is {text!r}, which is not a number") from None

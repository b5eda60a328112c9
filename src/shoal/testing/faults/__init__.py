"""The faults that Shoal is tested with, for tests of what is built on it.

Shards that are cut or flipped, servers that hang up, stall, refuse and lie, full disks, full shared memory, slow disks,
processes that are killed or stopped, clocks that jump, ranks that lag. All follows from a seed: what failed once is had
again by its number, which errors and reports tell. Only processes and files that are named are touched, and servers
listen on loopback.

>>> from shoal.testing import faults
>>> faults.Schedule(seed=7).events(2) == faults.Schedule(seed=7).events(2)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.testing.faults._damage import Damage, bit_flipped, truncated
    from shoal.testing.faults._http import HttpServer, Request, Resource, http_server
    from shoal.testing.faults._leaks import Held, held, nothing_left
    from shoal.testing.faults._mishaps import Fate, Mishap, Rule, cut, lie, refuse, stall
    from shoal.testing.faults._processes import Killing, children, die_once, killing, stopped, workers
    from shoal.testing.faults._proxy import HttpProxy, TcpProxy, http_proxy, tcp_proxy
    from shoal.testing.faults._s3 import S3Server, s3_server
    from shoal.testing.faults._schedule import Event, Schedule
    from shoal.testing.faults._slow_disk import slow_disk
    from shoal.testing.faults._space import full_disk, full_shared_memory, on_small_disk
    from shoal.testing.faults._time import Clock, clock_jumps, lagging
    from shoal.testing.faults._trainings import KillAt

__all__ = [
    "Clock",
    "Damage",
    "Event",
    "Fate",
    "Held",
    "HttpProxy",
    "HttpServer",
    "KillAt",
    "Killing",
    "Mishap",
    "Request",
    "Resource",
    "Rule",
    "S3Server",
    "Schedule",
    "TcpProxy",
    "bit_flipped",
    "children",
    "clock_jumps",
    "cut",
    "die_once",
    "full_disk",
    "full_shared_memory",
    "held",
    "http_proxy",
    "http_server",
    "killing",
    "lagging",
    "lie",
    "nothing_left",
    "on_small_disk",
    "refuse",
    "s3_server",
    "slow_disk",
    "stall",
    "stopped",
    "tcp_proxy",
    "truncated",
    "workers",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "_damage": ("Damage", "bit_flipped", "truncated"),
        "_http": ("HttpServer", "Request", "Resource", "http_server"),
        "_leaks": ("Held", "held", "nothing_left"),
        "_mishaps": ("Fate", "Mishap", "Rule", "cut", "lie", "refuse", "stall"),
        "_processes": ("Killing", "children", "die_once", "killing", "stopped", "workers"),
        "_proxy": ("HttpProxy", "TcpProxy", "http_proxy", "tcp_proxy"),
        "_s3": ("S3Server", "s3_server"),
        "_schedule": ("Event", "Schedule"),
        "_slow_disk": ("slow_disk",),
        "_space": ("full_disk", "full_shared_memory", "on_small_disk"),
        "_time": ("Clock", "clock_jumps", "lagging"),
        "_trainings": ("KillAt",),
    },
)

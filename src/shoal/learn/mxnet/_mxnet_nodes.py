"""The scheduler and the servers of a kvstore: processes that workers start, and that end with them.

A kvstore waits for ever if one of these is gone. So whoever started it ends, too, and the gang begins again.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.abc import Member
from shoal.environments import Environment, Guest
from shoal.errors import GuestError, StateError, WorkerDiedError

__all__ = ["Nodes", "Words"]

#: Seconds for scheduler and servers to end, once the last worker has taken leave of them.
_END = 20.0
_HOME = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Words:
    """What a worker says before it ends because of another process."""

    text: str
    attempt: int
    """How often the workers began before."""


class Nodes:
    """What one worker runs of a kvstore; each attempt of a gang has another one."""

    def __init__(self, environment: Environment, servers: int, member: Member) -> None:
        self._member = member
        port = _free_port(member.host) if member.rank == 0 else 0
        where = {"DMLC_NUM_WORKER": str(member.size), "DMLC_NUM_SERVER": str(servers), "DMLC_NODE_HOST": member.host}
        told: list[tuple[str, int]] = member.all_gather((member.host, port))
        where |= {"DMLC_PS_ROOT_URI": told[0][0], "DMLC_PS_ROOT_PORT": str(told[0][1])}
        self.meeting = {**where, "DMLC_ROLE": "worker"}
        """How a worker finds the others."""
        roles = ["scheduler"] if member.rank == 0 else []
        roles += ["server" for number in range(servers) if number % member.size == member.rank]
        self._nodes = [_Node(role, environment, {**where, "DMLC_ROLE": role}, self._fallen) for role in roles]

    @property
    def pids(self) -> dict[str, list[int]]:
        """The processes that this worker has started, by what they do."""
        found: dict[str, list[int]] = {}
        for node in self._nodes:
            found.setdefault(node.role, []).append(node.guest.pid)
        return found

    def close(self, done: bool) -> None:
        """End them: in order if all workers are done, and else at once."""
        for node in self._nodes:
            node.close(_END if done else 0.0)

    def _fallen(self, text: str) -> None:
        """Say what happened, and end: who is gone is replaced, and who fails is not."""
        whole = f"{text}; the worker of rank {self._member.rank}, who had started it, ends, too"
        try:
            self._member.report(Words(whole, self._member.attempt))
        finally:
            sys.stderr.write(f"{whole}\n")
            sys.stderr.flush()
            os._exit(1)


class _Node:
    """A scheduler or a server; see `_mxnet_node`."""

    def __init__(
        self, role: str, environment: Environment, variables: dict[str, str], fallen: Callable[[str], None]
    ) -> None:
        self.role, self.guest = role, Guest(environment, path=[_HOME], variables=variables, quiet=True)
        self._fallen, self._is_over = fallen, False
        self._thread = threading.Thread(target=self._serve, name=f"shoal-mxnet-{role}", daemon=True)
        self._thread.start()

    def close(self, patience: float) -> None:
        """Wait for its end, and see to it."""
        if patience:
            self._thread.join(patience)
        self._is_over = True
        self.guest.close()

    def _serve(self) -> None:
        try:
            self.guest.call("_mxnet_node:serve")
        except GuestError as error:
            if not self._is_over:
                self._fallen(f"the {self.role} of MXNet's kvstore failed: {error}")
        except WorkerDiedError as error:
            if not self._is_over:
                how = error.signal or f"exit code {error.exitcode}"
                self._fallen(f"the {self.role} of MXNet's kvstore (process {self.guest.pid}) ended with {how}")
        except StateError:  # it was closed
            pass


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as taken:
        taken.bind((host, 0))
        return int(taken.getsockname()[1])

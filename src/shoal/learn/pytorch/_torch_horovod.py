"""PyTorch, trained by several workers with Horovod; this runs in the environment that has it."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from shoal.abc import Member
from shoal.errors import PlanError
from shoal.learn._resident import PeersLost, Resident
from shoal.learn.pytorch._torch_crossing import as_arrays, as_tensors
from shoal.learn.pytorch._torch_framework import TorchFramework
from shoal.learn.pytorch._torch_main import MainCallback
from shoal.learn.pytorch._torch_norm import Norms

__all__ = ["HorovodFramework", "HorovodResident"]

#: Seconds for the others to come, and for a message of theirs; who dies is noticed at once.
_PATIENCE = 600


class HorovodResident(Resident):
    """A torch module in a guest, which meets those of other guests by Horovod."""

    framework: HorovodFramework

    def __init__(self, *given: Any, main: MainCallback | None = None, seed: int = 0) -> None:
        super().__init__(HorovodFramework(*given), seed)
        self.framework.main = main or self.framework.main

    def outgoing(self, values: Any) -> Any:
        """Make arrays of tensors."""
        return as_arrays(values)

    def incoming(self, values: Any) -> Any:
        """Make tensors of arrays."""
        return as_tensors(values)

    def offered(self, rank: int, host: str) -> tuple[str, int]:
        """Give the address of this worker; that of the first has a port at which all meet."""
        return host, self.framework.open_door(host) if rank == 0 else 0


class HorovodFramework(TorchFramework):
    """A model whose gradients are averaged by Horovod, over gloo."""

    _door: Any = None
    _begins: bool = True

    def open_door(self, host: str) -> int:
        """Serve the addresses at which workers reach one another, and give the port."""
        http: Any = importlib.import_module("horovod.runner.http.http_server")
        self._door = http.RendezvousHTTPServer((host, 0), http.RendezvousHandler, 0)
        self._door.daemon_threads = True
        threading.Thread(target=self._door.serve_forever, name="shoal-horovod-door", daemon=True).start()
        return int(self._door.server_address[1])

    def join(self, member: Member) -> None:
        """Meet the others, build everything, and begin with what the first one has."""
        self._size = member.size
        told = member.all_gather(None)
        for name, value in _variables(member.rank, told).items():
            os.putenv(name, value)  # read by the library, which is not Python
        self._hvd: Any = importlib.import_module("horovod.torch")
        with _together():
            self._hvd.init()
        torch.manual_seed(self._options.seed)
        self.build()
        torch.manual_seed(self._options.seed + member.rank)  # each drops out other numbers
        if self._size > 1:
            self._norms = Norms(self.model, _Peers(self._hvd), always=self._options.sync_batch_norm)
            self.model = self._norms.model
            self._take_from_first()
        self._module = torch.compile(self.model) if self._options.compile else self.model

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> float:
        """Learn from some rows; what a model counts besides is that of the first worker, when a step begins."""
        if self._begins:
            self._take_buffers()
        self._begins = last
        return super().train(features, labels, weight, last)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Add up numbers over all workers; who has trained agrees with the others, too, on what he may evaluate."""
        self._settle()
        found = torch.tensor(list(numbers), dtype=torch.float64)
        with _together():
            found = self._hvd.allreduce(found, op=self._hvd.Sum, name=f"total.{len(found)}")
        return [float(each) for each in found]

    def leave(self, done: bool) -> None:
        """Part from the others, all at once."""
        if done:
            with _together():
                self._hvd.barrier()
                self._hvd.shutdown()
        if self._door is not None:
            self._door.shutdown()
            self._door.server_close()

    def _settle(self) -> None:
        """Take what a model counts besides from the first worker."""
        has_trained, self._has_trained = self._has_trained, False
        if has_trained:
            self._take_buffers()

    def _step(self) -> None:
        if self._size > 1:
            self._average()
        super()._step()

    def _average(self) -> None:
        """Average gradients, in one piece for each type; one that no worker has stays away."""
        kinds: dict[torch.dtype, list[torch.nn.Parameter]] = {}
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                kinds.setdefault(parameter.dtype, []).append(parameter)
        for kind, parameters in kinds.items():
            have = torch.tensor([parameter.grad is not None for parameter in parameters]).to(kind)
            flat = torch.cat([*map(_flat_gradient, parameters), have])
            with _together():
                self._hvd.allreduce_(flat, op=self._hvd.Average, name=f"gradients.{kind}")
            *pieces, have = _cut(flat, [*(parameter.numel() for parameter in parameters), len(parameters)])
            for parameter, piece, somebody in zip(parameters, pieces, have.tolist(), strict=True):
                parameter.grad = piece.view_as(parameter) if somebody else None

    def _take_from_first(self) -> None:
        """Begin with the model, the optimizer and all else that the first worker has."""
        is_first = self._hvd.rank() == 0
        mine, theirs = self.dump(), {}
        for name in sorted(mine):
            size = torch.tensor([len(mine[name])])
            self._broadcast([size], f"size.{name}")
            data = torch.empty(int(size), dtype=torch.uint8)
            if is_first:
                data = torch.frombuffer(bytearray(mine[name]), dtype=torch.uint8)
            self._broadcast([data], f"file.{name}")
            theirs[name] = data.numpy().tobytes()
        if not is_first:
            self.load(theirs)

    def _take_buffers(self) -> None:
        buffers = list(self.model.buffers())
        if buffers and self._size > 1:
            self._broadcast(buffers, "buffers")

    def _broadcast(self, tensors: Sequence[torch.Tensor], name: str) -> None:
        """Put what the first worker has into the tensors of all others, in one piece."""
        flat = torch.cat([each.detach().reshape(-1).view(torch.uint8) for each in tensors])
        with _together():
            self._hvd.broadcast_(flat, 0, name=name)
        if self._hvd.rank() == 0:
            return
        sizes = [each.numel() * each.element_size() for each in tensors]
        with torch.no_grad():
            for each, piece in zip(tensors, _cut(flat, sizes), strict=True):
                each.copy_(piece.clone().view(each.dtype).view_as(each))


class _Peers:
    """The other workers, as Horovod has them."""

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd

    def add(self, values: torch.Tensor) -> None:
        """Add up."""
        with _together():
            self._hvd.allreduce_(values, op=self._hvd.Sum, name=f"norm.{values.numel()}")

    def least(self, number: int) -> int:
        """Find the least."""
        with _together():
            return int(self._hvd.allreduce(torch.tensor([number]), op=self._hvd.Min, name="norm.least"))

    def take(self, values: torch.Tensor) -> None:
        """Take it from the first."""
        with _together():
            self._hvd.broadcast_(values, 0, name=f"norm.first.{values.numel()}")


def _flat_gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.numel(), dtype=parameter.dtype)
    if parameter.grad.is_sparse:
        text = "a sparse gradient cannot be averaged by the backend 'horovod'"
        raise PlanError(f"{text}; make the layer with sparse=False, or take another backend")
    return parameter.grad.reshape(-1)


def _cut(flat: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
    split: Any = flat.split
    pieces: Sequence[torch.Tensor] = split(list(sizes))
    return pieces


@contextmanager
def _together() -> Iterator[None]:
    """Tell apart what Horovod says when another worker is gone."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise PeersLost(f"Horovod cannot go on with the other workers: {error}") from error


def _variables(rank: int, told: Sequence[tuple[str, int]]) -> Mapping[str, str]:
    """Say how Horovod finds its place: among all, among those of its host, and among those of its kind elsewhere.

    >>> found = _variables(2, [("a", 5), ("b", 0), ("a", 0)])
    >>> [found[f"HOROVOD_{name}"] for name in ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
    ['2', '1', '2', '0', '1']
    """
    hosts = [host for host, _ in told]
    host = hosts[rank]
    local = hosts[:rank].count(host)
    alike = [each for each in dict.fromkeys(hosts) if hosts.count(each) > local]
    numbers = {
        "RANK": rank,
        "SIZE": len(hosts),
        "LOCAL_RANK": local,
        "LOCAL_SIZE": hosts.count(host),
        "CROSS_RANK": alike.index(host),
        "CROSS_SIZE": len(alike),
        "GLOO_RENDEZVOUS_PORT": told[0][1],
        "GLOO_TIMEOUT_SECONDS": _PATIENCE,
    }
    names = {"HOSTNAME": host, "GLOO_RENDEZVOUS_ADDR": hosts[0], "CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo"}
    interface = _interface(host)
    names |= {"GLOO_IFACE": interface} if interface else {}
    return {f"HOROVOD_{name}": str(value) for name, value in {**numbers, **names}.items()}


def _interface(host: str) -> str | None:
    """Name the network interface that has an address."""
    found: Mapping[str, Sequence[Any]] = importlib.import_module("psutil").net_if_addrs()
    return next((name for name, several in found.items() if any(each.address == host for each in several)), None)

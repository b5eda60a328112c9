"""PyTorch whose training is in another environment; predictions and the model itself are made here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from shoal.environments import find
from shoal.errors import StateError
from shoal.learn._abroad import AbroadFramework
from shoal.learn.pytorch import _torch_files
from shoal.learn.pytorch._torch_crossing import as_arrays, as_tensors
from shoal.learn.pytorch._torch_framework import TorchFramework, TorchOptions
from shoal.learn.pytorch._torch_horovod import HorovodResident
from shoal.learn.pytorch._torch_main import MainCallback

__all__ = ["TorchAbroad"]


class TorchAbroad(AbroadFramework):
    """A torch module that guests train together; it is built here for whoever wants to have it or to predict."""

    format: ClassVar[str] = "torch"
    modules: ClassVar[tuple[str, ...]] = (*TorchFramework.modules, __name__)
    model: torch.nn.Module
    """The module, once it is built here."""
    config: Mapping[str, Any]
    _here: TorchFramework | None = None

    @classmethod
    def horovod(
        cls,
        model: Any,
        optimizer: Any,
        loss: Any,
        scheduler: Callable[..., Any] | None,
        config: Mapping[str, Any] | None,
        options: TorchOptions,
    ) -> TorchAbroad:
        """Let Horovod put the workers together, in the environment that has it."""
        given = model, optimizer, loss, scheduler, config, options
        made = cls(partial(HorovodResident, *given, seed=options.seed), find("horovod"))
        made.config = dict(config or {})
        return made

    @property
    def main(self) -> MainCallback:
        """Who does what is done with a batch; over there it is another one of its kind."""
        found: MainCallback = self._given().keywords.get("main") or MainCallback()
        return found

    @main.setter
    def main(self, main: MainCallback) -> None:
        self._maker = partial(self._given(), main=main)

    def build(self) -> None:
        """Make the model here, and take what was learnt before."""
        self._here = TorchFramework(*self._given().args)
        self._here.files, self._here.main = self.files, self.main
        self._here.build()
        self.model = self._here.model

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions of the model that was built here."""
        if self._here is None:
            raise StateError("there is no model to predict with: build comes first")
        return self._here.predict(features)

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give what is needed to go on: that of the guest, while there is one."""
        return super().dump(parts) if self._here is None or self.guest is not None else self._here.dump(parts)

    def load(self, files: Mapping[str, bytes]) -> None:
        """Take what `dump` gave."""
        if self._here is None or self.guest is not None:
            super().load(files)
        else:
            self._here.load(files)

    def packed(self, files: Mapping[str, bytes], info: Mapping[str, Any] | None, name: str) -> bytes:
        """Make a file that torch loads without running code."""
        return _torch_files.packed(files, info, name)

    def unpacked(self, data: bytes, name: str) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Read such a file."""
        return _torch_files.unpacked(data, name)

    def _given(self) -> Any:
        """Give what makes the resident, with what the user gave as its arguments."""
        if isinstance(self._maker, bytes):
            self._maker = pickle.loads(self._maker)  # noqa: S301  (it came with this object)
        return self._maker

    def _outgoing(self, values: Any) -> Any:
        return as_arrays(values)

    def _incoming(self, values: Any) -> Any:
        return as_tensors(values)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("_here", "model")}

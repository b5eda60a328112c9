"""Files with the model, while it is trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from shoal._optional import require
from shoal.errors import PlanError, UrlNotFoundError
from shoal.files import remove
from shoal.learn._callbacks import Callback
from shoal.learn._checkpoints import absolute
from shoal.learn._saving import SUFFIXES, write

__all__ = ["ModelCheckpoint"]


class ModelCheckpoint(Callback):
    """Writes a file that `Estimator.load` takes after each epoch, or after every ``interval`` of them.

    ``filepath`` may be at any URL; ``{epoch}`` and ``{iter}`` in it stand for numbers: ``"kept/net-{epoch}"`` becomes
    ``kept/net-epoch=1.ckpt``. With ``by_epoch=False`` the interval counts steps. ``keep`` is how many of the last files
    stay. ``save_weights_only`` leaves the optimizer out; then the name may end in ``.safetensors``.

    >>> ModelCheckpoint("kept/net-{epoch}", keep=2).state_dict()
    {'written': []}
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        *,
        save_weights_only: bool = False,
        by_epoch: bool = True,
        interval: int = -1,
        keep: int | None = None,
    ) -> None:
        self._path, self._weights_only = absolute(filepath), save_weights_only
        self._by_epoch, self._interval, self._keep = by_epoch, max(interval, 1), keep
        self._written: list[str] = []
        if interval < 1 and not (by_epoch and interval == -1):
            unit = "epochs" if by_epoch else "steps"
            raise PlanError(f"interval={interval}; say after how many {unit} a file is to be written")
        if keep is not None and keep < 1:
            raise PlanError(f"keep={keep}; at least the last file has to stay")
        if "{" in self._name(0, 0):
            raise PlanError(f"{self._path!r} has more in braces than {{epoch}} and {{iter}}")
        if self._path.endswith(".safetensors"):
            require("safetensors", "writing .safetensors")
            if not save_weights_only:
                raise PlanError(f"{self._path!r} can hold weights alone; give save_weights_only=True, or leave .ckpt")

    def after_epoch(self, epoch: int, stats: Mapping[str, Any]) -> None:
        """Write a file, if it is time."""
        if self._by_epoch and epoch % self._interval == 0:
            self._save()

    def after_step(self, step: int, loss: float) -> None:
        """Write a file, if it is time."""
        if not self._by_epoch and step % self._interval == 0:
            self._save()

    def state_dict(self) -> dict[str, Any]:
        """Name the files that were written, the older of which are to be removed."""
        return {"written": self._written}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._written = list(state["written"])

    def _save(self) -> None:
        if self.run.rank != 0:
            return
        epoch, step, framework = self.run.epoch, self.run.step, self.run.framework
        url = self._name(epoch, step)
        if self._weights_only:
            write(framework, framework.dump("model"), None, url)
        else:
            write(framework, framework.dump(), {"epoch": epoch, "step": step}, url)
        self._written = [*(each for each in self._written if each != url), url]
        while self._keep is not None and len(self._written) > self._keep:
            with suppress(UrlNotFoundError):
                remove(self._written.pop(0))

    def _name(self, epoch: int, step: int) -> str:
        path = self._path.replace("{epoch}", f"epoch={epoch}").replace("{iter}", f"iter={step}")
        return path if path.endswith(SUFFIXES) else f"{path}.ckpt"

"""BigDL as a framework: a session has the model, and does the distributing itself."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn
from uuid import uuid4

import cloudpickle

from shoal.abc import Framework, Member
from shoal.learn.bigdl._bigdl_data import joined
from shoal.learn.bigdl._bigdl_session import Session

__all__ = ["BigDLFramework"]


class BigDLFramework(Framework):
    """A model of BigDL with its loss and optimizer; copies of this process share a session, which has one at a time.

    ``parts`` are ``model``, ``loss`` and ``optimizer``, each something of BigDL or a function that makes it, what
    becomes of ``features`` and ``labels``, and the ``config`` for functions.
    """

    format: ClassVar[str] = "numpy"

    def __init__(self, parts: Mapping[str, Any], seed: int, session: Session) -> None:
        self.files: Mapping[str, bytes] = {}
        self.session = session
        self.measures = parts["loss"] is not None
        """Whether there is a loss."""
        self.joins = False
        """Whether inputs are columns that make one input when it predicts."""
        self._parts: bytes = pickle.dumps((seed, cloudpickle.dumps(dict(parts))))  # to be read where BigDL is
        self._number = uuid4().hex
        self._clipping: tuple[str, tuple[float, ...]] = "", ()

    @property
    def learning_rate(self) -> float | None:
        """How fast it learns now."""
        rate: float | None = self.session.ask("rate")
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.session.ask("set_rate", float(rate))

    def build(self) -> None:
        """See to it that there is a guest, and that its model is this one."""
        with self.session.lock:
            if self.session.guest is None or not self.session.ask("has", self._number):
                self.session.ask("build", self._parts, dict(self.files), self._number)

    def join(self, member: Member) -> NoReturn:
        """Refuse: BigDL distributes by itself."""
        raise NotImplementedError("BigDL has workers of its own")

    def learnt(self, files: Mapping[str, bytes], *, here: bool) -> None:
        """Have other files from now on; ``here`` says that they are those of the model that the guest has."""
        self.files, self._number = files, uuid4().hex
        if here:
            self.session.ask("rename", self._number)

    def clipped(self, kind: str, *numbers: float) -> None:
        """Cut gradients off from the next training on: ``constant``, ``l2_norm``, or not at all."""
        self._clipping = kind, numbers

    def hold(self, features: Sequence[Any], labels: Sequence[Any], anew: bool) -> int:
        """Give rows to learn from, and count those that are there."""
        count: int = self.session.ask("hold", list(features), list(labels), anew)
        return count

    def begin(self, seed: int | None, batch_size: int) -> int:
        """Put rows into the order of an epoch, and give the number of steps."""
        steps: int = self.session.ask("begin", seed, batch_size)
        return steps

    def steps(self, epoch: int, first: int, last: int, batch_size: int) -> list[float]:
        """Take some steps of an epoch, and give their losses."""
        self.session.ask("clip", *self._clipping)
        losses: list[float] = self.session.ask("train", epoch, first, last, batch_size)
        return losses

    def release(self) -> None:
        """Let go of the rows that were given, if somebody still has them."""
        if self.session.guest is not None:
            self.session.ask("release")

    def train(self, features: Sequence[Any], labels: Sequence[Any], weight: float, last: bool) -> NoReturn:
        """Refuse: BigDL takes its steps by itself."""
        raise NotImplementedError("BigDL takes steps by itself")

    def predict(self, features: Sequence[Any]) -> Any:
        """Give predictions as arrays."""
        with self.session.lock:
            self.build()  # another copy may have used the guest in between
            return self.session.ask("predict", joined(features, self.joins))

    def evaluate(self, features: Sequence[Any], labels: Sequence[Any]) -> tuple[Any, float | None]:
        """Give predictions, and their loss, of the model that is there."""
        found, loss = self.session.ask("evaluate", list(features), list(labels))
        return found, loss

    def total(self, numbers: Sequence[float]) -> list[float]:
        """Give numbers as they are: nobody else has some."""
        return list(numbers)

    def end_epoch(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do nothing: schedules are BigDL's own."""
        return {}

    def dump(self, parts: str = "all") -> dict[str, bytes]:
        """Give what is needed to go on, of the model that is there."""
        found: dict[str, bytes] = self.session.ask("dump", parts)
        return found

    def load(self, files: Mapping[str, bytes]) -> None:
        """Let the model that is there have what `dump` gave."""
        self.session.ask("load", dict(files))

    def leave(self, done: bool) -> None:
        """Do nothing: the session may be needed again."""

    def seen(self) -> tuple[str, dict[str, dict[str, Any]]]:
        """Give what the model is, and its weights by the names of layers."""
        with self.session.lock:
            self.build()
            return self.session.ask("described"), self.session.ask("weights")

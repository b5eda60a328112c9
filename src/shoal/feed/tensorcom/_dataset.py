"""Messages as a dataset of torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from shoal.feed.tensorcom._connection import Connection
from shoal.feed.tensorcom._torch_data import IterableDataset, worker

__all__ = ["TensorcomDataset"]


class TensorcomDataset(IterableDataset[Any]):
    """Receives messages; ``length`` of them at most in an iteration, shared out to the workers of a DataLoader.

    It connects when it is first iterated over, in each process by itself. Options are those of `Connection`. Publishers
    (``zsub``) give each worker all messages, and pushers (``zrpull``) each message to one of them.

    >>> import numpy as np, tempfile
    >>> place = f"{tempfile.mkdtemp()}/socket"
    >>> dataset = TensorcomDataset(f"zpull+ipc://{place}", length=2)
    >>> with Connection(f"zpush+ipc://{place}") as loader:
    ...     loader.send([np.ones(3, "f4")])
    ...     loader.send([np.zeros(2, "f4")])
    ...     [xs.tolist() for [xs] in dataset]
    [[1.0, 1.0, 1.0], [0.0, 0.0]]
    >>> dataset.close()
    """

    def __init__(self, urls: str | Sequence[str], length: int = 1000000, **options: Any) -> None:
        super().__init__()
        self.urls, self.length, self.options = urls, length, options
        self._connection: Connection | None = None
        self._home: int | None = None

    def __iter__(self) -> Iterator[Any]:
        number, workers = worker()
        share = self.length // workers + (number < self.length % workers)
        return islice(self._connected(), share)

    def __len__(self) -> int:
        return self.length

    def __getstate__(self) -> dict[str, Any]:
        """Be sent without the connection, which is this process's own."""
        return {**self.__dict__, "_connection": None, "_home": None}

    def close(self) -> None:
        """Close the connection of this process; the next iteration opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None or self._home != os.getpid():
            self._connection, self._home = Connection(self.urls, **self.options), os.getpid()
        return self._connection

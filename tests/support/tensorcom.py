"""Connections of tests: the other end of a URL, and publishers that are heard."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

from shoal.feed.tensorcom import Connection

__all__ = ["batch", "heard", "numbers", "opposite", "real", "where"]


def opposite(url: str) -> str:
    """Give the URL of who sends to a receiver, or receives from a sender."""
    names = {"push": "pull", "pull": "push", "pub": "sub", "sub": "pub"}
    scheme, colon, rest = url.partition(":")
    kind, plus, transport = scheme.partition("+")
    name = kind.removeprefix("zr") if kind.startswith("zr") else kind.removeprefix("z")
    return f"{'zr' if kind.startswith('zr') else 'z'}{names[name]}{plus}{transport}{colon}{rest}"


def batch(number: int, rows: int = 4) -> list[np.ndarray]:
    """Make a message that can be told from others."""
    return [np.full((rows, 3), number, np.float32), np.full(rows, number, np.int32)]


def numbers(messages: Iterable[Any]) -> list[int]:
    """Tell batches apart again."""
    return [int(message[1][0]) for message in messages]


def heard(publisher: Connection, *receivers: Connection, number: int = 0, greeting: str = "i1") -> None:
    """Publish until each of the receivers has heard something: a publisher does not wait for them."""
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            publisher.send([np.full(1, number, greeting)])
            done.wait(0.01)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for receiver in receivers:
            while (message := receiver.recv())[0].shape != (1,) or message[0][0] != number:
                pass
    finally:
        done.set()
        thread.join()


def real(messages: Iterable[Any]) -> list[Any]:
    """Leave out what was only said to be heard."""
    return [message for message in messages if not _is_greeting(message)]


def where(array: Any) -> int:
    """Tell which process has got an array."""
    return os.getpid()


def _is_greeting(message: Any) -> bool:
    return bool(message[0].shape == (1,))

"""A program that has workers: each uses a store at random until it is killed, or told to end.

It reads lines: ``start SEED``, ``kill PID``, ``end``. Workers are forked, so that they are at work at once.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from shoal.errors import ObjectNotFoundError, StoreFullError
from shoal.store import ObjectID, Store, connect
from support.store_values import WrongError, made, verified

#: What may happen to who asks for an object that another deletes, or puts one where there is no room.
ALLOWED = (ObjectNotFoundError, StoreFullError)
NAMES = 5
OVER: list[bool] = []


class Worker:
    """Puts, gets and deletes; what must not be is said."""

    def __init__(self, store: Store, seed: int, most: int) -> None:
        self._store, self._most = store, most
        self._drawn = random.Random(seed)
        self._own: list[ObjectID] = []
        self._kept: list[Any] = []
        self._done = 0
        often = [self.put, self.get] * 6 + [self.look_again, self.delete] * 4
        seldom = [self.put_again, self.put_members, self.delete_any, self.persist, self.name, self.get_by_name]
        self._ways: list[Callable[[], None]] = [*often, *seldom]

    def run(self) -> None:
        while not OVER:
            try:
                self.fork() if self._drawn.random() < 0.01 else self._drawn.choice(self._ways)()
                self._done += 1
            except ALLOWED:
                self._kept.clear()
            except BaseException:
                say(f"WRONG {traceback.format_exc()}")
        say(f"done {self._done}")

    def put(self) -> None:
        self._own.append(self._store.put(made(self._drawn), persist=self._drawn.random() < 0.3 and self._may_persist()))

    def put_again(self) -> None:
        """Put a part of what lies in the store already."""
        value = self._store.get(self._any())
        if isinstance(value, np.ndarray):
            self._own.append(self._store.put({"old": value, "new": np.arange(10)}))

    def put_members(self) -> None:
        self._own.append(self._store.put([self._any(), self._any()]))

    def get(self) -> None:
        self._kept.append(verified(self._store.get(self._any())))

    def get_by_name(self) -> None:
        verified(self._store.get(f"n{self._drawn.randrange(NAMES)}"))

    def look_again(self) -> None:
        if self._kept:
            verified(self._kept.pop(self._drawn.randrange(len(self._kept))))

    def delete(self) -> None:
        if self._own:
            self._store.delete(self._own.pop(self._drawn.randrange(len(self._own))))

    def delete_any(self) -> None:
        self._store.delete(self._any())

    def persist(self) -> None:
        if self._own and self._may_persist():
            self._store.persist(self._drawn.choice(self._own))

    def name(self) -> None:
        if self._own and self._may_persist():
            chosen = self._drawn.choice(self._own)
            self._store.persist(chosen)
            self._store.put_name(chosen, f"n{self._drawn.randrange(NAMES)}")

    def fork(self) -> None:
        """Let a child do something, and leave without another word."""
        child = os.fork()
        if not child:
            code = 1
            try:
                with suppress(*ALLOWED):
                    self.put()
                    self.get()
                code = 0
            except BaseException:
                say(f"WRONG {traceback.format_exc()}")
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            raise WrongError("a child failed")

    def _any(self) -> ObjectID:
        found = self._store.ids()
        if not found:
            raise ObjectNotFoundError("there is nothing yet")
        return self._drawn.choice(found)

    def _may_persist(self) -> bool:
        return sum(len(os.listdir(f"{root}/p")) for root in self._store.folder.roots) < self._most


def say(text: str) -> None:
    """Write a line, and that at once: others write to the same pipe."""
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


def work(folder: str, seed: int, most: int) -> int:
    say(str(os.getpid()))  # not the parent: signals that come before a child has begun are lost
    Worker(connect(folder), seed, most).run()
    return 0


def main(folder: str, most: str) -> int:
    workers: set[int] = set()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGTERM, lambda *_: OVER.append(True))
    for line in sys.stdin:
        what, _, number = line.partition(" ")
        if what == "start":
            child = os.fork()
            if not child:
                return work(folder, int(number), int(most))
            workers.add(child)
        elif what == "kill":
            os.kill(int(number), signal.SIGKILL)
            workers.discard(int(number))
            say(str(os.waitpid(int(number), 0)[1]))
        else:
            return end(workers, signal.SIGTERM)
    return end(workers, signal.SIGKILL)


def end(workers: set[int], how: signal.Signals) -> int:
    for pid in workers:
        os.kill(pid, how)
    return max([os.waitpid(pid, 0)[1] for pid in workers], default=0) and 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

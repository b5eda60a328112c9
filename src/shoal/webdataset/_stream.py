"""Stages that look at the stream as a whole: its order, its length, its beginning."""

from __future__ import annotations

import os
import random as randoms
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, TextIO

from shoal.webdataset._random import generator
from shoal.webdataset._stage import Stage

__all__ = ["Cached", "detshuffle", "info", "listed", "log_keys", "non_empty", "rsample", "shuffle", "slice", "unlisted"]


def shuffle(size: int = 1000, initial: int = 100, rng: randoms.Random | None = None, seed: int | None = None) -> Stage:
    """Mix samples in a buffer of this size, which starts to give some away when it holds ``initial`` of them.

    A seed gives the same order each time; a size below 1 mixes nothing.

    >>> sorted(shuffle(10, seed=3)(range(5))), list(shuffle(0)(range(5)))
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    """
    return partial(_shuffle, size=size, initial=initial, rng=rng, seed=seed)


def _shuffle(
    samples: Iterable[Any], size: int, initial: int, rng: randoms.Random | None, seed: int | None
) -> Iterator[Any]:
    return iter(samples) if size < 1 else mixed(samples, size, initial, rng or generator(seed))


def mixed(samples: Iterable[Any], size: int, initial: int, random: randoms.Random) -> Iterator[Any]:
    """Mix a stream in a buffer, which grows by two for each sample that leaves until it is full.

    >>> sorted(mixed(range(5), 2, 1, generator(0)))
    [0, 1, 2, 3, 4]
    """
    stream = iter(samples)
    held: list[Any] = []
    for sample in stream:
        held.append(sample)
        if len(held) < size:
            held += islice(stream, 1)
        if len(held) >= min(initial, size):
            yield _picked(held, random)
    while held:
        yield _picked(held, random)


def _picked(held: list[Any], random: randoms.Random) -> Any:
    place = random.randrange(len(held))
    held[place], held[-1] = held[-1], held[place]
    return held.pop()


class detshuffle:  # noqa: N801 - users write it as they write the functions
    """Mix like `shuffle`, in an order that follows from seed and epoch; each run is the next epoch.

    >>> one, other = detshuffle(seed=1), detshuffle(seed=1)
    >>> list(one(range(9))) == list(other(range(9)))
    True
    """

    def __init__(self, bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1) -> None:
        self._size, self._initial, self._seed = bufsize, initial, seed
        self.epoch = epoch
        """The epoch of the last run."""

    def __call__(self, samples: Iterable[Any]) -> Iterator[Any]:
        self.epoch += 1
        return mixed(samples, self._size, self._initial, generator(self._seed, self.epoch))


def slice(*bounds: int | None) -> Stage:
    """Keep a part of the stream: the first ones, or from start to stop by step.

    >>> list(slice(1, 4)(range(9)))
    [1, 2, 3]
    """
    return partial(_slice, bounds=bounds)


def _slice(samples: Iterable[Any], bounds: tuple[int | None, ...]) -> Iterator[Any]:
    return islice(samples, *bounds)


def rsample(p: float = 0.5) -> Stage:
    """Keep each sample with this probability.

    >>> list(rsample(1.0)([1, 2])), list(rsample(0.0)([1, 2]))
    ([1, 2], [])
    """
    return partial(_rsample, p=p)


def _rsample(samples: Iterable[Any], p: float) -> Iterator[Any]:
    random = generator()
    return (sample for sample in samples if random.random() < p)


def listed(batchsize: int, partial: bool = True) -> Stage:
    """Gather samples into lists; ``partial`` keeps a shorter one at the end.

    >>> list(listed(2)([1, 2, 3]))
    [[1, 2], [3]]
    """
    return _Listed(batchsize, partial)


class _Listed:
    def __init__(self, size: int, keep_rest: bool) -> None:
        self._size, self._keep_rest = size, keep_rest

    def __call__(self, samples: Iterable[Any]) -> Iterator[list[Any]]:
        stream = iter(samples)
        while held := list(islice(stream, self._size)):
            if len(held) == self._size or self._keep_rest:
                yield held


def unlisted() -> Stage:
    """Take lists apart.

    >>> list(unlisted()([[1, 2], [3]]))
    [1, 2, 3]
    """
    return chain.from_iterable


def non_empty(samples: Iterable[Any]) -> Iterator[Any]:
    """Pass the stream on, and raise where there is nothing in it.

    >>> list(non_empty([1]))
    [1]
    """
    found = False
    for sample in samples:
        found = True
        yield sample
    if not found:
        raise ValueError("the pipeline received no samples at all")


def log_keys(logfile: str | os.PathLike[str] | None = None) -> Stage:
    """Append number, shard and key of each sample to a file, separated by tabs.

    >>> list(log_keys()([{"__key__": "a"}]))
    [{'__key__': 'a'}]
    """
    return iter if logfile is None else partial(_log_keys, logfile=os.fspath(logfile))


def _log_keys(samples: Iterable[Any], logfile: str) -> Iterator[Any]:
    with open(logfile, "a", encoding="utf-8", buffering=1) as log:
        for number, sample in enumerate(samples):
            log.write(f"{number}\t{sample.get('__url__')}\t{sample.get('__key__')}\n")
            yield sample


def info(
    fmt: str | None = None, n: int = 3, every: int = -1, width: int = 50, *, stream: TextIO | None = None
) -> Stage:
    """Show the first ``n`` samples, and then ``every`` so many, on standard error.

    ``fmt`` is a line for `str.format` with the sample's fields, instead of a line for each field.

    >>> list(info("{cls}", stream=sys.stdout)([{"cls": 1}]))
    1
    [{'cls': 1}]
    """
    return partial(_info, fmt=fmt, n=n, every=every, width=width, stream=stream)


def _info(
    samples: Iterable[Any], fmt: str | None, n: int, every: int, width: int, stream: TextIO | None
) -> Iterator[Any]:
    for number, sample in enumerate(samples):
        if number < n or (every > 0 and (number + 1) % every == 0):
            (stream or sys.stderr).write(_shown(sample, fmt, width))
        yield sample


def _shown(sample: Any, fmt: str | None, width: int) -> str:
    if isinstance(sample, dict):
        fields = sample
    else:
        fields = dict(enumerate(sample)) if isinstance(sample, list | tuple) else {0: sample}
    if fmt is not None:
        return fmt.format(*fields.values(), **{str(name): value for name, value in fields.items()}) + "\n"
    lines = [f"{name} {repr(value)[:width]}" for name, value in fields.items()]
    return "\n".join(["---", *lines, ""])


class Cached:
    """Keeps the samples of the first complete pass in memory; later passes get them from there.

    >>> keep = Cached()
    >>> list(keep([1, 2])), list(keep([]))
    ([1, 2], [1, 2])
    """

    def __init__(self) -> None:
        self._samples: list[Any] | None = None

    def __call__(self, samples: Iterable[Any]) -> Iterator[Any]:
        if self._samples is not None:
            yield from self._samples
            return
        seen = []
        for sample in samples:
            seen.append(sample)
            yield sample
        self._samples = seen

"""What a stage is: a function from a stream to a stream. Those here are partials of module functions, so that a
pipeline can be sent to another process whenever the functions in it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from shoal.webdataset._handlers import Handler, goes_on

__all__ = ["Stage", "attempt", "each", "place"]

Stage: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]


def attempt(function: Callable[[Any], Any], samples: Iterable[Any], handler: Handler) -> Iterator[tuple[Any, Any]]:
    """Yield each sample with what a function makes of it; the handler decides about failures.

    >>> list(attempt(int, ["1", "2"], handler=print))
    [('1', 1), ('2', 2)]
    """
    for sample in samples:
        try:
            result = function(sample)
        except Exception as error:
            error.add_note(f"at {place(sample)}")
            if goes_on(handler, error):
                continue
            return
        yield sample, result


def each(samples: Iterable[Any], f: Callable[[Any], Any], handler: Handler) -> Iterator[Any]:
    """Yield what a function makes of each sample; the handler decides about failures.

    >>> list(each(["1", "2"], int, handler=print))
    [1, 2]
    """
    return (result for _, result in attempt(f, samples, handler))


def place(sample: Any) -> str:
    """Say which sample it is, for the note of an error.

    >>> place({"__key__": "a", "__url__": "s.tar"})
    "sample 'a' of s.tar"
    """
    if not isinstance(sample, dict):
        return f"a sample of type {type(sample).__name__}"
    where = f" of {sample['__url__']}" if "__url__" in sample else ""
    return f"sample {sample.get('__key__')!r}{where}"

"""The stages as methods."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from shoal.webdataset import _batch, _decode, _filters, _keys, _stream
from shoal.webdataset._handlers import Handler, reraise_exception
from shoal.webdataset._pipeline import Pipeline

__all__ = ["Fluid"]


class Fluid(Pipeline):
    """A pipeline whose stages are added by methods, each of which gives a new pipeline.

    >>> list(Fluid([1, 2, 3]).map(lambda n: n * n).select(lambda n: n > 1).listed(2))
    [[4, 9]]
    """

    def batched(
        self, batchsize: int, collation_fn: Callable[[Sequence[Any]], Any] | None = None, partial: bool = True
    ) -> Self:
        """Gather samples into batches."""
        return self.compose(_batch.batched(batchsize, collation_fn, partial))

    def unbatched(self) -> Self:
        """Take batches apart."""
        return self.compose(_batch.unbatched())

    def listed(self, batchsize: int, partial: bool = True) -> Self:
        """Gather samples into lists."""
        return self.compose(_stream.listed(batchsize, partial))

    def unlisted(self) -> Self:
        """Take lists apart."""
        return self.compose(_stream.unlisted())

    def log_keys(self, logfile: str | os.PathLike[str] | None = None) -> Self:
        """Append number, shard and key of each sample to a file."""
        return self.compose(_stream.log_keys(logfile))

    def shuffle(self, size: int, initial: int = 100, rng: random.Random | None = None, seed: int | None = None) -> Self:
        """Mix samples in a buffer; a size below 1 mixes nothing."""
        return self.compose(_stream.shuffle(size, initial, rng, seed))

    def map(self, f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Self:
        """Turn each sample into another; None drops it."""
        return self.compose(_filters.map(f, handler))

    def decode(self, *handlers: Any, **options: Any) -> Self:
        """Decode fields; the arguments are those of the function `decode`."""
        return self.compose(_decode.decode(*handlers, **options))

    def map_dict(self, handler: Handler = reraise_exception, **functions: Callable[[Any], Any]) -> Self:
        """Apply functions to named fields."""
        return self.compose(_filters.map_dict(handler, **functions))

    def select(self, predicate: Callable[[Any], Any]) -> Self:
        """Keep the samples for which a function is true."""
        return self.compose(_filters.select(predicate))

    def to_tuple(self, *fields: str | Sequence[str], **options: Any) -> Self:
        """Turn dicts into tuples; the options are those of the function `to_tuple`."""
        return self.compose(_filters.to_tuple(*fields, **options))

    def map_tuple(self, *functions: Callable[[Any], Any] | None, handler: Handler = reraise_exception) -> Self:
        """Apply functions place by place."""
        return self.compose(_filters.map_tuple(*functions, handler=handler))

    def slice(self, *bounds: int | None) -> Self:
        """Keep a part of the stream."""
        return self.compose(_stream.slice(*bounds))

    def rename(self, handler: Handler = reraise_exception, keep: bool = True, **names: str) -> Self:
        """Give fields new names."""
        return self.compose(_filters.rename(handler, keep, **names))

    def rsample(self, p: float = 0.5) -> Self:
        """Keep each sample with a probability."""
        return self.compose(_stream.rsample(p))

    def rename_keys(self, *pairs: tuple[str, str], **options: Any) -> Self:
        """Give fields that match patterns new names."""
        return self.compose(_keys.rename_keys(*pairs, **options))

    def extract_keys(self, *patterns: str | Sequence[str], **options: Any) -> Self:
        """Turn dicts into tuples of the fields that match patterns."""
        return self.compose(_keys.extract_keys(*patterns, **options))

    def xdecode(self, *pairs: tuple[str, Callable[..., Any]], **options: Any) -> Self:
        """Decode fields with functions that read a stream."""
        return self.compose(_keys.xdecode(*pairs, **options))

    def associate(self, associator: Mapping[str, Any] | Callable[[str], Any], **extra: Any) -> Self:
        """Add to each sample what belongs to its key."""
        return self.compose(_filters.associate(associator, **extra))

    def mcached(self) -> Self:
        """Keep the samples of the first complete pass in memory."""
        return self.compose(_stream.Cached())

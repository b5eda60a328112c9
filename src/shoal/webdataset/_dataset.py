"""`WebDataset`, in its old and its new dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from shoal.errors import PlanError
from shoal.webdataset._fluid import Fluid
from shoal.webdataset._options import parse
from shoal.webdataset._pipeline import Pipeline
from shoal.webdataset._read import ShardReader
from shoal.webdataset._source import ShardSource
from shoal.webdataset._torch import IterableDataset
from shoal.webdataset._tuples import ShardStages
from shoal.webdataset._urls import Urls

__all__ = ["WebDataset"]


class WebDataset(IterableDataset[Any], Fluid):
    """Tar shards as a dataset that a DataLoader takes: nothing is opened before it is iterated.

    ``urls`` is a list, or a text in which ``::`` separates and ``${NAME}`` is ``WDS_NAME`` of the environment; braces,
    wildcards, folders and all that `shoal.read_tar` reads may be in it.

    By itself it gives dicts of bytes, and the methods (``.decode("pil").to_tuple("jpg", "cls").batched(16)``) say what
    becomes of them. Its arguments say which shards are read and how: ``shardshuffle, detshuffle, seed, resampled,
    repeat, nodesplitter, workersplitter, handler, select_files, rename_files, cache_dir, cache_size, empty_check,
    verbose``, and ``trust=True``, without which no command and no pickle is run.

    Any of ``extensions, decoder, transforms, pipeline, shuffle, associate, container, errors, epochs, length,
    prepare_for_worker`` makes it a dataset of the first API: fields are decoded, pictures to floats unless ``decoder``
    says otherwise, and ``extensions="jpg cls"`` makes tuples.

    In a DataLoader each worker reads shards of its own; where there are more workers than shards, each reads a part of
    one. No sample is read twice and none is lost.

    >>> import tempfile
    >>> from shoal.webdataset import TarWriter
    >>> path = tempfile.mkdtemp() + "/a.tar"
    >>> with TarWriter(path) as writer:
    ...     _ = writer.write({"__key__": "1", "txt": "a dog", "cls": 3})
    >>> list(WebDataset(path, extensions="txt cls"))
    [('a dog', 3)]
    >>> list(WebDataset(path).decode().to_tuple("cls"))
    [(3,)]
    """

    def __init__(self, urls: Urls, **options: Any) -> None:
        chosen = parse(options)
        self._source = ShardSource(urls, chosen.shards)
        self._samples = chosen.samples
        if chosen.samples is None:
            Pipeline.__init__(self, self._source, ShardReader(chosen.reading))
        else:
            Pipeline.__init__(self, self._source, ShardStages(chosen.reading, chosen.samples, chosen.shards.seed))
        self._length = chosen.length

    @property
    def urls(self) -> list[str]:
        """All shards, in their order, before nodes and workers share them."""
        return self._source.urls

    def __iter__(self) -> Iterator[Any]:
        return Pipeline.__iter__(self)

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(
            "a WebDataset is read in order and cannot be indexed; iterate over it, or take the first samples with "
            ".slice(n). For picking samples there is shoal.read_tar"
        )

    def decode(self, *handlers: Any, **options: Any) -> Self:
        """Decode fields; the arguments are those of the function `decode`."""
        if self._samples is not None and (self._samples.decodes or self._samples.extensions is not None):
            raise PlanError(
                "a dataset made with arguments of the first API (extensions=, decoder=, length=, ...) decodes by "
                "itself: say with decoder= what pictures become, or leave them out and use .decode(...).to_tuple(...)"
            )
        return super().decode(*handlers, **options)

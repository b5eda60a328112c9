"""A Hugging Face dataset as a source: its rows lie in an Arrow table, and some of them at a time are a shard."""

from __future__ import annotations

import re
from typing import Any

from shoal._optional import require
from shoal.abc import Shard
from shoal.errors import PlanError
from shoal.files import UrlInfo
from shoal.sources._tables import Place, TableFile, TableOptions, TableSource

__all__ = ["HuggingFaceSource"]


class HuggingFaceSource(TableSource):
    """A ``datasets.Dataset`` as it is, selected or shuffled; or a ``datasets.IterableDataset``, read forward only.

    Rows come straight from the Arrow table, by way of the dataset's indices if it has any. Nothing is decoded: a
    picture is a dict of ``bytes`` and ``path``. Keys are made of the split and the row number, unless ``key`` names a
    column. A dataset on disk is pickled as the names of its files, one in memory with its data.

    >>> import datasets
    >>> dataset = datasets.Dataset.from_dict({"word": ["a", "b", "c"]}, split="train").select([2, 0])
    >>> source = HuggingFaceSource(dataset)
    >>> source.take(source.shards()[0], [1, 0])
    [{'__key__': 'train-000000001', 'word': 'a'}, {'__key__': 'train-000000000', 'word': 'c'}]
    """

    def __init__(self, dataset: Any, *, key: str | None = None) -> None:
        datasets = require("datasets", "reading Hugging Face datasets")
        self._is_stream = isinstance(dataset, datasets.IterableDataset)
        if not self._is_stream and not isinstance(dataset, datasets.Dataset):
            raise PlanError(f"a {type(dataset).__name__} is neither a datasets.Dataset nor an IterableDataset")
        self._dataset = dataset
        name = re.sub(r"[^\w-]+", "-", str(dataset.split or "row")).strip("-")
        parts = [f"-{part}" for part in range(dataset.num_shards)] if self._is_stream else [""]
        shown = None if self._is_stream else _columns_shown(dataset)
        super().__init__([f"huggingface://{name}{part}" for part in parts], TableOptions.of(shown, key), None)

    def __repr__(self) -> str:
        return f"HuggingFaceSource({', '.join(self.urls[:3])}{', ...' if len(self.urls) > 3 else ''})"

    @property
    def version(self) -> str:
        """What the dataset calls its fingerprint: it changes with the rows, and with their order."""
        return str(getattr(self._dataset, "_fingerprint", None) or "")

    @property
    def waits(self) -> bool:
        """Whether it is a stream, which may come from anywhere."""
        return self._is_stream

    def fingerprint(self, shard: Shard) -> str:
        """Give the version, of which all rows are."""
        return self.version

    def size(self, shard: Shard) -> int | None:
        """Give the bytes of the rows in the table; nobody knows those of a stream."""
        return None if self._is_stream else super().size(shard)

    def _listed(self) -> list[str]:
        return self.urls

    def _place(self, url: str) -> Place:
        return Place(url, url, UrlInfo())

    def _opened(self, place: Place) -> TableFile:
        from shoal.sources._huggingface_table import DatasetStream, DatasetTable

        if not self._is_stream:
            return DatasetTable(self._dataset, place, self._options)
        part = self._dataset.shard(num_shards=len(self.urls), index=self.urls.index(place.url))
        return DatasetStream(part, place, self._options)


def _columns_shown(dataset: Any) -> list[str] | None:
    """Give the columns that the dataset's format shows, if these are not all."""
    shown = dataset.format
    if shown["type"] == "custom":
        text = "the dataset has a transform, which only its own reading applies"
        raise PlanError(f"{text}; write from_huggingface(dataset.with_format(None)).map(function)")
    hides = set(shown["columns"]) != set(dataset.column_names)
    return list(shown["columns"]) if hides and not shown["output_all_columns"] else None

"""Hugging Face datasets, in all the shapes that they have, as a dataset of samples."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from shoal._optional import require
from shoal.data.huggingface._decoding import DecodeFeatures
from shoal.data.huggingface._forms import forms_of
from shoal.errors import PlanError, SchemaError
from shoal.files import display, expand, local_path, open_seekable
from shoal.pipeline import Dataset
from shoal.shards.codecs import DecodeOptions
from shoal.sources import HuggingFaceSource, ParquetSource

__all__ = ["features_of", "from_huggingface"]

_SAVED = ("state.json", "dataset_dict.json")


def from_huggingface(
    dataset: Any, *, decode: bool = True, images: str = "rgb8", key: str | None = None, split: str | None = None
) -> Dataset:
    """Make a dataset of a Hugging Face dataset, or of what one is made from.

    ``dataset`` is a ``datasets.Dataset`` (selected, shuffled, in memory or on disk), an ``IterableDataset``, which is
    read forward only; one of several splits, of which ``split`` names one; a builder or its class, which is prepared in
    the cache of ``datasets`` first; the folder of ``save_to_disk``; or the URL of Parquet files, or of their folder.

    With ``decode``, fields become what their features stand for: pictures in the form that ``images`` names (see
    `shoal.shards.codecs`), sound a dict of ``path``, ``array`` and ``sampling_rate``, arrays of several dimensions
    numpy arrays; those in lists and dicts too. Labels stay numbers, whose names are in `features_of`. A feature with
    ``decode=False`` is left alone, and so is all that is neither picture nor sound. ``key`` names the column of keys.

    >>> import datasets
    >>> rows = datasets.Dataset.from_dict({"text": ["one", "two", "three"]}, split="train")
    >>> [sample["text"] for sample in from_huggingface(rows.select([2, 0]))]
    ['three', 'one']
    """
    found = _resolved(dataset, split)
    source = ParquetSource(found, key=key) if _is_files(found) else HuggingFaceSource(found, key=key)
    made = Dataset(source)
    forms = forms_of(_description(found)) if decode else {}
    return made.apply(DecodeFeatures(forms, DecodeOptions(images=images))) if forms else made


def features_of(dataset: Any, *, split: str | None = None) -> Any:
    """Give the ``datasets.Features`` of anything that `from_huggingface` reads; those of files are in the first.

    >>> import datasets
    >>> labels = datasets.ClassLabel(names=["cat", "dog"])
    >>> rows = datasets.Dataset.from_dict({"label": [1]}, features=datasets.Features({"label": labels}))
    >>> features_of(rows)["label"].int2str(1)
    'dog'
    """
    found = _resolved(dataset, split)
    if not _is_files(found):
        return found.features
    datasets = require("datasets", "looking at features")
    return datasets.Features.from_arrow_schema(_schema(found)[1])


def _resolved(dataset: Any, split: str | None) -> Any:
    """Give the one dataset that is meant, or the URLs of Parquet files."""
    if _is_files(dataset):
        if not _is_saved(dataset):
            return _only(dataset, split)
        dataset = require("datasets", "reading what save_to_disk wrote").load_from_disk(os.fspath(dataset))
    datasets = require("datasets", "reading Hugging Face datasets")
    if isinstance(dataset, type) and issubclass(dataset, datasets.DatasetBuilder):
        dataset = dataset()
    if isinstance(dataset, datasets.DatasetBuilder):
        dataset.download_and_prepare()
        dataset = dataset.as_dataset()
    if not isinstance(dataset, Mapping):
        return _only(dataset, split)
    if split not in dataset:
        asked = "split is not given" if split is None else f"there is no split {split!r}"
        raise PlanError(f"{asked}; say which of {', '.join(map(repr, dataset))}, as in split={next(iter(dataset))!r}")
    return dataset[split]


def _only(dataset: Any, split: str | None) -> Any:
    if split is not None:
        raise PlanError(f"split={split!r}, but only a dataset of several splits is asked for one; this is one already")
    return dataset


def _is_files(dataset: Any) -> bool:
    return isinstance(dataset, str | os.PathLike | list | tuple)


def _is_saved(urls: Any) -> bool:
    path = None if isinstance(urls, list | tuple) else local_path(urls)
    return path is not None and any(os.path.exists(os.path.join(path, name)) for name in _SAVED)


def _description(dataset: Any) -> Mapping[str, Any]:
    """Describe the features as JSON does; none, where there is only a table."""
    if not _is_files(dataset):
        if dataset.features is None:
            text = "the features of the stream are not known after what was done to it, so nothing can be decoded"
            raise PlanError(f"{text}; name them, as in dataset.cast(features), or say decode=False")
        described: Mapping[str, Any] = dataset.features.to_dict()
        return described
    url, schema = _schema(dataset)
    found = (schema.metadata or {}).get(b"huggingface")
    try:
        described = {} if found is None else json.loads(found)["info"]["features"]
        return {name: feature for name, feature in described.items() if name in schema.names}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        text = f"what {display(url)} says about its Hugging Face features is not understood: {error!r}"
        raise SchemaError(f"{text}; say decode=False to read it as it is") from error


def _schema(urls: Any) -> tuple[str, Any]:
    """Read the schema of the first file."""
    parquet = require("pyarrow.parquet", "reading Parquet files")
    url = expand(urls, suffixes=(".parquet",))[0]
    with open_seekable(url) as file:
        return url, parquet.read_schema(file)

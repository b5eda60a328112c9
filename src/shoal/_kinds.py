"""What kind of data a file is, by its name, and the source that reads it."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from shoal.abc import Source
from shoal.errors import PlanError
from shoal.files import SHARD_SUFFIXES, expand
from shoal.sources import TFRECORD_SUFFIXES, ArrowSource, ParquetSource, TarSource, TFRecordSource

__all__ = ["SUFFIXES", "data_files", "files_of_one_kind", "kind_of", "source_of"]

_PACKED = ("", ".gz", ".bz2", ".xz", ".zst")
#: How names of files of each kind end.
SUFFIXES = {
    "tar": SHARD_SUFFIXES,
    "parquet": ParquetSource.suffixes,
    "arrow": ArrowSource.suffixes,
    "tfrecord": TFRECORD_SUFFIXES,
    "csv": tuple(f".{name}{end}" for name in ("csv", "tsv") for end in _PACKED),
    "json": tuple(f".{name}{end}" for name in ("json", "jsonl", "ndjson") for end in _PACKED),
}


def kind_of(url: str) -> str:
    """Tell what kind of data a URL names; a pipe brings a tar.

    >>> kind_of("s3://data/a-0000.tgz"), kind_of("b.parquet"), kind_of("-")
    ('tar', 'parquet', 'tar')
    """
    if url == "-" or url.startswith("pipe:"):
        return "tar"
    name = url.lower()
    if name.startswith(("http://", "https://")):
        name = name.partition("?")[0]
    found = next((kind for kind, ends in SUFFIXES.items() if name.endswith(ends)), None)
    if found is None:
        known = ", ".join(ends[0] for ends in SUFFIXES.values())
        raise PlanError(f"the name {url} does not tell what kind of data it is; known are {known}")
    return found


def data_files(urls: Sequence[str]) -> list[str]:
    """List the files that arguments stand for: braces, globs and folders are expanded, none is standard input."""
    suffixes = [end for ends in SUFFIXES.values() for end in ends]
    return expand(urls or ["-"], suffixes=suffixes)


def files_of_one_kind(urls: Sequence[str]) -> list[str]:
    """List the data files that arguments stand for, as one dataset.

    A folder without data files of its own stands for those in the folders below it. Where files of several kinds lie
    together, as a saved dataset has its description in JSON beside it, those of the first kind in `SUFFIXES` are meant.
    """
    found = [url for given in urls for url in data_files([_deep(given)])]
    kinds = {url: kind_of(url) for url in found}
    chosen = next((kind for kind in SUFFIXES if kind in kinds.values()), None)
    return [url for url in found if kinds[url] == chosen]


def _deep(url: str) -> str:
    """Let a folder of folders stand for all files in them."""
    if not os.path.isdir(url):
        return url
    ends = tuple(end for suffixes in SUFFIXES.values() for end in suffixes)
    rich = ends[: -len(SUFFIXES["json"])]  # a description in JSON beside folders is not the data
    names = [name.lower() for name in os.listdir(url)]
    folders = any(os.path.isdir(os.path.join(url, name)) for name in os.listdir(url))
    here = any(name.endswith(rich if folders else ends) for name in names)
    return url if here or not folders else os.path.join(url, "**", "")


def source_of(
    urls: str | Sequence[str],
    *,
    kind: str | None = None,
    key: str | None = None,
    fields: Collection[str] | None = None,
    trust: bool = False,
) -> Source:
    """Make the source that reads a file, or several of one kind; ``key`` names the column that holds the keys.

    Of tars, Parquet and Arrow files only ``fields`` are read, if they are given; others give all.
    """
    kind = kind or kind_of(urls if isinstance(urls, str) else urls[0])
    if kind == "tar":
        return TarSource(urls, keep=fields, trust=trust)
    if kind == "parquet":
        return ParquetSource(urls, columns=fields, key=key)
    if kind == "arrow":
        return ArrowSource(urls, columns=fields, key=key, trust=trust)
    if kind == "tfrecord":
        return TFRecordSource(urls, key=key)
    from shoal.data import CsvSource, JsonSource

    if kind == "json":
        return JsonSource(urls, key=key)
    first = urls if isinstance(urls, str) else urls[0]
    return CsvSource(urls, key=key, sep="\t" if ".tsv" in first.lower() else ",")

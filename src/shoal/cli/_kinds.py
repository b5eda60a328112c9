"""What kind of data a file is, by its name, and the source that reads it."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.abc import Source
from shoal.errors import PlanError
from shoal.files import SHARD_SUFFIXES, expand
from shoal.sources import TFRECORD_SUFFIXES, ArrowSource, ParquetSource, TarSource, TFRecordSource

__all__ = ["SUFFIXES", "data_files", "kind_of", "source_of"]

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


def source_of(
    urls: str | Sequence[str], *, kind: str | None = None, key: str | None = None, trust: bool = False
) -> Source:
    """Make the source that reads a file, or several of one kind; ``key`` names the column that holds the keys."""
    kind = kind or kind_of(urls if isinstance(urls, str) else urls[0])
    if kind == "tar":
        return TarSource(urls, trust=trust)
    if kind == "parquet":
        return ParquetSource(urls, key=key)
    if kind == "arrow":
        return ArrowSource(urls, key=key, trust=trust)
    if kind == "tfrecord":
        return TFRecordSource(urls, key=key)
    from shoal.data import CsvSource, JsonSource

    if kind == "json":
        return JsonSource(urls, key=key)
    first = urls if isinstance(urls, str) else urls[0]
    return CsvSource(urls, key=key, sep="\t" if ".tsv" in first.lower() else ",")

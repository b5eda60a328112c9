"""The formats: how each is known by a name, read, and written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal._kinds import SUFFIXES, kind_of, source_of
from shoal._optional import require
from shoal.abc import Sample, Source
from shoal.cli._convert._fields import as_tar, as_values, single_values
from shoal.cli._convert._writer import Writer
from shoal.cli._samples import inputs_of, read_samples, written
from shoal.files import expand, local_path, open_write

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Reading", "Writing", "format_of"]


def format_of(url: str, given: str | None = None) -> str:
    """Tell the format of a file by its name, unless it is given.

    >>> format_of("a-%06d.parquet"), format_of("train.tgz#0,9"), format_of("photos/"), format_of("-", "arrow")
    ('parquet', 'tar', 'folder', 'arrow')
    """
    if given is not None:
        return given
    if url.endswith("/") or os.path.isdir(url):
        return "folder"
    return kind_of(url.partition("#")[0])


@dataclass(frozen=True, slots=True)
class Reading:
    """Where samples come from."""

    kind: str
    urls: Sequence[str]
    key: str | None = None
    """The column or feature that holds the keys."""
    trust: bool = False

    def samples(self, left_out: list[str]) -> Iterator[Sample]:
        """Read all samples; files of a folder that belong to none are put on a list."""
        if self.kind == "tar":
            return map(written, read_samples(inputs_of(self.urls), trust=self.trust))
        if self.kind == "folder":
            return self._files(left_out)
        samples = _all(source_of(self.urls, kind=self.kind, key=self.key, trust=self.trust))
        return single_values(samples) if self.kind == "tfrecord" else samples

    def schema(self) -> pa.Schema | None:
        """Give the columns of a table as its first file has them; None for what does not tell them by itself."""
        if self.kind not in ("parquet", "arrow"):
            return None
        from shoal.cli._convert._schema import schema_of

        first = next(iter(expand(self.urls, suffixes=SUFFIXES[self.kind])), "-")
        return None if first == "-" or first.startswith("pipe:") else schema_of(first, self.kind)

    def _files(self, left_out: list[str]) -> Iterator[Sample]:
        from shoal.cli.tar._creating import Files, folder_samples

        for url in self.urls:
            for _, sample in folder_samples(Files(local_path(url) or url), classes=False, left_out=left_out):
                yield sample


@dataclass(frozen=True, slots=True)
class Writing:
    """How samples are written."""

    kind: str
    fields: Sequence[str] = ()
    """Those that are wanted; all, if none are named."""
    decode: bool = False
    overwrite: bool = False
    schema: Any = None
    """Columns as they were in another table."""
    trust: bool = False

    def begin(self, url: str) -> Writer:
        """Begin a file, or a folder."""
        if self.kind == "tar":
            from shoal.shards import TarWriter

            return _Tar(TarWriter(url, keep_meta=True, trust=self.trust))
        if self.kind == "folder":
            from shoal.cli._convert._folder import FolderWriter

            return FolderWriter(url, overwrite=self.overwrite)
        if self.kind == "tfrecord":
            from shoal.cli._convert._records import RecordWriter

            require("google_crc32c", "writing TFRecord files")
            return RecordWriter(url, trust=self.trust)
        require("pyarrow", f"writing {self.kind.title()} files")
        from shoal.cli._convert._tables import TableWriter

        target = open_write(url, trust=self.trust)
        return TableWriter(target, parquet=self.kind == "parquet", schema=self.schema, fields=self.fields)

    def treated(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Leave out what is not wanted, and decode what should be."""
        for sample in samples:
            if self.fields:
                sample = {name: value for name, value in sample.items() if name == "__key__" or name in self.fields}
            yield as_values(sample) if self.decode else sample


class _Tar:
    """A tar whose fields are named by what they hold."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.close, self.abort = writer.close, writer.abort

    def write(self, sample: Sample) -> int:
        """Append a sample."""
        size: int = self._writer.write(as_tar(sample))
        return size


def _all(source: Source) -> Iterator[Sample]:
    return (sample for shard in source.shards() for block in source.open(shard) for sample in block.samples)

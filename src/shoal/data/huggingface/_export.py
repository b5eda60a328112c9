"""Export: a Hugging Face dataset as Parquet files that need nothing else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal._optional import require
from shoal.data._progress import shown
from shoal.data._row_objects import splits
from shoal.engines import current
from shoal.errors import PlanError
from shoal.files import display, exists, list_folder, remove
from shoal.settings import parse_bytes
from shoal.sources import HuggingFaceSource

if TYPE_CHECKING:
    from shoal.data.huggingface._shard_files import ShardFile

__all__ = ["export_parquet"]

#: Bytes of a row group: small enough to pick from, large enough for a request of its own.
_GROUP_BYTES = 32 * 10**6
_NAME = re.compile(r"\d{5}-of-\d{5}\.parquet")
_LOOKING = 16


def export_parquet(
    dataset: Any,
    folder: str | os.PathLike[str],
    max_shard_size: int | str = "500MB",
    *,
    progress: bool | None = True,
    overwrite: bool = False,
    row_group_size: int | None = None,
) -> list[str]:
    """Write a ``datasets.Dataset`` to Parquet files, with the pictures and sounds in them; give their names.

    Files that rows only name are embedded, rows keep their order, and ``datasets`` finds the features in the files when
    it loads them. There are as many shards as it takes to stay below ``max_shard_size`` by an estimate, called
    ``00000-of-00042.parquet`` and so on. They are written in parallel by the engine that runs (`shoal.init`); a dataset
    on disk, and files that rows name, must be where the workers can read them.

    A shard appears when it is complete. Who starts an export again goes on where it stopped, and gets the same bytes as
    without a stop. A folder that holds an export of something else is refused, unless ``overwrite`` is true.

    >>> import datasets, tempfile
    >>> rows = datasets.Dataset.from_dict({"text": ["one", "two", "three"]})
    >>> [os.path.basename(path) for path in export_parquet(rows, tempfile.mkdtemp(), max_shard_size=20)]
    ['00000-of-00002.parquet', '00001-of-00002.parquet']
    """
    plan = _Plan.of(dataset, os.fspath(folder).rstrip("/") or "/", parse_bytes(max_shard_size), row_group_size)
    left = plan.left(overwrite=overwrite)
    if left:
        from shoal.data.huggingface._shard_files import write

        engine = current()
        made = engine.gather(engine.map(write, engine.scatter(plan.files(dataset, left))))
        for _ in shown(made, len(left), "export") if progress else made:
            pass
    return plan.urls


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which rows go into which file."""

    folder: str
    version: str
    """Of the dataset."""
    rows: int
    shards: int
    group_rows: int

    @classmethod
    def of(cls, dataset: Any, folder: str, most: int, group_rows: int | None) -> _Plan:
        """Plan an export."""
        _check(dataset, most, group_rows)
        from shoal.data.huggingface._sizes import bytes_of, shard_count

        size = bytes_of(dataset)
        fitting = max(1, _GROUP_BYTES * len(dataset) // max(size, 1))
        version = HuggingFaceSource(dataset.with_format(None)).version
        return cls(folder, version, len(dataset), shard_count(size, most), group_rows or fitting)

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        return [f"{shard:05d}-of-{self.shards:05d}.parquet" for shard in range(self.shards)]

    @property
    def urls(self) -> list[str]:
        """The files."""
        return [self._url(name) for name in self.names]

    @property
    def marks(self) -> list[str]:
        """What each file says that it is made of."""
        described = {"dataset": self.version, "of": self.rows, "row_group_size": self.group_rows}
        return [json.dumps({**described, "rows": bounds}) for bounds in splits(self.rows, self.shards)]

    def left(self, *, overwrite: bool) -> list[int]:
        """Tell which shards are still to be written; what is there and not of this export is in the way."""
        from shoal.data.huggingface._shard_files import mark_of

        listed = list_folder(self.folder) if exists(self.folder) else []
        found = [name for name in listed if name.endswith(".parquet")]
        with ThreadPoolExecutor(_LOOKING, thread_name_prefix="shoal-marks") as pool:
            seen = dict(zip(found, pool.map(mark_of, map(self._url, found)), strict=True))
        wanted = dict(zip(self.names, self.marks, strict=True))
        wrong = [name for name in found if seen[name] is None or seen[name] != wanted.get(name)]
        if wrong and not overwrite:
            raise _in_the_way(self.folder, wrong)
        for name in wrong:
            if name not in wanted and _NAME.fullmatch(name):
                remove(self._url(name))
        return [shard for shard, name in enumerate(self.names) if overwrite or name not in seen]

    def files(self, dataset: Any, numbers: Iterable[int]) -> Iterator[ShardFile]:
        """Describe shards for those who write them, with the rows, or where these are."""
        from shoal.data.huggingface._shard_files import ShardFile

        urls, marks, bounds = self.urls, self.marks, splits(self.rows, self.shards)
        send = _where_it_is if _is_on_disk(dataset.data) else _as_stream
        for number in numbers:
            yield ShardFile(urls[number], marks[number], self.group_rows, send(dataset, *bounds[number]))

    def _url(self, name: str) -> str:
        return f"{self.folder.rstrip('/')}/{name}"


def _check(dataset: Any, most: int, group_rows: int | None) -> None:
    datasets = require("datasets", "exporting a dataset")
    if isinstance(dataset, datasets.DatasetDict | datasets.IterableDatasetDict):
        splits_of = ", ".join(map(repr, dataset))
        raise PlanError(f"the dataset has the splits {splits_of}; export each to a folder of its own: dataset[split]")
    if not isinstance(dataset, datasets.Dataset):
        text = f"a {type(dataset).__name__} cannot be exported"
        raise PlanError(f"{text}; give a datasets.Dataset, whose rows are counted and can be read in parallel")
    if most < 1 or (group_rows is not None and group_rows < 1):
        raise PlanError(f"max_shard_size is {most}, row_group_size is {group_rows}; both must be at least 1")


def _in_the_way(folder: str, wrong: list[str]) -> PlanError:
    others = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    text = f"{display(folder)} holds {wrong[0]}{others}, not of this export: the dataset or a size was another"
    return PlanError(f"{text}; choose another folder, or say overwrite=True")


def _is_on_disk(table: Any) -> bool:
    """Tell whether all of a table is mapped, so that its pickle is the names of files."""
    tables = require("datasets.table", "exporting a dataset")
    if isinstance(table, tables.ConcatenationTable):
        return all(_is_on_disk(block) for row in table.blocks for block in row)
    return isinstance(table, tables.MemoryMappedTable)


def _where_it_is(dataset: Any, low: int, high: int) -> Any:
    return dataset.with_format(None).select(range(low, high))


def _as_stream(dataset: Any, low: int, high: int) -> bytes:
    import pyarrow as pa

    table, sink = dataset.with_format("arrow")[low:high], pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, dataset.features.arrow_schema) as stream:
        stream.write_table(table.cast(dataset.features.arrow_schema))
    return bytes(sink.getvalue())

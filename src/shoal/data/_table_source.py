"""Tables of text as a source: a part of a file is a shard, its rows are samples.

Nobody can tell how many rows a part has, or what types hold all its values, before it was parsed. So everything is
parsed once when the shards are listed, by threads; what that tells is small, and goes to workers with the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal import files
from shoal._optional import require
from shoal.abc import Shard
from shoal.data._file_parts import Form, table_files
from shoal.errors import PlanError
from shoal.sources import Place, TableFile, TableOptions, TableSource, Urls

if TYPE_CHECKING:
    from shoal.data._survey import Survey

__all__ = ["CsvSource", "JsonSource"]

#: Bytes of text that are parsed at once: picking one row costs as much.
_PART = 8_000_000


class FrameSource(TableSource):
    """Files that pandas parses, in parts: samples are rows, and fields are columns."""

    def __init__(self, paths: Urls, form: Form, *, key: str | None = None) -> None:
        super().__init__(paths, TableOptions.of(None, key), None)
        self._form = form
        self._survey: Survey | None = None

    @property
    def seekable(self) -> bool:
        """True: a part is parsed as a whole, and kept for a while."""
        return True

    @property
    def waits(self) -> bool:
        """True: parsing takes a while, most of it without the interpreter's lock."""
        return True

    def shards(self) -> Sequence[Shard]:
        """List the parts of all files as ranges of rows; all is parsed once for it, the first time."""
        self._surveyed()
        return super().shards()

    def _listed(self) -> list[str]:
        return list(self._surveyed().urls)

    def _opened(self, place: Place) -> TableFile:
        from shoal.data._survey import FrameTable

        return FrameTable(place, self._surveyed(), self._options)

    def _surveyed(self) -> Survey:
        if self._survey is None:
            from shoal.data._survey import survey

            urls = table_files(self.urls, self._form.suffixes)
            for url in urls:
                self._check_version(url, files.stat(url))
            self._survey = survey(urls, self._form)
        return self._survey


class CsvSource(FrameSource):
    """CSV files by URL; options are those of `pandas.read_csv`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.csv")
    >>> _ = path.write_text("name,age\\nRex,3\\nMia,5\\n")
    >>> source = CsvSource(path, key="name")
    >>> source.take(source.shards()[0], [1])
    [{'__key__': 'Mia', 'name': 'Mia', 'age': 5}]
    """

    def __init__(self, paths: Urls, *, key: str | None = None, part_size: int = _PART, **options: Any) -> None:
        require("pandas", "reading CSV files")
        require("pyarrow", "reading CSV files as samples")
        from shoal.data._csv import CsvForm

        if options.get("index_col") not in (None, False):
            text = f"index_col={options['index_col']!r} makes an index, which samples do not have"
            raise PlanError(f"{text}; leave it out, and the column is a field, or name the column of the keys: key=")
        super().__init__(paths, CsvForm.of(part_size, options), key=key)


class JsonSource(FrameSource):
    """JSON files by URL; options are those of `pandas.read_json`.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pets.jsonl")
    >>> _ = path.write_text('{"name": "Rex", "age": 3}\\n')
    >>> source = JsonSource(path)
    >>> source.take(source.shards()[0], [0])
    [{'__key__': 'pets-000000000', 'name': 'Rex', 'age': 3}]
    """

    def __init__(self, paths: Urls, *, key: str | None = None, part_size: int = _PART, **options: Any) -> None:
        require("pandas", "reading JSON files")
        require("pyarrow", "reading JSON files as samples")
        from shoal.data._json import JsonForm

        super().__init__(paths, JsonForm(options, part_size), key=key)

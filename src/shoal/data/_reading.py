"""Tables in files as shards of frames."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from shoal import files
from shoal.abc import Engine, Handle
from shoal.data._csv_cuts import Cut, PartLook, cuts, look_at
from shoal.data._file_parts import FilePart, Form, part_bytes, table_files
from shoal.data._lazy import Recipe
from shoal.data._schema import Schema, conformed, widened
from shoal.data._text import TextForm
from shoal.engines import current

if TYPE_CHECKING:
    from shoal.data._xshards import XShards

__all__ = ["TableReading", "read_tables"]

#: Files whose beginnings are looked at, evenly spread over all of them.
_LOOKED_AT = 8


def read_tables(paths: Any, form: Form) -> XShards:
    """Make shards of files: each is a part of a file."""
    from shoal.data._xshards import XShards

    engine = current()
    urls = table_files(paths, form.suffixes)
    parts = _all_parts(engine, urls, form)
    step = max(len(urls) // _LOOKED_AT, 1)
    seen = [Schema.of(form.head(FilePart(url)), files.display(url)) for url in urls[::step][:_LOOKED_AT]]
    reading = TableReading(form, widened(seen))
    return XShards(Recipe.of(engine, engine.scatter(parts), reading), chain=(reading, *_squeezed(form)))


class TableReading:
    """Reads parts as frames of the same columns and types; goes to workers with what is known by then."""

    def __init__(self, form: Form, schema: Schema) -> None:
        self.form, self.schema = form, schema

    @property
    def __name__(self) -> str:
        return "read"

    def __call__(self, part: FilePart) -> Any:
        """Read a part."""
        frame = self.form.read(part, [])
        made = conformed(frame, self.schema, str(part))
        if isinstance(made, list):
            made = conformed(self.form.read(part, made), self.schema, str(part))
        return made

    def place(self, part: FilePart, frame: Any) -> str:
        """Say where a frame is from, for messages."""
        if not len(frame):
            return f"{part}, which has no rows"
        what = "rows" if part.first == 0 else self.form.unit
        return f"{what} {part.first} to {part.first + len(frame) - 1} of {part}"

    def learn(self, engine: Engine, handle: Handle) -> None:
        """Read everything for its types alone."""
        seen = list(engine.gather(engine.map(partial(_types, form=self.form), handle)))
        self.schema = widened(seen)


def _types(part: FilePart, form: Form) -> Schema:
    return Schema.of(form.read(part, []), str(part))


def _squeezed(form: Form) -> tuple[Any, ...]:
    return (_only_column,) if form.squeeze else ()


def _only_column(frame: Any) -> Any:
    return frame.iloc[:, 0] if frame.shape[1] == 1 else frame


def _all_parts(engine: Engine, urls: list[str], form: Form) -> list[FilePart]:
    """Cut large files, all at the same time."""
    known = [form.parts(url) for url in urls]
    large = [url for url, parts in zip(urls, known, strict=True) if parts is None]
    found: dict[str, list[FilePart]] = {}
    if large:
        assert isinstance(form, TextForm)  # only these have to be looked through
        found = dict(zip(large, _cut_files(engine, large, form), strict=True))
    return [part for url, parts in zip(urls, known, strict=True) for part in (found[url] if parts is None else parts)]


def _cut_files(engine: Engine, urls: list[str], form: TextForm) -> list[list[FilePart]]:
    blocks = [
        FilePart(url, start, start + form.part_size)
        for url in urls
        for start in range(0, files.stat(url).size or 0, form.part_size)
    ]
    looks = list(engine.gather(engine.map(partial(_looked, quote=form.quote), engine.scatter(blocks))))
    return [_joined(url, [(b, look) for b, look in zip(blocks, looks, strict=True) if b.url == url]) for url in urls]


def _looked(block: FilePart, quote: bytes) -> PartLook:
    return look_at(part_bytes(block), quote)


def _joined(url: str, looked: list[tuple[FilePart, PartLook]]) -> list[FilePart]:
    places = cuts([block.start for block, _ in looked], [look for _, look in looked])
    ends: list[Cut | None] = [*places[1:], None]
    size = files.stat(url).size
    pairs = zip(places, ends, strict=True)
    found = [FilePart(url, cut.place, end.place if end else None, cut.line) for cut, end in pairs]
    return [part for part in found if part.stop is not None or size is None or part.start < size]

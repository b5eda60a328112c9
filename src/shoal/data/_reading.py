"""Tables in files as shards of frames."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from shoal import files
from shoal.abc import Engine, Handle
from shoal.data._cutting import Mapped, all_parts
from shoal.data._file_parts import FilePart, Form, table_files
from shoal.data._lazy import Recipe
from shoal.data._schema import Schema, conformed, widened
from shoal.engines import current
from shoal.errors import SchemaError

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
    parts = all_parts(urls, form, _on(engine)) or [FilePart(url) for url in urls[:1]]
    filled = list(dict.fromkeys(part.url for part in parts))
    step = max(len(filled) // _LOOKED_AT, 1)
    seen = [Schema.of(form.head(FilePart(url)), files.display(url)) for url in filled[::step][:_LOOKED_AT]]
    reading = TableReading(form, widened(seen, as_text=form.as_text))
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
        if isinstance(made, list):
            raise SchemaError(f"column {made[0]!r} of {part} cannot be read as text; give it a type with dtype=")
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
        self.schema = widened(seen, as_text=self.form.as_text)


def _types(part: FilePart, form: Form) -> Schema:
    return Schema.of(form.read(part, []), str(part))


def _squeezed(form: Form) -> tuple[Any, ...]:
    return (_only_column,) if form.squeeze else ()


def _only_column(frame: Any) -> Any:
    return frame.iloc[:, 0] if frame.shape[1] == 1 else frame


def _on(engine: Engine) -> Mapped:
    return lambda function, things: engine.gather(engine.map(function, engine.scatter(things)))

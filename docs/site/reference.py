"""Pages of the reference: one for each room, with a section for each public module, made of `__all__` and docstrings.

A name that several modules export is described once, where it has its shortest name; the others have an anchor each.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

__all__ = ["pages"]


def pages(names: Sequence[str]) -> dict[str, str]:
    """Make the pages for these public names, by the names of their rooms, and one that lists them."""
    values = {name: _value(name) for name in names}
    homes = _homes(values)
    modules: dict[str, list[str]] = defaultdict(list)
    for name in names:
        modules[name.rpartition(".")[0]].append(name)
    rooms: dict[str, list[str]] = defaultdict(list)
    for module, mine in modules.items():
        rooms[room_of(module)].append(_section(module, {name: values[name] for name in mine}, homes))
    made = {room: "\n".join([room, "#" * len(room), "", *sections]) for room, sections in rooms.items()}
    return made | {"index": _index(sorted(made))}


def room_of(module: str) -> str:
    """Name the page of a module: its room, and in the largest of them its framework.

    >>> room_of("shoal.shards.codecs"), room_of("shoal.learn.bigdl.nn.layer"), room_of("shoal")
    ('shoal.shards', 'shoal.learn.bigdl', 'shoal')
    """
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["learn"] else 2])


def _value(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _homes(values: Mapping[str, Any]) -> dict[str, str]:
    """Say for each name under which one it is described: the shortest of those that mean the same."""
    first: dict[tuple[int, str], str] = {}
    keys = {name: (id(value), name.rpartition(".")[2]) for name, value in values.items()}
    for name in sorted(values, key=lambda name: (name.count("."), name)):
        first.setdefault(keys[name], name)
    return {name: first[key] for name, key in keys.items()}


def _index(rooms: Sequence[str]) -> str:
    lines = [f"   {room}" for room in rooms]
    return "\n".join(["Rooms", "#####", "", ".. toctree::", "   :maxdepth: 1", "", *lines, ""])


def _section(module: str, values: Mapping[str, Any], homes: Mapping[str, str]) -> str:
    title = [] if module == room_of(module) else [module, "=" * len(module), ""]
    head = [*title, f".. automodule:: {module}", "   :no-members:", ""]
    return "\n".join([*head, *(line for name, value in values.items() for line in _entry(name, value, homes[name]))])


def _entry(name: str, value: Any, home: str) -> Iterator[str]:
    """Write one name: described, or told what it is."""
    short = name.rpartition(".")[2]
    if home != name:
        yield from (".. raw:: html", "", f'   <span id="{name}"></span>', "", f"``{name}`` is :py:obj:`{home}`.", "")
    elif inspect.isclass(value):
        yield from (f".. autoclass:: {name}", "   :members:", *_inherited(value), "")
    elif inspect.isroutine(value):
        yield from (f".. autofunction:: {name}", "")
    elif inspect.ismodule(value):
        yield from (f":py:mod:`{value.__name__}` is described by itself.", "")
    else:
        yield from (f".. py:data:: {short}", "", *(f"   {line}" for line in _told(name, value)), "")


def _inherited(value: type) -> Iterator[str]:
    """Bring in what a class has of bases that have no public name of their own."""
    ours = [base for base in value.__mro__[1:] if base.__module__.startswith("shoal")]
    if any("._" in base.__module__ or base.__name__.startswith("_") for base in ours):
        others = {base.__name__ for base in value.__mro__[1:] if not base.__module__.startswith("shoal")}
        yield f"   :inherited-members: {', '.join(sorted(others))}"


def _told(name: str, value: Any) -> list[str]:
    """Say what a value is that is no function, class or module."""
    if type(value).__name__ == "StandIn":
        return [f"``{value!r}``: a name to write models with; see :py:mod:`{name.rpartition('.')[0]}`."]
    if hasattr(value, "make_context"):  # a command
        return [f"The command ``{value.name}``: {value.get_short_help_str(200)}"]
    comment = _comment(name.rpartition(".")[2], value)
    return [*comment, *([""] if comment else []), f"``{value!r}``"]


def _comment(attribute: str, value: Any) -> list[str]:
    """Find the comment behind ``#:`` where a value is defined; Python itself does not know where that is."""
    for module in sorted(found for found in sys.modules if found.startswith("shoal.")):
        if getattr(sys.modules[module], attribute, None) is value:
            try:
                comments = ModuleAnalyzer.for_module(module).find_attr_docs()
            except PycodeError:
                continue
            if ("", attribute) in comments:
                return [line for line in comments["", attribute] if line]
    return []


def write(names: Sequence[str], folder: Path) -> None:
    """Write the pages into a folder, leaving those alone that are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(names)
    for old in folder.glob("*.rst"):
        if old.stem not in made:
            old.unlink()
    for room, text in made.items():
        path = folder / f"{room}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

"""Every public name is described, with an example that is run, or there is a reason why it has none."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.environments import StandIn

ROOT = Path(__file__).parents[1]
NAMES = (ROOT / "tests" / "public_names.txt").read_text().split()

#: Functions whose examples would start a cluster, which takes longer than all others together; pages that run them.
ELSEWHERE = {
    "shoal.from_dask": "docs/tutorials/four-engines.md",
    "shoal.from_ray": "docs/tutorials/four-engines.md",
    "shoal.from_spark": "docs/tutorials/four-engines.md",
}


def described() -> dict[str, Any]:
    """Give functions and classes by the shortest of their public names."""
    found: dict[int, tuple[str, Any]] = {}
    for name in sorted(NAMES, key=lambda name: (name.count("."), name)):
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        if inspect.isclass(value) or inspect.isroutine(value):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def own_docstring(value: Any) -> str:
    """Give what is written at a function or a class itself; a class inherits no example."""
    return (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""


def public_methods(value: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(value).items():
        plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(plain) and plain.__module__.startswith("shoal"):
            yield name, getattr(value, name)


def test_every_function_and_class_has_an_example() -> None:
    missing = [name for name, value in described().items() if ">>>" not in own_docstring(value)]
    assert missing == sorted(ELSEWHERE, key=missing.index)


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_has_its_example_elsewhere_is_run_there(name: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / ELSEWHERE[name]).read_text(), re.MULTILINE | re.DOTALL)
    assert any(f"{name}(" in block for block in blocks), f"{ELSEWHERE[name]} does not call {name}"


def test_every_public_method_is_described() -> None:
    """Those that take the place of a method of a base may leave the words to it."""
    classes = {name: value for name, value in described().items() if inspect.isclass(value)}
    bare = [f"{name}.{each}" for name, value in classes.items() for each, found in public_methods(value)
            if not inspect.getdoc(found)]  # fmt: skip
    assert bare == []


def test_names_of_libraries_elsewhere_have_an_example_in_their_module() -> None:
    """They are made when they are asked for, hundreds of them, and have no docstrings of their own."""
    modules = {name.rpartition(".")[0] for name in NAMES}
    holding = [
        module
        for module in map(importlib.import_module, sorted(modules))
        if any(isinstance(getattr(module, name), StandIn) for name in module.__all__)
    ]
    assert len(holding) > 5
    assert [module.__name__ for module in holding if ">>>" not in (module.__doc__ or "")] == []


def test_every_public_module_says_what_it_is() -> None:
    modules = {name.rpartition(".")[0] for name in NAMES}
    assert [name for name in sorted(modules) if not importlib.import_module(name).__doc__] == []

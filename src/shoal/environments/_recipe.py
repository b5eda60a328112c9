"""What is in an environment, and how it gets there: a description, not the deed."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shoal.errors import WorkerEnvironmentError

__all__ = ["Install", "Recipe", "recipe", "recipe_names"]

#: Recipes that come with Shoal.
_HOME = Path(__file__).with_name("recipes")

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([A-Za-z0-9.!+_-]+)(?:\s*;.*)?")

#: What may be in a recipe's file, and of which type.
_INSTALL_KEYS: dict[str, type] = {"requirements": list, "file": str, "options": list, "variables": dict}
_KEYS: dict[str, type] = {
    "name": str, "summary": str, "install": list, "imports": list, "pythons": list, "commands": list,
    "scripts": dict, "variables": dict,
}  # fmt: skip

_mapping = partial(field, default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Install:
    """One call of pip.

    >>> Install(("numpy==1.23.5",), options=("--no-deps",)).requirements
    ('numpy==1.23.5',)
    """

    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Options of pip, such as ``--no-deps``."""
    variables: Mapping[str, str] = _mapping()
    """Environment variables; ``{folder}`` in them is where the environment is."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is made of.

    >>> made = Recipe("tiny", installs=(Install(("iniconfig==1.1.1",)),), imports=("iniconfig",))
    >>> made.pins
    {'iniconfig': '1.1.1'}
    """

    name: str
    summary: str = ""
    installs: tuple[Install, ...] = ()
    imports: tuple[str, ...] = ()
    """Modules that can be imported when all is well."""
    pythons: tuple[str, ...] = ()
    """Versions of Python that it is known to work with, such as ``3.11``; none for all."""
    commands: tuple[str, ...] = ()
    """Programs that must be on the machine."""
    scripts: Mapping[str, str] = _mapping()
    """Files for the environment's ``bin``, name -> text."""
    variables: Mapping[str, str] = _mapping()
    """Environment variables of processes in it; ``{python}`` and ``{folder}`` stand for its own."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            text = f"{self.name!r} is no name for an environment; it may have small letters, digits, - and _"
            raise WorkerEnvironmentError(text)
        for line in self.requirements:
            if not _PIN.fullmatch(line):
                text = f"the recipe {self.name!r} asks for {line!r}; an exact version is needed, as in name==1.2.3"
                raise WorkerEnvironmentError(text)

    @property
    def requirements(self) -> tuple[str, ...]:
        """All that pip installs."""
        return tuple(line for install in self.installs for line in install.requirements)

    @property
    def pins(self) -> dict[str, str]:
        """Name -> version of each package."""
        found = (_PIN.fullmatch(line) for line in self.requirements)
        return {canonical(match[1]): match[2] for match in found if match}

    @property
    def digest(self) -> str:
        """A few letters that change with what is built; its description and imports may change without."""
        made = {"installs": [asdict(install) for install in self.installs], "scripts": dict(self.scripts)}
        return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]

    def as_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Recipe:
        """Make it again of what `as_dict` gave."""
        installs = tuple(_install(each, None) for each in given.get("installs", ()))
        lists: dict[str, Any] = {name: tuple(given.get(name, ())) for name in ("imports", "pythons", "commands")}
        tables: dict[str, Any] = {name: dict(given.get(name, {})) for name in ("scripts", "variables")}
        return cls(given["name"], given.get("summary", ""), installs, **lists, **tables)

    def runtime_env(self) -> dict[str, Any]:
        """Describe it for Ray, which then installs it for its workers by itself.

        >>> recipe("mxnet").runtime_env()["pip"]["packages"][-1]
        'urllib3==2.8.0'
        """
        if any(install.variables for install in self.installs):
            text = f"Ray cannot build the environment {self.name!r}, part of which is compiled with what was installed"
            raise WorkerEnvironmentError(f"{text} before: `shoal env create {self.name}` on each host, and use a Guest")
        options = ["--disable-pip-version-check", *(option for each in self.installs for option in each.options)]
        pip = {"packages": list(self.requirements), "pip_check": False, "pip_install_options": options}
        variables = {name: text for name, text in self.variables.items() if "{" not in text}
        return {"pip": pip, **({"env_vars": variables} if variables else {})}


def recipe_names() -> list[str]:
    """Name the recipes that come with Shoal.

    >>> recipe_names()
    ['bigdl', 'horovod', 'mxnet', 'tensorcom', 'vineyard']
    """
    return sorted(path.stem for path in _HOME.glob("*.toml"))


def recipe(name: str | Path) -> Recipe:
    """Read a recipe: one that comes with Shoal by its name, another by the path of its TOML file.

    >>> recipe("mxnet").pins["mxnet"]
    '1.9.1'
    """
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in recipe_names():
            near = difflib.get_close_matches(str(name), recipe_names(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ";"
            known = f"Known are {', '.join(recipe_names())}, and TOML files by their path"
            raise WorkerEnvironmentError(f"there is no recipe named {str(name)!r}{hint} {known}")
        path = _HOME / f"{name}.toml"
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkerEnvironmentError(f"the recipe {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise WorkerEnvironmentError(f"the recipe {path} is not TOML: {error}") from error
    try:
        _check_keys(given, _KEYS)
        for install in given.get("install", ()):
            _check_keys(install, _INSTALL_KEYS)
        given["installs"] = [asdict(_install(each, path.parent)) for each in given.pop("install", ())]
        return Recipe.from_dict({"name": path.stem, **given})
    except (OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise WorkerEnvironmentError(f"the recipe {path} is not put together as it should be: {error}") from error


def canonical(name: str) -> str:
    """Write the name of a package as indexes do.

    >>> canonical("Lazy_Import")
    'lazy-import'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _check_keys(given: Mapping[str, Any], known: Mapping[str, type]) -> None:
    """Refuse what is misspelt, or of another type; it would be passed over in silence."""
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{name!r} means nothing; known are {', '.join(known)}")
        if not isinstance(value, known[name]):
            raise TypeError(f"{name!r} has to be a {known[name].__name__}, and is {value!r}")


def _install(given: Mapping[str, Any], folder: Path | None) -> Install:
    lines = list(given.get("requirements", ()))
    if folder is not None and "file" in given:
        text = (folder / given["file"]).read_text(encoding="utf-8")
        lines += [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return Install(tuple(lines), tuple(given.get("options", ())), dict(given.get("variables", {})))

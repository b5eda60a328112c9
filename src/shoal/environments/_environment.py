"""Environments that are there, by name or by path."""

from __future__ import annotations

import difflib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal import settings
from shoal.environments._folders import Built, built
from shoal.environments._recipe import Recipe, canonical, recipe, recipe_names
from shoal.errors import WorkerEnvironmentError

__all__ = ["Environment", "find", "probed"]

#: The oldest Python whose processes can be guests.
_OLDEST = (3, 8)

#: Seconds in which an interpreter must tell its version; a cold disk and a busy machine are slow.
_PATIENCE = 120

#: What would lead another interpreter to the modules of this one.
_LEADING = frozenset({"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"})

#: Runs on every Python, however old.
_PROBE = """
import json, sys
packages = {}
if sys.version_info >= (3, 8):
    from importlib.metadata import distributions
    for each in distributions():
        if each.metadata["Name"]:
            packages.setdefault(each.metadata["Name"], each.version)
print(json.dumps({"shoal": True, "version": list(sys.version_info[:3]), "packages": packages}))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment whose processes can be guests; it may be sent to other hosts.

    >>> find(sys.executable).version == ".".join(map(str, sys.version_info[:3]))
    True
    """

    name: str
    """The name of its recipe, or its path."""
    python: str
    """The path of its interpreter."""
    version: str
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name -> version of what is installed."""
    recipe: Recipe | None = None
    """What it was built from, if it was."""

    @property
    def minor(self) -> tuple[int, int]:
        """The version of its Python, as far as code for it must agree."""
        first, second = self.version.split(".")[:2]
        return int(first), int(second)

    def here(self) -> Environment:
        """Give it as it is on this host, on which it may lie elsewhere, or not at all."""
        if os.access(self.python, os.X_OK):
            return self
        try:
            if self.recipe is not None:
                return find(self.name)
        except WorkerEnvironmentError as error:
            raise WorkerEnvironmentError(f"on host {socket.gethostname()}: {error}") from None
        text = f"on host {socket.gethostname()} there is no {self.python}, which the environment {self.name!r} needs"
        raise WorkerEnvironmentError(f"{text}; make it there, too, or name one that is on every host")

    def variables(self, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the environment variables of a process in it, as if it had been activated."""
        given = {} if self.recipe is None else filled(self.recipe.variables, Path(self.python).parents[1])
        return variables(self.python, {**given, **(changes or {})})

    def runtime_env(self) -> dict[str, Any]:
        """Describe it for Ray: what to install if it has a recipe, and else which interpreter to take.

        Ray's own interpreter has to be of the same version as the one to take, and that needs Ray, too.

        >>> find(sys.executable).runtime_env() == {"py_executable": sys.executable}
        True
        """
        return {"py_executable": self.python} if self.recipe is None else self.recipe.runtime_env()


def find(name: str | Path | Environment) -> Environment:
    """Find an environment: by the name of a recipe, the folder of a virtual environment, or the path of a Python.

    >>> find("mxnett")
    Traceback (most recent call last):
        ...
    shoal.errors.WorkerEnvironmentError: there is no environment 'mxnett'; did you mean 'mxnet'?
    """
    if isinstance(name, Environment):
        return name.here()
    candidates = [] if isinstance(name, Path) else built(name)
    if candidates or name in recipe_names():
        return _of_recipe(str(name), candidates)
    path = Path(name).expanduser()
    if isinstance(name, str) and os.sep not in name and not path.exists():
        raise WorkerEnvironmentError(_unknown(name))
    return _of_path(path)


def variables(python: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Give the variables for a process of an interpreter: its commands come first, and nothing leads to our modules."""
    folder = Path(python).parent
    path = os.pathsep.join([str(folder), settings.variable("PATH") or os.defpath])
    ours = {"PATH": path, **({"VIRTUAL_ENV": str(folder.parent)} if (folder.parent / "pyvenv.cfg").exists() else {})}
    return settings.environment({}, {**ours, **changes}, without=_LEADING | {"VIRTUAL_ENV"})


def filled(texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Put paths of an environment in place of ``{folder}`` and ``{python}``."""
    places = {"{folder}": str(folder), "{python}": str(folder / "bin" / "python")}
    made = dict(texts)
    for mark, place in places.items():
        made = {name: text.replace(mark, place) for name, text in made.items()}
    return made


def probed(python: str) -> tuple[tuple[int, int, int], dict[str, str]]:
    """Ask an interpreter for its version and packages."""
    try:
        done = subprocess.run(  # noqa: S603  (an interpreter that the user named)
            [python, "-c", _PROBE],
            env=variables(python, {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except OSError as error:
        raise WorkerEnvironmentError(f"{python} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise WorkerEnvironmentError(f"{python} did not tell its version in {_PATIENCE} seconds") from None
    try:
        told = json.loads(done.stdout.decode().strip().splitlines()[-1])
        major, minor, micro = told["version"]
        packages = {canonical(name): str(version) for name, version in told["packages"].items()}
    except (ValueError, KeyError, TypeError, IndexError):
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        text = f"{python} does not work as a Python: it ended with {done.returncode} and said {said[0]!r}"
        raise WorkerEnvironmentError(text) from None
    return (int(major), int(minor), int(micro)), packages


def _of_recipe(name: str, candidates: list[Built]) -> Environment:
    create = f"`shoal env create {name}` builds it"
    whole = [each for each in candidates if each.state == "complete"]
    current = [each for each in whole if not each.is_outdated]
    if not current:
        if whole:
            raise WorkerEnvironmentError(f"the environment {name!r} was built from other versions; {create} anew")
        if any(each.state == "building" for each in candidates):
            raise WorkerEnvironmentError(f"the environment {name!r} is just being built")
        if candidates:
            raise WorkerEnvironmentError(f"the environment {name!r} was not built to its end: {create} anew")
        raise WorkerEnvironmentError(f"there is no environment {name!r} yet: {create}")
    ours = "{}.{}.".format(*sys.version_info)
    chosen = max(current, key=lambda each: (each.version.startswith(ours), _numbers(each.version), each.when))
    if not os.access(chosen.python, os.X_OK):
        text = f"the environment {name!r} is broken: its Python {chosen.python} leads nowhere"
        raise WorkerEnvironmentError(f"{text}; `shoal env create --force {name}` builds it anew")
    made = recipe(name) if name in recipe_names() else chosen.recipe
    return Environment(name, chosen.python, chosen.version, chosen.packages, made)


def _of_path(path: Path) -> Environment:
    python = path / "bin" / "python" if path.is_dir() else path
    if not python.exists():
        text = f"there is no {path}" if not path.exists() else f"{path} is a folder without bin/python"
        raise WorkerEnvironmentError(f"{text}; a virtual environment or the path of a Python is needed")
    version, packages = probed(os.path.abspath(python))
    if version < _OLDEST:
        told, oldest = ".".join(map(str, version)), ".".join(map(str, _OLDEST))
        raise WorkerEnvironmentError(f"{python} is Python {told}, and environments of workers need {oldest} or newer")
    return Environment(str(path), os.path.abspath(python), ".".join(map(str, version)), packages)


def _unknown(name: str) -> str:
    known = sorted({*recipe_names(), *(each.name for each in built())})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}, and paths"
    return f"there is no environment {name!r}; {hint}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())

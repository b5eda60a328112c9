"""Whether an environment is what its recipe says."""

from __future__ import annotations

import signal
import subprocess

from shoal.environments._environment import Environment, probed
from shoal.errors import WorkerEnvironmentError

__all__ = ["check"]

#: Seconds for one import; large libraries on a cold disk take their time.
_PATIENCE = 600


def check(environment: Environment) -> list[str]:
    """Import everything, compare versions, and give a sentence for each thing that is wrong.

    >>> import sys
    >>> check(Environment("nowhere", "/nowhere/bin/python", "3.11.7"))
    ['/nowhere/bin/python cannot be run: No such file or directory']
    """
    try:
        _, packages = probed(environment.python)
    except WorkerEnvironmentError as error:
        return [str(error)]
    if environment.recipe is None:
        return []
    problems = []
    for name, version in environment.recipe.pins.items():
        found = packages.get(name)
        if found is None:
            problems.append(f"{name} {version} is missing")
        elif version not in (found, found.partition("+")[0]):
            problems.append(f"{name} is {found}, and {version} is wanted")
    return problems + [text for module in environment.recipe.imports for text in _imported(environment, module)]


def _imported(environment: Environment, module: str) -> list[str]:
    """Import a module in a process of its own, for some crash."""
    try:
        done = subprocess.run(  # noqa: S603  (the interpreter of the environment)
            [environment.python, "-I", "-c", "import importlib, sys; importlib.import_module(sys.argv[1])", module],
            env=environment.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"importing {module} takes more than {_PATIENCE} seconds"]
    if done.returncode < 0:
        return [f"importing {module} ends by {signal.Signals(-done.returncode).name}"]
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return [f"{module} cannot be imported: {lines[-1] if lines else 'it says nothing'}"] if done.returncode else []

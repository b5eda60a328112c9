"""Build environments from recipes, with pip."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shoal.environments._environment import Environment, filled, probed, variables
from shoal.environments._folders import built, clear, folder_for, holding, record
from shoal.environments._recipe import Recipe, recipe
from shoal.errors import WorkerEnvironmentError

__all__ = ["build"]

#: Told how far a build is: what is done, and the line that pip wrote last.
Progress = Callable[[str, str], object]

#: Lines of the log that are shown when a build fails.
_SHOWN = 15

#: Becomes the command, after it has asked the system to be ended when its parent is (PR_SET_PDEATHSIG is 1).
_LEASH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    os._exit(137)
os.execv(sys.argv[2], sys.argv[2:])
"""


def build(
    made: Recipe | str | Path,
    *,
    python: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Environment:
    """Build the environment of a recipe, unless it is there, and give it.

    Two who build the same wait for each other. What was killed in the middle is begun anew.

    >>> build("no-such-recipe")
    Traceback (most recent call last):
        ...
    shoal.errors.WorkerEnvironmentError: ...
    """
    made = made if isinstance(made, Recipe) else recipe(made)
    tell = progress or (lambda what, line: None)
    _check_commands(made)
    interpreter, version = _interpreter(made, python)
    folder = folder_for(made, version)
    with holding(folder, wait=False) as holder:
        if holder is not None:
            return _built(made, folder, _Work(interpreter, holder, tell), force)
    tell("waiting for somebody else who builds the same", "")
    with holding(folder) as holder:
        assert holder is not None
        return _built(made, folder, _Work(interpreter, holder, tell), force=False)


class _Work:
    """Runs the commands of one build, all into one log."""

    def __init__(self, interpreter: str, holder: int, tell: Progress) -> None:
        self.interpreter, self.tell = interpreter, tell
        self._holder = holder

    def run(self, what: str, command: Sequence[str], log: BinaryIO, environ: Mapping[str, str]) -> None:
        """Run a command to its end, and tell what it says."""
        self.tell(what, "")
        log.write(f"\n# {what}\n".encode())
        # It holds the lock of the folder, too: should it outlive us, nobody begins anew before it has ended.
        process = subprocess.Popen(  # noqa: S603  (of the recipe, and without a shell)
            [sys.executable, "-c", _LEASH, str(os.getpid()), *command],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._holder,),
        )
        with process, _ended(process):
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                self.tell(what, line.decode(errors="replace").strip())
            code = process.wait()
        if code:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
            raise _Failed(f"{what} ended {how}")


class _Failed(Exception):  # noqa: N818  (never leaves this file)
    """A step did not work."""


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        process.kill()
        raise


def _built(made: Recipe, folder: Path, work: _Work, force: bool) -> Environment:
    whole = [each for each in built(made.name) if each.folder == folder and each.state == "complete"]
    if whole and not force:
        return Environment(made.name, whole[0].python, whole[0].version, whole[0].packages, made)
    clear(folder)
    log = folder.with_name(f"{folder.name}.log")
    try:
        with open(log, "wb", opener=_private) as file:
            _steps(made, folder, work, file)
    except _Failed as error:
        clear(folder)
        text = f"the environment {made.name!r} could not be built: {error}. The log {log} ends with\n{_tail(log)}"
        raise WorkerEnvironmentError(text) from None
    except BaseException:
        clear(folder)
        raise
    version, packages = probed(str(folder / "bin" / "python"))
    record(folder, made, ".".join(map(str, version)), packages)
    return Environment(made.name, str(folder / "bin" / "python"), ".".join(map(str, version)), packages, made)


def _steps(made: Recipe, folder: Path, work: _Work, log: BinaryIO) -> None:
    ours = variables(work.interpreter, {})
    work.run("making a virtual environment", [work.interpreter, "-m", "venv", str(folder)], log, ours)
    python = str(folder / "bin" / "python")
    for name, text in made.scripts.items():
        place = folder / "bin" / Path(name).name
        place.write_text(text, encoding="utf-8")
        place.chmod(0o755)
    for number, install in enumerate(made.installs, 1):
        requirements = folder / f"requirements-{number}.txt"
        requirements.write_text("".join(f"{line}\n" for line in install.requirements), encoding="utf-8")
        count = len(install.requirements)
        what = f"installing {count} packages" if count > 1 else f"installing {install.requirements[0]}"
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        environ = variables(python, filled(install.variables, folder))
        work.run(what, [*pip, *install.options, "--requirement", str(requirements)], log, environ)


def _interpreter(made: Recipe, given: str | Path | None) -> tuple[str, str]:
    """Choose the Python to build with: what was asked for, our own, or one on the machine that fits the recipe."""
    known = " or ".join(made.pythons)
    if given is not None:
        python = shutil.which(Path(given).expanduser()) or str(given)
        version = "{}.{}".format(*probed(python)[0])
        if made.pythons and version not in made.pythons:
            text = f"the recipe {made.name!r} is known to work with Python {known}, and {given} is {version}"
            raise WorkerEnvironmentError(text)
        return os.path.abspath(python), version
    ours = "{}.{}".format(*sys.version_info)
    if not made.pythons or ours in made.pythons:
        return sys.executable, ours
    for version in made.pythons:
        python = shutil.which(f"python{version}") or ""
        try:
            if python and "{}.{}".format(*probed(python)[0]) == version:
                return python, version
        except WorkerEnvironmentError:
            continue  # a stand-in that leads nowhere
    text = f"the environment {made.name!r} needs Python {known}, and there is none on the PATH"
    raise WorkerEnvironmentError(f"{text}; name one with --python")


def _check_commands(made: Recipe) -> None:
    for name in made.commands:
        if shutil.which(name) is None:
            raise WorkerEnvironmentError(f"the environment {made.name!r} needs {name!r}, which is not on the PATH")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN:]
    return textwrap.indent("\n".join(lines), "  ")

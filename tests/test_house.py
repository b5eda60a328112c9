"""What holds the house together: where imports point, what an import costs, which names are public."""

from __future__ import annotations

import ast
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import shoal
from shoal._optional import EXTRAS, require
from shoal.errors import MissingExtraError, ShoalError

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "shoal"

#: Data flows downwards; a room may import from the lines above its own, and from its own room.
ROOMS = [
    {"errors", "settings", "registry", "abc", "_optional", "_lazy", "_malloc", "_ending"}
    | {"_slabs", "_forks", "_sockets", "_tables", "_flight", "_segments", "_kept", "_array_picture"},
    {"files", "environments"},
    {"shards", "order", "store"},
    {"sources", "pipeline"},
    {"image"},
    {"engines"},
    {"data", "webdataset", "feed"},
    {"readers", "_kinds"},
    {"learn"},
    {"view"},
    {"cli", "testing"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}

#: Imported only in the files made for them, each named after its library.
FRAMEWORKS = {
    "dask",
    "distributed",
    "jax",
    "keras",
    "mxnet",
    "openvino",
    "pyspark",
    "ray",
    "tensorflow",
    "tf_keras",
    "torch",
}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, ast.parse(path.read_text(), filename=str(path))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_point_one_way() -> None:
    wrong = []
    for path, tree in modules():
        room = room_of(path)
        if room == "__init__":  # the door names every room, and opens them when asked
            continue
        assert room in LEVEL, f"{path} is in no known room"
        for name in imported(tree):
            if not name.startswith("shoal."):
                continue
            target = name.split(".")[1]
            neighbours = LEVEL[target] == LEVEL[room] and LEVEL[room] > 0 and target != room
            if LEVEL[target] > LEVEL[room] or neighbours:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_a_room_is_entered_by_its_door() -> None:
    """Other rooms use the public names of a room, not its private modules."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, tree in modules()
        if room_of(path) != "__init__"
        for name in imported(tree)
        if re.match(r"shoal\.(\w+\.)+_", name) and name.split(".")[1] != room_of(path)
    ]
    assert not wrong


def test_frameworks_are_imported_only_in_their_own_files() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, tree in modules()
        for name in imported(tree)
        if (top := name.partition(".")[0]) in FRAMEWORKS and path.stem.strip("_").partition("_")[0] != top
    ]
    assert not wrong


def test_only_settings_reads_the_environment() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path, tree in modules()
        if path.name != "settings.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    ]
    assert not wrong


def test_no_module_outgrows_one_subject() -> None:
    assert [path.name for path in SOURCE.rglob("*.py") if len(path.read_text().splitlines()) > 500] == []


def test_import_is_quiet_and_light() -> None:
    program = """
import json, sys, threading
before = set(sys.modules)
import shoal
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps({"new": sorted(new - set(sys.stdlib_module_names)), "threads": threading.active_count(),
                  "count": len(set(sys.modules) - before)}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert done.stderr == ""
    assert seen["new"] == ["shoal"]
    assert seen["threads"] == 1
    assert seen["count"] < 40


def test_rooms_import_without_frameworks() -> None:
    program = """
import sys
import shoal.files, shoal.shards, shoal.webdataset, shoal.readers, shoal.engines.local, shoal.image
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[1:]))))
"""
    heavy = [*sorted(FRAMEWORKS), "nvidia", "fsspec", "requests", "pandas", "pyarrow", "datasets", "av", "soundfile"]
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def public_names() -> list[str]:
    names = []
    for info in pkgutil.walk_packages(shoal.__path__, "shoal."):
        if any(part.startswith("_") for part in info.name.split(".")):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{info.name}.__all__ lists {name}, which is not there"
            names.append(f"{info.name}.{name}")
    return sorted({*names, *(f"shoal.{name}" for name in shoal.__all__)})


def test_public_names_are_listed() -> None:
    """A name that users may type appears in tests/public_names.txt; adding or losing one is a decision."""
    listed = (ROOT / "tests" / "public_names.txt").read_text().split()
    assert public_names() == listed


def test_every_public_function_and_class_is_described() -> None:
    for full in public_names():
        module, _, name = full.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        if callable(value) and getattr(value, "__module__", "").startswith("shoal"):
            assert value.__doc__, f"{full} has no docstring"


def test_the_tree_of_errors_is_complete_and_drawn() -> None:
    drawn = set(re.findall(r"\b(\w+Error)\b", (shoal.errors.__doc__ or "").partition("\n\nA text")[0]))
    classes = {name: value for name, value in vars(shoal.errors).items() if isinstance(value, type)}
    defined = {name for name, value in classes.items() if not issubclass(value, Warning)}
    assert {name for name in drawn if name in defined} == defined
    for name in defined - {"ShoalError"}:
        twins = [base for base in getattr(shoal.errors, name).__mro__ if not issubclass(base, ShoalError)]
        assert twins[0] not in (Exception, BaseException, object), f"{name} has no standard twin"


def project() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return loaded


def test_each_optional_library_has_an_extra_that_brings_it() -> None:
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    for module, extra in EXTRAS.items():
        brought = {Requirement(line).name.replace("-", "_").lower() for line in extras[extra]}
        name = module.lower().replace(".", "_")
        known = {name, f"py{name}", f"{name}_cpu", f"{name}_cuda120"}
        assert brought & known, f"shoal[{extra}] does not bring {module}"


def test_a_missing_extra_says_its_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(
        MissingExtraError, match=r'reading \.mp needs msgpack.*pip install "shoal\[msgpack\]"'
    ) as caught:
        require("msgpack", "reading .mp")
    assert isinstance(caught.value, ImportError)


def test_a_broken_library_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_installed.py").write_text("import a_part_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_not_there"):
        require("half_installed", "this test")


def constraints() -> dict[str, str]:
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#"))
    return {line.partition("==")[0].replace("_", "-").lower(): line.partition("==")[2] for line in lines}


def test_the_ranges_admit_the_tried_versions() -> None:
    pins = constraints()
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    for line in [*project()["dependencies"], *(line for lines in extras.values() for line in lines)]:  # type: ignore[misc]
        wanted = Requirement(line)
        if wanted.name != "shoal":
            pin = pins[wanted.name.replace("_", "-").lower()]
            assert pin in wanted.specifier, f"{line} does not admit the tried version {pin}"


def test_the_environment_is_the_one_that_was_tried() -> None:
    """Engines and frameworks are there, in the tried versions: no test passes because its library is missing."""
    pins = constraints()
    others = ["tensorflow-cpu", "nvidia-dali-cuda120", "datasets", "webdataset", "numpy"]
    for name in [*sorted(FRAMEWORKS - {"mxnet", "tensorflow"}), *others]:
        pin = pins[name.replace("_", "-")]
        assert version(name).partition("+")[0] == pin, f"{name} is {version(name)}, tried was {pin}"


def test_ci_runs_the_test_command_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("name", ["shoal.data:XShards", "shoal.learn.pytorch:Estimator"])
def test_a_name_that_needs_a_missing_library_says_what_brings_it(name: str) -> None:
    module, _, attribute = name.partition(":")
    program = f"import sys; sys.modules['pandas'] = None; from {module} import {attribute}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith('needs pandas, which is not installed: pip install "shoal[tables]"')

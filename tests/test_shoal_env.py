"""``shoal env``: environments are built, listed, checked and removed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.engine import wait_until
from support.shell import environment, shell
from support.wheels import tiny_toml


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path / "environments"))
    return tmp_path


def listed(folder: Path) -> dict[str, Any]:
    done = shell("shoal env list --json", folder)
    assert (done.returncode, done.stderr) == (0, b"")
    return {row["name"]: row for row in json.loads(done.stdout)}


def said(text: str, folder: Path, code: int = 0) -> str:
    done = shell(text, folder, seconds=280)
    assert done.returncode == code, done.stderr
    assert done.stdout == b""
    return done.stderr.decode()


def test_recipes_are_listed_before_they_are_built(folder: Path) -> None:
    rows = listed(folder)
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(
        ["bigdl", "horovod", "mxnet", "tensorcom", "vineyard"], "not built"
    )
    assert rows["mxnet"]["versions"]["numpy"] == "1.23.5"
    table = shell("COLUMNS=100 shoal env list", folder).stdout.decode()
    assert "mxnet       not built" in table
    assert "mxnet 1.9.1, numpy 1.23.5" in table


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("shoal env create mxnett", 1, "there is no recipe named 'mxnett'; did you mean 'mxnet'?"),
        ("shoal env create ./none.toml", 1, "the recipe none.toml cannot be read: No such file"),
        ("shoal env create --python /bin/false mxnet", 1, "/bin/false does not work as a Python"),
        ("shoal env create", 2, "Missing argument"),
        ("shoal env rm mxnet", 2, "there is no environment 'mxnet' to remove"),
        ("shoal env rm", 2, "which environments?"),
        ("shoal env rm --outdated", 0, ""),
        ("shoal env check", 0, "# 0 environments: all sound"),
        ("shoal env nonsense", 2, "No such command 'nonsense'"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(folder: Path, line: str, code: int, words: str) -> None:
    assert words in said(line, folder, code)


def test_a_check_of_a_missing_environment_fails(folder: Path) -> None:
    done = shell("shoal env check mxnet", folder)
    assert done.returncode == 1
    expected = "mxnet: there is no environment 'mxnet' yet: `shoal env create mxnet` builds it\n"
    assert done.stdout.decode() == expected
    assert done.stderr.decode() == "# 1 environment: 1 problem\n"


@pytest.mark.slow
def test_an_environment_from_its_building_to_its_end(folder: Path) -> None:
    tiny_toml(folder)
    assert said("shoal env create ./tiny.toml", folder).splitlines() == [
        "# tiny: making a virtual environment",
        "# tiny: installing tinything==1.0",
        "# tiny: Python {}.{}.{} with 3 packages".format(*sys.version_info),
    ]
    assert len(said("shoal env create ./tiny.toml", folder).splitlines()) == 1, "it is there"
    row = listed(folder)["tiny"]
    assert (row["state"], row["versions"]) == ("complete", {"tinything": "1.0"})
    assert row["bytes"] > 10**6
    assert said("shoal env check tiny", folder) == "# 1 environment: all sound\n"
    assert len(said("shoal env create --force ./tiny.toml", folder).splitlines()) == 3
    place = next(Path(row["folder"]).rglob("tinything.py"))
    place.write_text("raise RuntimeError('worn out')\n")
    done = shell("shoal env check", folder)
    assert done.returncode == 1
    assert done.stdout.decode() == "tiny: tinything cannot be imported: RuntimeError: worn out\n"
    assert said("shoal env rm tiny", folder) == f"# removed {Path(row['folder']).name}\n"
    assert list((folder / "environments").iterdir()) == []


@pytest.mark.slow
def test_what_pip_said_is_shown_when_it_fails(folder: Path) -> None:
    tiny_toml(folder)
    shutil.rmtree(folder / "wheels")
    words = said("shoal env create ./tiny.toml", folder, code=1)
    assert "shoal: the environment 'tiny' could not be built: installing tinything==1.0 ended with 1" in words
    assert "No matching distribution found for tinything==1.0" in words
    assert listed(folder).keys() == {"bigdl", "horovod", "mxnet", "tensorcom", "vineyard"}


@pytest.mark.slow
def test_of_two_who_build_the_same_one_waits(folder: Path) -> None:
    tiny_toml(folder)
    command = ["shoal", "env", "create", "./tiny.toml"]
    both = [
        subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    words = [process.communicate(timeout=280)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], words
    assert sum(text.count("installing") for text in words) == 1
    assert all("# tiny: Python 3" in text for text in words)
    assert said("shoal env check tiny", folder) == "# 1 environment: all sound\n"


@pytest.mark.slow
def test_a_build_that_was_killed_is_begun_anew(folder: Path) -> None:
    tiny_toml(folder)
    command = ["shoal", "env", "create", "./tiny.toml"]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
    assert wait_until(lambda: bool(list((folder / "environments").glob("tiny-*/bin/python"))), 60)
    assert listed(folder)["tiny"]["state"] == "building"
    assert "is just being built" in shell("shoal env check tiny", folder).stdout.decode()
    assert "is just being built" in said("shoal env rm tiny", folder, code=1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert wait_until(lambda: listed(folder)["tiny"]["state"] == "unfinished", 60), "pip ends with its parent"
    assert "was not built to its end: `shoal env create tiny`" in shell("shoal env check tiny", folder).stdout.decode()
    assert "installing tinything==1.0" in said("shoal env create ./tiny.toml", folder)
    assert said("shoal env check tiny", folder) == "# 1 environment: all sound\n"


@pytest.mark.slow
def test_another_recipe_of_a_name_makes_the_old_one_outdated(folder: Path) -> None:
    """As after a new version of Shoal, whose recipe of the same name has other pins."""
    tiny_toml(folder, name="mxnet")
    said("shoal env create ./mxnet.toml", folder)
    assert listed(folder)["mxnet"]["state"] == "outdated"
    problem = shell("shoal env check mxnet", folder).stdout.decode()
    assert (
        problem
        == "mxnet: the environment 'mxnet' was built from other versions; `shoal env create mxnet` builds it anew\n"
    )
    assert "# removed mxnet-" in said("shoal env rm --outdated", folder)
    assert listed(folder)["mxnet"]["state"] == "not built"


@pytest.mark.parametrize("name", ["create", "list", "check", "rm"])
def test_help_has_an_example(folder: Path, name: str) -> None:
    text = shell(f"shoal env {name} --help", folder).stdout.decode()
    assert f"Example:\n  shoal env {name}" in text

"""Environments: found, built, checked, described for Ray; what is wrong with one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.environments import (
    Environment,
    Guest,
    Install,
    Recipe,
    build,
    built,
    check,
    find,
    recipe,
    recipe_names,
    remove,
)
from shoal.errors import (
    WorkerEnvironmentError,
)
from support.engine import held, held_again, same, wait_until
from support.guests import bare_environment, module
from support.wheels import tiny_recipe


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for environments."""
    monkeypatch.setenv("SHOAL_ENVIRONMENTS", str(tmp_path / "environments"))
    return tmp_path / "environments"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing in it."""
    return bare_environment(tmp_path_factory.mktemp("bare") / "venv")


def test_a_missing_environment_says_how_to_build_it(home: Path) -> None:
    with pytest.raises(
        WorkerEnvironmentError, match="there is no environment 'mxnet' yet: `shoal env create mxnet` builds it"
    ):
        Guest("mxnet")
    with pytest.raises(WorkerEnvironmentError, match=r"no environment 'vinyard'; did you mean 'vineyard'\?"):
        find("vinyard")
    with pytest.raises(WorkerEnvironmentError, match="known are bigdl, horovod, mxnet, tensorcom, vineyard, and paths"):
        find("quux")
    elsewhere = Environment("mxnet", "/elsewhere/bin/python", "3.11.7", recipe=recipe("mxnet"))
    with pytest.raises(
        WorkerEnvironmentError, match=f"on host {os.uname().nodename}: there is no environment 'mxnet' yet"
    ):
        Guest(pickle.loads(pickle.dumps(elsewhere)))


def test_a_path_must_lead_to_a_python(tmp_path: Path) -> None:
    with pytest.raises(WorkerEnvironmentError, match=f"there is no {tmp_path}/none; a virtual environment"):
        find(f"{tmp_path}/none")
    with pytest.raises(WorkerEnvironmentError, match="is a folder without bin/python"):
        find(tmp_path)
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho segfault >&2\nexit 3\n")
    with pytest.raises(WorkerEnvironmentError, match="cannot be run: Permission denied"):
        find(broken)
    broken.chmod(0o755)
    with pytest.raises(WorkerEnvironmentError, match="does not work as a Python: it ended with 3 and said 'segfault'"):
        find(broken)
    broken.write_text("""#!/bin/sh\necho '{"version": [3, 6, 15], "packages": {}}'\n""")
    with pytest.raises(
        WorkerEnvironmentError, match=r"is Python 3\.6\.15, and environments of workers need 3\.8 or newer"
    ):
        find(broken)


def test_an_environment_whose_guests_do_not_start_is_broken(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        f"""#!/bin/sh\ncase "$1" in -c) exec {sys.executable} "$@" ;; esac\necho no library >&2\nexit 127\n"""
    )
    script.chmod(0o755)
    before = held()
    with pytest.raises(WorkerEnvironmentError, match=r"is broken: starting .* exit code 127; it last said: no library"):
        Guest(script, quiet=True)
    assert held_again(before)


def test_environments_by_folder_and_by_interpreter_are_the_same(bare: Path) -> None:
    by_folder, by_python = find(bare), find(bare / "bin" / "python")
    assert by_folder.python == by_python.python == str(bare / "bin" / "python")
    assert by_folder.version == "{}.{}.{}".format(*sys.version_info)
    assert find(f"{bare}").runtime_env() == {"py_executable": str(bare / "bin" / "python")}


def test_recipes_that_come_with_the_package_are_exact() -> None:
    assert recipe_names() == ["bigdl", "horovod", "mxnet", "tensorcom", "vineyard"]
    for name in recipe_names():
        made = recipe(name)
        assert made.pins.keys() >= {"numpy"}
        assert made.summary
        assert made.imports
        assert len({made.digest, recipe(name).digest}) == 1
        assert Recipe.from_dict(made.as_dict()) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[install]]\nrequirements = ['numpy>=1.20']", "asks for 'numpy>=1.20'; an exact version is needed"),
        ("[[install]]\nrequirements = ['numpy==1.*']", "an exact version is needed"),
        ("name = '../x'", "is no name for an environment"),
        ("name = ", "is not TOML"),
        ("install = 3", "'install' has to be a list, and is 3"),
        ("imports = 'json'", "'imports' has to be a list, and is 'json'"),
        ("import = ['json']", "'import' means nothing; known are name, summary"),
        ("[[install]]\nrequirement = ['numpy==1.26.4']", "'requirement' means nothing; known are requirements"),
        ("[[install]]\nfile = 'none.txt'", "none.txt"),
    ],
)
def test_recipes_that_cannot_work_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(WorkerEnvironmentError, match=words):
        recipe(tmp_path / "mine.toml")


def test_what_ray_cannot_build_is_said() -> None:
    with pytest.raises(WorkerEnvironmentError, match="Ray cannot build the environment 'horovod'"):
        recipe("horovod").runtime_env()
    bigdl = recipe("bigdl").runtime_env()
    assert bigdl["pip"]["pip_install_options"][-2:] == ["--pre", "--no-deps"]
    assert "bigdl-core==2.4.0.dev0" in bigdl["pip"]["packages"]
    assert "env_vars" not in bigdl, "the path of an interpreter here means nothing there"


@pytest.mark.slow
def test_an_environment_is_built_once_and_found_by_name(home: Path, tmp_path: Path) -> None:
    told: list[str] = []
    made = build(tiny_recipe(tmp_path / "wheels"), progress=lambda what, line: told.append(what))
    assert (made.name, made.packages["tinything"], check(made)) == ("tiny", "1.0", [])
    assert list(dict.fromkeys(told)) == ["making a virtual environment", "installing tinything==1.0"]
    assert home.stat().st_mode & 0o077 == 0
    again: list[str] = []
    assert build(tiny_recipe(tmp_path / "wheels"), progress=lambda what, line: again.append(what)) == made
    assert again == []
    assert find("tiny") == made
    with Guest("tiny") as guest:
        assert guest.call("tinything:__version__.__str__") == "1.0"
    other = build(tiny_recipe(tmp_path / "wheels", version="2.0"))
    assert other.python != made.python
    assert find("tiny").packages["tinything"] == "2.0", "the one that was built last"
    assert len(remove("tiny")) == 2
    assert built() == []
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_a_check_finds_what_is_wrong(home: Path, tmp_path: Path) -> None:
    made = build(tiny_recipe(tmp_path / "wheels", text="import os\nos.kill(os.getpid(), 11)\n"))
    assert check(made) == ["importing tinything ends by SIGSEGV"]
    changed = Recipe("tiny", installs=(Install(("tinything==3.0", "absent==1")),), imports=("nowhere_at_all",))
    assert check(Environment("tiny", made.python, made.version, recipe=changed)) == [
        "tinything is 1.0, and 3.0 is wanted",
        "absent 1 is missing",
        "nowhere_at_all cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
    ]
    Path(made.python).unlink()
    with pytest.raises(
        WorkerEnvironmentError, match=r"is broken: its Python .* leads nowhere; `shoal env create --force tiny`"
    ):
        find("tiny")


@pytest.mark.slow
def test_a_recipe_that_pip_cannot_follow_shows_the_end_of_the_log(home: Path, tmp_path: Path) -> None:
    wrong = Recipe("wrong", installs=(Install(("no-such-thing==1.0",), ("--no-index",)),))
    with pytest.raises(
        WorkerEnvironmentError, match=r"could not be built: installing no-such-thing==1\.0 ended with 1"
    ) as caught:
        build(wrong)
    assert "  ERROR: No matching distribution found for no-such-thing==1.0" in str(caught.value)
    assert built("wrong") == []
    assert [path.suffix for path in sorted(home.iterdir())] == [".lock", ".log"]


def test_what_a_recipe_needs_of_the_machine_is_said_first(home: Path) -> None:
    with pytest.raises(WorkerEnvironmentError, match="needs 'no-such-compiler', which is not on the PATH"):
        build(Recipe("needy", commands=("no-such-compiler",)))
    with pytest.raises(
        WorkerEnvironmentError, match=r"needs Python 3\.1, and there is none on the PATH; name one with --python"
    ):
        build(Recipe("needy", pythons=("3.1",)))
    with pytest.raises(WorkerEnvironmentError, match=r"is known to work with Python 3\.1, and .* is 3\.\d+"):
        build(Recipe("needy", pythons=("3.1",)), python=sys.executable)
    assert not home.exists() or list(home.iterdir()) == []


@pytest.mark.slow
@pytest.mark.long
def test_ray_installs_what_a_recipe_says(tmp_path: Path) -> None:
    """In an environment that sees all we have, because Ray makes a copy of the one it runs in."""
    thin = tmp_path / "thin"
    subprocess.run([sys.executable, "-m", "venv", str(thin)], check=True)
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (thin / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages" / "zz.pth").write_text(
        f"import site; site.addsitedir({ours!r})\n"
    )
    pip = [str(thin / "bin" / "python"), "-m", "pip", "install", "--quiet", "virtualenv==20.26.6"]
    subprocess.run(pip, check=True, capture_output=True)
    script = f"""
import ray
from shoal.environments import Environment, Install, Recipe, find
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
made = Recipe("tiny", installs=(Install(("iniconfig==1.1.1",)),))
environment = Environment("tiny", "/nowhere", "3.11.7", recipe=made)
def seen():
    import importlib.metadata, sys
    return [importlib.metadata.version("iniconfig"), sys.prefix]
print(seen()[0])
print(ray.get(ray.remote(runtime_env=environment.runtime_env())(seen).remote())[0])
print(ray.get(ray.remote(runtime_env=find({str(thin)!r}).runtime_env())(seen).remote())[1])
ray.shutdown()
"""
    done = subprocess.run(
        [str(thin / "bin" / "python"), "-c", script],
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    here, there, prefix = done.stdout.split()[-3:]
    assert here != there == "1.1.1"
    assert prefix == str(thin)


@pytest.fixture(scope="session")
def real() -> Iterator[Any]:
    """Builds those in the user's cache, where they stay for the next time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SHOAL_ENVIRONMENTS", raising=False)
        yield build


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_environment_of_mxnet(real: Any) -> None:
    environment = real("mxnet")
    assert check(environment) == []
    with Guest(environment) as guest:
        first = guest.keep("mxnet:nd.array", np.arange(6, dtype=np.float32).reshape(2, 3))
        assert same(first.call("asnumpy"), np.arange(6, dtype=np.float32).reshape(2, 3))
        squared = guest.keep("mxnet:nd.square", first)
        assert squared.call("asnumpy").tolist() == [[0, 1, 4], [9, 16, 25]]
        assert guest.call("numpy:__version__.__str__") == "1.23.5"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_environment_of_vineyard(real: Any, tmp_path: Path) -> None:
    """Its server runs, and its client, in a guest, keeps what we send."""
    environment = real("vineyard")
    assert check(environment) == []
    folder = module(tmp_path, """
        import subprocess
        import vineyard

        state = {}

        def serve(socket):
            words = ["--socket", socket, "--meta", "local", "--size", "64Mi", "--rpc=false"]
            state["server"] = subprocess.Popen(["vineyardd", *words])

        def connect(socket):
            state["client"] = vineyard.connect(socket)

        def put(value):
            return repr(state["client"].put(value))

        def get(key):
            return state["client"].get(vineyard.ObjectID(key))
        """)  # fmt: skip
    socket = str(tmp_path / "socket")
    array = np.random.default_rng(0).normal(size=(300, 400))
    with Guest(environment, path=[folder], quiet=True) as guest:
        guest.call("over_there:serve", socket)
        assert wait_until(lambda: Path(socket).exists(), 60)
        guest.call("over_there:connect", socket)
        key = guest.call("over_there:put", array)
        assert key.startswith("o")
        assert same(guest.call("over_there:get", key), array)

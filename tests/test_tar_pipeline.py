"""The tar tools in a row: what comes out is what went in, whoever is killed on the way."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import tarfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from support.shell import environment, shell

SAMPLES = 20_000


def digests(path: Path) -> dict[str, str]:
    """Give a digest of every member of a tar, as Python's own module reads it."""
    found: dict[str, str] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            assert member.name not in found
            found[member.name] = hashlib.sha256(file.read()).hexdigest()
    return found


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of many samples: some text, and a few hundred bytes from a file each."""
    folder = tmp_path_factory.mktemp("plan")
    random = np.random.default_rng(0)
    for number in range(50):
        (folder / f"{number}.bin").write_bytes(random.bytes(300 + 40 * number))
    lines = ["__key__\tcls\t@raw"]
    lines += [f"{number:06d}\t{number % 10}\t{number % 50}.bin" for number in random.permutation(SAMPLES)]
    (folder / "plan.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
def test_every_byte_of_every_sample_is_kept(plan: Path, tmp_path: Path) -> None:
    done = shell(
        f"tarcreate -C {plan} {plan}/plan.tsv > made.tar && "
        "cat made.tar | tarsort | tarpcat -p 4 - | tarsplit -n 3000 -o part && "
        "tarcat 'part-{000000..000006}.tar' -o back.tar",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    made, back = digests(tmp_path / "made.tar"), digests(tmp_path / "back.tar")
    assert len(made) == 2 * SAMPLES
    assert back == made
    assert len(list(tmp_path.glob("part-*.tar"))) == 7
    listed = subprocess.run(["tar", "tf", "back.tar"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 2 * SAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["tarcreate", "tarsort", "tarpcat", "tarsplit"])
def test_who_is_killed_leaves_nothing_that_looks_complete(victim: str, plan: Path, tmp_path: Path) -> None:
    text = f"tarcreate -C {plan} {plan}/plan.tsv | tarsort | tarpcat -p 4 - | tarsplit -n 1000 -o part"
    command = ["bash", "-c", f"set -o pipefail; {text}"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), start_new_session=True)
    try:
        pid = _found(process.pid, victim)
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        assert process.wait(120) != 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    for path in tmp_path.glob("part-*.tar"):
        names = list(digests(path))  # refuses what does not end as a tar does
        keys = {name.partition(".")[0] for name in names}
        assert {f"{key}.{field}" for key in keys for field in ("cls", "raw")} == set(names)


def _found(group: int, name: str, seconds: float = 30.0) -> int:
    """Wait for a process of a session to be there, by the command that it runs."""
    late = time.monotonic() + seconds
    while time.monotonic() < late:
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    command = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if int(fields[3]) == group and any(os.path.basename(part) == name.encode() for part in command[:2]):
                    return int(folder.name)
        time.sleep(0.02)
    raise AssertionError(f"{name} did not start")

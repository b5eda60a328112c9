"""Checkpoints: complete or none, wherever they are kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import StateError
from shoal.learn import Checkpoint, Checkpoints
from shoal.learn._checkpoints import latest_checkpoint, new_run
from support.s3_server import s3_bucket

FILES = {"model.pt": b"m" * 3000, "rank-0/random.pt": b"r", "rank-1/random.pt": b"s"}


def test_the_last_few_are_kept_and_read_back(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path), keep=2)
    assert kept.latest() is None
    for step in (3, 10, 200):
        kept.save(step, {**FILES, "model.pt": b"%d" % step}, {"epoch": step // 10})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000010", "step-000000000200"]
    found = kept.latest()
    assert found is not None
    assert (found.step, found.info) == (200, {"epoch": 20})
    assert found.files() == {**FILES, "model.pt": b"200"}


def test_one_that_is_made_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    kept.save(5, FILES, {"epoch": 0})
    kept.save(5, {"model.pt": b"new"}, {"epoch": 1})
    found = kept.latest()
    assert found is not None
    assert found.files() == {"model.pt": b"new"}


def test_they_may_be_in_a_bucket() -> None:
    with s3_bucket() as bucket:
        kept = Checkpoints(new_run(f"{bucket}/models"), keep=1)
        kept.save(1, FILES, {"epoch": 0})
        kept.save(2, FILES, {"epoch": 1})
        found = latest_checkpoint(f"{bucket}/models")
        assert found is not None
        assert found.step == 2
        assert found.files() == FILES
        with pytest.raises(StateError, match="no checkpoint"):
            Checkpoint.read(found.url.replace("000000000002", "000000000001"))


@given(st.integers(0, 2999))
def test_a_file_that_was_cut_or_changed_is_found_out(at: int) -> None:
    whole = bytearray(FILES["model.pt"])
    whole[at] ^= 1
    kept = Checkpoints("memory://checkpoints")
    kept.save(1, FILES, {})
    found = kept.latest()
    assert found is not None
    import fsspec

    for damaged in (bytes(whole), FILES["model.pt"][:at]):
        fsspec.filesystem("memory").pipe(f"{found.url}/model.pt", damaged)
        with pytest.raises(StateError, match=r"model\.pt of the checkpoint .* is not what was written"):
            found.files()


def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    home = Checkpoints(str(tmp_path)).save(1, FILES, {})
    manifest = json.loads(Path(home, "manifest.json").read_text())
    for name in ("../secret", "/etc/hostname", "rank-0/../../secret"):
        Path(home, "manifest.json").write_text(json.dumps({**manifest, "files": {name: "0" * 64}}))
        with pytest.raises(StateError, match="no checkpoint"):
            Checkpoint.read(home)


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_the_last_one_whole(tmp_path: Path) -> None:
    program = (
        "import sys; from shoal.learn import Checkpoints; kept = Checkpoints(sys.argv[1], keep=2)\n"
        "for step in range(1, 10**6):\n"
        "    kept.save(step, {'a': bytes([step % 256]) * 200_000, 'b': str(step).encode()}, {'step': step})\n"
        "    print(step, flush=True)\n"
    )
    last = 0
    for number in range(12):
        folder = tmp_path / f"{number}"
        with subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.013 * number)
            process.send_signal(signal.SIGKILL)
            told = [int(line) for line in process.stdout.read().splitlines()] or [1]
        found = Checkpoints(str(folder)).latest()
        assert found is not None
        assert found.step in (told[-1], told[-1] + 1)
        assert found.files() == {"a": bytes([found.step % 256]) * 200_000, "b": str(found.step).encode()}
        last = max(last, found.step)
    assert last > 1


def test_each_training_has_a_folder_of_its_own(tmp_path: Path) -> None:
    made = [new_run(str(tmp_path)) for _ in range(1)]
    for _ in range(3):
        Path(made[-1]).mkdir()
        made.append(new_run(str(tmp_path)))
    assert len(set(made)) == 4
    assert made == sorted(made)
    Checkpoints(made[1]).save(7, FILES, {})
    found = latest_checkpoint(str(tmp_path))
    assert found is not None
    assert found.step == 7

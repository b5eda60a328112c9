"""``shoal serve``: what it takes, what it says, and how it ends."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import shoal
from shoal import feed
from support.feed import SERVE, TOKEN, FeederProcess
from support.shell import shell

PIPELINE = """
import shoal

def doubled(sample):
    return {"x": sample["x"] * 2}

dataset = shoal.from_arrays({"x": range(10)}).map(doubled)

def made():
    return dataset.take(4)

number = 5
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "numbers_pipeline.py"
    path.write_text(PIPELINE)
    return path


def serve(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SERVE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_dataset_of_a_file_is_served(mode: str, pipeline: Path, tmp_path: Path) -> None:
    feeder = FeederProcess(f"{pipeline}:dataset", tmp_path, "--mode", mode, "--workers", "1", "--batch-size", "5")
    try:
        got = [batch["x"].tolist() for batch in feed.connect(feeder.url, token=TOKEN)]
    finally:
        assert feeder.end() == 0
    assert got == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
    assert "# serving" in feeder.errors.read_text()


def test_a_function_that_makes_a_dataset_is_called(pipeline: Path, tmp_path: Path) -> None:
    feeder = FeederProcess(f"{pipeline}:made", tmp_path)
    try:
        assert [batch["x"].tolist() for batch in feed.connect(feeder.url, 4, token=TOKEN)] == [[0, 2, 4, 6]]
    finally:
        feeder.end(signal.SIGINT)


def test_a_token_is_made_once_for_this_user_and_nobody_else_reads_it(
    pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_CACHE", str(tmp_path / "cache"))
    start = f"shoal serve {pipeline}:dataset --listen 127.0.0.1:0 > url &"
    assert shell(f"{start} while [ ! -s url ]; do sleep 0.1; done; kill $!; wait $!", tmp_path).returncode == 0
    token = tmp_path / "cache" / "feed" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    before = token.read_text()
    assert len(before) > 30
    with feed.serve(shoal.from_arrays({"x": range(4)})) as feeder:
        assert feeder.token == before
        assert next(iter(feed.connect(feeder.url, 2)))["x"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("numbers_pipeline.py", "name a dataset as in pipeline.py:dataset"),
        ("nowhere.py:dataset", "there is no file nowhere.py"),
        ("no.such.module:dataset", "there is no module no.such.module"),
        ("numbers_pipeline.py:number", "number of numbers_pipeline.py is of type int; it has to be a Dataset"),
        ("numbers_pipeline.py:other", "other of numbers_pipeline.py is not there"),
    ],
)
def test_what_is_no_dataset_is_named(what: str, text: str, pipeline: Path, tmp_path: Path) -> None:
    done = serve(what, cwd=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_addresses_and_certificates_that_make_no_sense_are_refused(pipeline: Path, tmp_path: Path) -> None:
    what = f"{pipeline}:dataset"
    for options, text in (
        (["--listen", "here"], "--listen here; it is an address and a port"),
        (["--listen", "127.0.0.1:0", "--tls-cert", str(pipeline)], "--tls-cert and --tls-key come together"),
        (["--listen", "192.0.2.1:0"], "cannot be served"),
        (["--listen", "127.0.0.1:0", "--workers", "many"], "workers='many'"),
        (["--listen", "127.0.0.1:0", "--join", "127.0.0.1:1"], "cannot be reached"),
    ):
        done = serve(what, *options, cwd=tmp_path)
        assert done.returncode in (1, 2), done.stderr
        assert text in done.stderr, done.stderr


def test_who_listens_to_the_network_without_tls_is_warned(pipeline: Path, tmp_path: Path) -> None:
    feeder = FeederProcess(f"{pipeline}:dataset", tmp_path, host="0.0.0.0")
    feeder.end()
    assert "warning: without TLS, who can listen in on the network reads the token and all samples" in (
        feeder.errors.read_text()
    )

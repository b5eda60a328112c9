"""Feeders come and go, are killed, stopped, restarted and replaced: every sample arrives once, in the same order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from shoal import feed
from shoal.errors import FeederLostError, FeedError, FeedWarning, StallWarning, WorkerHangError
from support import feed_plans
from support.certificates import certificate
from support.feed import TOKEN, FeederProcess, feeder_processes

SECONDS = 60 if os.environ.get("SHOAL_TEST_PROFILE") == "soak" else 16
PLANS = f"{Path(__file__).parent}/support/feed_plans.py"


def started_trainer(**options: Any) -> subprocess.Popen[str]:
    """Start a trainer in a process of its own."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "support.feed_plans", json.dumps({"token": TOKEN, "timeout": 60, **options})]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env={**os.environ, "PYTHONPATH": path}, **pipes)  # type: ignore[call-overload, no-any-return]


def ended_trainer(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate(timeout=280)
    assert process.returncode == 0, errors
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is true; for a long time, if it must be."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("plan", ["pictures", "few"])
def test_kills_and_a_feeder_that_joins_change_nothing(plan: str, tmp_path: Path) -> None:
    """Two feeders and two ranks, each at an address of its own; a feeder is killed every two seconds."""
    seconds = SECONDS
    dataset, steps = getattr(feed_plans, plan)(), {} if plan == "pictures" else {"steps": 25}
    loaders = [dataset.loader(64, rank=rank, world_size=2, **steps) for rank in range(2)]
    expected = [feed_plans.digest(feed_plans.digests(loader)) for loader in loaders]
    with feeder_processes(2, f"{PLANS}:{plan}", tmp_path, "--workers", "2") as feeders:
        urls = [feeder.url for feeder in feeders]
        common = {"urls": urls, "batch_size": 64, "seconds": seconds, "shared_memory": False, **steps}
        trainers = [started_trainer(rank=rank, world_size=2, **common) for rank in range(2)]
        kills, third = 0, None
        while any(trainer.poll() is None for trainer in trainers):
            time.sleep(2)
            if any(trainer.poll() is None for trainer in trainers):
                victim = feeders[kills % 2]
                victim.kill()
                kills += 1
                victim.start()
            if kills == 2:
                third = FeederProcess(f"{PLANS}:{plan}", tmp_path, "--join", urls[0], host="127.0.0.9")
                feeders.append(third)
        told = [ended_trainer(trainer) for trainer in trainers]
    assert kills >= seconds // 6
    for rank, found in enumerate(told):
        assert set(found["epochs"]) == {expected[rank]}
        assert any("has gone" in text for text in found["warnings"])


def test_a_killed_feeder_is_named_and_others_go_on(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.pictures().loader(50))
    with feeder_processes(2, f"{PLANS}:pictures", tmp_path) as feeders:
        loader = feed.connect([feeder.url for feeder in feeders], 50, token=TOKEN)
        batches = iter(loader)
        got = feed_plans.digests(islice(batches, 5))
        feeders[0].kill()
        with pytest.warns(FeedWarning, match=f"the feeder at {feeders[0].url} has gone: .*; others take its lanes, at"):
            got += feed_plans.digests(batches)
        assert got == expected
        states = {info.url: info.at_work for info in loader.feeders()}
        assert states == {feeders[0].url: False, feeders[1].url: True}
        feeders[0].start()
        eventually(lambda: all(info.at_work for info in loader.feeders()))


def test_a_feeder_that_joins_gets_its_share(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.pictures().loader(50))
    with feeder_processes(1, f"{PLANS}:pictures", tmp_path) as feeders:
        loader = feed.connect(feeders[0].url, 50, token=TOKEN)
        batches = iter(loader)
        got = feed_plans.digests(islice(batches, 3))
        feeders.append(FeederProcess(f"{PLANS}:pictures", tmp_path, "--join", feeders[0].url, host="127.0.0.7"))
        eventually(lambda: sum(info.at_work for info in loader.feeders()) == 2)
        got += feed_plans.digests(islice(batches, 25))
        assert {leg.member.url for leg in loader._run._legs} == {feeder.url for feeder in feeders}  # type: ignore[union-attr]
        got += feed_plans.digests(batches)
    assert got == expected


@pytest.mark.filterwarnings("error")
def test_a_feeder_that_is_told_to_end_hands_its_lanes_over_without_a_word(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.pictures().loader(50))
    with feeder_processes(2, f"{PLANS}:pictures", tmp_path) as feeders:
        loader = feed.connect([feeder.url for feeder in feeders], 50, token=TOKEN)
        batches = iter(loader)
        got = feed_plans.digests(islice(batches, 3))
        feeders[1].send(signal.SIGTERM)
        while feeders[1].process.poll() is None:
            got += feed_plans.digests(islice(batches, 1))
        assert len(got) < len(expected), "it ended while there was something to do"
        got += feed_plans.digests(batches)
        assert feeders[1].end() == 0
    assert got == expected


def test_a_stuck_feeder_is_named_and_its_lanes_are_taken_over(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.few().loader(50))
    for shared in (True, False):
        with feeder_processes(2, f"{PLANS}:few", tmp_path) as feeders:
            urls = [feeder.url for feeder in feeders]
            loader = feed.connect(urls, 50, token=TOKEN, timeout=2.0, shared_memory=shared)
            batches = iter(loader)
            got = feed_plans.digests(islice(batches, 2))
            feeders[1].send(signal.SIGSTOP)
            with pytest.warns(
                StallWarning, match=f"the feeder at {urls[1]} has sent nothing for 2 s, at batch .* lanes"
            ):
                got += feed_plans.digests(batches)
            assert got == expected


def test_where_every_feeder_gets_stuck_the_run_ends_and_says_so(tmp_path: Path) -> None:
    with feeder_processes(2, f"{PLANS}:pictures", tmp_path) as feeders:
        loader = feed.connect([feeder.url for feeder in feeders], 50, token=TOKEN, timeout=2.0)
        batches = iter(loader)
        next(batches)
        for feeder in feeders:
            feeder.send(signal.SIGSTOP)
        with (
            pytest.warns(StallWarning),
            pytest.raises(WorkerHangError, match=r"no feeder gets beyond it: .*it got stuck at batch"),
        ):
            list(batches)


def test_where_all_feeders_are_lost_it_goes_on_when_one_is_back(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.pictures().loader(50))
    with feeder_processes(1, f"{PLANS}:pictures", tmp_path) as feeders:
        batches = iter(feed.connect(feeders[0].url, 50, token=TOKEN))
        got = feed_plans.digests(islice(batches, 3))
        feeders[0].kill()
        back = threading.Timer(2.0, feeders[0].start)
        back.start()
        with pytest.warns(FeedWarning, match="has gone"):
            got += feed_plans.digests(batches)
        back.join()
    assert got == expected


def test_where_none_comes_back_it_says_what_became_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TIMEOUT", "1.5")
    with feeder_processes(2, f"{PLANS}:pictures", tmp_path) as feeders:
        urls = [feeder.url for feeder in feeders]
        batches = iter(feed.connect(urls, 50, token=TOKEN))
        next(batches)
        for feeder in feeders:
            feeder.kill()
        with (
            pytest.warns(FeedWarning),
            pytest.raises(
                FeederLostError, match=f"no feeder answers: .*{urls[0]}.*{urls[1]}.*start one with `shoal serve`"
            ),
        ):
            list(batches)
        with pytest.raises(FeederLostError, match="no feeder answers"):
            feed.connect(urls, 50, token=TOKEN)


def test_a_feeder_of_another_plan_that_comes_later_is_left_alone(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.pictures().loader(50))
    with feeder_processes(2, f"{PLANS}:pictures", tmp_path) as feeders:
        urls = [feeder.url for feeder in feeders]
        loader = feed.connect(urls, 50, token=TOKEN)
        batches = iter(loader)
        got = feed_plans.digests(islice(batches, 3))
        feeders[0].kill()
        feeders[0]._what = f"{PLANS}:other"
        feeders[0].start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got += feed_plans.digests(islice(batches, 25))
            eventually(lambda: any("seed was 1 and is 2" in info.why for info in loader.feeders()))
            got += feed_plans.digests(batches)
    assert got == expected
    texts = " ".join(str(each.message) for each in caught)
    assert "has gone" in texts
    assert "is of no use here: it serves another plan: seed was 1 and is 2" in texts


def test_a_trainer_that_was_killed_goes_on_from_its_state(tmp_path: Path) -> None:
    expected = feed_plans.digests(feed_plans.few().loader(50))
    script = f"""
import json, os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from itertools import islice
from shoal import feed
from support import feed_plans
loader = feed.connect(sys.argv[1:], 50, token={TOKEN!r})
got = feed_plans.digests(islice(loader, 7))
print(json.dumps([got, loader.state_dict()]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with feeder_processes(2, f"{PLANS}:few", tmp_path) as feeders:
        urls = [feeder.url for feeder in feeders]
        done = subprocess.run([sys.executable, "-c", script, *urls], capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr
        got, state = json.loads(done.stdout)
        again = feed.connect(urls, 50, token=TOKEN)
        again.load_state_dict(state)
        assert got + feed_plans.digests(again) == expected


def test_a_slow_trainer_makes_feeders_wait_with_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes.txt"
    monkeypatch.setenv("FEED_NOTES", str(notes))
    for shared in (True, False):
        notes.write_text("")
        with feeder_processes(1, f"{PLANS}:noted", tmp_path, "--workers", "1") as feeders:
            loader = feed.connect(feeders[0].url, 64, token=TOKEN, shared_memory=shared)
            batches = iter(loader)
            assert next(batches)["x"].nbytes == 64 * 200_000
            before, still = -1, 0
            while still < 10:  # nobody asks for more: it comes to rest
                now = len(feed_plans.made(notes))
                before, still = now, still + 1 if now == before else 0
                time.sleep(0.1)
            # What is in hand here, on its way, and being made: never all of it, which would be 400 MB.
            assert before <= 64 * 20
            memory = psutil.Process(feeders[0].process.pid).memory_info()
            assert memory.rss < 700 * 2**20
            assert len(list(batches)) == feed_plans.COUNT // 64


def test_encrypted_with_a_certificate_that_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = certificate(tmp_path, "feeder", "127.0.0.2")
    options = ["--tls-cert", str(cert), "--tls-key", str(key)]
    with feeder_processes(1, f"{PLANS}:pictures", tmp_path, *options) as (feeder,):
        assert feeder.url.startswith("grpc+tls://")
        expected = feed_plans.digests(feed_plans.pictures().loader(100))
        for shared in (True, False):
            loader = feed.connect(feeder.url, 100, token=TOKEN, tls_root=cert, shared_memory=shared)
            assert feed_plans.digests(loader) == expected
        monkeypatch.setenv("SHOAL_TIMEOUT", "1")
        with pytest.raises(FeedError):
            feed.connect(feeder.url.replace("+tls", ""), 100, token=TOKEN)

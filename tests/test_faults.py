"""The fault kit: faults come as the seed says, meet only what they were given, and tell their number."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal
from shoal.errors import PlanError, UrlError
from shoal.files import open_read
from shoal.shards import TarWriter
from shoal.testing import faults
from support.files import body

BODY = body(300_000)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_BACKOFF", "0.01")
    monkeypatch.setenv("SHOAL_TIMEOUT", "0.5")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def read(url: str) -> bytes:
    with open_read(url) as file:
        return bytes(file.read())


def test_damage_is_where_the_seed_says_and_can_be_undone(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    found = set()
    for seed in (1, 2, 1):
        path.write_bytes(BODY)
        with faults.bit_flipped(path, seed, bits=3) as damage:
            changed = [at for at, (one, other) in enumerate(zip(path.read_bytes(), BODY, strict=True)) if one != other]
            assert tuple(changed) == damage.offsets
            found.add((seed, damage.offsets))
        assert path.read_bytes() == BODY
        assert os.listdir(tmp_path) == ["a.tar"]
    assert len(found) == 2


def test_whoever_has_mapped_a_file_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(BODY)
    with path.open("rb") as file, faults.truncated(path, seed=3):
        assert file.read() == BODY
        with pytest.raises(PlanError, match="is damaged already"):
            faults.truncated(path)


def test_an_error_tells_the_number_of_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(BODY)
    with pytest.raises(ValueError) as caught, faults.truncated(path, seed=11):
        raise ValueError("something else")
    assert "seed 11" in caught.value.__notes__[0]
    with pytest.raises(ValueError) as caught, faults.http_server(seed=12), faults.killing([], seed=13):
        raise ValueError("something else")
    assert ["seed 13" in note or "seed 12" in note for note in caught.value.__notes__] == [True, True]


@pytest.mark.parametrize(
    "rule",
    [
        faults.cut(every=2),
        faults.stall(times=2),
        faults.refuse(503, every=2, retry_after=0),
        faults.cut(after=(7, 0, 9)),
    ],
    ids=lambda rule: rule.kind,
)
def test_what_a_server_does_wrong_follows_from_the_seed(tmp_path: Path, rule: faults.Rule) -> None:
    (tmp_path / "a.bin").write_bytes(BODY)
    happened = []
    for _ in range(2):
        with faults.http_server(tmp_path, rule, seed=5) as server:
            for _ in range(3):
                assert read(server.urls()[0]) == BODY
            happened.append([str(mishap) for mishap in server.fate.happened])
    assert happened[0] == happened[1] != []


@pytest.mark.parametrize("by", [100, -100])
def test_a_lie_about_the_length_is_told_as_it_is(tmp_path: Path, by: int) -> None:
    (tmp_path / "a.bin").write_bytes(BODY)
    with faults.http_server(tmp_path, faults.lie(by)) as server:
        answer = urllib.request.urlopen(server.url("/a.bin"))
        assert int(answer.headers["Content-Length"]) == len(BODY) + by


def test_a_folder_is_served_with_ranges_and_nothing_outside_of_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b.bin").write_bytes(BODY)
    (tmp_path / "secret").write_bytes(b"secret")
    with faults.http_server(tmp_path / "in") as server:
        (url,) = server.urls()
        asked = urllib.request.Request(url, headers={"Range": "bytes=10-19"})
        with urllib.request.urlopen(asked) as answer:
            assert (answer.status, answer.read()) == (206, BODY[10:20])
            assert answer.headers["ETag"]
        for path in ("/../secret", "/%2e%2e/secret", "/none"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(server.url(path))
        assert server.server_address[0] == "127.0.0.1"


def test_a_proxy_spoils_what_another_server_answers(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(BODY)
    with (
        faults.http_server(tmp_path) as server,
        faults.http_proxy(server.server_port, faults.cut(after=(100_000, 5)), faults.refuse(times=1)) as proxy,
        faults.tcp_proxy(proxy.server_port, faults.cut(after=(50_000,))) as wire,
    ):
        assert read(f"http://127.0.0.1:{wire.port}/a.bin") == BODY
        assert [mishap.kind for mishap in proxy.fate.happened] == ["cut", "cut", "refuse"]
        assert len(wire.fate.happened) == 1


def test_only_processes_of_this_program_are_met(sleeper: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo $!"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        other = int(shell.stdout.readline())
    try:
        with faults.killing([other], every=0.01, count=5) as done:
            time.sleep(0.2)
        assert done.done == []
        with faults.killing([sleeper.pid], seed=3, every=0.01, count=1) as done:
            sleeper.wait(20)
        assert [pid for _, pid in done.done] == [sleeper.pid]
        os.kill(other, 0)
    finally:
        os.kill(other, signal.SIGKILL)
    with pytest.raises(PlanError, match="is not one to be killed"), faults.stopped(os.getpid()):
        pass


def test_who_is_stopped_goes_on_at_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    schedule = faults.Schedule(every=0.01, kinds=("stop",), count=1, seconds=600)
    with faults.killing([sleeper.pid], schedule) as state:
        while not state.done or _state(sleeper.pid) != "T":
            time.sleep(0.01)
    assert _state(sleeper.pid) in "RS"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().split()[2]


def test_a_schedule_is_data_that_follows_from_a_number() -> None:
    made = faults.Schedule(seed=4, every=1.0, kinds=("kill", "stop"), count=50)
    assert list(made) == list(faults.Schedule(seed=4, every=1.0, kinds=("kill", "stop"), count=50))
    assert {event.kind for event in made} == {"kill", "stop"}
    assert [event.at for event in made] == sorted(event.at for event in made)
    assert list(made) != list(faults.Schedule(seed=5, every=1.0, kinds=("kill", "stop"), count=50))
    with pytest.raises(PlanError, match="known are kill, stop"):
        faults.Schedule(kinds=("explode",))


def test_a_full_disk_is_one_for_processes_that_are_started_too(tmp_path: Path) -> None:
    with faults.full_disk("1kB"):
        program = f"with open('{tmp_path}/a', 'wb') as file: file.write(bytes(5000))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "File too large" in done.stderr
    (tmp_path / "b").write_bytes(bytes(5000))


def test_a_small_shared_memory_is_seen_by_one_program_alone() -> None:
    inner = "import os; s = os.statvfs('/dev/shm'); print(s.f_blocks * s.f_frsize)"
    done = subprocess.run(
        faults.full_shared_memory([sys.executable, "-c", inner], "4MiB"), capture_output=True, text=True
    )
    assert int(done.stdout) == 4 * 2**20
    here = os.statvfs("/dev/shm")
    assert here.f_blocks * here.f_frsize != 4 * 2**20


def test_a_slow_disk_has_the_same_bytes(tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "a.tar")) as writer:
        for number in range(20):
            writer.write({"__key__": str(number), "cls": number})
    with faults.slow_disk(tmp_path, "1MB") as url:
        loaded = shoal.read_tar(f"{url}/a.tar").decode().loader(10)
        assert [batch["cls"].tolist() for batch in loaded] == [list(range(10)), list(range(10, 20))]
        assert (tmp_path / "b.tar").exists() is False
        with pytest.raises(UrlError, match="none"):
            list(shoal.read_tar(f"{url}/none.tar"))


def test_the_clock_is_right_again_afterwards() -> None:
    real = time.time
    with faults.clock_jumps(seed=1, by=10**6, every=0.001) as clock:
        wrong = {round(time.time() - real()) for _ in range(50) if time.sleep(0.001) is None}
        assert len(wrong) > 5
        assert max(map(abs, wrong)) <= 10**6 + 1
        assert "seed 1" in str(clock)
    assert time.time is real


def test_what_is_left_is_named(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with faults.nothing_left(tmp_path):
        subprocess.run(["true"])
    with (
        pytest.raises(AssertionError, match="more is held than before"),
        faults.nothing_left(tmp_path, seconds=0.1),
    ):
        left = socket.socket()
    left.close()
    with pytest.raises(AssertionError, match=r"b\.txt"), faults.nothing_left(tmp_path, seconds=0.1):
        (tmp_path / "b.txt").touch()

"""One command over many shards: each once, again after failures, on from where a killed run stopped."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli._jobs._agenda import Agenda
from shoal.cli._jobs._job import Job
from shoal.cli._jobs._kubernetes import Pod, manifest
from shoal.cli._jobs._state import State
from shoal.cli._yaml import to_yaml
from shoal.errors import PlanError
from shoal.readers import read_tar
from shoal.shards import TarWriter
from support.engine import wait_until
from support.shell import environment, shell

pytestmark = pytest.mark.timeout(180)


def start(text: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["bash", "-c", f"exec {text}"],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def shards_of(folder: Path, count: int) -> None:
    for number in range(count):
        with TarWriter(folder / f"in-{number:04d}.tar") as writer:
            for sample in range(number + 1):
                writer.write({"__key__": f"{number}-{sample}", "txt": f"page {sample}"})


# What is to run


def test_the_shard_is_written_into_every_word() -> None:
    job = Job.of(["cp", "in-{}.tar", "{}/{}", "plain"])
    assert job.command("07") == ["cp", "in-07.tar", "07/07", "plain"]


@pytest.mark.parametrize("words", [["tarproc", "a-{}", "-o", "b-{}"], ["x", "{}", "--output=b-{}"]])
def test_outputs_are_what_follows_minus_o(words: list[str]) -> None:
    assert Job.of(words).outputs_of("3") == ["b-3"]


def test_outputs_that_are_named_are_the_ones_that_count() -> None:
    assert Job.of(["x", "-o", "b-{}"], outputs=["c-{}"]).outputs == ("c-{}",)


def test_a_pipe_is_no_output_to_look_for() -> None:
    assert Job.of(["x", "-o", "pipe:cat > {}"]).outputs == ()


@pytest.mark.parametrize(
    ("words", "outputs", "text"),
    [
        ([], (), "no command"),
        (["echo", "hello"], (), "same for all shards"),
        (["echo", "{}"], ("out.tar",), "out.tar is the same for all shards"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(words: list[str], outputs: tuple[str, ...], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        Job.of(words, outputs=outputs)


# Who is next


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), max_size=12), st.integers(0, 4), st.floats(0.0, 10.0))
def test_each_shard_is_tried_until_it_succeeds_or_often_enough(
    fates: list[list[bool]], retries: int, backoff: float
) -> None:
    agenda = Agenda(map(str, range(len(fates))), retries=retries, backoff=backoff)
    tried: dict[str, list[float]] = {str(number): [] for number in range(len(fates))}
    now = 0.0
    while (pause := agenda.wait(now)) is not None:
        now += pause
        turn = agenda.take(now)
        assert turn is not None
        assert turn.attempt == len(tried[turn.shard]) + 1
        tried[turn.shard].append(now)
        if not fates[turn.number][turn.attempt - 1]:
            agenda.failed(turn, now)
    for number, fate in enumerate(fates):
        wanted = fate.index(True) + 1 if True in fate else len(fate)
        times = tried[str(number)]
        assert len(times) == min(wanted, retries + 1)
        for attempt, (one, other) in enumerate(pairwise(times)):
            assert other - one >= backoff * 2**attempt * 0.999


# Runs


def test_every_shard_is_done_once_and_not_again(tmp_path: Path) -> None:
    line = "shoal run --shards '{000..019}' -p 3 -- sh -c 'echo {} >> seen; echo words of {}'"
    first = shell(line, tmp_path)
    assert first.returncode == 0, first.stderr
    assert sorted((tmp_path / "seen").read_text().split()) == [f"{n:03d}" for n in range(20)]
    assert b"(20 of 20)" in first.stderr
    again = shell(line, tmp_path)
    assert again.returncode == 0
    assert b"20 finished before" in again.stderr
    assert len((tmp_path / "seen").read_text().split()) == 20
    (log,) = tmp_path.glob(".shoal-run/sh-*/logs/007.log")
    assert "words of 007" in log.read_text()


def test_a_shard_that_fails_is_tried_again_and_then_listed(tmp_path: Path) -> None:
    line = (
        "shoal run --shards '{0..5}' -p 2 --retries 2 --backoff 0.01 --"
        " sh -c 'echo x >> try-{}; test {} != 4 || { echo no luck >&2; exit 3; };"
        " test {} != 2 || test $(wc -l < try-2) = 2'"
    )
    done = shell(line, tmp_path)
    assert done.returncode == 1
    assert b"1 of 6 shards failed: 4\n" in done.stderr
    assert b"4: attempt 3 ended with 3: no luck; given up" in done.stderr
    tries = {path.name: len(path.read_text().split()) for path in tmp_path.glob("try-*")}
    assert tries == {"try-0": 1, "try-1": 1, "try-2": 2, "try-3": 1, "try-4": 3, "try-5": 1}


def test_an_output_that_is_missing_is_a_failure_and_one_that_vanished_is_made_again(tmp_path: Path) -> None:
    line = "shoal run -s '{0..3}' --retries 0 --check-output 'out-{}' -- sh -c 'test {} = 1 || echo {} > out-{}'"
    done = shell(line, tmp_path)
    assert done.returncode == 1
    assert b"out-1 is not there" in done.stderr
    (tmp_path / "out-3").unlink()
    (tmp_path / "out-1").touch()  # made by somebody else: it was never finished here
    (tmp_path / "out-0").write_text("kept")
    again = shell(line, tmp_path)
    assert again.returncode == 0
    assert b"2 finished before" in again.stderr
    assert (tmp_path / "out-3").read_text() == "3\n"
    assert (tmp_path / "out-0").read_text() == "kept"


def test_no_shell_looks_at_the_words(tmp_path: Path) -> None:
    done = shell("shoal run --shards '$(touch evil);' -- touch 'a {} *'", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {".shoal-run", "a $(touch evil); *"}


def test_options_of_the_command_are_its_own_without_dashes(tmp_path: Path) -> None:
    done = shell("shoal run -s '{1..2}' --dry-run tarproc -p 5 -s x 'in {}.tar'", tmp_path)
    assert done.stdout.decode() == "tarproc -p 5 -s x 'in 1.tar'\ntarproc -p 5 -s x 'in 2.tar'\n"
    assert not (tmp_path / ".shoal-run").exists()


def test_shards_come_from_files_and_another_mark_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("a/b\n\nc d\n")
    done = shell("shoal run -T names --replace % --state st -- sh -c 'echo \"% {}\" >> seen'", tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "seen").read_text().splitlines()) == ["a/b {}", "c d {}"]
    assert {path.name for path in (tmp_path / "st" / "done").iterdir()} == {"a%2Fb.json", "c%20d.json"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("-- echo {}", "there are no shards"),
        ("-s '{1..2}' -s 2 -- echo {}", "2 is named twice"),
        ("-s 1 -- echo", "same for all shards"),
        ("-s 1", "no command"),
        ("-s 1 -- no-such-program {}", "no command no-such-program"),
        ("-s 1 --state st -- echo {}", "another command left: touch {}"),
        ("-s 1 --print-kubernetes -- echo {}", "--image"),
    ],
)
def test_misuse_is_told_in_a_line(tmp_path: Path, arguments: str, text: str) -> None:
    assert shell("shoal run -s 0 --state st -- touch {}", tmp_path).returncode == 0
    done = shell(f"shoal run {arguments}", tmp_path)
    assert done.returncode == 2
    assert text in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


def test_two_runs_do_not_work_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli._jobs._state._PATIENCE", 0.2)
    state = State(tmp_path, Job.of(["echo", "{}"]))
    with state.held(), pytest.raises(PlanError, match="somebody works with"), state.held():
        pass
    with state.held():
        pass


def test_names_of_shards_make_names_of_files(tmp_path: Path) -> None:
    state = State(tmp_path, Job.of(["echo", "{}"]))
    shards = ["..", "a/b", "a%2Fb", "x" * 400, "x" * 399, "ünïcode", " "]
    for shard in shards:
        state.finish(shard, seconds=1.0, attempts=1)
        state.log(shard).write_text("words")
    assert state.left([*shards, "other"]) == ["other"]
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} == {
        tmp_path,
        tmp_path / "done",
        tmp_path / "logs",
    }


def test_a_closed_pipe_ends_commands_as_in_a_shell(tmp_path: Path) -> None:
    done = shell("shoal run -s 1 --retries 0 -- bash -c 'yes {} | head -1; echo ${PIPESTATUS[0]} > status'", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "status").read_text() == "141\n"


def test_on_a_terminal_a_table_shows_what_runs(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["shoal", "run", "-s", "{1..3}", "-p", "1", "--retries", "0", "--", "sh", "-c", "sleep 0.3; test {} != 2"],
        cwd=tmp_path,
        env={**environment(), "TERM": "xterm", "COLUMNS": "100"},
        stderr=slave,
        stdin=slave,
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert process.wait(30) == 1
    assert b"2 of 3 shards done, 1 failed" in shown
    assert b"runs" in shown
    assert b"shards failed: 2" in shown


# Ends


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ending_a_run_ends_its_commands_and_theirs(tmp_path: Path, how: signal.Signals) -> None:
    inner = "trap : INT; echo $$ > pid-{}; sleep 300 & echo $! > inner-{}; wait; wait"
    process = start(f"shoal run -s '{{1..4}}' -p 2 -- bash -c '{inner}'", tmp_path)
    assert wait_until(lambda: len([p for p in tmp_path.glob("inner-*") if p.read_text()]) == 2)
    pids = [int(path.read_text()) for path in (*tmp_path.glob("pid-*"), *tmp_path.glob("inner-*"))]
    assert all(map(lives, pids))
    process.send_signal(how)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 128 + how
    assert b"Traceback" not in words
    assert wait_until(lambda: not any(map(lives, pids)))
    assert len(list(tmp_path.glob("pid-*"))) == 2  # none was begun after that


def killed_in_the_middle(line: str, folder: Path, ready: Callable[[], bool]) -> None:
    process = start(line, folder)
    assert wait_until(ready, 60.0)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_commands_end_with_a_run_that_was_killed(tmp_path: Path) -> None:
    line = "shoal run -s 1 -- bash -c 'echo $$ > pid-{}; while sleep 0.1; do :; done'"
    killed_in_the_middle(line, tmp_path, lambda: bool(list(tmp_path.glob("pid-1"))) and _has_text(tmp_path / "pid-1"))
    pid = int((tmp_path / "pid-1").read_text())
    assert wait_until(lambda: not lives(pid))


def _has_text(path: Path) -> bool:
    return bool(path.read_text())


def test_ten_shards_with_a_kill_in_the_middle(tmp_path: Path) -> None:
    """The queue of the OCR example, on this machine: one output for each input, with the same samples."""
    shards_of(tmp_path, 10)
    line = (
        "shoal run -s '{0000..0009}' -p 2 --"
        " tarproc -p 16 -c 'sleep 0.1; tr a-z A-Z < sample.txt > sample.ocr' in-{}.tar -o out-{}.tar"
    )
    killed_in_the_middle(line, tmp_path, lambda: len(list(tmp_path.glob("out-*.tar"))) >= 3)
    assert len(list(tmp_path.glob("out-*.tar"))) < 10
    finished = {path.stem for path in tmp_path.glob(".shoal-run/tarproc-*/done/*.json")}
    done = shell(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{len(finished)} finished before".encode() in done.stderr
    begun = {path.stem: path.read_text().count(" tarproc -p") for path in tmp_path.glob(".shoal-run/*/logs/*")}
    assert {name for name in finished if begun[name] > 1} == set()
    for number in range(10):
        samples = {sample["__key__"]: bytes(sample["ocr"]) for sample in read_tar(f"{tmp_path}/out-{number:04d}.tar")}
        assert samples == {f"{number}-{n}": f"PAGE {n}".encode() for n in range(number + 1)}
        listed = subprocess.run(["tar", "tf", tmp_path / f"out-{number:04d}.tar"], capture_output=True, check=True)
        assert len(listed.stdout.split()) == 2 * (number + 1)


# Engines


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray", "spark"])
def test_any_engine_runs_the_same_commands(tmp_path: Path, engine: str) -> None:
    line = (
        f"shoal run --shards '{{0..5}}' -p 2 --engine {engine} --retries 1 --backoff 0.1 --"
        " sh -c 'echo words of {}; test {} != 3 || exit 7; echo {} > out-{}' run -o out-{}"
    )
    done = shell(line, tmp_path, seconds=170)
    assert done.returncode == 1, done.stderr
    assert b"3: attempt 2 ended with 7: words of 3; given up" in done.stderr
    assert b"1 of 6 shards failed: 3\n" in done.stderr
    assert {path.name for path in tmp_path.glob("out-*")} == {f"out-{n}" for n in (0, 1, 2, 4, 5)}
    assert {path.stem for path in tmp_path.glob(".shoal-run/*/done/*")} == set("01245")
    (log,) = tmp_path.glob(".shoal-run/*/logs/5.log")
    assert "words of 5" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_ending_a_run_ends_what_an_engine_runs(tmp_path: Path, engine: str) -> None:
    line = f"shoal run -s '{{1..4}}' -p 2 --engine {engine} -- bash -c 'echo $$ > pid-{{}}; exec sleep 300'"
    process = start(line, tmp_path)
    assert wait_until(lambda: sum(map(_has_text, tmp_path.glob("pid-*"))) == 2, 300.0)
    pids = [int(path.read_text()) for path in tmp_path.glob("pid-*")]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert wait_until(lambda: not any(map(lives, pids)), 120.0)


# Kubernetes


def expanded(text: str, variables: dict[str, str]) -> str:
    """Do what Kubernetes does to the words of a command."""
    found, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            found, at = found + text[at], at + 1
        elif text[at + 1] == "$":
            found, at = found + "$", at + 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            name = text[at + 2 : text.index(")", at)]
            found += variables.get(name, f"$({name})")
            at = text.index(")", at) + 1
        else:
            found, at = found + text[at : at + 2], at + 2
    return found


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]*)?([eE][0-9]+|[EPTGM]i?|Ki|k|m)?")


def wrong_with(job: dict[str, Any]) -> list[str]:
    """Check the rules that a Job has, as its cluster does before it takes one."""
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    last = f"{job['metadata']['name']}-{spec['completions'] - 1}"
    words = [*container["command"], *container["args"]]
    quantities = [each for group in container.get("resources", {}).values() for each in group.values()]
    labels = [*job["metadata"]["labels"].values(), *spec["template"]["metadata"]["labels"].values()]
    indexed = spec["completionMode"] == "Indexed"
    rules = {
        "kind": (job["apiVersion"], job["kind"]) == ("batch/v1", "Job"),
        "name": LABEL.fullmatch(job["metadata"]["name"]) is not None,
        "namespace": LABEL.fullmatch(job["metadata"].get("namespace", "default")) is not None,
        "last pod": LABEL.fullmatch(last) is not None,
        "container": LABEL.fullmatch(container["name"]) is not None and bool(container["image"].strip()),
        "completions": not indexed or (isinstance(spec["completions"], int) and spec["completions"] >= 0),
        "parallelism": 0 <= spec["parallelism"] <= 100_000,
        "limit for each": indexed and spec["backoffLimitPerIndex"] >= 0 and pod["restartPolicy"] == "Never",
        "failed indexes": 0 <= spec["maxFailedIndexes"] <= min(spec["completions"], 100_000),
        "many indexes": spec["completions"] <= 100_000,
        "replacement": spec["podReplacementPolicy"] in ("TerminatingOrFailed", "Failed"),
        "words": all(isinstance(word, str) for word in words),
        "quantities": all(isinstance(each, str) and QUANTITY.fullmatch(each) for each in quantities),
        "labels": all(re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", each) for each in labels),
        "nothing else": spec.keys()
        == {
            "completionMode",
            "completions",
            "parallelism",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
            "podReplacementPolicy",
            "template",
        },
    }
    return [name for name, holds in rules.items() if not holds]


def run_index(job: dict[str, Any], index: int, folder: Path) -> bytes:
    """Be the container of one index."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variables = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": "pod"}
    words = [expanded(word, variables) for word in [*container["command"], *container["args"]]]
    done = subprocess.run(words, cwd=folder, env={**environment(), **variables}, capture_output=True, check=True)
    return done.stdout


def test_a_job_of_kubernetes_does_the_same(tmp_path: Path) -> None:
    line = (
        "shoal run --shards '{0000..0999}' -p 16 --retries 3 --print-kubernetes --image registry.io/me/ocr:1.2"
        " --namespace books --cpu 500m --memory 8Gi --name ocr -- printf '%s|' a-{}.tar '$(HOSTNAME)' \"it's\" {}{} ''"
    )
    done = shell(line, tmp_path)
    assert done.returncode == 0, done.stderr
    job = yaml.safe_load(done.stdout)
    assert wrong_with(job) == []
    assert job["metadata"]["namespace"] == "books"
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (1000, 16)
    assert job["spec"]["backoffLimitPerIndex"] == 3
    assert run_index(job, 7, tmp_path) == b"a-0007.tar|$(HOSTNAME)|it's|00070007||"
    assert run_index(job, 999, tmp_path) == b"a-0999.tar|$(HOSTNAME)|it's|09990999||"
    assert not (tmp_path / ".shoal-run").exists()


WORDS = st.text(st.sampled_from("$(){}'\"\\ab \n*~#`;|-é😀"), max_size=12)


@given(st.lists(WORDS, max_size=4), st.lists(WORDS.filter(bool), min_size=1, max_size=3, unique=True))
def test_words_of_any_kind_arrive_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], shards: list[str]
) -> None:
    job = Job.of(["printf", "%s\\0", "{}", *words])
    made = manifest(job, shards, Pod("busybox", "x"), workers=1, retries=0)
    read = yaml.safe_load(to_yaml(made))
    assert read == made
    assert wrong_with(read) == []
    found = run_index(read, len(shards) - 1, tmp_path_factory.getbasetemp())
    assert found.decode().split("\0")[:-1] == job.command(shards[-1])[2:]


PLAIN = st.text() | st.integers() | st.booleans() | st.none()


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_yaml_is_read_back_as_it_was(value: Any) -> None:
    assert yaml.safe_load(to_yaml(value)) == value


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "Big"}, "the name 'Big'"),
        ({"name": "a" * 64}, "the name"),
        ({"name": "a" * 62}, "shorten --name"),
        ({"name": "a", "namespace": "a.b"}, "the namespace 'a.b'"),
        ({"name": "a", "memory": "8GB"}, "--memory '8GB'"),
        ({"name": "a", "cpu": "two"}, "--cpu 'two'"),
        ({"name": "a", "image": " "}, "--image"),
    ],
)
def test_what_a_cluster_would_refuse_is_refused_here(options: dict[str, str], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        manifest(Job.of(["echo", "{}"]), ["1", "2"], Pod(**{"image": "x", **options}), workers=1, retries=0)


def test_more_shards_than_a_job_takes_are_refused() -> None:
    with pytest.raises(PlanError, match="several Jobs"):
        manifest(Job.of(["echo", "{}"]), [str(n) for n in range(100_001)], Pod("x", "a"), workers=1, retries=0)


def test_a_marker_tells_what_was_done(tmp_path: Path) -> None:
    begun = time.time()
    assert shell("shoal run -s '{5..6}' --state st -- true {}", tmp_path).returncode == 0
    record = json.loads((tmp_path / "st" / "done" / "5.json").read_text())
    assert record["shard"] == "5"
    assert record["command"] == ["true", "5"]
    assert record["attempts"] == 1
    assert 0 <= record["seconds"] <= time.time() - begun

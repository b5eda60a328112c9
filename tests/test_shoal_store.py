"""``shoal store``: what is in a store, and what holds its memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.store import Store, StoreServer
from support.shell import shell
from support.store import own_store, running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with own_store("10MB", spill=str(tmp_path / "disk")) as made:
        yield made


def told(store: Store, text: str) -> str:
    done = shell(f"shoal store {text} --store {store.folder.path}", Path("/"))
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).decode()


def facts(store: Store, text: str) -> Any:
    return json.loads(told(store, f"{text} --json"))


def refused(store: Store, text: str) -> tuple[int, str]:
    done = shell(f"shoal store {text} --store {store.folder.path}", Path("/"))
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


def test_objects_are_listed_with_where_they_are_and_their_names(store: Store) -> None:
    first = store.put(np.zeros(500_000), name="old")
    store.put_name(first, "also old")
    second = store.put(np.ones(500_000, "f4"))
    third = store.put(np.zeros(600_000), persist=True)
    rows = {row["id"]: row for row in facts(store, "ls")}
    assert rows[str(first)] == {
        "id": str(first), "type": "vineyard::Tensor<double>", "bytes": 4_000_000, "where": "disk", "persisted": True,
        "names": ["also old", "old"],
    }  # fmt: skip
    assert (rows[str(second)]["where"], rows[str(second)]["persisted"]) == ("memory", False)
    assert (rows[str(third)]["where"], rows[str(third)]["names"]) == ("memory", [])
    lines = told(store, "ls").splitlines()
    assert lines[0].split() == ["id", "type", "bytes", "where", "persisted", "names"]
    assert next(line for line in lines if str(first) in line).split()[1:6] == [
        "vineyard::Tensor<double>", "4", "MB", "disk", "yes",
    ]  # fmt: skip


def test_a_pattern_chooses_by_type_or_name(store: Store) -> None:
    array, text = store.put(np.arange(3), name="train/x"), store.put("abc", name="note")
    assert [row["id"] for row in facts(store, "ls '*Tensor*'")] == [str(array)]
    assert [row["id"] for row in facts(store, "ls 'no*'")] == [str(text)]
    assert facts(store, "ls nothing") == []
    assert told(store, "ls nothing") == "# no objects\n"


def test_a_damaged_object_and_odd_names_do_not_disturb_the_list(store: Store) -> None:
    damaged = store.put([1, 2], name="bad \x1b[2J name [red]")
    store.put("sound", name="good")
    Path(store.folder.persisted(damaged)).write_bytes(b"nonsense")
    assert sorted(row["type"] for row in facts(store, "ls")) == ["damaged", "vineyard::Scalar<std::string>"]
    assert "bad \\x1b[2J name [red]" in told(store, "ls")
    assert told(store, f"rm {damaged}") == "# removed 1 object\n"


def test_status_tells_memory_and_processes(store: Store) -> None:
    name = store.put(np.zeros(250_000), name="x")
    with running(store, "view = store.get('x'); store.put(1); say('up'); sys.stdin.read()") as other:
        assert other.stdout is not None
        other.stdout.readline()
        found = facts(store, "status")
        assert (found["objects"], found["persisted"], found["names"], found["zombies"]) == (2, 1, 1, 0)
        assert found["memory_limit"] == 10_000_000
        assert found["memory_usage"] > 2_000_000
        assert found["viewers"] == {str(other.pid): 1}
        assert {holder["pid"]: holder["objects"] for holder in found["holders"]} == {other.pid: 1, os.getpid(): 0}
        store.delete(name)
        text = told(store, "status")
        assert "deleted, still looked at  1\n" in text
        assert "2.0 MB of 10 MB (20%)" in text
        line = next(line for line in text.splitlines() if line.startswith(str(other.pid)))
        assert line.split()[1] == "1"
        assert line.split()[-1] == "1"


def test_removing_by_id_by_name_with_members_and_all(store: Store) -> None:
    member = store.put(np.arange(3))
    one, other = store.put([member], name="one"), store.put([member])
    assert told(store, "rm one") == "# removed 1 object\n"
    assert (store.exists(one), store.exists(member)) == (False, True)
    assert told(store, f"rm --force {other}") == "# removed 1 object\n"
    assert not store.exists(member)
    store.put(1, name="a")
    store.put(2)
    assert told(store, "rm --all") == "# removed 2 objects\n"
    assert (store.ids(), store.list_names()) == ([], {})


def test_what_is_not_there_is_one_line_and_exit_code_1(store: Store) -> None:
    store.put(1, name="labels")
    code, text = refused(store, "rm lables")
    assert (code, text.count("\n")) == (1, 1)
    assert "there is no name 'lables'" in text
    assert "there is 'labels'" in text
    code, text = refused(store, "rm o0123456789abcdef")
    assert code == 1
    assert "there is no object o0123456789abcdef" in text
    assert refused(store, "rm")[0] == 2
    assert refused(store, "rm --all labels")[0] == 2
    done = shell("shoal store status --store nowhere", Path("/"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"shoal: there is no store at nowhere")
    assert not Path("/nowhere").exists()


def test_what_a_dead_process_left_is_collected(store: Store) -> None:
    with running(store, "store.put(np.zeros(250_000)); say('up'); sys.stdin.read()") as other:
        assert other.stdout is not None
        other.stdout.readline()
    assert store.status().memory_usage > 2_000_000
    assert told(store, "gc") == "# 0 B of memory are in use, by 0 objects\n"
    assert store.status().memory_usage == 0


def test_the_variable_names_the_store(store: Store) -> None:
    store.put("x", name="x")
    done = shell(f"SHOAL_STORE={store.folder.path} shoal store ls --json", Path("/"))
    assert [row["names"] for row in json.loads(done.stdout)] == [["x"]]


def test_a_store_at_a_url(store: Store, tmp_path: Path) -> None:
    name = store.put(np.arange(3), name="x")
    with closing(StoreServer(store.folder.path)) as server:
        token = tmp_path / "token"
        token.write_text(server.token)
        place = f"--store {server.url} --token-file {token}"
        rows = json.loads(shell(f"shoal store ls --json {place}", Path("/")).stdout)
        assert [(row["id"], row["names"], row["where"]) for row in rows] == [(str(name), ["x"], "elsewhere")]
        assert json.loads(shell(f"shoal store status --json {place}", Path("/")).stdout)["objects"] == 1
        assert shell(f"shoal store gc {place}", Path("/")).returncode == 2
        assert shell(f"shoal store rm x {place}", Path("/")).returncode == 0
    assert store.ids() == []


def test_help_shows_examples() -> None:
    for name in ("status", "ls", "rm", "gc", "serve"):
        text = shell(f"shoal store {name} --help", Path("/")).stdout.decode()
        assert f"Example:\n  shoal store {name}" in text

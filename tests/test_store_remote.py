"""Stores of several hosts: one namespace, over real servers in processes of their own."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.flight as flight
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from shoal._flight import pack, schema
from shoal.errors import ObjectNotFoundError, StoreError, StoreFullError, TrustError
from shoal.store import (
    ObjectID,
    ObjectMeta,
    RemoteStore,
    StoreServer,
    StoreWarning,
    connect,
    make_global_dataframe,
    make_global_tensor,
    partitions,
)
from shoal.store._arriving import arrive
from shoal.store._flight_blobs import RemoteBlob, messages, pieces
from shoal.store._flight_wire import blobs_of, layout
from support.certificates import certificate
from support.store_hosts import SERVE, Host


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Host, Host]]:
    one = Host()
    two = Host(*one.joining())
    yield one, two
    one.close()
    two.close()


@pytest.fixture
def hosts(pair: tuple[Host, Host]) -> Iterator[tuple[Host, Host]]:
    yield pair
    for host in pair:
        host.store.clear()


@pytest.fixture
def started() -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def start(*options: str, **more: Any) -> Host:
        made.append(Host(*options, **more))
        return made[-1]

    yield start
    for host in made:
        host.close()


def eventually(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.05)
    return true()


def same(one: Any, two: Any) -> bool:
    if isinstance(one, pd.DataFrame | pd.Series):
        (pd.testing.assert_frame_equal if isinstance(one, pd.DataFrame) else pd.testing.assert_series_equal)(one, two)
        return True
    if isinstance(one, np.ndarray):
        return bool(one.dtype == two.dtype and np.array_equal(one, two))
    if sp.issparse(one):
        return one.format == two.format and (one != two).nnz == 0
    if isinstance(one, pa.Table | pa.RecordBatch):
        return bool(one.equals(two))
    return bool(one == two)


FRAME = pd.DataFrame({"a": np.arange(5), "b": list("vwxyz"), "c": pd.date_range("2024-01-01", periods=5)})
VALUES = {
    "a number": 1.234,
    "a text": "abcde, ä and \ud800",
    "bytes": b"abcde",
    "no bytes": b"",
    "a tuple": (1, "2", 3.456, np.arange(3).tolist()),
    "an array": np.arange(120.0).reshape(4, 5, 6),
    "an array without values": np.zeros((0, 3), np.int16),
    "an array in Fortran's order": np.asfortranarray(np.arange(12).reshape(3, 4)),
    "a larger array": np.arange(3_000_001, dtype=np.float32),
    "texts": np.array(["", "x", "yz"], object),
    "a frame": FRAME,
    "a wide frame": pd.DataFrame(np.arange(6000).reshape(3, 2000), columns=[f"c{n}" for n in range(2000)]).astype(
        {"c7": float}
    ),
    "a series": pd.Series([1, None, 3], name="s"),
    "a table": pa.table({"x": [1, None, 3], "y": ["a", "b", None], "z": [[1], [], [2, 3]]}),
    "a record batch": pa.record_batch({"x": pa.array(range(10))}),
    "a sparse matrix": sp.random(50, 40, 0.1, "csr", random_state=0),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_equal_on_all_hosts_whoever_put_them(hosts: tuple[Host, Host], name: str) -> None:
    one, two = hosts
    value = VALUES[name]
    with one.remote() as remote, two.remote() as other:
        ids = [store.put(value, persist=True) for store in (one.store, two.store, remote, other)]
        for object_id in ids:
            for reader in (one.store, two.store, remote, other):
                assert same(value, reader.get(object_id))


def test_reading_from_another_host_stores_nothing_here(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(np.arange(1000), persist=True)
    assert two.store.get(made).sum() == 499500
    assert two.store.ids() == []
    assert two.store.list_objects() == []


def test_persisted_objects_are_described_elsewhere_and_transient_ones_are_not(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(np.zeros((4, 5)))
    assert not two.store.exists(made)
    with pytest.raises(ObjectNotFoundError, match=str(made)):
        two.store.get_meta(made)
    with one.remote() as remote, pytest.raises(ObjectNotFoundError, match="others see only what is persisted"):
        remote.get_meta(made)
    one.store.persist(made)
    meta = two.store.get_meta(made)
    assert meta["shape_"] == [4, 5]
    assert (meta.local, meta.islocal, meta.persistent) == (False, False, True)
    assert meta.instance_id == one.store.instance_id != two.store.instance_id
    assert two.store.exists(made)
    two.store.persist(made)


@pytest.mark.parametrize("count", [1_000, 10_000, 3_000_000])
def test_bytes_come_when_they_are_looked_at_and_once_for_all(hosts: tuple[Host, Host], count: int) -> None:
    one, two = hosts
    made = one.store.put(np.arange(count), persist=True)
    (blob,) = blobs_of(two.store.get_meta(made))
    assert isinstance(blob, RemoteBlob)
    assert (blob.nbytes, len(blob), blob.is_here) == (8 * count, 8 * count, False)
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda _: blob.view, range(8)))
    assert blob.is_here
    assert all(view.obj is views[0].obj for view in views)
    assert views[0].readonly
    assert bytes(views[0]) == np.arange(count).tobytes()


@given(st.lists(st.integers(0, 700), max_size=6), st.data())
def test_any_part_of_an_object_is_that_part_of_its_bytes(sizes: list[int], data: st.DataObject) -> None:
    meta = ObjectMeta("some::Thing")
    for number, size in enumerate(sizes):
        meta.add_member(f"blob-{number}", bytes([number + 1]) * size)
    begins, end = layout(sizes)
    whole = bytearray(end)
    for number, (first, size) in enumerate(zip(begins, sizes, strict=True)):
        whole[first : first + size] = bytes([number + 1]) * size
        assert first % 64 == 0
    first, last = sorted([data.draw(st.integers(0, end)), data.draw(st.integers(0, end))])
    assert b"".join(messages(pieces(meta, blobs_of(meta), first, last))) == whole[first:last]


def test_blobs_lie_at_multiples_of_64_bytes(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(pd.DataFrame({"a": np.arange(3, dtype=np.int8), "b": np.arange(3.0)}), persist=True)
    for blob in blobs_of(two.store.get_meta(made)):
        address = np.frombuffer(blob.view, np.uint8).__array_interface__["data"][0]
        assert address % 64 == 0


def test_a_global_sequence_that_is_persisted_persists_its_members(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    member = one.store.put(np.arange(3))
    one.store.put((member,), global_=True, persist=True)
    assert [meta.id for meta in two.store.list_objects("vineyard::Tensor*", joined=True)] == [member]
    assert two.store.list_objects("vineyard::Tensor*") == []


@pytest.mark.parametrize("name", ["a number", "an array", "a larger array", "a frame", "bytes"])
def test_migration_copies_what_is_elsewhere_under_a_new_id(hosts: tuple[Host, Host], name: str) -> None:
    one, two = hosts
    made = one.store.put(VALUES[name], persist=True)
    assert one.store.migrate(made) == made
    moved = two.store.migrate(made)
    assert moved != made
    one.store.delete(made)
    assert same(VALUES[name], two.store.get(moved))
    assert two.store.get_meta(moved).local
    assert not one.store.exists(moved), "the copy goes when its process ends"


def test_migrated_objects_bring_their_members_and_can_stay(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    inner = one.store.put(np.arange(3), persist=True)
    outer = one.store.put([inner, inner, "text"], persist=True)
    moved = two.store.migrate(outer, persist=True)
    one.store.delete(outer)
    assert not two.store.exists(inner)
    first, second, text = one.store.get(moved)
    assert (first.tolist(), second.tolist(), text) == ([0, 1, 2], [0, 1, 2], "text")


def test_fetching_gets_a_copy_of_this_host(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(FRAME, persist=True)
    pd.testing.assert_frame_equal(two.store.get(made, fetch=True), FRAME)
    (copy,) = two.store.ids()
    assert copy != made


def test_persisted_objects_can_be_deleted_from_any_host(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    before = one.store.status().memory_usage
    made = one.store.put(np.ones(1_000_000), persist=True, name="ones")
    assert one.store.status().memory_usage > before + 8_000_000
    with one.remote() as remote:
        assert remote.status().memory_usage == one.store.status().memory_usage
    two.store.delete(made)
    assert one.store.status().memory_usage == before
    for store in (one.store, two.store):
        with pytest.raises(ObjectNotFoundError):
            store.get_meta(made)
    assert one.store.list_names() == {}


def test_a_global_object_outlives_one_of_its_members(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    parts = [host.store.put(np.full(3, number), persist=True) for number, host in enumerate(hosts)]
    whole = make_global_tensor(one.store, parts)
    one.store.delete(parts[1])
    assert two.store.get_meta(whole.id).isglobal
    assert not two.store.exists(parts[1])
    with pytest.raises(ObjectNotFoundError, match=str(parts[1])):
        one.store.get(whole.id, partitions="all")


def test_deleting_a_global_object_deletes_members_everywhere_but_not_shared_ones(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    parts = [host.store.put(np.full(3, number), persist=True) for number, host in enumerate(hosts)]
    shared = two.store.put(np.arange(3), persist=True)
    whole = make_global_tensor(one.store, [*parts, shared])
    kept = two.store.put((shared,), persist=True)
    two.store.delete(whole.id)
    assert not any(one.store.exists(part) for part in [*parts, whole.id])
    assert two.store.get(kept)[0].tolist() == [0, 1, 2]


def test_partitions_on_both_hosts_are_one_tensor(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    full = np.arange(8 * 400 * 10.0).reshape(3200, 10)
    blocks = [
        hosts[number % 2].store.put(part, persist=True, partition_index=(number, 0))
        for number, part in enumerate(np.split(full, 8))
    ]
    whole = make_global_tensor(one.store, blocks, shape=full.shape, partition_shape=(400, 10))
    assert whole["owners_"] == [host.store.instance_id for host in hosts] * 4
    for store in (one.store, two.store):
        assert np.array_equal(store.get(whole.id, partitions="all", to="numpy"), full)
        assert len(partitions(store.get_object(whole.id), "local")) == 4
    assert [part[0, 0] for part in two.store.get(whole.id)] == [4000.0, 12000.0, 20000.0, 28000.0]
    moved = two.store.migrate(whole.id)
    assert set(two.store.get_meta(moved)["owners_"]) == {two.store.instance_id}
    assert np.array_equal(np.concatenate(two.store.get(moved)), full)
    assert len(two.store.ids()) == 4 + 4 + 1


def test_partitions_on_both_hosts_are_one_frame(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    blocks = [
        host.store.put(FRAME.assign(a=FRAME.a + 10 * number), persist=True, partition_index=(number, 0))
        for number, host in enumerate(hosts)
    ]
    whole = make_global_dataframe(two.store, blocks)
    found = one.store.get(whole.id, partitions="all", to="pandas")
    assert found.a.tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert [frame.a.tolist() for frame in one.store.get(whole.id)] == [[0, 1, 2, 3, 4]]


def test_names_are_found_on_all_hosts_and_one_name_stands_for_one_object(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(1, name="model")
    assert two.store.get("model") == 1
    assert two.store.get_name("model") == made
    assert two.store.list_names() == {}
    assert two.store.list_names("m*", joined=True) == {"model": made}
    newer = two.store.put(2, name="model")
    assert [store.get_name("model") for store in (one.store, two.store)] == [newer, newer]
    two.store.put_name(made, "model")
    assert one.store.list_names() == {"model": made}
    assert two.store.list_names() == {}
    two.store.drop_name("model")
    for store in (one.store, two.store):
        with pytest.raises(ObjectNotFoundError, match="'model'"):
            store.get_name("model")


def test_a_name_that_comes_later_is_waited_for(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    with ThreadPoolExecutor(2) as pool, one.remote() as remote:
        waiting = [pool.submit(store.get_name, "later", 100.0) for store in (one.store, remote)]
        made = two.store.put(5, name="later")
        assert [job.result() for job in waiting] == [made, made]
    with pytest.raises(ObjectNotFoundError):
        one.store.get_name("never", wait=0.3)


def test_all_verbs_work_through_a_server(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    elsewhere = two.store.put(np.arange(2_000_000.0), persist=True, name="elsewhere")
    with one.remote() as remote:
        assert remote.instance_id == one.store.instance_id
        made = remote.put(np.arange(4))
        assert (remote.get(made).tolist(), remote.exists(made), remote.get_meta(made).persistent) == (
            [0, 1, 2, 3],
            True,
            False,
        )
        assert not two.store.exists(made)
        remote.persist(made)
        assert two.store.get(made).tolist() == [0, 1, 2, 3]
        remote.put_name(made, "four")
        assert (remote.get_name("four"), remote.list_names()) == (made, {"four": made})
        assert remote.get("elsewhere").sum() == two.store.get(elsewhere).sum()
        assert [meta.id for meta in remote.list_objects("vineyard::Tensor*")] == remote.ids() == [made]
        assert remote.migrate(made) == made
        moved = remote.migrate(elsewhere)
        assert one.store.get(moved)[-1] == 1_999_999.0
        remote.drop_name("four")
        remote.delete([made])
        assert not remote.exists(made)
        status = remote.status()
        assert (status.path, status.persisted) == (str(one.folder), 0)
        assert pickle.loads(pickle.dumps(remote)).get_name("elsewhere") == elsewhere
        remote.clear()
        assert one.store.ids() == []


def test_bytes_are_the_same_by_either_way_also_large_and_many(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    payloads = [os.urandom(size) for size in (0, 1, 13, 65_536, 5_000_001, 20_000_000)]
    with one.remote() as remote, ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(remote.put, payloads))
        for payload, object_id in zip(payloads, ids, strict=True):
            assert object_id.is_blob
            assert bytes(one.store.get(object_id)) == payload
        local = [one.store.put(payload, persist=True) for payload in payloads]
        assert [bytes(view) for view in pool.map(remote.get, local)] == payloads


def test_a_large_array_arrives_whole(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    values = np.random.default_rng(0).integers(0, 255, 200_000_000, np.uint8)
    made = one.store.put(values, persist=True)
    assert np.array_equal(two.store.get(made), values)
    moved = two.store.migrate(made)
    assert np.array_equal(two.store.get(moved), values)


def test_32_threads_fetch_at_once(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    ids = [one.store.put(np.full(100_000 + number, number), persist=True) for number in range(32)]
    with ThreadPoolExecutor(32) as pool:
        for _ in range(3):
            found = list(pool.map(two.store.get, ids))
            assert [(len(each), int(each[0]), int(each[-1])) for each in found] == [
                (100_000 + number, number, number) for number in range(32)
            ]


def test_pickles_of_another_host_need_trust(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(slice(1, 2), persist=True, trust=True)
    with pytest.raises(TrustError, match="trust=True"):
        two.store.get(made)
    assert two.store.get(made, trust=True) == slice(1, 2)


def test_what_is_not_persisted_goes_with_the_connection(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    with one.remote() as remote:
        made, kept = remote.put(np.arange(3)), remote.put(np.arange(4))
        remote.persist(kept)
        assert one.store.exists(made)
    assert eventually(lambda: not one.store.exists(made))
    assert one.store.get(kept).tolist() == [0, 1, 2, 3]


def test_what_a_killed_client_put_goes_with_it(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    script = f"""
import os, signal
from shoal.store import connect
from pathlib import Path
store = connect({one.url!r}, token=Path({str(one.folder / "token")!r}))
print(store.put(list(range(9))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    made = ObjectID(done.stdout.strip())
    assert eventually(lambda: not one.store.exists(made))
    assert one.store.ids() == []


@pytest.mark.parametrize("token", [None, "", "wrong", "0" * 43])
def test_without_the_token_nothing_is_done(hosts: tuple[Host, Host], token: str | None) -> None:
    one, _ = hosts
    made = one.store.put("secret", name="secret")
    stranger = RemoteStore(one.url, token=token)
    asks: list[Callable[[], Any]] = [
        lambda: stranger.get(made),
        lambda: stranger.put(1, persist=True),
        lambda: stranger.put(1),
        lambda: stranger.delete(made),
        lambda: stranger.get_name("secret"),
        lambda: stranger.join([]),
        stranger.status,
    ]
    for ask in asks:
        with pytest.raises(StoreError, match="does not know this token"):
            ask()
    raw = flight.connect(one.url)
    with pytest.raises(flight.FlightUnauthenticatedError):
        raw.do_get(flight.Ticket(pack({"id": str(made), "from": 0, "to": 0}))).read_all()
    assert one.store.get(made) == "secret"


def test_what_is_kept_for_joining_is_private(pair: tuple[Host, Host]) -> None:
    for host, other in (pair, pair[::-1]):
        (peer,) = (host.folder / "peers").iterdir()
        for path in (peer, host.folder / "token"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert other.url in peer.read_text()
        assert host.token not in host.errors.read_text()


def call(host: Host, verb: str, body: bytes) -> Any:
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {host.token}".encode())], timeout=60)
    return list(flight.connect(host.url).do_action(flight.Action(verb, body), options))


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("describe", b""),
        ("describe", b"\xff\xfe"),
        ("describe", b"[1, 2]"),
        ("describe", b"[" * 100_000),
        ("describe", b'{"id": ' + b"9" * 10_000 + b"}"),
        ("describe", b"{}"),
        ("describe", pack({"id": 3})),
        ("describe", pack({"id": "../../../etc/passwd"})),
        ("describe", pack({"id": "o" + "../" * 5 + "x"})),
        ("describe", pack({"id": "o00000000000000zz"})),
        ("delete", pack({"ids": "o0000000000000001"})),
        ("delete", pack({"ids": [None]})),
        ("put_name", pack({"id": "o0000000000000001", "name": 7})),
        ("get_name", pack({"name": "../token"})),
        ("get_name", pack({"name": None})),
        ("leave", pack({"instance": "../../token"})),
        ("leave", pack({"instance": -1})),
        ("join", pack({"peers": [{"url": "file:///etc"}]})),
        ("join", pack({"peers": [["grpc://x:1"]]})),
        ("objects", pack({"pattern": "*", "limit": -5})),
        ("__class__", b"{}"),
        ("no such verb", b"{}"),
    ],
)
def test_hostile_questions_are_refused(hosts: tuple[Host, Host], verb: str, body: bytes) -> None:
    one, two = hosts
    one.store.put(1, persist=True)
    with pytest.raises(flight.FlightServerError) as caught:
        call(one, verb, body)
    told = caught.value.extra_info
    assert b'"error":"StoreError"' in told or b'"error":"ObjectNotFoundError"' in told
    assert b"server of the store failed" not in told
    assert len(one.store.ids()) == 1
    assert [peer.url for peer in one.store.peers.all()] == [two.url]


def sent(host: Host, head: Any, *messages: bytes) -> Any:
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {host.token}".encode())], timeout=60)
    descriptor = flight.FlightDescriptor.for_command(head if isinstance(head, bytes) else pack(head))
    writer, answers = flight.connect(host.url).do_put(descriptor, schema(), options)
    try:
        for data in messages:
            array = pa.array(np.frombuffer(data, np.uint8))
            writer.write_batch(pa.record_batch([array], schema=schema()))
        writer.done_writing()
        return answers.read()
    finally:
        writer.close()


def put_head(*sizes: Any, members: dict[str, Any] | None = None) -> dict[str, Any]:
    tree = {"t": "vineyard::Blob", "k": {}, "g": False, "m": {"buffer_": 0} if members is None else members}
    return {"d": tree, "b": [[None, size] for size in sizes], "persist": True}


def nested(depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"t": "x", "k": {}, "g": False, "m": {}}
    for _ in range(depth):
        node = {"t": "x", "k": {}, "g": False, "m": {"m": node}}
    return {"d": node, "b": [], "persist": True}


@pytest.mark.parametrize(
    ("head", "messages", "error"),
    [
        (b"", [], "StoreError"),
        (b"garbage", [], "StoreError"),
        ({}, [], "StoreError"),
        (put_head(2**45), [b"abc"], "StoreFullError"),
        (put_head(2**70), [], "StoreError"),
        (put_head(-1), [], "StoreError"),
        (put_head("3"), [], "StoreError"),
        (put_head(None), [], "StoreError"),
        (put_head(3, members={"buffer_": 1}), [b"abc"], "StoreError"),
        (put_head(3, members={"buffer_": "../p/x"}), [b"abc"], "StoreError"),
        (put_head(3, members={"buffer_": [0]}), [b"abc"], "StoreError"),
        (put_head(3, members={}), [b"abc"], "StoreError"),
        (put_head(3, 2**40), [b"abc"], "StoreError"),
        (put_head(3, members={"buffer_": 0, "again_": 0}), [b"abc"], "StoreError"),
        (put_head(3, 3, members={"buffer_": 1, "again_": 0}), [b"abc"], "StoreError"),
        (put_head(3), [b"abcd"], "StoreError"),
        (put_head(3), [b"a", b"bcd"], "StoreError"),
        (put_head(3), [b"ab"], "StoreError"),
        (put_head(3), [], "StoreError"),
        ({**put_head(3), "persist": False}, [b"abc"], "StoreError"),
        ({**put_head(3), "persist": False, "session": "of another"}, [b"abc"], "StoreError"),
        (put_head(members={"m": "o0000000000000001"}), [], "ObjectNotFoundError"),
        (nested(150), [], "StoreError"),
    ],
)
def test_hostile_objects_are_refused_and_leave_nothing(
    hosts: tuple[Host, Host], head: Any, messages: list[bytes], error: str
) -> None:
    one, _ = hosts
    before = one.store.status()
    with pytest.raises(flight.FlightServerError) as caught:
        sent(one, head, *messages)
    assert f'"error":"{error}"'.encode() in caught.value.extra_info
    assert b"server of the store failed" not in caught.value.extra_info
    assert one.store.ids() == []
    assert one.store.status().memory_usage == before.memory_usage
    assert [path for path in one.folder.rglob(".new-*") if path.is_file()] == []
    assert b"abc" in bytes(one.store.get(unpacked_id(sent(one, put_head(3), b"abc"))))


def test_an_object_that_comes_in_another_form_is_refused(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {one.token}".encode())], timeout=60)
    descriptor = flight.FlightDescriptor.for_command(pack(put_head(3)))
    batch = pa.record_batch({"x": ["abc", "d"], "y": [1, 2]})
    writer, _ = flight.connect(one.url).do_put(descriptor, batch.schema, options)
    with suppress(flight.FlightServerError):  # it may be refused before all of it is sent; closing says why
        writer.write_batch(batch)
        writer.done_writing()
    with pytest.raises(flight.FlightServerError) as caught:
        writer.close()
    assert b"an object comes as" in caught.value.extra_info
    assert one.store.ids() == []


def unpacked_id(answer: Any) -> str:
    text = answer.to_pybytes().decode()
    return str(text[text.index("o") : text.index("o") + 17])


@pytest.mark.parametrize(("begin", "end"), [(0, 2**45), (-5, 3), (2, 1), (0, 2**80), ("0", "3"), (None, None)])
def test_hostile_ranges_are_refused(hosts: tuple[Host, Host], begin: Any, end: Any) -> None:
    one, _ = hosts
    made = one.store.put(b"abc", persist=True)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {one.token}".encode())], timeout=60)
    ticket = flight.Ticket(pack({"id": str(made), "from": begin, "to": end}))
    with pytest.raises(flight.FlightServerError) as caught:
        flight.connect(one.url).do_get(ticket, options).read_all()
    assert b'"error":"StoreError"' in caught.value.extra_info
    with one.remote() as remote:
        assert bytes(remote.get(made)) == b"abc"


def test_a_full_store_says_who_has_room_and_can_put_there(started: Callable[..., Host]) -> None:
    one = started(memory="20MB")
    two = started(*one.joining(), memory="200MB")
    one.store.put(np.zeros(1_500_000), persist=True)
    with pytest.raises(StoreFullError, match=f"{two.url} has .* MiB free.*spread=True"):
        one.store.put(np.zeros(10_000_000))
    with pytest.warns(StoreWarning, match=f"was put into {two.url} instead"):
        made = one.store.put(np.arange(10_000_000.0), spread=True, name="large")
    assert one.store.get_meta(made).instance_id == two.store.instance_id
    assert one.store.get("large")[-1] == 9_999_999.0
    with pytest.raises(StoreFullError) as caught, two.remote() as remote:
        remote.put(np.zeros(30_000_000))
    assert isinstance(caught.value, MemoryError)
    assert "do not fit" in str(caught.value)


def test_who_joins_one_joins_all_and_who_leaves_is_forgotten(started: Callable[..., Host]) -> None:
    one = started()
    two = started(*one.joining())
    three = started(*two.joining())
    hosts = [one, two, three]
    for host in hosts:
        assert {peer.url for peer in host.store.peers.all()} == {other.url for other in hosts} - {host.url}
    made = [host.store.put(number, persist=True) for number, host in enumerate(hosts)]
    assert [[host.store.get(each) for each in made] for host in hosts] == [[0, 1, 2]] * 3
    assert three.stop() == 0
    for host in (one, two):
        assert three.url not in {peer.url for peer in host.store.peers.all()}
        with pytest.raises(ObjectNotFoundError) as caught:
            host.store.get(made[2])
        assert "could not be asked" not in str(caught.value)
    assert three.store.get(made[0]) == 0
    three.start()
    assert one.store.get(made[2]) == 2
    assert two.url in three.errors.read_text()


def test_a_host_that_died_breaks_nothing_here(started: Callable[..., Host]) -> None:
    one = started()
    two = started(*one.joining())
    here, there = one.store.put(1, persist=True, name="here"), two.store.put(2, persist=True)
    assert one.store.get(there) == 2
    two.kill()
    assert one.store.get(here) == one.store.get("here") == 1
    one.store.delete(one.store.put([1, 2]))
    with pytest.raises(ObjectNotFoundError, match=f"could not be asked: {two.url}"):
        one.store.get(there)
    with pytest.raises(ObjectNotFoundError, match=f"could not be asked: {two.url}"):
        one.store.get_name("nobody")
    with pytest.warns(StoreWarning, match=two.url):
        assert one.store.list_names(joined=True) == {"here": here}
    one.store.collect()
    with pytest.raises(ObjectNotFoundError) as caught:
        one.store.get(there)
    assert "could not be asked" not in str(caught.value)
    two.start()
    assert one.store.get(there) == 2, "it knew whom to tell"


def test_a_host_that_does_not_answer_is_not_waited_for_long(
    started: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_TIMEOUT", "1")
    monkeypatch.setenv("SHOAL_RETRIES", "1")
    one = started()
    two = started(*one.joining())
    there = two.store.put(2, persist=True)
    os.kill(two.process.pid, signal.SIGSTOP)
    with pytest.raises(ObjectNotFoundError, match=rf"{two.url} \(.* does not answer in time\)"):
        one.store.get(there)
    with pytest.raises(StoreError, match="does not answer in time"):
        two.remote().status()
    with pytest.raises(StoreError, match="does not answer in time"):
        two.remote().put(np.zeros(1000), persist=True)
    os.kill(two.process.pid, signal.SIGCONT)
    assert two.remote().get(there) == 2


def large(host: Host) -> tuple[ObjectID, np.ndarray[Any, Any]]:
    values = np.random.default_rng(1).integers(0, 255, 60_000_000, np.uint8)
    return host.store.put(values, persist=True), values


def test_a_server_that_is_killed_in_the_middle_of_a_fetch_is_one_clear_error(
    started: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "2")
    monkeypatch.setenv("SHOAL_BACKOFF", "0.1")
    one = started()
    here = started()
    made, _ = large(one)
    meta = one.remote().get_meta(made)
    (blob,) = blobs_of(meta)
    assert isinstance(blob, RemoteBlob)
    before = here.store.status()

    def fill(write: Callable[[int, Any], None]) -> None:
        def killing(at: int, data: Any) -> None:
            os.kill(one.process.pid, signal.SIGKILL)
            write(at, data)

        blob.part(0, blob.nbytes, killing)

    with pytest.raises(ConnectionError, match=f"the store at {one.url} cannot be reached") as caught:
        arrive(here.store, meta, fill, persist=True)
    assert isinstance(caught.value, StoreError)
    assert here.store.ids() == []
    assert here.store.status().memory_usage == before.memory_usage
    assert [path for path in here.folder.rglob(".new-*") if path.is_file()] == []
    with pytest.raises(ConnectionError):
        _ = blob.view
    assert not blob.is_here


def test_a_fetch_goes_on_where_it_stopped_when_the_server_is_back(
    started: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "30")
    monkeypatch.setenv("SHOAL_BACKOFF", "0.5")
    one = started()
    made, values = large(one)
    (blob,) = blobs_of(one.remote().get_meta(made))
    assert isinstance(blob, RemoteBlob)
    found, positions = np.zeros_like(values), []
    lock = threading.Lock()

    def write(at: int, data: Any) -> None:
        with lock:
            if not positions:
                one.kill()
                one.start()
            positions.append(at)
            found[at : at + len(data)] = np.frombuffer(data, np.uint8)

    blob.part(0, blob.nbytes, write)
    assert np.array_equal(found, values)
    assert len(positions) == len(set(positions)), "nothing came twice"


def test_a_server_that_is_away_for_a_moment_is_asked_again(started: Callable[..., Host]) -> None:
    one = started()
    made = one.store.put(7, persist=True)
    remote = one.remote()
    assert remote.get(made) == 7
    one.kill()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(remote.get, made)
        one.start()
        assert asked.result() == 7


def test_with_tls_stores_join_and_strangers_are_not_believed(started: Callable[..., Host], tmp_path: Path) -> None:
    (cert, key), (other_cert, other_key) = certificate(tmp_path, "one"), certificate(tmp_path, "two")
    one = started("--tls-cert", str(cert), "--tls-key", str(key))
    assert one.url.startswith("grpc+tls://127.0.0.1:")
    own = ["--tls-cert", str(other_cert), "--tls-key", str(other_key), "--join-tls-root", str(cert)]
    two = started(*own, *one.joining())
    made = one.store.put(np.arange(5), persist=True)
    assert two.store.get(made).tolist() == [0, 1, 2, 3, 4]
    assert one.store.get(two.store.put("x", persist=True)) == "x"
    with one.remote(tls_root=cert) as remote:
        assert remote.get(made).tolist() == [0, 1, 2, 3, 4]
    assert "warning" not in one.errors.read_text()


def test_a_certificate_of_somebody_else_is_not_believed(
    started: Callable[..., Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_RETRIES", "0")
    (cert, key), (wrong, _) = certificate(tmp_path, "one"), certificate(tmp_path, "two")
    one = started("--tls-cert", str(cert), "--tls-key", str(key))
    for root in (wrong, None):
        with pytest.raises(StoreError, match="cannot be reached"):
            one.remote(tls_root=root).status()
    with pytest.raises(StoreError, match="cannot be reached"):
        RemoteStore(one.url.replace("+tls", ""), token=one.token).status()


def serve(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SERVE, *options], capture_output=True, text=True, timeout=120)


def test_serving_says_what_is_wrong(pair: tuple[Host, Host], tmp_path: Path) -> None:
    one, _ = pair
    done = serve("--store", str(one.folder), "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is served already, by another process" in done.stderr
    done = serve("--store", str(tmp_path / "a"), "--port", str(one.port))
    assert done.returncode == 1
    assert f"127.0.0.1:{one.port} cannot be served" in done.stderr
    done = serve("--store", str(tmp_path / "b"), "--port", "0", "--join", one.url)
    assert done.returncode == 1
    assert "does not know this token" in done.stderr
    done = serve("--store", str(tmp_path / "c"), "--tls-cert", __file__)
    assert done.returncode == 2
    assert "--tls-cert and --tls-key come together" in done.stderr
    (tmp_path / "short").write_text("secret")
    done = serve("--store", str(tmp_path / "d"), "--port", "0", "--token-file", str(tmp_path / "short"))
    assert done.returncode == 1
    assert "it takes at least 16" in done.stderr


def test_who_cannot_be_reached_back_is_not_joined(pair: tuple[Host, Host], tmp_path: Path) -> None:
    one, two = pair
    options = ["--store", str(tmp_path / "a"), "--port", "0", "--advertise", "host.invalid", *one.joining()]
    done = serve(*options)
    assert done.returncode == 1
    assert "cannot reach grpc://host.invalid:" in done.stderr
    assert "--advertise" in done.stderr
    assert [peer.url for peer in one.store.peers.all()] == [two.url]


def test_a_forked_process_says_that_it_cannot_ask_others(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    made = one.store.put(5, persist=True)
    script = f"""
import os
from shoal.errors import ObjectNotFoundError
from shoal.store import connect
store = connect({str(two.folder)!r})
assert store.get({str(made)!r}) == 5
own = store.put(6, persist=True)
if os.fork() == 0:
    assert store.get(own) == 6
    try:
        store.get({str(made)!r})
    except ObjectNotFoundError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert "this process was forked from one that had talked to a server of another host" in done.stdout, done.stderr


def test_a_server_can_be_part_of_a_program(tmp_path: Path) -> None:
    server = StoreServer(tmp_path / "store", port=0)
    try:
        with pytest.raises(StoreError, match="is served already"):
            StoreServer(tmp_path / "store")
        store = connect(server.url, token=server.token)
        assert store.get(store.put({"a": [1]})) == {"a": [1]}
        assert server.token not in repr(server.peer())
    finally:
        server.close()
    StoreServer(tmp_path / "store").close()


NAMESPACES = """
set -e
mount -t tmpfs none /run && mkdir /run/netns
ip netns add one && ip netns add two
ip link add v1 netns one type veth peer name v2 netns two
ip -n one addr add 10.77.0.1/24 dev v1 && ip -n one link set v1 up && ip -n one link set lo up
ip -n two addr add 10.77.0.2/24 dev v2 && ip -n two link set v2 up && ip -n two link set lo up
serve() {
  ip netns exec "$1" "$PYTHON" -c "$SERVE" --store "$FOLDER/$1" "${@:2}" >"$FOLDER/$1.url" 2>"$FOLDER/$1.txt" &
}
ready() { for _ in $(seq 600); do [ -s "$FOLDER/$1.url" ] && return; sleep 0.1; done; cat "$FOLDER/$1.txt"; exit 1; }
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
serve one --host 10.77.0.1
ready one
serve two --host 0.0.0.0 --advertise 10.77.0.2 --join grpc://10.77.0.1:8816 --join-token-file "$FOLDER/one/token"
ready two
ip netns exec one "$PYTHON" -c "
from shoal.store import connect
import numpy as np
connect('$FOLDER/one').put(np.arange(3000000), name='of one')"
ip netns exec two "$PYTHON" -c "
from shoal.store import connect
store = connect('$FOLDER/two')
print(store.get('of one').sum(), store.get_meta(store.get_name('of one')).local)
store.put('hello from two', name='of two')"
ip netns exec one "$PYTHON" -c "
from shoal.store import connect
print(connect('$FOLDER/one').get('of two'))"
cat "$FOLDER/one.url" "$FOLDER/two.url"
grep -h warning "$FOLDER/one.txt" "$FOLDER/two.txt"
"""


def test_hosts_in_two_network_namespaces_are_one_namespace(tmp_path: Path) -> None:
    own = ["--net", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    variables = {**os.environ, "PYTHON": sys.executable, "SERVE": SERVE, "FOLDER": str(tmp_path)}
    command = ["unshare", *own, "bash", "-c", NAMESPACES]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    warning = "warning: without TLS, who can listen in on the network reads the token and all objects; see --tls-cert"
    assert done.stdout.splitlines() == [
        f"{sum(range(3_000_000))} False",
        "hello from two",
        "grpc://10.77.0.1:8816",
        "grpc://10.77.0.2:8816",
        warning,
        warning,
    ]

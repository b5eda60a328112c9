"""Streams that end, senders that close, forks, workers of a DataLoader, and bytes that nobody should have sent."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from shoal.errors import DecodeError, PlanError, StallWarning, StreamEndedError, StreamTimeoutError
from shoal.feed.tensorcom import Connection, TensorcomDataset, tenbin
from support.engine import run_script, same, wait_until
from support.tensorcom import batch, heard, numbers, opposite, real, where


@contextmanager
def running(function: Any, *arguments: Any) -> Iterator[None]:
    """Do something meanwhile, and wait for its end."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(function, *arguments)
        yield
        result.result()


@contextmanager
def until_done(function: Any, *arguments: Any) -> Iterator[None]:
    """Do something again and again meanwhile."""
    done = threading.Event()

    def again() -> None:
        while not done.wait(0.01):
            function(*arguments)

    with running(again):
        try:
            yield
        finally:
            done.set()


@pytest.mark.parametrize("multipart", [True, False])
@pytest.mark.parametrize("sender", ["zrpush", "zpub"])
def test_iterating_ends_when_the_sender_has(sender: str, multipart: bool) -> None:
    source = Connection(f"{sender}://127.0.0.1:*", multipart=multipart)
    with Connection(opposite(source.urls[0])) as sink:
        heard(source, sink)
        source.serve(batch(number) for number in range(3))
        source.close()
        assert numbers(real(sink)) == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(StreamEndedError, match="the stream has ended: all who sent have said so") as caught:
                sink.recv()
        assert isinstance(caught.value, EOFError)
        assert list(sink) == []


def test_all_who_were_seen_have_to_end() -> None:
    with Connection("zpull://127.0.0.1:*", timeout=60) as sink:
        one, two, three = (Connection(opposite(sink.urls[0])) for _ in range(3))
        one.send(batch(1))
        two.send(batch(2))
        assert sorted(numbers([sink.recv(), sink.recv()])) == [1, 2]
        one.close()
        two.send(batch(3))
        assert numbers([sink.recv()]) == [3]
        three.send(batch(4))
        assert numbers([sink.recv()]) == [4]
        two.close()
        three.send(batch(5))
        three.close()
        assert numbers(sink) == [5]


def test_it_can_be_said_how_many_have_to_end() -> None:
    with Connection("zpull://127.0.0.1:*", senders=2) as sink:
        for number in range(2):
            with Connection(opposite(sink.urls[0])) as source:
                source.send(batch(number))
        assert numbers(sink) == [0, 1]


def test_a_sender_of_another_make_never_ends() -> None:
    with Connection("zpull://127.0.0.1:*", timeout=0.3) as sink:
        with Connection(opposite(sink.urls[0])) as ours, Connection(opposite(sink.urls[0]), marks=False) as other:
            ours.send(batch(1))
            other.send(batch(2))
            assert sorted(numbers([sink.recv(), sink.recv()])) == [1, 2]
        with pytest.raises(StreamTimeoutError, match=r"nothing came for 0\.3 s; 1 of 2 senders have ended"):
            sink.recv()


def test_without_marks_messages_are_as_ever() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as sink:
        port = sink.bind_to_random_port("tcp://127.0.0.1")
        with Connection(f"zpush://127.0.0.1:{port}", marks=False) as source:
            source.send(batch(1))
            assert sink.recv_multipart() == [bytes(part) for part in tenbin.encode_list(batch(1))]
        with Connection(f"zpush://127.0.0.1:{port}", multipart=False, marks=False) as source:
            source.send(batch(2))
            assert sink.recv() == tenbin.encode_buffer(batch(2))
        assert not sink.poll(0)


def test_the_end_is_the_last_message_with_a_mark() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as sink:
        port = sink.bind_to_random_port("tcp://127.0.0.1")
        with Connection(f"zpush://127.0.0.1:{port}") as source:
            source.send(batch(1))
            source.send(batch(2))
        first, last, end = (sink.recv_multipart() for _ in range(3))
    assert [same(tenbin.decode_list(parts), batch(n)) for parts, n in ((first, 1), (last, 2), (end, 2))] == [True] * 3
    plain = bytes(tenbin.encode_list(batch(2))[0])
    assert [len(parts[0]) - len(plain) for parts in (first, last, end)] == [24, 24, 24]
    assert last[0][:-8] == end[0][:-8]
    assert last[1:] == end[1:]


@pytest.mark.parametrize("served", [True, False])
def test_a_stream_without_messages_ends_if_it_was_one(served: bool) -> None:
    with Connection("zpull://127.0.0.1:*", timeout=30 if served else 0.2) as sink:
        with Connection(opposite(sink.urls[0])) as source:
            if served:
                source.serve([])
        if served:
            assert list(sink) == []
        else:
            with pytest.raises(StreamTimeoutError, match=r"nothing came for 0\.2 s; nobody was seen who sends"):
                sink.recv()


@pytest.mark.parametrize("place", ["://127.0.0.1:*", "+ipc://{folder}/{number}"])
@pytest.mark.parametrize("sender", ["zpush", "zrpush"])
def test_each_of_those_who_share_hears_of_the_end_however_slow(sender: str, place: str, tmp_path: Path) -> None:
    """Each message goes to one of them; queues are full at the end, and some have room before others."""
    count, few = 4, 2
    places = [place.format(folder=tmp_path, number=number) for number in range(count)]
    if sender == "zpush":
        sinks = [Connection(f"zpull{each}", hwm=few) for each in places]
        source = Connection([opposite(sink.urls[0]) for sink in sinks], hwm=few)
    else:
        source = Connection(f"zrpush{places[0]}", hwm=few)
        sinks = [Connection(opposite(source.urls[0]), hwm=few) for _ in range(count)]
    got: list[list[int]] = [[] for _ in sinks]

    def learn(place: int) -> None:
        for message in sinks[place]:
            got[place].append(int(message[1][0]))
            threading.Event().wait(0.01 * place)

    threads = [threading.Thread(target=learn, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    source.serve([np.zeros(200_000, np.float32), np.array([number], np.int32)] for number in range(80))
    source.close()
    for thread in threads:
        thread.join()
    assert sorted(number for part in got for number in part) == list(range(80))
    assert all(got)
    for sink in sinks:
        sink.close()


@pytest.mark.parametrize("place", ["://127.0.0.1:*", "+ipc://{folder}/socket"])
def test_one_receiver_may_wait_for_another_to_end(place: str, tmp_path: Path) -> None:
    """As a DataLoader does, which takes nothing of one worker while it waits for the other."""
    source = Connection(f"zrpush{place.format(folder=tmp_path)}", hwm=1)
    sinks = [Connection(opposite(source.urls[0]), hwm=1) for _ in range(2)]

    def feed() -> None:
        source.serve(batch(number, rows=100_000) for number in range(40))
        source.close()

    with running(feed):
        got = numbers([sink.recv() for sink in sinks])
        for sink in sinks:
            got += numbers(sink)
    assert sorted(got) == list(range(40))
    for sink in sinks:
        sink.close()


def test_a_slow_subscriber_hears_of_the_end_though_it_missed_the_rest() -> None:
    with Connection("zpub://127.0.0.1:*", hwm=2) as source, Connection(opposite(source.urls[0]), hwm=2) as sink:
        heard(source, sink)
        with running(lambda: (source.serve([np.zeros((2, 300_000), "f4")] for _ in range(50)), source.close())):
            assert len(list(sink)) <= 52


def test_what_was_sent_is_not_lost_at_close(tmp_path: Path) -> None:
    def feed() -> None:
        with Connection(f"zpush+ipc://{tmp_path}/socket") as source:
            for number in range(20):
                source.send([np.full(250_000, number, "f4")])

    with running(feed), Connection(f"zpull+ipc://{tmp_path}/socket") as sink:  # which comes late
        assert [int(xs[-1]) for [xs] in sink] == list(range(20))


def test_what_nobody_takes_is_given_up_with_a_word(tmp_path: Path) -> None:
    source = Connection(f"zpush+ipc://{tmp_path}/socket", linger=0.1)
    source.send(batch(1))
    source.send(batch(2))
    words = rf"2 messages for zpush\+ipc://{tmp_path}/socket were not taken within 0\.1 s and are lost"
    with pytest.warns(StallWarning, match=words):
        source.close()
    source.close()
    assert source.urls == []


def test_nobody_waits_for_receivers_that_have_gone() -> None:
    source = Connection("zrpush://127.0.0.1:*", linger=1e6)
    sink = Connection(opposite(source.urls[0]))
    source.send(batch(1))
    assert numbers([sink.recv()]) == [1]
    sink.close()
    source.close()
    sinks = [Connection("zpull://127.0.0.1:*") for _ in range(2)]
    source = Connection([opposite(sink.urls[0]) for sink in sinks], linger=1e6)
    for number in range(2):
        source.send(batch(number))
    assert sorted(numbers(sink.recv() for sink in sinks)) == [0, 1]
    sinks[0].close()
    source.close()
    assert list(sinks[1]) == []
    sinks[1].close()


def test_a_program_that_ends_without_closing_loses_nothing() -> None:
    program = """
        import sys
        import numpy as np
        from shoal.feed.tensorcom import Connection
        source = Connection(sys.argv[1])
        for number in range(20):
            source.send([np.full(250_000, number, "f4")])
    """
    with Connection("zpull://127.0.0.1:*") as sink:
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program), opposite(sink.urls[0])]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert [int(sink.recv()[0][-1]) for _ in range(20)] == list(range(20))
            assert process.communicate() == (None, "")
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("scheme", "waits"), [("zrpush", "end.send(batch)"), ("zrpull", "end.recv()"), ("zpush", "end.close()")]
)
def test_ctrl_c_is_heard_while_one_waits(scheme: str, waits: str, tmp_path: Path) -> None:
    """Nobody is there to send to, to receive from, or to take what was sent."""
    program = f"""
        import numpy as np
        from shoal.feed.tensorcom import Connection
        batch = [np.zeros(3, np.float32)]
        end = Connection("{scheme}+ipc://{tmp_path}/socket", linger=1e6)
        if {scheme == "zpush"}:
            end.send(batch)
        try:
            print("waiting", flush=True)
            {waits}
        except KeyboardInterrupt:
            with end:
                raise
    """
    done = run_script(program, interrupt=True)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_what_was_taken_is_let_go() -> None:
    with Connection("zpull://127.0.0.1:*") as sink, Connection(opposite(sink.urls[0])) as source:
        for number in range(300):
            source.send(batch(number))
            assert numbers([sink.recv()]) == [number]
        assert wait_until(lambda: source.send(batch(1)) or len(source._wire.kept) < 3)


def test_dropping_a_connection_loses_nothing_and_leaves_nothing() -> None:
    with Connection("zpull://127.0.0.1:*") as sink:
        source = Connection(opposite(sink.urls[0]))
        source.send(batch(1))
        source.itself = source  # type: ignore[attr-defined]
        del source
        gc.collect()
        assert numbers([sink.recv()]) == [1]


def test_an_error_is_not_an_end() -> None:
    with Connection("zpull://127.0.0.1:*", timeout=0.3) as sink:
        with suppress(ZeroDivisionError), Connection(opposite(sink.urls[0])) as source:
            source.send(batch(1))
            assert numbers([sink.recv()]) == [1]
            source.serve(batch(1 // number) for number in (0, 1))
        with pytest.raises(StreamTimeoutError, match="0 of 1 senders have ended"):
            sink.recv()


def test_a_connection_may_be_opened_again() -> None:
    with Connection("zpull://127.0.0.1:*") as sink:
        for number in range(2):
            with Connection(opposite(sink.urls[0])) as source:
                source.send(batch(number))
            assert numbers(sink) == [number]
            sink.close()
            sink.connect("zpull://127.0.0.1:*")


def forked(function: Any) -> int:
    """Do something in a fork, which ends with 0 if it is true."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if function() else 1)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(2)
    return child


def test_a_fork_does_not_use_what_it_inherited() -> None:
    with Connection("zpull://127.0.0.1:*") as sink, Connection(opposite(sink.urls[0])) as source:
        source.send(batch(1))

        def refused() -> bool:
            for attempt in (sink.recv, lambda: source.send(batch(2)), lambda: sink.connect("zpull://127.0.0.1:*")):
                with suppress(PlanError):
                    attempt()
                    return False
            source.close()
            sink.close()
            with Connection("zpull://127.0.0.1:*") as mine, Connection(opposite(mine.urls[0])) as other:
                other.send(batch(3))
                return numbers([mine.recv()]) == [3]

        assert os.waitpid(forked(refused), 0)[1] == 0
        source.send(batch(4))
        assert numbers([sink.recv(), sink.recv()]) == [1, 4]


def test_a_dataset_connects_again_in_a_fork(tmp_path: Path) -> None:
    with Connection(f"zrpush+ipc://{tmp_path}/socket") as source:
        dataset = TensorcomDataset(opposite(source.urls[0]), length=1)
        with running(source.send, batch(1)):
            assert numbers(dataset) == [1]
        child = forked(lambda: numbers(dataset) == [2] and gc.collect() >= 0)
        with until_done(source.send, batch(2)):
            status = os.waitpid(child, 0)[1]
        assert status == 0
        assert numbers(dataset) == [2], "what the fork did is nothing to this one"
        dataset.close()


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_share_what_is_pushed(tmp_path: Path, method: str) -> None:
    source, at_work = Connection(f"zrpush+ipc://{tmp_path}/socket", hwm=1), threading.Event()
    dataset = TensorcomDataset(opposite(source.urls[0]), length=10**6, converters=[None, where], hwm=1)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    sent: list[int] = []

    def feed() -> None:
        while len(sent) < 20 or not at_work.is_set():
            source.send(batch(len(sent)))
            sent.append(len(sent))
        source.close()

    places: list[int] = []
    with running(feed):
        got = []
        for xs, place in loader:
            got.append(int(xs[0, 0]))
            places.append(place)
            if len(set(places)) == 2:
                at_work.set()
    assert sorted(got) == sent, "both ended with the stream"


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")
def test_workers_of_a_data_loader_share_the_length(tmp_path: Path) -> None:
    with Connection(f"zrpush+ipc://{tmp_path}/socket") as source:
        dataset = TensorcomDataset(opposite(source.urls[0]), length=5, converters="torch")
        # One who stays, and has room for some; nobody can push when all have gone.
        with Connection(opposite(source.urls[0])), until_done(source.send, batch(1)):
            assert numbers(DataLoader(dataset, batch_size=None, num_workers=2)) == [1] * 5


def test_silence_is_told_after_a_time() -> None:
    with Connection("zsub://127.0.0.1:1", timeout=0.05) as sink:
        for attempt in (sink.recv, lambda: list(sink)):
            with pytest.raises(TimeoutError, match=r"nothing came for 0\.05 s; nobody was seen who sends"):
                attempt()


@pytest.mark.parametrize(
    "options", [{"timeout": -1}, {"senders": 0}, {"linger": -0.1}, {"hwm": -1}, {"linger": np.nan}]
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=rf"{next(iter(options))}=\S+ is less than \d"):
        Connection(**options)


@contextmanager
def hostile() -> Iterator[tuple[Any, Connection]]:
    """A socket that can send anything, and a receiver."""
    sink = Connection("zpull://127.0.0.1:*", timeout=60)
    with sink, zmq.Context() as context, context.socket(zmq.PUSH) as source:
        source.connect(sink.urls[0].replace("zpull", "tcp"))
        yield source, sink


HEADER = bytes(tenbin.encode_list(batch(1))[0])


def claims(dimensions: int, *shape: int, code: bytes = b"f4") -> bytes:
    return struct.pack(f"<8s8s{len(shape) + 1}q", code, b"", dimensions, *shape)


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"", b""],
        [HEADER],
        [HEADER, b"", HEADER],
        [HEADER, bytes(47)],
        [HEADER[:-1], bytes(48)],
        [claims(1, 2**61), bytes(8)],
        [claims(2, 2**32, 2**32), b""],
        [claims(2, 2**62, 0), b""],
        [claims(1, -1), b""],
        [claims(9, 1), bytes(4)],
        [claims(10, *[1] * 10), bytes(4)],
        [claims(-1), bytes(4)],
        [claims(1, 1, code=b"O8"), bytes(8)],
        [b"\xff" * 32, bytes(4)],
        [b"~TenBin~" + struct.pack("<q", 2**62)],
        [b"~TenBin~" + struct.pack("<q", -1)],
        [tenbin.encode_chunks([HEADER])],
        [pickle.dumps([np.zeros(3)])],
        [pickle.dumps([np.zeros(3)])] * 2,
    ],
)
def test_bytes_that_are_no_message_are_an_error_and_no_end(parts: list[bytes]) -> None:
    with hostile() as (source, sink):
        source.send_multipart(parts)
        with pytest.raises(DecodeError):
            sink.recv()
        source.send_multipart(tenbin.encode_list(batch(7)))
        assert numbers([sink.recv()]) == [7]


def test_whatever_comes_it_ends_with_arrays_or_an_error() -> None:
    valid = [bytes(part) for part in tenbin.encode_list(batch(1))]
    with hostile() as (source, sink):

        @given(
            st.lists(st.binary(max_size=100), min_size=1, max_size=5),
            st.none() | st.tuples(st.integers(0, 3), st.integers(0, 39), st.binary(min_size=1, max_size=9)),
        )
        def attempt(parts: list[bytes], change: tuple[int, int, bytes] | None) -> None:
            if change is not None:
                which, place, new = change
                parts = [*valid]
                parts[which] = parts[which][:place] + new + parts[which][place + len(new) :]
            source.send_multipart(parts)
            with suppress(DecodeError):
                assert sum(array.nbytes for array in sink.recv()) <= sum(map(len, parts))

        attempt()
        source.send_multipart(valid)
        assert numbers([sink.recv()]) == [1]


def test_a_peer_that_does_not_speak_the_protocol_is_left_alone() -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 4) + b"PUSH"
    ready = b"\x04" + bytes([len(ready)]) + ready
    claims_much = b"\x02" + struct.pack(">Q", 2**62)
    with Connection("zpull://127.0.0.1:*", timeout=60) as sink, Connection(opposite(sink.urls[0])) as source:
        port = int(sink.urls[0].rpartition(":")[2])
        for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\xff" * 1000, greeting + ready + claims_much):
            # It may be closed at the first wrong byte.
            with socket.create_connection(("127.0.0.1", port)) as other, suppress(OSError):
                other.sendall(data)
                other.shutdown(socket.SHUT_WR)
                while other.recv(1000):
                    pass
            source.send(batch(3))
            assert numbers([sink.recv()]) == [3]


def test_parts_that_are_many_are_a_message_like_others() -> None:
    with hostile() as (source, sink):
        arrays = [np.full(1, number, "i4") for number in range(5000)]
        source.send_multipart(tenbin.encode_list(arrays))
        assert same(sink.recv(), arrays)

"""Lists of arrays over sockets: URLs, types, functions for what comes, several ends, loaders of Shoal."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import shoal
from shoal.errors import MissingFieldError, PlanError, TensorcomError, UrlError
from shoal.feed.tensorcom import Connection, Statistics, TensorcomDataset, _statistics
from shoal.feed.tensorcom._urls import Address
from support.engine import same
from support.tensorcom import batch, heard, numbers, opposite, real

PICTURES = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
LABELS = np.array([3, 7], np.int32)


@pytest.fixture
def ends() -> Iterator[Any]:
    """Make a receiver and a sender, with what is said of either."""
    made: list[Connection] = []

    def make(receiver: str = "zpull://127.0.0.1:*", *, sender: dict[str, Any] | None = None, **options: Any) -> Any:
        made.append(Connection(receiver, **options))
        made.append(Connection(opposite(made[-1].urls[0]), **sender or {}))
        return made[-2:]

    yield make
    for connection in reversed(made):
        connection.close()


@pytest.mark.parametrize("multipart", [True, False])
def test_what_is_sent_is_received(ends: Any, multipart: bool) -> None:
    receiver, sender = ends(multipart=multipart, sender={"multipart": multipart})
    half = np.random.default_rng(0).random((9, 7)).astype("f2")
    sender.send([half, half])
    assert same(receiver.recv(), [half, half])
    large = [np.random.default_rng(0).integers(0, 255, (64, 32, 32, 3), np.uint8), np.zeros((0, 3), "f4")]
    sender.write(large)
    got = receiver.recv()
    assert same(got, large)
    assert all(array.flags.writeable and array.flags.aligned for array in got)


@pytest.mark.parametrize("multipart", [True, False])
def test_a_receiver_takes_messages_of_either_make(ends: Any, multipart: bool) -> None:
    receiver, sender = ends(multipart=multipart, sender={"multipart": not multipart})
    sender.send(batch(3))
    assert same(receiver.recv(), batch(3))


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [("zpush", "zpull"), ("zrpush", "zrpull"), ("zpub", "zsub"), ("zrpub", "zrsub")],
)
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_every_scheme_has_its_opposite(sender: str, receiver: str, transport: str, tmp_path: Path) -> None:
    binds = {"zrpush", "zpub", "zpull", "zrsub"}
    first, second = (sender, receiver) if sender in binds else (receiver, sender)
    url = f"{first}+ipc://{tmp_path}/socket" if transport == "ipc" else f"{first}://127.0.0.1:*"
    with Connection(url) as bound, Connection(opposite(bound.urls[0])) as connected:
        assert opposite(bound.urls[0]).startswith(second)
        source, sink = (bound, connected) if first == sender else (connected, bound)
        heard(source, sink)
        source.serve(batch(number) for number in range(5))
        source.close()
        assert numbers(real(sink)) == list(range(5))


@pytest.mark.parametrize(
    ("url", "location", "topic"),
    [
        ("zpush://host:7880", "tcp://host:7880", ""),
        ("zsub+tcp://host:7880/#f4", "tcp://host:7880", "f4"),
        ("zpush+ipc://dir/sock", "ipc://dir/sock", ""),
        ("zsub+ipc:///tmp/sock#a#b", "ipc:///tmp/sock", "a#b"),
        ("zpull://*:7880", "tcp://*:7880", ""),
        ("zrpush://[::1]:7880", "tcp://[::1]:7880", ""),
    ],
)
def test_urls_say_where(url: str, location: str, topic: str) -> None:
    address = Address.of(url)
    assert (address.location, address.topic) == (location, topic)
    assert Address.of(address.url) == address


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("tcp://host:1", "is no URL of Tensorcom, such as zpush://host:7880; it begins with zpush, zpull, zpub"),
        ("7880", "is no URL of Tensorcom"),
        ("zpush+udp://host:1", r"is neither tcp nor ipc; write zpush://host:7880 or zpush\+ipc://path"),
        ("zpush://host", r"does not say where: zpush://host:7880"),
        ("zpull+ipc://", r"does not say where"),
        ("zsub://host:*", r"connects, and has to know the port; \* is for those who bind \(zpull, zpub, zrpush, zrsub"),
        ([], "there is no URL"),
        (
            ["zpull://127.0.0.1:*", "zsub://127.0.0.1:1"],
            "is a PULL socket and zsub://127.0.0.1:1 is a SUB socket; open",
        ),
    ],
)
def test_urls_that_say_nothing_are_refused(url: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Connection(url)


def test_places_that_cannot_be_had_are_named(tmp_path: Path) -> None:
    with Connection("zpull://127.0.0.1:*") as taken:
        with pytest.raises(UrlError, match=rf"{taken.urls[0]} cannot be bound: Address already in use") as caught:
            Connection(taken.urls[0])
        assert caught.value.url == taken.urls[0]
    with pytest.raises(
        UrlError, match=r"cannot be bound: No such device; to bind takes an address of this host, or \*"
    ):
        Connection("zpub://no-such-device:7880")
    with pytest.raises(UrlError, match="cannot be bound: File name too long"):
        Connection(f"zpull+ipc://{tmp_path}/{'x' * 200}")


def test_ways_of_use_that_make_no_sense_are_refused(ends: Any) -> None:
    receiver, sender = ends()
    with pytest.raises(PlanError, match=r"zpull://127.0.0.1:\d+ does not send; URLs that do begin with zpush, zrpush"):
        receiver.send(batch(0))
    with pytest.raises(PlanError, match=r"zpush://127.0.0.1:\d+ does not receive; URLs that do begin with zpull"):
        next(sender.items())
    with pytest.raises(PlanError, match="this connection is not open; give it a URL to receive with"):
        Connection().recv()
    with pytest.raises(PlanError, match=r"zpush://127\.0\.0\.1:1 is a PUSH socket"):
        receiver.connect("zpush://127.0.0.1:1")
    for data, words in [
        (np.zeros(3, "f4"), r"a message is a list of arrays, and not ndarray; send \[array\]"),
        ([], "at least one array"),
        ({"x": 1}, r"is sent by serve\(batches, fields=\[...\]\); there are 'x'"),
    ]:
        with pytest.raises(PlanError, match=words):
            sender.send(data)


def test_braces_are_several_urls(tmp_path: Path) -> None:
    with Connection(f"zpull+ipc://{tmp_path}/{{a,b}}") as receiver:
        assert receiver.urls == [f"zpull+ipc://{tmp_path}/a", f"zpull+ipc://{tmp_path}/b"]
        for name in "ab":
            with Connection(f"zpush+ipc://{tmp_path}/{name}", marks=False) as sender:
                sender.send(batch(ord(name)))
        assert sorted(numbers([receiver.recv(), receiver.recv()])) == [97, 98]
    with Connection(f"zpull+ipc://{tmp_path}/{{a,b}}", noexpand=True) as receiver:
        assert receiver.urls == [f"zpull+ipc://{tmp_path}/{{a,b}}"]


def test_one_receiver_hears_several_publishers() -> None:
    senders = [Connection("zpub://127.0.0.1:*") for _ in range(2)]
    with Connection([opposite(sender.urls[0]) for sender in senders]) as receiver:
        assert len(receiver.urls) == 2
        for number, sender in enumerate(senders):
            heard(sender, receiver, number=number)
        for number in range(5):
            senders[0].send(batch(number))
            senders[1].send(batch(10 + number))
        for sender in senders:
            sender.close()
        got = numbers(real(receiver))
    assert sorted(got) == [*range(5), *range(10, 15)]
    assert [number for number in got if number < 10] == list(range(5)), "each in its order"


def test_all_subscribers_hear_everything() -> None:
    with Connection("zpub://127.0.0.1:*") as publisher:
        receivers = [Connection(opposite(publisher.urls[0])) for _ in range(2)]
        heard(publisher, *receivers)
        publisher.serve(batch(number) for number in range(20))
        publisher.close()
        for receiver in receivers:
            assert numbers(real(receiver)) == list(range(20))
            receiver.close()


def test_those_who_pull_share_what_is_pushed() -> None:
    receivers = [Connection("zpull://127.0.0.1:*") for _ in range(2)]
    with Connection([opposite(receiver.urls[0]) for receiver in receivers]) as sender:
        sender.serve(batch(number) for number in range(20))
    got = [numbers(receiver) for receiver in receivers]
    assert [len(part) for part in got] == [10, 10]
    assert sorted(got[0] + got[1]) == list(range(20))
    for receiver in receivers:
        receiver.close()


def test_a_topic_is_how_messages_begin() -> None:
    with Connection("zpub://127.0.0.1:*") as publisher:
        url = opposite(publisher.urls[0])
        with Connection(f"{url}#f4") as floats, Connection(url) as everything, Connection() as integers:
            integers.connect(url, topic="i2")
            heard(publisher, everything)
            heard(publisher, floats, greeting="f4")
            heard(publisher, integers, greeting="i2")
            publisher.send([np.full(2, 5, "i2"), np.zeros(2, "f4")])
            publisher.send([np.full(2, 6, "f4"), np.zeros(2, "i2")])
            publisher.send([np.full(2, 7, "i2")])
            publisher.close()
            assert [first[0] for first, *_ in islice(real(integers), 2)] == [5, 7]
            assert next(first[0] for first, *_ in floats if first.shape == (2,)) == 6


def test_types_of_64_bits_are_sent_if_wanted(ends: Any) -> None:
    receiver, sender = ends()
    for code in ("f8", "i8", "u8"):
        wide = np.arange(5).astype(code)
        with pytest.raises(AssertionError, match=r"array 0 is \w+64: as \w+32 it is half the bytes") as caught:
            sender.send([wide])
        assert isinstance(caught.value, TensorcomError)
        sender.send([wide], allow64=True)
        assert same(receiver.recv(), [wide])
    receiver, sender = ends(sender={"allow64": True})
    sender.send([np.arange(5)])
    sender.serve([[np.arange(5)]])
    assert same([receiver.recv(), receiver.recv()], [[np.arange(5)]] * 2)


def test_types_without_a_code_are_refused_as_ever(ends: Any) -> None:
    _, sender = ends()
    for array in (np.zeros(2, bool), np.zeros(2, "c8"), np.array(["a"]), np.array([None])):
        with pytest.raises(AssertionError, match="tenbin has no dtype"):
            sender.send([np.zeros(2, "f4"), array])


def test_unsigned_integers_of_32_bits_and_arrays_out_of_order(ends: Any) -> None:
    receiver, sender = ends()
    words = np.array([0, 2**32 - 1], np.uint32)
    sender.send([words, PICTURES.transpose(0, 3, 1, 2), PICTURES[:, ::-1, 1::2], torch.arange(3, dtype=torch.int32)])
    got = receiver.recv()
    assert same(got[0], words)
    assert np.array_equal(got[1], PICTURES.transpose(0, 3, 1, 2))
    assert np.array_equal(got[2], PICTURES[:, ::-1, 1::2])
    assert got[3].tolist() == [0, 1, 2]


def test_what_is_sent_may_be_changed_at_once(ends: Any) -> None:
    receiver, sender = ends()
    array = np.zeros(10**6, np.float32)
    for number in range(20):
        array[:] = number
        sender.send([array])
    assert [message[0][[0, -1]].tolist() for message in islice(receiver, 20)] == [[n, n] for n in range(20)]


def test_names_travel_with_arrays(ends: Any) -> None:
    receiver, sender = ends(infos=["x", "y"], sender={"infos": ["x", "y"]})
    sender.send(batch(1))
    assert same(receiver.recv(), batch(1))
    receiver.infos = ["x", "z"]
    sender.send(batch(2))
    with pytest.raises(AssertionError, match=r"named \['x', 'y'\], and not \['x', 'z'\]"):
        receiver.recv()
    receiver.infos = True
    sender.send(batch(3))
    arrays, names = receiver.recv()
    assert (numbers([arrays]), names) == ([3], ["x", "y"])
    with pytest.raises(AssertionError, match="there are 1 arrays"):
        sender.send(batch(1)[:1])


def test_tensors_have_their_colours_first(ends: Any) -> None:
    receiver, sender = ends(converters="torch")
    sender.send([PICTURES, LABELS, PICTURES[0], np.arange(2, dtype="u2"), np.ones(2, "f2"), np.ones((2, 5), "i1")])
    xs, ys, single, unsigned, half, small = receiver.recv()
    assert (xs.dtype, xs.shape) == (torch.uint8, (2, 3, 4, 5))
    assert np.array_equal(xs, PICTURES.transpose(0, 3, 1, 2))
    assert (ys.dtype, ys.tolist()) == (torch.int64, [3, 7])
    assert np.array_equal(single, PICTURES[0].transpose(2, 0, 1))
    assert [each.dtype for each in (unsigned, half, small)] == [torch.int64, torch.float32, torch.int8]
    xs.zero_()
    sender.send([np.zeros((2, 4, 5, 2), "f8"), np.arange(3)], allow64=True)
    floats, longs = receiver.recv()
    assert (floats.dtype, floats.shape, longs.dtype) == (torch.float32, (2, 4, 5, 2), torch.int64)


def test_arrays_have_their_colours_last(ends: Any) -> None:
    receiver, sender = ends(converters=["torch", "torch", None], device="cpu")
    both, other = ends(batch_transforms=[torch.from_numpy], converters="numpy")
    sender.send([PICTURES, PICTURES[0], LABELS])
    tensors = receiver.recv()
    assert isinstance(tensors[2], np.ndarray)
    other.send([np.ascontiguousarray(tensor) for tensor in tensors])
    assert same(both.recv(), [PICTURES, PICTURES[0], LABELS])


def test_tensors_go_to_a_device(ends: Any) -> None:
    receiver, sender = ends(device="meta")
    sender.send([PICTURES, LABELS])
    assert [tensor.device.type for tensor in receiver.recv()] == ["meta", "meta"]
    with pytest.raises(PlanError, match="need a GPU, and torch finds none here"):
        Connection(converters="torch_cuda")
    with pytest.raises(PlanError, match="there is no converter 'jax'; known are 'torch', 'torch_cuda', 'numpy'"):
        Connection(converters="jax")


def test_functions_are_applied_by_their_places(ends: Any) -> None:
    receiver, sender = ends(batch_transforms=[lambda xs: xs / 2, lambda ys: ys + 1])
    sender.send(batch(4))
    assert [array.flat[0] for array in receiver.recv()] == [2.0, 5]
    receiver, sender = ends(batch_transforms=[lambda array: array + 1], converters=[None, len, str])
    sender.send([np.full(1, number, "i4") for number in range(5)])
    assert receiver.recv() == [np.array([1]), 1, "[3]", np.array([4]), 1]
    receiver, sender = ends(converters=lambda array: array.shape)
    sender.send(batch(1))
    assert receiver.recv() == [(4, 3), (4,)]
    receiver, sender = ends(converters=[None, None, None])
    sender.send(batch(1))
    with pytest.raises(AssertionError, match="there are 3 functions for 2 arrays"):
        receiver.recv()


def test_a_connection_stands_for_a_data_loader(ends: Any) -> None:
    receiver, sender = ends(epoch=1000)
    assert len(receiver) == 1000
    assert (receiver.sampler, receiver.batch_sampler, receiver.batch_size) == (None, None, None)
    sender.send(batch(1, rows=6))
    receiver.recv()
    assert receiver.batch_size == 6
    assert receiver.batchsize(batch(1)) == 4
    assert Connection(batch_count=False).batchsize(batch(1)) == 1
    assert receiver.batchsize([np.float32(1)]) == 1


def test_iterating_ends_with_the_total(ends: Any) -> None:
    receiver, sender = ends(total=10)
    sender.serve(batch(number) for number in range(5))
    assert numbers(receiver) == [0, 1, 2]
    assert receiver.count == 12
    assert list(receiver) == []
    assert numbers([receiver.recv()]) == [3]
    receiver, sender = ends(total=2, batch_count=False)
    sender.serve(batch(number) for number in range(5))
    assert numbers(receiver) == [0, 1]


def test_reports_are_made_when_asked_for(ends: Any, capsys: pytest.CaptureFixture[str]) -> None:
    receiver, sender = ends(report=8, total=20)
    sender.serve((batch(number) for number in range(5)), report=4)
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[:3] for line in said] == [["count", str(count), "rate"] for count in (4, 8, 12, 16, 20)]
    list(receiver)
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in said] == [["count", "8"], ["count", "16"]]
    receiver, sender = ends(total=4, sender={"report": 3})
    sender.serve([batch(0)])
    assert capsys.readouterr().err.startswith("count 4 rate ")
    list(receiver.items(report=100))
    assert capsys.readouterr() == ("", "")


def test_raw_messages_are_bytes(ends: Any) -> None:
    receiver, sender = ends(raw=True, total=2)
    for _ in range(2):
        sender.send(batch(5))
    first, second = receiver
    assert first == second
    assert [bytes(array) for array in batch(5)] == first[1::2]
    assert receiver.stats.total == 2 * sum(array.nbytes for array in batch(5))


def test_statistics_tell_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.0, *np.arange(101.0, 106.0)])
    monkeypatch.setattr(_statistics, "time", SimpleNamespace(monotonic=lambda: next(times)))
    figures = Statistics(horizon=3)
    assert [figures.rate(), figures.throughput(), figures.recent_rate(), figures.recent_throughput()] == [0] * 4
    figures.reset()
    for size in (10, 20, 30, 40, 50):
        figures.add(size)
    assert (figures.count, figures.total) == (5, 150)
    assert (figures.rate(), figures.throughput()) == (1.0, 30.0)
    assert (figures.recent_rate(), figures.recent_throughput()) == (1.0, 45.0)
    assert figures.summary() == "rate 1.000000 msg/s throughput 4.50e+01 bytes/s"


def test_both_ends_count(ends: Any) -> None:
    receiver, sender = ends(stats_horizon=7)
    sender.send(batch(1))
    receiver.recv()
    size = sum(array.nbytes for array in batch(1))
    for connection in (receiver, sender):
        assert (connection.stats.count, connection.stats.total) == (1, size)
    assert receiver.stats.horizon == 7


@pytest.fixture
def samples(tmp_path: Path) -> shoal.Dataset:
    with shoal.shards.TarWriter(tmp_path / "a.tar") as writer:
        for number in range(10):
            writer.write({"__key__": str(number), "jpg": np.full((8, 8, 3), number, np.uint8), "cls": number})
    return shoal.read_tar(tmp_path / "a.tar").decode("rgb8")


def test_a_loader_of_shoal_is_served(ends: Any, samples: shoal.Dataset) -> None:
    receiver, sender = ends(sender={"allow64": True})
    sender.serve(samples.loader(4), fields=["jpg", "cls"])
    sender.serve(samples.loader(4, to="torch"), fields="cls jpg")
    sender.close()
    got = list(receiver)
    assert [[array.shape for array in message] for message in got[:3]] == [[(n, 8, 8, 3), (n,)] for n in (4, 4, 2)]
    assert np.concatenate([ys for _, ys in got[:3]]).tolist() == list(range(10)), "no row that fills a batch up"
    assert np.concatenate([ys for ys, _ in got[3:]]).tolist() == list(range(10))


def test_fields_that_cannot_be_sent_are_named(ends: Any, samples: shoal.Dataset) -> None:
    _, sender = ends()
    with pytest.raises(PlanError, match=r"a batch has fields, '__key__', 'cls', 'jpg': say with fields=\[...\] which"):
        sender.serve(samples.loader(4))
    with pytest.raises(MissingFieldError, match=r"the batch has no field 'png'; it has .*'jpg'"):
        sender.serve(samples.loader(4), fields=["png"])
    with pytest.raises(PlanError, match="the rows of '__key__' differ in their shapes, or are no numbers"):
        sender.serve(samples.loader(4), fields=["jpg", "__key__"])
    with pytest.raises(AssertionError, match="array 1 is int64"):
        sender.serve(samples.loader(4), fields=["jpg", "cls"])


def test_a_dataset_of_torch(tmp_path: Path) -> None:
    dataset = TensorcomDataset(f"zpull+ipc://{tmp_path}/socket", length=3)
    assert isinstance(dataset, IterableDataset)
    assert len(dataset) == 3
    assert list(tmp_path.iterdir()) == [], "it is not connected yet"
    with Connection(f"zpush+ipc://{tmp_path}/socket") as sender:
        sender.serve(batch(number) for number in range(5))
        assert numbers(dataset) == [0, 1, 2]
    assert numbers(DataLoader(dataset, batch_size=None)) == [3, 4], "it goes on where it was, to the end"
    again = pickle.loads(pickle.dumps(dataset))
    assert (again.urls, again.length, again._connection) == (dataset.urls, 3, None)
    dataset.close()
    dataset.close()


def test_without_zeromq_and_torch_a_sentence_says_what_brings_them() -> None:
    program = """
import sys
sys.modules["zmq"] = sys.modules["torch"] = None
from shoal.feed.tensorcom import Connection, Statistics, TensorcomDataset, tenbin
assert [*map(len, tenbin.encode_list([__import__("numpy").zeros(3, "f4")]))] == [32, 12]
assert len(TensorcomDataset("zsub://127.0.0.1:7880", 7)) == 7
for attempt in (lambda: Connection("zpull://127.0.0.1:*"), lambda: Connection(converters="torch")):
    try:
        attempt()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        'a Tensorcom connection needs zmq, which is not installed: pip install "shoal[tensorcom]"',
        'converting to tensors needs torch, which is not installed: pip install "shoal[torch]"',
    ]


def test_receiving_does_not_load_torch() -> None:
    program = "import sys; from shoal.feed.tensorcom import Connection; Connection('zpull://127.0.0.1:*').close()"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"

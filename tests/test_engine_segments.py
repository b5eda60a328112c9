"""Messages in shared memory: what is packed comes out equal, and memory is used again only when nobody looks at it."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import threading
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from shoal._segments import Owner, _size_class
from shoal.engines.local._channel import Channel, Kind
from shoal.engines.local._packing import Packer, unpack
from shoal.errors import PlanError, SharedMemoryError
from shoal.testing.faults import full_disk


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    pair = [Channel(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
    yield pair[0], pair[1]
    for channel in pair:
        channel.close()


def cross(ends: tuple[Channel, Channel], value: Any) -> Any:
    """Send a value from the one end to the other, and an empty answer back."""
    here, there = ends
    here.send(Kind.ITEM, here.pack(value))
    got = there.receive().unpack()
    there.send(Kind.RESULT, there.pack(None))
    assert here.receive().unpack() is None
    return got


def packed_and_unpacked(value: Any) -> Any:
    owner = Owner()
    packed = Packer(owner).pack(value)
    got = unpack(packed.view, packed.stream, packed.buffers, copied=False)
    owner.close()
    return got


def descriptors() -> list[str]:
    """What the descriptors of shared memory in this process are."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [link for link in links if "memfd" in link]


def mappings() -> int:
    """Count the segments that are mapped into this process."""
    with open("/proc/self/maps") as maps:
        return sum("memfd:shoal" in line for line in maps)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        # numpy itself gives dates the byte order of the machine when it pickles them
        one, other = (each.astype(each.dtype.newbyteorder("="), copy=False) for each in (one, other))
        assert (one.dtype, one.shape, one.flags.f_contiguous) == (other.dtype, other.shape, other.flags.f_contiguous)
        return one.tobytes() == other.tobytes() if one.dtype != object else one.tolist() == other.tolist()
    if isinstance(one, memoryview):
        assert (one.format, one.shape, one.readonly) == (other.format, other.shape, other.readonly)
        return one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=3000)
    | st.binary(max_size=3000).map(bytearray)
    | st.binary(min_size=1, max_size=3000).map(memoryview)
    | st.binary(min_size=1, max_size=3000).map(lambda data: memoryview(bytearray(data)))
    | npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12))
    | npst.arrays(np.float64, (9, 40)).map(np.asfortranarray)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_packed_comes_out_the_same(value: Any) -> None:
    assert same(value, packed_and_unpacked(value))


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 32_000, 33_000, 65_535, 65_536, 100_000, 5_000_000])
def test_bytes_of_any_size_cross(ends: tuple[Channel, Channel], size: int) -> None:
    data = os.urandom(size)
    value = {"bytes": data, "bytearray": bytearray(data), "array": np.frombuffer(data, np.uint8), "list": [data] * 2}
    assert same(value, cross(ends, value))


def test_a_message_of_many_streams_and_buffers_crosses(ends: tuple[Channel, Channel]) -> None:
    value = [{"raw": os.urandom(50_000), "array": np.full((70, 70), i), "text": "x" * i} for i in range(300)]
    assert same(value, cross(ends, value))
    assert same(value[:3], cross(ends, value[:3]))


def test_arrays_begin_at_multiples_of_64(ends: tuple[Channel, Channel]) -> None:
    got = cross(ends, [np.zeros(size, np.uint8) for size in range(50_000, 50_100)])
    assert {array.ctypes.data % 64 for array in got} == {0}


def test_arrays_stay_writable_or_not(ends: tuple[Channel, Channel]) -> None:
    fixed = np.arange(90_000)
    fixed.flags.writeable = False
    for size in (8, 5_000, 90_000):
        free, kept = cross(ends, (np.arange(size), fixed[:size]))
        free += 1
        assert free.flags.writeable
        assert not kept.flags.writeable


@pytest.mark.parametrize(
    "view",
    [
        memoryview(b"abc"),
        memoryview(b""),
        memoryview(bytearray(5000)),
        memoryview(array("d", range(3000))),
        memoryview(np.arange(6000, dtype=np.int16).reshape(50, 120)),
        memoryview(np.array(7)),
    ],
)
def test_views_cross_as_views(ends: tuple[Channel, Channel], view: memoryview) -> None:
    assert same(view, cross(ends, view))


@pytest.mark.parametrize("view", [memoryview(bytes(range(200)))[::3], memoryview(np.asfortranarray(np.eye(70)))])
def test_views_with_gaps_are_laid_out(ends: tuple[Channel, Channel], view: memoryview) -> None:
    got = cross(ends, view)
    assert got.tolist() == view.tolist()
    assert got.readonly == view.readonly


def test_pictures_and_tensors_cross(ends: tuple[Channel, Channel]) -> None:
    picture = Image.effect_noise((90, 60), 50)
    assert cross(ends, picture).tobytes() == picture.tobytes()
    tensors = [torch.arange(90_000), torch.rand(3, 4, requires_grad=True), torch.ones(50, 60).T]
    tensors += [torch.ones(5000, dtype=torch.bfloat16), torch.eye(3).to_sparse(), torch.tensor(5)]
    for tensor, got in zip(tensors, cross(ends, tensors), strict=True):
        assert (got.dtype, got.requires_grad) == (tensor.dtype, tensor.requires_grad)
        assert torch.equal(got.to_dense(), tensor.to_dense())


def test_one_object_that_is_met_twice_stays_one(ends: tuple[Channel, Channel]) -> None:
    large, view = np.arange(90_000), memoryview(bytes(9000))
    got = cross(ends, [large, large, view, view])
    assert got[0] is got[1]
    assert got[2] is got[3]


def test_lambdas_and_local_classes_cross_by_value(ends: tuple[Channel, Channel]) -> None:
    class Local:
        size = 7

    got = cross(ends, {"f": lambda x: x + 1, "c": Local(), "large": np.arange(50_000)})
    assert got["f"](1) == 2
    assert got["c"].size == 7
    assert got["large"].sum() == np.arange(50_000).sum()


def test_what_cannot_be_packed_is_named(ends: tuple[Channel, Channel]) -> None:
    with pytest.raises(PlanError, match=r"a dict cannot be sent.*'_thread.lock'.*thread") as caught:
        cross(ends, {"large": np.arange(50_000), "stream": bytes(100_000), "lock": threading.Lock()})
    assert caught.value.__cause__ is not None
    assert cross(ends, "and the next one") == "and the next one"


def test_what_is_kept_stays_as_it_is(ends: tuple[Channel, Channel]) -> None:
    kept = [cross(ends, [np.full((300, 300), number)])[0][number % 200] for number in range(200)]
    assert all((row == number).all() for number, row in enumerate(kept))


def test_one_kept_sample_of_each_message_does_not_keep_all_messages(ends: tuple[Channel, Channel]) -> None:
    kept = [cross(ends, [np.full(50_000, number) for _ in range(3)])[1] for number in range(100)]
    assert all((each == number).all() for number, each in enumerate(kept))
    assert mappings() < 2 * 50


def test_memory_is_used_again_and_no_descriptor_is_kept(ends: tuple[Channel, Channel]) -> None:
    before = mappings()
    for number in range(500):
        got = cross(ends, np.full(10_000 + 300 * (number % 7), number))
        assert got[-1] == number
    assert descriptors() == []
    assert mappings() - before <= 6


def test_sizes_that_grow_and_shrink_leave_few_segments(ends: tuple[Channel, Channel]) -> None:
    before = mappings()
    for size in [*range(10_000, 2_000_000, 90_000), *range(2_000_000, 10_000, -90_000)]:
        held = [cross(ends, np.ones(size, np.uint8)) for _ in range(3)]
        assert all(array.shape == (size,) for array in held)
    del held
    cross(ends, None)
    cross(ends, None)
    assert mappings() - before <= 2 * 8


def test_all_memory_goes_when_both_ends_are_closed_and_nothing_is_kept() -> None:
    gc.collect()
    before = mappings()
    ends = tuple(map(Channel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)))
    kept = cross(ends, np.arange(100_000))
    for end in ends:
        end.close()
    assert mappings() == before + 1
    assert kept.sum() == np.arange(100_000).sum()
    del kept
    assert mappings() == before


def test_a_fork_has_a_copy_of_its_own_and_keeps_it(ends: tuple[Channel, Channel]) -> None:
    """Neither sees what the other writes, although the memory is shared."""
    kept = cross(ends, np.zeros(50_000, np.int64))
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()  # it ends with the test, if that fails
        kept[1] = 99
        there.send(b"started")
        there.recv(1)
        os._exit(0 if kept[0] == 0 and kept[1] == 99 and kept.sum() == 99 else 1)
    with here, there:
        assert here.recv(7) == b"started"
        kept[0] = 5
        assert kept[1] == 0
        del kept
        for number in range(1, 10):
            cross(ends, np.full(50_000, number))
        here.send(b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_lent_at_a_fork_is_not_written_again(ends: tuple[Channel, Channel]) -> None:
    """The child may need a moment to take its copy."""
    kept = cross(ends, np.zeros(50_000))
    before = inodes()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert inodes() == before
    del kept
    cross(ends, None)
    cross(ends, None)
    assert inodes() < before
    assert cross(ends, np.ones(50_000)).sum() == 50_000


def inodes() -> set[str]:
    """Tell the segments of this process apart."""
    with open("/proc/self/maps") as maps:
        return {line.split()[4] for line in maps if "memfd:shoal" in line}


@given(st.integers(1, 2**40))
def test_size_classes_waste_an_eighth_at_most(size: int) -> None:
    got = _size_class(size)
    assert size <= got < max(size + 2**16, size * 9 / 8 + 1)
    assert _size_class(got) == got


def test_the_stream_of_a_message_is_an_ordinary_pickle() -> None:
    owner = Owner()
    packed = Packer(owner).pack({"a": [1, 2]})
    assert pickle.loads(packed.view[: packed.stream]) == {"a": [1, 2]}
    owner.close()


def test_where_there_is_no_shared_memory_an_error_says_how_much_was_wanted() -> None:
    owner, before = Owner(), descriptors()
    with full_disk("100kB"), pytest.raises(SharedMemoryError, match="bytes of shared memory for what goes to another"):
        owner.take(1_000_000)
    assert descriptors() == before
    assert owner.take(1_000_000).size >= 1_000_000
    owner.close()

"""Lists of arrays as bytes, under the names that Tensorcom has for it."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import DecodeError, EncodeError, TensorcomError
from shoal.feed.tensorcom import tenbin
from shoal.shards.codecs import decode, encode
from support.engine import same

PAIR = [np.arange(12, dtype="f4").reshape(3, 4), np.arange(3, dtype="i4")]


def test_texts_are_numbers_and_back() -> None:
    for text in ("hello", "", "~TenBin~"):
        assert tenbin.unstr64(tenbin.str64(text)) == text
    for text in ("ninechars", "ä"):
        with pytest.raises(AssertionError, match="is not at most 8 ASCII characters"):
            tenbin.str64(text)
    with pytest.raises(DecodeError, match="no text"):
        tenbin.unstr64(-1)


def test_a_header_comes_back() -> None:
    header = tenbin.encode_header(np.zeros((12, 19), "f4"), "data")
    assert tenbin.decode_header(header) == ((12, 19), np.dtype("f4"), "data")
    assert header == struct.pack("<8s8s3q", b"f4", b"data", 2, 12, 19)
    assert tenbin.decode_header(header + bytes(16)) == ((12, 19), np.dtype("f4"), "data"), "more words mean nothing"


def test_names_are_compared() -> None:
    parts = tenbin.encode_list(PAIR, ["tensor1", "tensor2"])
    assert same(tenbin.decode_list(parts), PAIR)
    assert same(tenbin.decode_list(parts, infos=("tensor1", "tensor2")), PAIR)
    arrays, names = tenbin.decode_list(parts, infos=True)
    assert same(arrays, PAIR)
    assert names == ["tensor1", "tensor2"]
    for wrong in (["tensor1", "tensor3"], ["tensor1"], ["tensor1", "tensor2", "tensor3"]):
        with pytest.raises(AssertionError, match=r"are named \['tensor1', 'tensor2'\], and not") as caught:
            tenbin.decode_list(parts, infos=wrong)
        assert isinstance(caught.value, TensorcomError)
    assert tenbin.decode_list(tenbin.encode_list(PAIR), infos=True)[1] == ["", ""]
    with pytest.raises(AssertionError, match=r"there are 2 arrays, but the infos \['one'\]"):
        tenbin.encode_list(PAIR, ["one"])
    with pytest.raises(AssertionError, match="at most 8 ASCII"):
        tenbin.encode_list(PAIR, ["one", "far too long"])


def test_a_buffer_is_chunks_with_padding() -> None:
    parts = tenbin.encode_list(PAIR)
    data = tenbin.encode_buffer(PAIR)
    assert len(data) == sum(16 + tenbin.roundup(len(part)) for part in parts)
    assert data[:8] == b"~TenBin~"
    assert data == encode("ten", PAIR), "it is the same as in a field of a sample"
    assert same(decode("ten", data), tenbin.decode_buffer(bytearray(data)))
    assert [bytes(part) for part in tenbin.decode_chunks(data)] == [bytes(part) for part in parts]
    assert tenbin.encode_chunks([np.zeros((2, 2), "f2").data, b""])[16:24] == bytes(8)


@pytest.mark.parametrize("code", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("rows", [0, 1, 2, 10, 100, 1000])
@pytest.mark.parametrize("columns", [0, 1, 2, 10, 100])
def test_arrays_of_every_type_and_shape_come_back(code: str, rows: int, columns: int) -> None:
    array = np.random.default_rng(0).integers(0, 100, (rows, columns)).astype(code)
    [back] = tenbin.decode_buffer(tenbin.encode_buffer([array]))
    assert same(back, array)
    assert not back.flags.writeable
    assert same(tenbin.decode_list(list(map(bytes, tenbin.encode_list([array])))), [array])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype="i4").reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(24, dtype="f4").reshape(4, 6)[::-2, 1::2],
        np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3)),
        np.arange(4, dtype=">i4"),
        np.broadcast_to(np.float32(3), (4, 5)),
        np.array(7, "i2"),
    ],
)
def test_arrays_that_do_not_lie_in_order_are_sent_right(array: np.ndarray) -> None:
    [back] = tenbin.decode_buffer(tenbin.encode_buffer([array]))
    assert back.dtype == array.dtype.newbyteorder("<")
    assert back.shape == array.shape
    assert np.array_equal(back, array)


def test_types_without_a_code_are_refused() -> None:
    for array in (np.zeros(2, bool), np.zeros(2, complex), np.array(["a"]), np.zeros((1,) * 10)):
        with pytest.raises(AssertionError, match="tenbin") as caught:
            tenbin.encode_list([array])
        assert isinstance(caught.value, TensorcomError)
        with pytest.raises(EncodeError):
            encode("ten", [array])


def test_streams_hold_one_list_after_the_other() -> None:
    stream = io.BytesIO()
    tenbin.write(stream, PAIR, ["a", "b"])
    tenbin.write(stream, PAIR[:1])
    stream.seek(0)
    assert same(tenbin.read(stream, 2, infos=["a", "b"]), PAIR)
    assert same(tenbin.read(stream), PAIR[:1])
    assert tenbin.read(stream) == []
    assert tenbin.read_chunk(stream) is None


def test_files_have_their_suffix(tmp_path: Path) -> None:
    half = np.random.default_rng(0).random((7, 7)).astype("f2")
    tenbin.save(f"{tmp_path}/x.ten", half, *PAIR, infos=["a", "b", "c"])
    assert same(tenbin.load(tmp_path / "x.ten"), [half, *PAIR])
    assert tenbin.load(f"{tmp_path}/x.ten", infos=True)[1] == ["a", "b", "c"]
    for attempt in (tenbin.save, tenbin.load):
        with pytest.raises(AssertionError, match=r"x\.bin' does not end in \.ten; say nocheck=True"):
            attempt(f"{tmp_path}/x.bin")
    assert not (tmp_path / "x.bin").exists()
    tenbin.save(tmp_path / "x.bin", half, nocheck=True)
    assert same(tenbin.load(f"{tmp_path}/x.bin", nocheck=True), [half])


@pytest.mark.parametrize("cut", [1, 20, 79, 81, 100, 159])
def test_a_file_that_is_cut_off_is_not_a_shorter_one(cut: int) -> None:
    data = tenbin.encode_buffer(PAIR[1:])
    assert len(data) == 160
    for read in (lambda: tenbin.read(io.BytesIO(data[:cut])), lambda: tenbin.decode_buffer(data[:cut])):
        with pytest.raises(DecodeError, match="tenbin"):
            read()
    with pytest.raises(DecodeError, match="not followed by its data"):
        tenbin.read(io.BytesIO(data[:80]))


class Lying:
    """A stream that says how much is asked of it."""

    def __init__(self, data: bytes) -> None:
        self.stream, self.most = io.BytesIO(data), 0

    def read(self, size: int) -> bytes:
        self.most = max(self.most, size)
        return self.stream.read(size)


def test_a_length_that_lies_costs_no_memory() -> None:
    stream = Lying(b"~TenBin~" + struct.pack("<q", 2**60) + bytes(100))
    with pytest.raises(DecodeError, match="cut off after 100"):
        tenbin.read_chunk(stream)
    assert stream.most <= 1 << 24
    header = struct.pack("<8s8s3q", b"f4", b"", 2, 2**40, 2**20)
    with pytest.raises(DecodeError, match="but its data is 8 bytes"):
        tenbin.decode_list([header, bytes(8)])
    with pytest.raises(DecodeError, match="the tenbin header says"):
        tenbin.decode_list([struct.pack("<8s8s3q", b"f4", b"", 2, 2**62, 0), b""])


@given(st.lists(st.binary(max_size=80), max_size=5))
def test_whatever_parts_there_are_it_ends_with_arrays_or_an_error(parts: list[bytes]) -> None:
    for attempt in (lambda: tenbin.decode_list(parts), lambda: tenbin.decode_buffer(b"".join(parts))):
        with suppress(DecodeError):
            assert isinstance(attempt(), list)


VALID = tenbin.encode_buffer(PAIR, ["a", "b"])


@given(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=9))
def test_whatever_is_changed_it_ends_with_arrays_or_an_error(place: int, change: bytes) -> None:
    data = VALID[:place] + change + VALID[place + len(change) :]
    for attempt in (lambda: tenbin.decode_buffer(data), lambda: tenbin.read(io.BytesIO(data))):
        with suppress(DecodeError):
            assert sum(array.nbytes for array in attempt()) <= len(data)


def test_sockets_carry_single_and_several_parts() -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://pair")
        other.connect("inproc://pair")
        tenbin.zsend_single(one, PAIR, ["a", "b"])
        assert same(tenbin.zrecv_single(other, ["a", "b"]), PAIR)
        tenbin.zsend_multipart(one, PAIR)
        assert same(tenbin.zrecv_multipart(other), PAIR)
        tenbin.zsend_multipart(one, PAIR)
        assert [bytes(part) for part in other.recv_multipart()] == [bytes(part) for part in tenbin.encode_list(PAIR)]
        tenbin.zsend_multipart(one, PAIR)
        with pytest.raises(DecodeError, match="a message of 4 parts came, and a single one was expected"):
            tenbin.zrecv_single(other)
        one.send(b"~TenBin~")
        with pytest.raises(DecodeError, match="ends within its prefix"):
            tenbin.zrecv_single(other)


class Association:
    """Stands for a socket of ``pysctp``, which needs a system that has SCTP."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Any]] = []
        self.closed = False

    def sctp_send(self, data: bytes, to: Any) -> None:
        self.sent.append((data, to))

    def accept(self) -> tuple[Association, str]:
        return self, "127.0.0.1"

    def sctp_recv(self, size: int) -> tuple[None, int, bytes, None]:
        return None, 0, self.sent.pop(0)[0][:size], None

    def close(self) -> None:
        self.closed = True


def test_a_message_of_sctp_is_a_buffer() -> None:
    socket = Association()
    tenbin.sctp_send(socket, ("host", 7880), PAIR, ["a", "b"])
    assert socket.sent == [(VALID, ("host", 7880))]
    assert same(tenbin.sctp_recv(socket, infos=["a", "b"]), PAIR)
    assert socket.closed
    tenbin.sctp_send(socket, ("host", 7880), PAIR)
    with pytest.raises(DecodeError, match="tenbin"):
        tenbin.sctp_recv(socket, maxsize=100)

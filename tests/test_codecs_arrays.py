"""Fields of arrays: npy, npz, tenbin and what torch saves."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shoal.errors import DecodeError, EncodeError, TrustError
from shoal.shards.codecs import DecodeOptions, decode, encode, tenbin

TRUSTING = DecodeOptions(trust=True)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
NPY = hnp.arrays(
    st.one_of(hnp.scalar_dtypes(), hnp.byte_string_dtypes(), hnp.unicode_string_dtypes(), hnp.array_dtypes(max_size=3)),
    SHAPES,
)
TEN = hnp.arrays(
    st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f4", ">i2"]), SHAPES
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@given(NPY, st.booleans())
def test_an_array_comes_back(array: np.ndarray, fortran: bool) -> None:
    array = np.asarray(array, order="F" if fortran else "C")
    data = encode("npy", array)
    for given_data in (data, memoryview(data)):
        back = decode("npy", given_data)
        assert same(array, back)
        assert back.flags.writeable
        assert back.flags.owndata


@pytest.mark.filterwarnings("ignore:Stored array in format")
@given(NPY)
def test_npy_is_what_numpy_reads_and_writes(array: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    assert file.getvalue() == encode("npy", array)
    assert same(np.load(io.BytesIO(encode("npy", array)), allow_pickle=False), array)


@given(st.dictionaries(NAMES, NPY, max_size=3))
def test_named_arrays_come_back_in_order(arrays: dict[str, np.ndarray]) -> None:
    back = decode("npz", encode("npz", arrays))
    assert list(back) == list(arrays)
    assert all(same(arrays[name], back[name]) for name in arrays)


def test_npz_is_what_numpy_reads_and_writes() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(5), y=np.eye(2))
    back = decode("npz", file.getvalue())
    assert type(back) is dict
    assert same(back["x"], np.arange(5))
    with np.load(io.BytesIO(encode("npz", back))) as read:
        assert same(read["y"], np.eye(2))


@given(st.lists(TEN, max_size=4), st.sampled_from(["ten", "tenbin", "tb"]))
def test_a_list_of_arrays_comes_back(arrays: list[np.ndarray], field: str) -> None:
    data = encode(field, arrays)
    for given_data in (data, memoryview(data)):
        back = decode(field, given_data)
        assert isinstance(back, list)
        assert all(np.array_equal(left, right, equal_nan=True) for left, right in zip(arrays, back, strict=True))
        assert all(right.dtype == left.dtype.newbyteorder("<") for left, right in zip(arrays, back, strict=True))
        assert not any(array.flags.writeable for array in back)


def test_tenbin_is_written_as_its_description_says() -> None:
    array = np.arange(6, dtype="f4").reshape(2, 3)
    header = b"f4" + bytes(6) + bytes(8) + struct.pack("<3q", 2, 2, 3)
    expected = b"~TenBin~" + struct.pack("<q", 40) + header + bytes(24)
    expected += b"~TenBin~" + struct.pack("<q", 24) + array.tobytes() + bytes(40)
    assert encode("ten", [array]) == expected


def test_two_pictures_and_no_arrays_in_tenbin() -> None:
    pair = (np.random.default_rng(0).random((28, 28)), np.ones((28, 28)))
    back = decode("ten", encode("ten", pair))
    assert [array.dtype for array in back] == [np.float64, np.float64]
    assert np.array_equal(back, pair)
    assert decode("ten", encode("ten", [])) == []


def test_tenbin_headers_carry_names() -> None:
    dtype, name, shape = tenbin.decode_header(tenbin.encode_header(np.zeros((12, 19), "f4"), "data"))
    assert (dtype, name, shape) == (np.dtype("f4"), "data", (12, 19))
    assert len(tenbin.loads(tenbin.dumps([np.zeros(2), np.ones(3)], ["tensor1", "tensor2"]))) == 2
    with pytest.raises(EncodeError, match="2 arrays but 1 names"):
        tenbin.dumps([np.zeros(2), np.ones(3)], ["tensor1"])
    with pytest.raises(EncodeError, match="at most 8 ASCII"):
        tenbin.encode_header(np.zeros(2), "too long a name")


@pytest.mark.parametrize(
    "value", [[np.zeros(2, bool)], [np.zeros(2, complex)], ["a"], [np.zeros((1,) * 10)], np.ones(2)]
)
def test_tenbin_refuses_what_it_cannot_hold(value: object) -> None:
    with pytest.raises(EncodeError, match="tenbin"):
        encode("ten", value)


def chunk(payload: bytes, length: int | None = None) -> bytes:
    head = b"~TenBin~" + struct.pack("<q", len(payload) if length is None else length)
    return head + payload + bytes(-len(payload) % 64)


def header(code: bytes = b"f4", ndim: int = 1, shape: tuple[int, ...] = (2,)) -> bytes:
    return struct.pack(f"<8s8sq{len(shape)}q", code, b"", ndim, *shape)


@pytest.mark.parametrize(
    "data",
    [
        b"~TenBin~",
        b"~TenBim~" + bytes(72),
        chunk(header()),
        chunk(header()) + chunk(bytes(8))[:-1],
        chunk(header()) + chunk(bytes(9)),
        chunk(header()) + chunk(bytes(8), -8),
        chunk(header()) + chunk(bytes(8), 2**62),
        chunk(header(shape=(2**40,))) + chunk(bytes(8)),
        chunk(header(ndim=2, shape=(2**32, 2**32))) + chunk(b""),
        chunk(header(ndim=2, shape=(-1, -2))) + chunk(bytes(8)),
        chunk(header(ndim=2, shape=(-1, 0))) + chunk(b""),
        chunk(header(ndim=2)) + chunk(bytes(8)),
        chunk(header(ndim=-1, shape=())) + chunk(bytes(4)),
        chunk(header(ndim=2**40)) + chunk(bytes(8)),
        chunk(header(b"O")) + chunk(bytes(16)),
        chunk(b"f4") + chunk(bytes(8)),
    ],
)
def test_malformed_tenbin_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="tenbin") as caught:
        decode("ten", data)
    assert caught.value.field == "ten"


def npy(descr: object, shape: object, payload: bytes = b"", fortran: bool = False) -> bytes:
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode("latin1")
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + payload


@pytest.mark.parametrize("shape", [(10**15,), (2**40, 2**40), (-1,), (3,), ("2",), (2.0,), 2, None])
def test_an_npy_header_that_lies_takes_no_memory(shape: object) -> None:
    with pytest.raises(DecodeError):
        decode("npy", npy("<f4", shape, bytes(8)))


def test_empty_arrays_and_empty_types_come_back() -> None:
    assert decode("npy", npy("<f4", (0, 10**15))).shape == (0, 10**15)
    assert decode("npy", npy("|S0", (3,))).shape == (3,)


def test_npy_of_the_later_versions_is_read() -> None:
    array = np.array([(1, 2.0)], dtype=[("größe", "i4"), ("長さ", "f8")])
    for version in ((2, 0), (3, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, array[["größe"]] if version == (2, 0) else array, version=version)
        assert decode("npy", file.getvalue())["größe"] == 1


def test_object_arrays_need_trust_and_are_not_written() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(TrustError, match="array of objects"):
        decode("npy", file.getvalue())
    assert decode("npy", file.getvalue(), TRUSTING)[0] == {"x": 1}
    with pytest.raises(EncodeError, match="use a pyd field"):
        encode("npy", np.array([{"x": 1}], dtype=object))


def test_npz_refuses_what_is_no_dict_of_names() -> None:
    with pytest.raises(EncodeError, match="use npy for one array"):
        encode("npz", np.ones(2))
    with pytest.raises(EncodeError, match="array name 3"):
        encode("npz", {3: np.ones(2)})


def test_npz_expands_only_to_the_limit() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros(10**6))
    with pytest.raises(DecodeError, match="expands to 8000128 bytes"):
        decode("npz", file.getvalue(), DecodeOptions(max_bytes=10**6))


def test_a_zip_of_something_else_is_a_decode_error() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DecodeError, match="npz"):
        decode("npz", file.getvalue())


def test_what_torch_saves_comes_back_where_trusted() -> None:
    value = ["a", torch.arange(4).reshape(2, 2)]
    data = encode("pth", value)
    with pytest.raises(TrustError, match="decoding pth"):
        decode("pth", data)
    back = decode("pth", memoryview(data), TRUSTING)
    assert back[0] == "a"
    assert torch.equal(back[1], value[1])


def test_tensors_are_written_as_arrays() -> None:
    assert same(decode("npy", encode("npy", torch.arange(3))), np.arange(3))
    assert same(decode("ten", encode("ten", [torch.arange(3)]))[0], np.arange(3))


def test_equal_values_give_equal_bytes() -> None:
    values = {"npy": np.eye(3), "npz": {"x": np.eye(3)}, "ten": [np.eye(3)], "pth": [torch.eye(3)], "npz.gz": {"x": 1}}
    for field, value in values.items():
        assert encode(field, value) == encode(field, value)
    with zipfile.ZipFile(io.BytesIO(encode("npz", values["npz"]))) as archive:
        assert archive.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)

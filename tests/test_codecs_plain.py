"""Fields of plain values: integers, text, documents, pickles, gzip around them, and bytes without a codec."""

from __future__ import annotations

import gzip
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.errors import DecodeError, EncodeError, PlanError, SettingsError, TrustError
from shoal.shards.codecs import (
    Codec,
    DecodeOptions,
    EncodeOptions,
    codec_for,
    decode,
    encode,
    extension,
    known_extensions,
)

INTEGERS = ["cls", "cls2", "class", "count", "index", "inx", "id"]
TEXTS = ["txt", "text", "transcript", "html", "htm"]
TRUSTING = DecodeOptions(trust=True)
SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8)
DOCUMENTS = st.recursive(
    SCALARS | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
WORDS = st.integers(-(2**63), 2**64 - 1)
PACKED = st.recursive(
    SCALARS | WORDS | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | WORDS, inner, max_size=3),
    max_leaves=10,
).filter(lambda value: not isinstance(value, bytes))
HELLO = gzip.compress(b"hello", mtime=0)
"""The same whenever it is made: names of tests follow from it."""


@given(st.integers(), st.sampled_from(INTEGERS))
def test_an_integer_comes_back(value: int, field: str) -> None:
    assert decode(field, encode(field, value)) == value


@given(st.text(), st.sampled_from(TEXTS))
def test_text_comes_back(value: str, field: str) -> None:
    assert decode(field, encode(field, value)) == value


@given(DOCUMENTS, st.sampled_from(["json", "jsn", "info.JSON"]))
def test_a_json_document_comes_back(value: object, field: str) -> None:
    assume(not isinstance(value, str))
    assert decode(field, encode(field, value)) == value


@given(PACKED, st.sampled_from(["mp", "msgpack", "msg"]))
def test_a_msgpack_document_comes_back(value: object, field: str) -> None:
    assert decode(field, encode(field, value)) == value


@given(PACKED)
def test_a_cbor_document_comes_back(value: object) -> None:
    assert decode("cbor", encode("cbor", value)) == value


@given(
    st.one_of(st.sets(st.integers()), st.complex_numbers(allow_nan=False)), st.sampled_from(["pkl", "pickle", "pyd"])
)
def test_a_pickled_object_comes_back_where_trusted(value: object, field: str) -> None:
    assert decode(field, encode(field, value), TRUSTING) == value


def test_a_str_under_json_is_a_document_already() -> None:
    assert decode("json", encode("json", '{"a": 1}')) == {"a": 1}
    with pytest.raises(EncodeError, match=r"not a JSON document.*json\.dumps"):
        encode("json", "just text")


def test_any_number_of_gz_endings_is_harmless() -> None:
    data = gzip.compress(b"hello")
    assert decode("txt" + ".gz" * 5000, data) == data


def test_json_takes_half_a_surrogate_pair() -> None:
    assert decode("json", encode("json", {"x": "\ud800"})) == {"x": "\ud800"}


@pytest.mark.parametrize("data", [b"12\n", b" 12", memoryview(b"x12x")[1:3]])
def test_blanks_around_an_integer_do_not_matter(data: bytes) -> None:
    assert decode("cls", data) == 12


@pytest.mark.parametrize("data", [b"", b"cat", b"1.5", b"2007_000032", "٣".encode(), b"0x10", b"1 2", b"\xff", b"1\0"])
def test_what_is_not_an_integer_is_an_error_that_shows_it(data: bytes) -> None:
    with pytest.raises(DecodeError, match="integer in decimal digits") as caught:
        decode("my.cls", data)
    assert caught.value.field == "my.cls"
    assert not data or repr(data) in str(caught.value)


@pytest.mark.parametrize("value", [7, np.int64(7), np.uint8(7), 7.0, np.float32(7), np.array(7), "7", b"7"])
def test_whole_numbers_of_any_kind_are_written(value: object) -> None:
    assert encode("cls", value) == b"7"


@pytest.mark.parametrize("value", [True, np.True_, 7.5, math.nan, math.inf, None, [7], np.float32(0.5)])
def test_what_is_no_integer_is_not_written(value: object) -> None:
    with pytest.raises(EncodeError, match="'count' holds an integer"):
        encode("count", value)


def test_text_is_not_made_of_other_types() -> None:
    with pytest.raises(EncodeError, match=r"holds text, not int; pass str\(value\)"):
        encode("txt", 3)


def test_text_that_is_not_utf8_is_an_error_with_its_cause() -> None:
    with pytest.raises(DecodeError, match="UTF-8 text") as caught:
        decode("txt", b"caf\xe9")
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


def test_a_value_json_cannot_hold_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="set cannot be written as a JSON document") as caught:
        encode("json", {1, 2})
    assert isinstance(caught.value.__cause__, TypeError)


@given(st.binary())
def test_unknown_extensions_are_bytes_both_ways(data: bytes) -> None:
    for field in ("wnid", "tar", "a.xml", ""):
        assert decode(field, memoryview(data)) == encode(field, bytearray(data)) == data
        assert type(decode(field, memoryview(data))) is bytes


def test_an_unknown_extension_takes_text_and_says_what_else_there_is() -> None:
    assert encode("wnid", "n01440764") == b"n01440764"
    with pytest.raises(EncodeError, match=r"pass bytes or str, or use one of: .*png") as caught:
        encode("wnid", 3)
    assert caught.value.field == "wnid"


@pytest.mark.parametrize("field", known_extensions())
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_pass_under_any_name(field: str, kind: type) -> None:
    assert encode(field, kind(b"\0as it is")) == b"\0as it is"


@given(st.text(), st.sampled_from(["txt.gz", "page.TXT.GZ", "txt.gz.gz"]))
def test_gzip_wraps_a_codec(value: str, field: str) -> None:
    data = encode(field, value)
    assert data[:2] == b"\x1f\x8b"
    assert decode(field, data) == value


def test_gzip_wraps_every_kind() -> None:
    assert decode("cls.gz", encode("cls.gz", 3)) == 3
    assert decode("json.gz", gzip.compress(b"[1]")) == [1]
    assert decode("tar.gz", encode("tar.gz", b"raw")) == b"raw"
    assert decode("gz", gzip.compress(b"raw") + gzip.compress(b" twice")) == b"raw twice"
    with pytest.raises(TrustError):
        decode("pyd.gz", encode("pyd.gz", [1]))


def test_gzip_fields_that_were_not_decoded_can_be_written_again() -> None:
    data = encode("txt.gz", "hello")
    assert encode("txt.gz", data) == data


@pytest.mark.parametrize("data", [b"", b"hello", HELLO[:-1], HELLO[:-8] + bytes(8)])
def test_damaged_gzip_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="gzip around UTF-8 text") as caught:
        decode("txt.gz", data)
    assert caught.value.field == "txt.gz"


def test_gzip_expands_only_to_the_limit() -> None:
    bomb = gzip.compress(bytes(10**7))
    with pytest.raises(DecodeError, match="expand to more than the 1000 of max_bytes"):
        decode("bin.gz", bomb, DecodeOptions(max_bytes=1000))
    assert decode("bin.gz", bomb, DecodeOptions(max_bytes=10**7)) == bytes(10**7)


def test_pickles_need_trust_to_be_read_but_not_to_be_written() -> None:
    with pytest.raises(TrustError, match="trust=True"):
        decode("pyd", encode("pyd", [1]))


def test_errors_survive_a_process_border() -> None:
    with pytest.raises(DecodeError) as caught:
        decode("cls", b"cat")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.field, str(again)) == ("cls", str(caught.value))


def test_extension_is_what_follows_the_last_dot() -> None:
    assert [extension(field) for field in ("png", "seg.PNG", "a.b.c", "a.", "")] == ["png", "png", "c", "", ""]


def test_every_known_extension_has_a_codec() -> None:
    for name in known_extensions():
        codec: Codec = codec_for(f"some.{name.upper()}")
        assert codec.kind != "bytes"


def test_options_check_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlanError, match=r"no image spec 'torchrbg'; did you mean 'torchrgb'\?"):
        DecodeOptions(images="torchrbg")
    with pytest.raises(PlanError, match="jpeg_quality is 0"):
        EncodeOptions(jpeg_quality=0)
    with pytest.raises(PlanError, match="video_fps is 0"):
        EncodeOptions(video_fps=0)
    monkeypatch.setenv("SHOAL_MAX_PIXELS", "123")
    assert DecodeOptions().max_pixels == 123
    monkeypatch.setenv("SHOAL_MAX_PIXELS", "many")
    with pytest.raises(SettingsError):
        DecodeOptions()


def test_only_what_is_used_is_imported() -> None:
    program = (
        "import sys; from shoal.shards.codecs import decode, encode, known_extensions\n"
        "decode('cls', b'1'); decode('json', b'[]'); encode('txt', 'x')\n"
        "heavy = {'numpy', 'PIL', 'torch', 'av', 'soundfile', 'msgpack', 'cbor2', 'simplejpeg'} & sys.modules.keys()\n"
        "print(sorted(heavy))\n"
        "import numpy; decode('png', encode('png', numpy.zeros((2, 2))))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


@pytest.mark.parametrize(
    ("module", "field", "extra"),
    [("msgpack", "mp", "msgpack"), ("cbor2", "cbor", "cbor"), ("soundfile", "wav", "audio"), ("av", "mp4", "video")],
)
def test_a_missing_library_is_named_with_its_pip_command(
    monkeypatch: pytest.MonkeyPatch, module: str, field: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'{module}, which is not installed: pip install "shoal\[{extra}\]"'):
        decode(field, b"some bytes")
    with pytest.raises(ImportError, match=module):
        encode(field, {"array": np.zeros(2), "sampling_rate": 1} if field == "wav" else np.zeros((1, 2, 2, 3), "u1"))


def test_without_torch_its_fields_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r'pip install "shoal\[torch\]"'):
        decode("png", encode("png", np.zeros((2, 2))), DecodeOptions(images="torchrgb"))
    with pytest.raises(ImportError, match="torch"):
        decode("pth", b"some bytes", TRUSTING)

"""Bytes from elsewhere: whatever they are, decoding ends with a value, a DecodeError or a TrustError."""

from __future__ import annotations

import io
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.errors import DecodeError, TrustError
from shoal.shards.codecs import DecodeOptions, codec_for, decode, encode, known_extensions

OPTIONS = DecodeOptions(max_pixels=10**6, max_bytes=10**7)
PICTURE = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
SOUND = np.sin(np.arange(4000) / 9).astype(np.float32)
VALUES = {
    "an integer in decimal digits": 7,
    "UTF-8 text": "seven",
    "a JSON document": {"a": [1, {"b": None}]},
    "a MessagePack document": {"a": [1, b"x", 2.5]},
    "a CBOR document": {"a": [1, b"x", 2.5]},
    "a NumPy array (npy)": np.eye(3),
    "a dict of NumPy arrays (npz)": {"x": np.eye(3)},
    "a list of arrays (tenbin)": [np.eye(3), np.arange(4)],
    "a picture": PICTURE,
    "sound": {"array": SOUND, "sampling_rate": 8000},
    "a video": np.zeros((2, 16, 16, 3), np.uint8),
}


@cache
def valid(field: str) -> bytes:
    """Make a small honest file for an extension."""
    if field == "mp3":
        file = io.BytesIO()
        soundfile.write(file, SOUND, 8000, format="MP3")
        return file.getvalue()
    special = {"pbm": PICTURE[:, :, 0] > 99, "pgm": PICTURE[:, :, 0]}
    kin = {"webm": "mkv", "avi": "mp4", "avif": "jp2"}  # only read, so honest files are of another make
    return encode(kin.get(field, field), special.get(field, VALUES.get(codec_for(field).kind)))


def attempt(field: str, data: bytes) -> None:
    outcomes = []
    for given_data in (data, memoryview(data)):
        try:
            outcomes.append(type(decode(field, given_data, OPTIONS)))
        except TrustError:
            outcomes.append(TrustError)
        except DecodeError as error:
            outcomes.append((DecodeError, error.field))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] != (DecodeError, None)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("field", known_extensions())
@settings(max_examples=25, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes(field: str, data: bytes) -> None:
    attempt(field, data)
    attempt(f"{field}.gz", data)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("field", known_extensions())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_files(field: str, data: st.DataObject) -> None:
    honest = valid(field)
    damaged = bytearray(honest)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(honest) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(honest)) | st.just(len(honest)))
    attempt(field, bytes(damaged[:length]) + data.draw(st.binary(max_size=8)))


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("field", known_extensions())
def test_garbage_after_an_honest_beginning(field: str) -> None:
    for keep in (4, 12, 40):
        attempt(field, valid(field)[:keep] + bytes(range(256)) * 4)
        attempt(field, valid(field)[:keep] + b"\xff" * 1000)


class Touch:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def poisoned(field: str, path: Path) -> bytes:
    file = io.BytesIO()
    if field == "npy":
        np.save(file, np.array([Touch(path)], dtype=object), allow_pickle=True)
    elif field == "npz":
        np.savez(file, x=np.array([Touch(path)], dtype=object))
    elif field == "pth":
        torch.save(Touch(path), file)
    else:
        file.write(pickle.dumps(Touch(path)))
    return file.getvalue()


@pytest.mark.parametrize("field", ["pkl", "pickle", "pyd", "pth", "npy", "npz", "pyd.gz"])
def test_no_code_runs_without_trust(field: str, tmp_path: Path) -> None:
    path = tmp_path / "was-run"
    data = poisoned(field.removesuffix(".gz"), path)
    if field.endswith(".gz"):
        data = encode(field, data)
    with pytest.raises(TrustError, match="trust=True"):
        decode(field, data)
    assert not path.exists()
    decode(field, data, DecodeOptions(trust=True))
    assert path.exists()


@pytest.mark.parametrize("field", ["pyd", "pth", "npy"])
def test_trusted_garbage_is_a_decode_error(field: str) -> None:
    with pytest.raises(DecodeError):
        decode(field, b"\x80\x04garbage", DecodeOptions(trust=True))


@pytest.mark.parametrize("field", ["json", "mp", "cbor"])
def test_bottomless_nesting_is_a_decode_error(field: str) -> None:
    opening = {"json": b"[", "mp": b"\x91", "cbor": b"\x81"}[field]
    with pytest.raises(DecodeError):
        decode(field, opening * 200_000)


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("mp", b"\xdd\xff\xff\xff\xff"),
        ("mp", b"\xdf\xff\xff\xff\xff"),
        ("mp", b"\xc6\xff\xff\xff\xff"),
        ("cbor", b"\x9b\x7f" + b"\xff" * 7),
        ("cbor", b"\x5b\x7f" + b"\xff" * 7),
        ("cbor", b"\xc5\x82\x1a\x7f\xff\xff\xff\x01"),
        ("json", b"9" * 100_000),
        ("cls", b"9" * 100_000),
    ],
)
def test_claims_of_size_are_not_believed(field: str, data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(field, data)

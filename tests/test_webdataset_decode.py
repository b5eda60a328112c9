"""Fields into values: .decode(), .xdecode() and their handlers."""

from __future__ import annotations

import gzip
import io
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shoal.errors import DecodeError, MissingExtraError
from shoal.shards.codecs import encode
from shoal.webdataset import (
    Continue,
    DecodingError,
    TarWriter,
    WebDataset,
    basichandlers,
    gzfilter,
    handle_extension,
    ignore_and_continue,
    ignore_and_stop,
    imagehandler,
    torch_audio,
    torch_video,
)
from support.webdataset_shards import SAMPLES, samples, write_pictures, write_samples


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "pictures.tar")


def decoded(folder: Path, fields: dict[str, bytes], *args: Any, **options: Any) -> dict[str, Any]:
    """Write one sample and give its fields as they are decoded."""
    path = write_samples(folder / "one.tar", [("one", fields)])
    (sample,) = WebDataset(path).decode(*args, **options)
    return {name: value for name, value in sample.items() if not name.startswith("__")}


def test_pictures_stay_bytes_unless_a_kind_is_named(pictures: str) -> None:
    sample = next(iter(WebDataset(pictures).decode()))
    assert sample["png"] == samples()[0][1]["png"]
    assert sample["cls"] == 0
    assert sample["wnid"] == b"n00000000"


@pytest.mark.parametrize(
    ("spec", "kind", "shape", "dtype"),
    [
        ("l8", np.ndarray, (793, 600), np.uint8),
        ("rgb8", np.ndarray, (793, 600, 3), np.uint8),
        ("rgba8", np.ndarray, (793, 600, 4), np.uint8),
        ("l", np.ndarray, (793, 600), np.float32),
        ("rgb", np.ndarray, (793, 600, 3), np.float32),
        ("rgba", np.ndarray, (793, 600, 4), np.float32),
        ("torchl8", torch.Tensor, (793, 600), torch.uint8),
        ("torchrgb8", torch.Tensor, (3, 793, 600), torch.uint8),
        ("torchrgba8", torch.Tensor, (4, 793, 600), torch.uint8),
        ("torchl", torch.Tensor, (793, 600), torch.float32),
        ("torchrgb", torch.Tensor, (3, 793, 600), torch.float32),
        ("torch", torch.Tensor, (3, 793, 600), torch.float32),
        ("torchrgba", torch.Tensor, (4, 793, 600), torch.float32),
    ],
)
def test_kinds_of_pictures(pictures: str, spec: str, kind: type, shape: tuple[int, ...], dtype: Any) -> None:
    image = next(iter(WebDataset(pictures).decode(spec)))["png"]
    assert isinstance(image, kind)
    assert tuple(image.shape) == shape
    assert image.dtype == dtype


@pytest.mark.parametrize(("spec", "mode"), [("pil", "RGB"), ("pilrgb", "RGB"), ("pill", "L"), ("pilrgba", "RGBA")])
def test_kinds_of_pil_pictures(pictures: str, spec: str, mode: str) -> None:
    image = next(iter(WebDataset(pictures).decode(spec)))["png"]
    assert isinstance(image, Image.Image)
    assert (image.mode, image.size) == (mode, (600, 793))


def test_basic_formats(tmp_path: Path) -> None:
    arrays = {"a": np.arange(3), "b": np.eye(2)}
    fields = {
        "cls": b"7",
        "cls2": b"8",
        "index": b"9",
        "txt": b"hello",
        "transcript": b"word",
        "json": b"[1, 2]",
        "mp": encode("mp", {"x": 1}),
        "cbor": encode("cbor", {"x": 1}),
        "npy": encode("npy", np.arange(4)),
        "npz": encode("npz", arrays),
        "ten": encode("ten", [np.arange(4)]),
        "html": b"<p>",
        "wav": b"not asked for",
    }
    got = decoded(tmp_path, fields)
    assert (got["cls"], got["cls2"], got["index"]) == (7, 8, 9)
    assert (got["txt"], got["transcript"]) == ("hello", "word")
    assert got["json"] == [1, 2]
    assert got["mp"] == got["cbor"] == {"x": 1}
    assert np.array_equal(got["npy"], np.arange(4))
    assert isinstance(got["npz"], dict)
    assert all(np.array_equal(got["npz"][name], arrays[name]) for name in arrays)
    assert isinstance(got["ten"], list)
    assert np.array_equal(got["ten"][0], np.arange(4))
    assert got["html"] == b"<p>"
    assert got["wav"] == b"not asked for"


def test_a_class_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DecodingError, match="sample 'one', field 'cls'"):
        decoded(tmp_path, {"cls": b"dog"})


def test_gzipped_fields_keep_their_name(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "a", "txt.gz": "hello", "json.gz": [1]})
    (sample,) = WebDataset(tmp_path / "a.tar")
    assert gzip.decompress(sample["txt.gz"]) == b"hello"
    (sample,) = WebDataset(tmp_path / "a.tar").decode()
    assert sample["txt.gz"] == "hello"
    assert sample["json.gz"] == [1]


def test_torch_objects_round_trip_with_trust(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "a", "pth": [1, "two"]})
    (sample,) = WebDataset(tmp_path / "a.tar").decode(trust=True)
    assert sample["pth"] == [1, "two"]


class TestHandlers:
    def test_yours_come_before_the_basic_ones(self, tmp_path: Path) -> None:
        def shout(key: str, data: bytes) -> Any:
            return data.decode().upper() if key == ".txt" else None

        assert decoded(tmp_path, {"txt": b"hello", "cls": b"1"}, shout) == {"txt": "HELLO", "cls": 1}

    def test_pre_and_post_can_be_replaced(self, tmp_path: Path) -> None:
        fields = {"cls": b"1", "txt.gz": gzip.compress(b"hello")}
        assert decoded(tmp_path, fields, post=[]) == {"cls": b"1", "txt.gz": b"hello"}
        assert decoded(tmp_path, fields, pre=[])["txt.gz"] == fields["txt.gz"]

    def test_continue_changes_name_and_bytes_for_the_next(self, tmp_path: Path) -> None:
        def reverse(key: str, data: bytes) -> Any:
            return Continue(".txt", data[::-1]) if key == ".rev" else None

        assert decoded(tmp_path, {"rev": b"olleh"}, reverse) == {"rev": "hello"}

    def test_only_some_fields(self, tmp_path: Path) -> None:
        fields = {"cls": b"1", "txt": b"hello", "json": b"[]"}
        assert decoded(tmp_path, fields, only="cls json") == {"cls": 1, "txt": b"hello", "json": []}
        assert decoded(tmp_path, fields, only=["txt"]) == {"cls": b"1", "txt": "hello", "json": b"[]"}

    def test_by_extension(self, tmp_path: Path) -> None:
        handler = handle_extension("seg.png bin", len)
        fields = {"left.seg.png": b"12", "png": b"1", "bin": b"123"}
        assert decoded(tmp_path, fields, handler) == {"left.seg.png": 2, "png": b"1", "bin": 3}

    @pytest.mark.parametrize(
        ("extensions", "key", "matches"),
        [
            ("jpg jpeg", ".jpg", True),
            ("jpg jpeg", ".JPEG", True),
            ("jpg jpeg", ".left.jpg", True),
            ("jpg jpeg", ".xjpg", False),
            ("jpg jpeg", "jpg", True),
            ("seg.png", ".seg.png", True),
            ("seg.png", ".x.seg.png", True),
            ("seg.png", ".y.png", False),
        ],
    )
    def test_parts_of_an_extension(self, extensions: str, key: str, matches: bool) -> None:
        assert (handle_extension(extensions, lambda data: "mine")(key, b"") == "mine") is matches

    def test_pictures_of_some_extensions(self, tmp_path: Path) -> None:
        png = samples()[1][1]["png"]
        got = decoded(tmp_path, {"png": png, "webp": b"x"}, imagehandler("rgb8", ["png"]))
        assert got["png"].shape == (48, 64, 3)
        assert got["webp"] == b"x"

    def test_plain_functions_can_be_named(self) -> None:
        assert basichandlers(".cls", b"3") == 3
        assert gzfilter(".txt", b"") is None

    def test_what_is_decoded_already(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "a.tar", [("a", {"cls": b"1", "txt": b"2"})])
        once = WebDataset(path).decode(only="cls")
        with pytest.raises(DecodingError, match="partial=True"):
            list(once.decode())
        assert next(iter(once.decode(partial=True)))["txt"] == "2"

    def test_sound_as_tensors(self, tmp_path: Path) -> None:
        tone = np.sin(np.arange(1600) / 10).astype(np.float32) / 2
        wav = encode("wav", {"array": tone, "sampling_rate": 16000})
        waveform, rate = decoded(tmp_path, {"wav": wav}, torch_audio)["wav"]
        assert tuple(waveform.shape) == (1, 1600)
        assert rate == 16000
        assert np.allclose(waveform[0].numpy(), tone, atol=1e-3)

    def test_video_as_tensors(self, tmp_path: Path) -> None:
        movie = np.full((3, 16, 32, 3), 128, np.uint8)
        frames, sound, _ = decoded(tmp_path, {"mp4": encode("mp4", movie)}, torch_video)["mp4"]
        assert tuple(frames.shape) == (3, 16, 32, 3)
        assert sound.numel() == 0


class TestFailures:
    def faulty(self) -> Any:
        calls = itertools.count()

        def decode(key: str, data: bytes) -> Any:
            if key != ".png":
                return None
            if next(calls) % 2:
                raise ValueError("every second picture is bad")
            return len(data)

        return decode

    def test_they_name_shard_sample_and_field(self, pictures: str) -> None:
        with pytest.raises(DecodingError, match="every second picture is bad") as caught:
            list(WebDataset(pictures).decode(self.faulty()))
        error = caught.value
        assert (error.url, error.key, error.k) == (pictures, "000001", "png")
        assert isinstance(error, DecodeError | ValueError)
        assert isinstance(error.__cause__, ValueError)
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.url, copy.key, copy.k, str(copy)) == (error.url, error.key, error.k, str(error))

    def test_a_handler_can_leave_out_bad_samples(self, pictures: str) -> None:
        got = list(WebDataset(pictures).decode(self.faulty(), handler=ignore_and_continue))
        assert len(got) == 24 == (SAMPLES + 1) // 2

    def test_a_handler_can_stop(self, pictures: str) -> None:
        assert len(list(WebDataset(pictures).decode(self.faulty(), handler=ignore_and_stop))) == 1

    def test_a_missing_library_is_no_fault_of_the_data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = encode("mp", {"x": 1})
        monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
        with pytest.raises(MissingExtraError, match="msgpack"):
            decoded(tmp_path, {"mp": data}, handler=ignore_and_continue)


class TestXdecode:
    def xdecoded(self, folder: Path, fields: dict[str, bytes], *args: Any, **options: Any) -> dict[str, Any]:
        path = write_samples(folder / "one.tar", [("one", fields)])
        (sample,) = WebDataset(path).xdecode(*args, **options)
        return {name: value for name, value in sample.items() if not name.startswith("__")}

    def test_functions_read_a_stream(self, tmp_path: Path) -> None:
        def read(stream: io.BytesIO) -> Any:
            return int(stream.read())

        assert self.xdecoded(tmp_path, {"cls": b"1", "txt": b"a", "bin": b"b"}, cls=read) == {
            "cls": 1,
            "txt": "a",
            "bin": b"b",
        }

    def test_the_last_pattern_wins(self, tmp_path: Path) -> None:
        pairs = [("*.txt", lambda stream: "first"), ("*.left.txt", lambda stream: "second")]
        assert self.xdecoded(tmp_path, {"txt": b"", "left.txt": b""}, *pairs) == {"txt": "first", "left.txt": "second"}

    def test_an_unknown_field_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no decoder for 'cls'"):
            self.xdecoded(tmp_path, {"cls": b"1"})
        assert self.xdecoded(tmp_path, {"cls": b"1"}, must_decode=False) == {"cls": b"1"}

    def test_a_failure_names_the_field(self, tmp_path: Path) -> None:
        with pytest.raises(DecodeError, match=r"field 'cls'.*ZeroDivisionError"):
            self.xdecoded(tmp_path, {"cls": b"1"}, cls=lambda stream: 1 / 0)

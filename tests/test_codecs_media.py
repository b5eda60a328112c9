"""Sound and video."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs import DecodeOptions, EncodeOptions, decode, encode

PCM = hnp.arrays(np.int16, st.one_of(st.tuples(st.integers(1, 50)), st.tuples(st.integers(1, 50), st.integers(2, 3))))


def tone(channels: int = 1, frames: int = 8000) -> dict[str, object]:
    wave = np.sin(np.arange(frames) / 20).astype(np.float32) * 0.5
    return {"array": wave if channels == 1 else np.stack([wave] * channels, 1), "sampling_rate": 16000}


def movie() -> np.ndarray:
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    frame = np.broadcast_to(ramp[None, :, None], (48, 64, 3))
    return np.stack([np.roll(frame, 4 * step, axis=1) // (step % 2 + 1) for step in range(6)])


@settings(max_examples=30)
@given(PCM, st.sampled_from(["wav", "flac"]))
def test_sixteen_bit_sound_comes_back(samples: np.ndarray, field: str) -> None:
    data = encode(field, {"array": samples, "sampling_rate": 8000})
    back = decode(field, memoryview(data))
    assert back["sampling_rate"] == 8000
    assert back["array"].dtype == np.float32
    assert np.array_equal(back["array"] * 32768, samples)
    assert encode(field, back) == data


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("field", "tolerance"), [("wav", 2e-5), ("flac", 2e-5), ("ogg", 0.05)])
def test_float_sound_comes_back_closely(field: str, channels: int, tolerance: float) -> None:
    value = tone(channels)
    back = decode(field, encode(field, value))
    assert back["sampling_rate"] == 16000
    assert back["array"].shape == value["array"].shape
    assert abs(back["array"] - value["array"]).max() < tolerance


def test_mp3_is_read_but_not_written() -> None:
    file = io.BytesIO()
    soundfile.write(file, tone()["array"], 16000, format="MP3")
    back = decode("mp3", file.getvalue())
    assert back["sampling_rate"] == 16000
    assert back["array"].ndim == 1
    with pytest.raises(EncodeError, match="mp3 is only read; write one of: wav flac ogg"):
        encode("mp3", tone())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3), "dict with 'array' and 'sampling_rate'"),
        ({"array": np.zeros(3)}, "dict with 'array' and 'sampling_rate'"),
        ({"array": np.zeros((2, 2, 2)), "sampling_rate": 8000}, r"\(frames, channels\)"),
        ({"array": np.zeros(3, np.int32), "sampling_rate": 8000}, "float or int16"),
        ({"array": np.full(3, 1.5), "sampling_rate": 8000}, "reaches 1.5; scale it down"),
        ({"array": np.full(3, np.nan), "sampling_rate": 8000}, "reaches nan"),
    ],
)
def test_what_is_no_sound_is_refused(value: object, message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        encode("wav", value)


@pytest.mark.parametrize("field", ["mp4", "mov", "mkv"])
def test_video_comes_back_closely(field: str) -> None:
    frames = movie()
    data = encode(field, frames)
    back = decode(field, memoryview(data))
    assert (back.dtype, back.shape) == (np.uint8, frames.shape)
    assert abs(back.astype(int) - frames).mean() < 4
    assert encode(field, frames) == data


def test_video_keeps_the_frame_rate_it_is_given() -> None:
    data = encode("mp4", movie(), EncodeOptions(video_fps=10))
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.video[0].average_rate == 10


@pytest.mark.parametrize(("field", "codec", "container"), [("webm", "libvpx-vp9", "webm"), ("avi", "mpeg4", "avi")])
def test_other_containers_are_read_but_not_written(field: str, codec: str, container: str) -> None:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        for frame in movie():
            output.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        output.mux(stream.encode())
    assert decode(field, file.getvalue()).shape == (6, 48, 64, 3)
    with pytest.raises(EncodeError, match=f"{field} is only read; write one of: mp4 mov mkv"):
        encode(field, movie())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (movie()[:, :47], "even sizes, not 47 x 64"),
        (movie()[0], "uint8 array"),
        (movie() / 255, "uint8 array"),
        (movie()[:0], "uint8 array"),
    ],
)
def test_what_is_no_video_is_refused(value: np.ndarray, message: str) -> None:
    with pytest.raises(EncodeError, match=message):
        encode("mp4", value)


def test_sound_and_video_expand_only_to_the_limits() -> None:
    with pytest.raises(DecodeError, match="sound is 32000 bytes long, more than the 31999 of max_bytes"):
        decode("flac", encode("flac", tone()), DecodeOptions(max_bytes=31999))
    with pytest.raises(DecodeError, match="frames take more than the 50000 bytes"):
        decode("mp4", encode("mp4", movie()), DecodeOptions(max_bytes=50000))
    with pytest.raises(DecodeError, match="64 x 48 pixels, more than the limit of 3000"):
        decode("mp4", encode("mp4", movie()), DecodeOptions(max_pixels=3000))


def test_a_playlist_is_not_followed(tmp_path: object) -> None:
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{tmp_path}/other.ts\n#EXT-X-ENDLIST\n"
    for field in ("mp4", "mkv", "avi"):
        with pytest.raises(DecodeError, match="a video"):
            decode(field, playlist.encode())


def test_sound_without_a_video_track_is_no_video() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 16000
        output.mux(stream.encode(frame))
        output.mux(stream.encode())
    with pytest.raises(DecodeError, match="no video track"):
        decode("mp4", file.getvalue())

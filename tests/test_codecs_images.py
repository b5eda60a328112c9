"""Pictures: every format, every form, and files that are not quite right."""

from __future__ import annotations

import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import skimage.data
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from shoal.errors import DecodeError, EncodeError
from shoal.shards.codecs import DecodeOptions, EncodeOptions, decode, encode

JPEGS = ("jpg", "jpeg", "jpe", "img", "image")
LOSSLESS = ("png", "webp", "tif", "tiff", "bmp", "ppm", "pnm", "jp2")
PHOTOS = Path(sklearn.datasets.__file__).parent / "images"
SIDES = st.integers(1, 9)


def shapes(*channels: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(SIDES, SIDES, *([st.sampled_from(channels)] if channels else []))


def save(image: Image.Image, format_: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def as_spec(field: str, data: bytes, spec: str) -> np.ndarray:
    return decode(field, data, DecodeOptions(images=spec))


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    return skimage.data.astronaut()[:200, 100:260]


@given(hnp.arrays(np.uint8, shapes(3)), st.sampled_from(LOSSLESS))
def test_colour_pixels_come_back(pixels: np.ndarray, field: str) -> None:
    assert np.array_equal(decode(field, encode(field, pixels)), pixels)


@given(hnp.arrays(np.uint8, shapes()), st.sampled_from([*LOSSLESS, "pgm", "gif"]))
def test_grey_pixels_come_back(pixels: np.ndarray, field: str) -> None:
    data = encode(field, pixels)
    assert np.array_equal(as_spec(field, data, "l8"), pixels)
    assert data == encode(field, pixels[:, :, None])


@given(hnp.arrays(np.uint8, shapes(4)), st.sampled_from(["png", "webp", "tif", "jp2"]))
def test_pixels_with_alpha_come_back(pixels: np.ndarray, field: str) -> None:
    data = encode(field, pixels)
    assert np.array_equal(as_spec(field, data, "rgba8"), pixels)
    assert np.array_equal(decode(field, data), pixels[:, :, :3])


@given(hnp.arrays(bool, shapes()), st.sampled_from(["pbm", "png", "tif", "bmp", "gif", "pgm", "ppm"]))
def test_masks_come_back_as_black_and_white(mask: np.ndarray, field: str) -> None:
    assert np.array_equal(as_spec(field, encode(field, mask), "l8"), mask * np.uint8(255))


@given(hnp.arrays(np.uint8, shapes(3)), st.sampled_from(["f2", "f4", "f8"]))
def test_float_pictures_come_back(pixels: np.ndarray, dtype: str) -> None:
    assert np.array_equal(decode("png", encode("png", (pixels / 255).astype(dtype))), pixels)


@pytest.mark.parametrize("field", ["png", "jpg"])
@pytest.mark.parametrize("kind", ["bytes", "memoryview"])
@pytest.mark.parametrize(("name", "shape"), [("l", (200, 160)), ("rgb", (200, 160, 3)), ("rgba", (200, 160, 4))])
def test_every_form_of_a_picture(field: str, kind: str, name: str, shape: tuple[int, ...], photo: np.ndarray) -> None:
    encoded = encode(field, photo)
    data = encoded if kind == "bytes" else memoryview(b"x" + encoded)[1:]
    small = as_spec(field, data, f"{name}8")
    assert (small.dtype, small.shape, small.flags.writeable) == (np.uint8, shape, True)
    floating = as_spec(field, data, name)
    assert (floating.dtype, floating.shape) == (np.float32, shape)
    assert floating.min() >= 0
    assert 0.9 < floating.max() <= 1
    assert np.array_equal(floating, small / np.float32(255))
    for spec, array in ((f"torch{name}8", small), (f"torch{name}", floating)):
        tensor = as_spec(field, data, spec)
        assert tensor.is_contiguous()
        turned = tensor if name == "l" else tensor.permute(1, 2, 0)
        assert torch.equal(turned, torch.from_numpy(array))
    image = as_spec(field, data, f"pil{name}")
    assert type(image) is Image.Image
    assert (image.mode, image.size) == (name.upper(), (160, 200))
    assert np.array_equal(np.asarray(image), small)


def test_short_names_of_forms_and_bytes(photo: np.ndarray) -> None:
    data = encode("png", photo)
    assert torch.equal(as_spec("png", data, "torch"), as_spec("png", data, "torchrgb"))
    assert as_spec("png", data, "pil") == as_spec("png", data, "pilrgb")
    assert as_spec("png", memoryview(data), "bytes") == data
    assert as_spec("png", b"no picture", "bytes") == b"no picture"


@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_jpeg_photos_equal_those_of_pillow(name: str) -> None:
    data = (PHOTOS / name).read_bytes()
    image = Image.open(io.BytesIO(data)).convert("RGB")
    assert np.array_equal(decode("jpg", data), np.asarray(image))
    assert np.array_equal(as_spec("jpg", data, "rgba8"), np.asarray(image.convert("RGBA")))
    difference = as_spec("jpg", data, "l8").astype(int) - np.asarray(image.convert("L"))
    assert abs(difference).mean() < 1


@pytest.mark.parametrize("sampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True, "restart_marker_rows": 1}])
def test_jpegs_of_every_make_equal_those_of_pillow(
    photo: np.ndarray, sampling: str, options: dict[str, object]
) -> None:
    for quality in (30, 90):
        data = save(Image.fromarray(photo[:, :-1]), "JPEG", quality=quality, subsampling=sampling, **options)
        assert np.array_equal(decode("jpg", data), np.asarray(Image.open(io.BytesIO(data))))


def test_jpegs_in_other_colour_spaces_are_read(photo: np.ndarray) -> None:
    colour = Image.fromarray(photo)
    for image, options in ((colour.convert("L"), {}), (colour, {"keep_rgb": True}), (colour.convert("CMYK"), {})):
        data = save(image, "JPEG", quality=95, **options)
        pillow = Image.open(io.BytesIO(data)).convert("RGB")
        assert np.array_equal(decode("jpg", data), np.asarray(pillow))
        assert abs(as_spec("jpg", data, "l8").astype(int) - np.asarray(pillow.convert("L"))).max() <= 3


@pytest.mark.parametrize("field", JPEGS)
def test_jpeg_is_written_close_to_the_original(field: str, photo: np.ndarray) -> None:
    data = encode(field, photo)
    image = Image.open(io.BytesIO(data))
    assert image.format == "JPEG"
    assert image.layer[0][1:3] == (2, 2)
    assert abs(decode(field, data).astype(int) - photo).mean() < 3
    assert len(encode(field, photo, EncodeOptions(jpeg_quality=50))) < len(data) / 2
    grey = encode(field, photo[:, :, 0])
    assert Image.open(io.BytesIO(grey)).mode == "L"
    assert abs(as_spec(field, grey, "l8").astype(int) - photo[:, :, 0]).mean() < 2


def test_the_bytes_decide_what_is_read_not_the_name(photo: np.ndarray) -> None:
    assert np.array_equal(decode("jpg", encode("png", photo)), photo)
    assert np.array_equal(decode("png", encode("jpg", photo)), decode("jpg", encode("jpg", photo)))


def test_other_formats_of_pillow_are_not_opened(photo: np.ndarray) -> None:
    for format_ in ("EPS", "PDF", "ICO", "TGA", "PCX"):
        with pytest.raises(DecodeError, match="no known picture format"):
            decode("png", save(Image.fromarray(photo), format_))


@pytest.mark.parametrize(("field", "format_"), [("png", "PNG"), ("tif", "TIFF"), ("pgm", "PPM"), ("jp2", "JPEG2000")])
def test_sixteen_bit_grey_is_scaled_not_clipped(field: str, format_: str) -> None:
    samples = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    data = save(Image.fromarray(samples), format_)
    assert encode(field, Image.fromarray(samples)) == data
    assert np.array_equal(as_spec(field, data, "l8"), samples >> 8)
    assert np.array_equal(decode(field, data), np.dstack([samples >> 8] * 3))
    assert as_spec(field, data, "pill").getextrema() == (0, 255)
    floating = as_spec(field, data, "l")
    assert (floating.min(), floating.max()) == (0, 1)


def raw_png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_sixteen_bit_colour_is_scaled_too() -> None:
    samples = np.array([[[0, 65535, 0x1234], [0x8000, 0xFF, 0x100]]], ">u2")
    expected = [[[0, 255, 0x12], [0x80, 0, 1]]]
    assert decode("png", raw_png(2, 1, 16, 2, b"\0" + samples.tobytes())).tolist() == expected


def test_palettes_with_and_without_transparency(photo: np.ndarray) -> None:
    palette = Image.fromarray(photo).quantize(16)
    for extra in ({}, {"transparency": 3}, {"transparency": bytes(range(16))}):
        data = save(palette, "PNG", **extra)
        assert np.array_equal(decode("png", data), np.asarray(palette.convert("RGB")))
        assert as_spec("png", data, "l8").shape == (200, 160)
        alpha = as_spec("png", data, "rgba8")[:, :, 3]
        assert (alpha.min() < 255) == bool(extra)
    moving = as_spec("gif", save(palette, "GIF", transparency=3), "rgba8")
    assert set(moving[:, :, 3].flat) == {0, 255}


def test_grey_with_alpha_and_cmyk_convert(photo: np.ndarray) -> None:
    grey = photo[:, :, 0]
    data = save(Image.merge("LA", [Image.fromarray(grey), Image.fromarray(photo[:, :, 1])]), "PNG")
    assert np.array_equal(as_spec("png", data, "l8"), grey)
    assert np.array_equal(as_spec("png", data, "rgba8"), np.dstack([grey, grey, grey, photo[:, :, 1]]))
    cmyk = Image.fromarray(photo).convert("CMYK")
    assert np.array_equal(decode("tif", save(cmyk, "TIFF")), np.asarray(cmyk.convert("RGB")))


def test_samples_of_32_bits_are_refused_with_advice() -> None:
    data = save(Image.fromarray(np.array([[0.5, 1e9]], np.float32)), "TIFF")
    with pytest.raises(DecodeError, match="images='bytes'") as caught:
        decode("depth.tif", data)
    assert caught.value.field == "depth.tif"


def test_orientation_is_not_applied_but_kept_for_pil(photo: np.ndarray) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = save(Image.fromarray(photo), "JPEG", exif=exif)
    assert decode("jpg", data).shape == photo.shape
    assert as_spec("jpg", data, "pil").getexif()[0x0112] == 6


def test_the_first_picture_of_an_animation_is_taken(photo: np.ndarray) -> None:
    frames = [Image.fromarray(np.full((5, 5), shade, np.uint8)) for shade in (10, 200)]
    for field, format_ in (("gif", "GIF"), ("webp", "WEBP"), ("png", "PNG"), ("tif", "TIFF")):
        options = {"lossless": True} if format_ == "WEBP" else {}
        data = save(frames[0], format_, save_all=True, append_images=frames[1:], **options)
        assert np.all(decode(field, data) == 10)


def test_avif_is_read_but_not_written(photo: np.ndarray) -> None:
    data = save(Image.fromarray(photo), "AVIF", quality=95)
    assert abs(decode("avif", data).astype(int) - photo).mean() < 6
    with pytest.raises(EncodeError, match="avif is only read; write one of: png"):
        encode("avif", photo)


def test_huge_pictures_are_refused_by_their_header(photo: np.ndarray) -> None:
    jpeg = bytearray(encode("jpg", photo))
    place = jpeg.index(b"\xff\xc0") + 5
    jpeg[place : place + 4] = struct.pack(">HH", 65000, 65000)
    for field, data in (("png", raw_png(40000, 40000, 8, 2, b"")), ("jpg", bytes(jpeg)), ("pbm", b"P4 99999 99999\n")):
        for spec in ("rgb8", "torchl", "pil"):
            with pytest.raises(DecodeError, match=r"pixels, more than the limit of 512000000; raise max_pixels"):
                as_spec(field, data, spec)


def test_the_limit_on_pixels_is_ours_alone(photo: np.ndarray) -> None:
    for field in ("png", "jpg"):
        data = encode(field, photo)
        assert decode(field, data, DecodeOptions(max_pixels=200 * 160)).shape == photo.shape
        with pytest.raises(DecodeError, match="160 x 200 pixels, more than the limit of 31999"):
            decode(field, data, DecodeOptions(max_pixels=200 * 160 - 1))
    side = 9600  # Pillow alone would warn of more than 89 million pixels, which is an error in these tests
    assert as_spec("pbm", b"P4 %d %d\n" % (side, side) + bytes(side * side // 8), "l8").shape == (side, side)


@pytest.mark.parametrize("field", ["png", "jpg", "webp", "tif", "bmp", "gif", "ppm", "jp2"])
@pytest.mark.parametrize("spec", ["rgb8", "l8", "pil"])
def test_truncated_pictures_are_decode_errors(field: str, spec: str, photo: np.ndarray) -> None:
    data = encode(field, photo)
    for length in (0, 1, 20, len(data) // 2, len(data) - 40):
        with pytest.raises(DecodeError, match="expected a picture") as caught:
            as_spec(field, data[:length], spec)
        assert caught.value.field == field


def test_a_jpeg_with_rubbish_between_markers_is_left_to_pillow(photo: np.ndarray) -> None:
    data = encode("jpg", photo)
    second = data.index(b"\xff\xdb")
    odd = data[:second] + b"\0\0\0" + data[second:]
    assert np.array_equal(decode("jpg", odd), decode("jpg", data))


@pytest.mark.parametrize("field", ["png", "jpg"])
def test_tensors_are_written_channels_first(field: str, photo: np.ndarray) -> None:
    data = encode(field, photo)
    for spec in ("torchrgb8", "torchrgb"):
        tensor = torch.from_numpy(photo).permute(2, 0, 1)
        assert encode(field, tensor if spec == "torchrgb8" else tensor / 255) == data
    assert encode(field, torch.from_numpy(photo[:, :, 0])) == encode(field, photo[:, :, 0])
    with pytest.raises(EncodeError, match=r"permute\(2, 0, 1\)"):
        encode(field, torch.from_numpy(photo))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("png", np.zeros((4, 4, 2), np.uint8), "is not a picture"),
        ("png", np.zeros((3, 4, 5), np.uint8), "is not a picture"),
        ("png", np.zeros((0, 4), np.uint8), "is not a picture"),
        ("png", np.zeros(4, np.uint8), "is not a picture"),
        ("png", np.zeros((4, 4), np.int64), r"astype\('uint8'\)"),
        ("png", np.zeros((4, 4, 3), bool), r"\(height, width\) bool"),
        ("png", np.full((4, 4), 2.0), "values from 0 to 1, these go from 2 to 2"),
        ("png", np.full((4, 4), -0.01), "from 0 to 1"),
        ("png", np.full((4, 4), np.nan), "from 0 to 1"),
        ("png", "picture.png", "not str"),
        ("png", [[0, 1]], "not list"),
        ("jpg", np.zeros((4, 4, 4), np.uint8), r"jpg holds images of mode L, RGB, not RGBA.*convert\('RGB'\)"),
        ("bmp", np.zeros((4, 4, 4), np.uint8), "bmp holds"),
        ("ppm", np.zeros((4, 4, 4), np.uint8), "ppm holds"),
        ("pgm", np.zeros((4, 4, 3), np.uint8), r"pgm holds images of mode L, I;16, not RGB.*convert\('L'\)"),
        ("pbm", np.zeros((4, 4), np.uint8), r"pbm holds images of mode 1, not L; .*convert\('1'\)"),
        ("jpg", Image.new("CMYK", (4, 4)), "not CMYK"),
    ],
)
def test_what_is_no_picture_for_the_format_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(EncodeError, match=message) as caught:
        encode(field, value)
    assert caught.value.field == field


def test_floats_may_miss_the_range_by_a_rounding() -> None:
    assert decode("png", encode("png", np.array([[-0.0005, 1.0005]])))[0, :, 0].tolist() == [0, 255]


def test_pil_images_of_every_mode_are_written(photo: np.ndarray) -> None:
    colour = Image.fromarray(photo)
    modes = [colour.convert(mode) for mode in ("1", "L", "LA", "RGB", "RGBA")] + [colour.quantize(7)]
    for image in modes:
        for field in ("png", "webp", "tif"):
            back = as_spec(field, encode(field, image), "pilrgba")
            assert np.array_equal(np.asarray(back), np.asarray(image.convert("RGBA"))), (field, image.mode)
    assert np.array_equal(as_spec("ppm", encode("ppm", modes[0]), "pill"), np.asarray(modes[0].convert("L")))


def test_every_extension_is_written_in_its_own_format(photo: np.ndarray) -> None:
    formats = {
        "png": "PNG",
        "webp": "WEBP",
        "tiff": "TIFF",
        "bmp": "BMP",
        "gif": "GIF",
        "ppm": "PPM",
        "jp2": "JPEG2000",
    }
    for field, format_ in formats.items():
        assert Image.open(io.BytesIO(encode(f"seg.{field.upper()}", photo))).format == format_
    assert encode("ppm", photo[:, :, 0])[:2] == b"P6"
    assert encode("pgm", photo[:, :, 0])[:2] == b"P5"
    assert encode("pbm", photo[:, :, 0] > 127)[:2] == b"P4"


def test_threads_share_codecs(photo: np.ndarray) -> None:
    fields = ["jpg", "png", "webp", "tif"] * 10
    encoded = {field: encode(field, photo) for field in set(fields)}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda field: decode(field, encoded[field]), fields))
    assert all(
        np.array_equal(result, decode(field, encoded[field])) for field, result in zip(fields, results, strict=True)
    )


def test_a_decoded_picture_does_not_share_memory_with_its_bytes(photo: np.ndarray) -> None:
    for field in ("ppm", "bmp", "png", "jpg"):
        buffer = bytearray(encode(field, photo))
        picture = decode(field, memoryview(buffer))
        before = picture.copy()
        buffer[:] = bytes(len(buffer))
        assert np.array_equal(picture, before)

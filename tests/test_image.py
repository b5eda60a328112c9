"""Pictures cropped, flipped and normalised: alone, in one pass, with every library or without; and no pictures."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import skimage.data
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images

import shoal
from shoal.abc import Block, Pool, Shard
from shoal.errors import DecodeError, MissingFieldError, PlanError, SampleError
from shoal.image import _pixels, center_crop, flip, normalize, random_resized_crop
from shoal.image._windows import DRAWS, centred, drawn, region_of
from shoal.pipeline.stages import BlockStage, Decode, FillStage, describe
from shoal.shards import TarWriter
from shoal.shards.codecs import DecodeOptions, _turbo, decode, encode
from shoal.shards.codecs.regions import Region, cut_region, read_region

MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]
LIBRARIES = ("all", "no turbojpeg", "no opencv", "neither")

# Differences in 255ths. What is sampled at full size is within FULL of Pillow at every pixel; what is decoded at a
# smaller scale is compared with the mean of squares, and so are stages in one pass with the same ones alone.
# Pillow cuts fractions off where OpenCV rounds: half of a 255th in the mean.
FULL, FULL_MEAN = 2, 0.6
SCALED_MEAN = 1.5


@pytest.fixture(params=LIBRARIES)
def libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with and without the optional libraries."""
    if request.param in ("no turbojpeg", "neither"):
        monkeypatch.setattr(_turbo, "decoder", lambda data: None)
    if request.param in ("no opencv", "neither"):
        monkeypatch.setattr(_pixels, "opencv", lambda: None)
    return str(request.param)


@pytest.fixture(scope="module")
def photos() -> list[np.ndarray]:
    return [*load_sample_images().images, skimage.data.astronaut(), skimage.data.coffee()[:, :599]]


@pytest.fixture(scope="module")
def jpegs(photos: list[np.ndarray]) -> list[bytes]:
    return [jpeg(photo) for photo in photos]


def jpeg(pixels: np.ndarray, sampling: str = "420", quality: int = 90) -> bytes:
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality, "RGB", sampling)


def save(image: Image.Image, format_: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def block(values: Sequence[Any], field: str = "jpg", ids: Sequence[int] | None = None, **more: Any) -> Block:
    samples = [{"__key__": f"k{at}", field: value, **more} for at, value in enumerate(values)]
    numbers = np.array(range(len(values)) if ids is None else ids, np.uint64)
    return Block(samples, [Shard("a.tar")], numbers, salt=5)


def results(stages: BlockStage | Sequence[BlockStage], given: Block, field: str = "jpg") -> list[np.ndarray]:
    for stage in [stages] if isinstance(stages, BlockStage) else stages:
        given = stage.process(given)
    return [sample[field] for sample in given.samples]


def one(stage: BlockStage, value: Any, field: str = "jpg") -> np.ndarray:
    return results(stage, block([value], field), field)[0]


def fused(*stages: BlockStage) -> tuple[BlockStage, ...]:
    done: list[BlockStage] = []
    for stage in stages:
        better = stage.after(done[-1]) if done else None
        done[len(done) - (better is not None) :] = [stage] if better is None else better
    return tuple(done)


def plain_sample(pixels: np.ndarray, box: tuple[float, ...], size: tuple[int, int]) -> np.ndarray:
    """Sample by Pillow alone: no OpenCV, no smaller scale, no cleverness."""
    left, top, width, height = box
    image, extent = Image.fromarray(pixels), (left, top, left + width, top + height)
    if all(float(number).is_integer() for number in box):
        image, extent = image.crop(extent), (0, 0, width, height)
    return np.asarray(image.transform(size[::-1], Image.Transform.EXTENT, extent, Image.Resampling.BILINEAR))


def plain_normalize(pixels: np.ndarray) -> np.ndarray:
    return (pixels.transpose(2, 0, 1).astype(np.float32) / 255 - MEAN) / STD


def difference(found: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """Give the largest and the mean difference, in 255ths; those of normalised values before they were."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if found.dtype == np.float32:
        found, wanted = found * STD * 255, wanted * STD * 255
    apart = np.abs(found.astype(float) - wanted)
    return float(apart.max()), float(apart.mean())


def spy(stage: Any, width: int, height: int, number: int) -> tuple[float, ...]:
    """Give the box that a random crop draws for the sample with this id."""
    from shoal.image._draw import uniforms

    numbers = uniforms(
        Block([{}], ids=np.array([number], np.uint64), salt=5), stage.random, "random_resized_crop", DRAWS
    )
    return drawn(width, height, stage.size, stage.scale, stage.ratio, numbers[0].tolist())[:4]


# Each stage alone


def test_random_crops_are_pillows(libraries: str, photos: list[np.ndarray], jpegs: list[bytes]) -> None:
    stage = random_resized_crop((200, 224))
    worst, means = 0.0, []
    for data in jpegs:
        pixels = np.asarray(Image.open(io.BytesIO(data)))
        given_block = block([data] * 12, ids=range(100, 112))
        for number, found in zip(range(100, 112), results(stage, given_block), strict=True):
            box = spy(stage, pixels.shape[1], pixels.shape[0], number)
            if box[2] >= 448 and box[3] >= 400:
                continue
            largest, mean = difference(found, plain_sample(pixels, box, (200, 224)))
            worst, means = max(worst, largest), [*means, mean]
    assert len(means) > 30
    assert worst <= FULL
    assert max(means) < FULL_MEAN


def test_crops_from_a_smaller_scale_are_near_the_mean_of_squares(libraries: str, photos: list[np.ndarray]) -> None:
    for photo in photos:
        large = np.asarray(Image.fromarray(photo).resize((1200, 900), Image.Resampling.BICUBIC))
        data = jpeg(large)
        pixels = decode("jpg", data)
        for size in (224, 100, 40):
            stage = random_resized_crop(size, scale=(0.5, 1))
            for number, found in enumerate(results(stage, block([data] * 4))):
                left, top, width, height = spy(stage, 1200, 900, number)
                image = Image.fromarray(pixels)
                scale = max(scale for scale in (1, 2, 4, 8) if width >= scale * size and height >= scale * size)
                box = [side / scale for side in (left, top, left + width, top + height)]
                wanted = image.reduce(scale).transform((size, size), Image.Transform.EXTENT, box, 2)
                assert difference(found, np.asarray(wanted))[1] < SCALED_MEAN


def test_the_middle_is_pillows(libraries: str, jpegs: list[bytes]) -> None:
    for data in jpegs:
        pixels = np.asarray(Image.open(io.BytesIO(data)))
        window = centred(pixels.shape[1], pixels.shape[0], (234, 210), 260)
        assert region_of(window, pixels.shape[1], pixels.shape[0]).scale == 1
        found = one(center_crop((234, 210), resize=260), data)
        largest, mean = difference(found, plain_sample(pixels, window[:4], (234, 210)))
        assert largest <= FULL
        assert mean < FULL_MEAN


def test_the_middle_without_a_resize_is_a_part_of_the_picture(libraries: str, jpegs: list[bytes]) -> None:
    pixels = decode("jpg", jpegs[2])
    assert np.array_equal(one(center_crop((100, 120)), jpegs[2]), pixels[206:306, 196:316])


def test_what_a_picture_lacks_around_its_middle_is_black(libraries: str) -> None:
    found = one(center_crop((6, 4)), np.full((3, 8, 3), 9, np.uint8))
    assert found[:, 0, 0].tolist() == [0, 9, 9, 9, 0, 0]
    assert (found[1:4] == 9).all()


@pytest.mark.parametrize(
    ("shape", "resized", "corner"),
    [((375, 500), (256, 341), (16, 58)), ((500, 375), (341, 256), (58, 16)), ((301, 1000), (256, 850), (16, 313))],
)
def test_the_middle_is_where_torchvision_has_it(shape: Any, resized: Any, corner: Any) -> None:
    """The numbers are what torchvision's Resize(256) and CenterCrop(224) say for these shapes."""
    ramp = np.add.outer(np.linspace(0, 100, shape[0]), np.linspace(0, 150, shape[1])).astype(np.uint8)
    image = Image.fromarray(ramp).convert("RGB")
    seen = np.asarray(image.resize(resized[::-1], Image.Resampling.BILINEAR))
    wanted = seen[corner[0] : corner[0] + 224, corner[1] : corner[1] + 224]
    assert difference(one(center_crop(224, resize=256), image), wanted)[0] <= 2


def test_flip_exchanges_left_and_right_of_some(libraries: str) -> None:
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    found = results(flip(), block([pixels] * 100))
    flipped = [np.array_equal(each, pixels[:, ::-1]) for each in found]
    assert all(np.array_equal(each, pixels) for each, is_flipped in zip(found, flipped, strict=True) if not is_flipped)
    assert 30 < sum(flipped) < 70
    assert np.array_equal(one(flip(p=1), pixels), pixels[:, ::-1])
    assert np.array_equal(one(flip(p=0), pixels), pixels)


def test_normalize_gives_planes_of_float(libraries: str, photos: list[np.ndarray]) -> None:
    found = one(normalize(), photos[0])
    assert found.dtype == np.float32
    assert np.allclose(found, plain_normalize(photos[0]), atol=2e-6)
    assert np.allclose(one(normalize(0.5, 0.25), photos[0])[1], (photos[0][:, :, 1] / 255 - 0.5) / 0.25, atol=2e-6)


@pytest.mark.parametrize("stage", [center_crop((20, 30)), flip(p=1), normalize()])
def test_what_comes_in_is_left_as_it_was(libraries: str, stage: BlockStage, photos: list[np.ndarray]) -> None:
    pixels = photos[1][:60, :80].copy()
    kept = pixels.copy()
    pixels.flags.writeable = False
    found = one(stage, pixels)
    assert np.array_equal(pixels, kept)
    assert not np.shares_memory(found, pixels)
    assert found.flags.writeable


# In one pass


PASSES: list[tuple[Callable[[], FillStage], ...]] = [
    (lambda: random_resized_crop(96), flip, normalize),
    (lambda: random_resized_crop(96), flip),
    (lambda: random_resized_crop(96), normalize),
    (lambda: center_crop(96, resize=110), normalize),
    (lambda: center_crop((96, 100)), flip, normalize),
    (flip, normalize),
    (lambda: center_crop(96, resize=110),),
    (flip,),
    (normalize,),
]


def numbered(stages: Sequence[Any]) -> list[Any]:
    return [replace(stage, random=at) if hasattr(stage, "random") else stage for at, stage in enumerate(stages)]


@pytest.mark.parametrize("makers", PASSES)
def test_one_pass_does_what_the_stages_do(libraries: str, makers: Any, jpegs: list[bytes]) -> None:
    stages = [Decode(), *numbered([make() for make in makers])]
    joined = fused(*stages)
    assert len(joined) == 2
    given_block = block([data for data in jpegs for _ in range(4)], cls=b"7")
    apart, together = results(stages, given_block), results(joined, given_block)
    for first, second in zip(apart, together, strict=True):
        assert difference(second, first)[1] < SCALED_MEAN
    small = block([jpeg(skimage.data.coffee()[:180, :190])] * 8, ids=range(8))  # nothing to scale down: the very same
    pairs = zip(results(stages, small), results(joined, small), strict=True)
    assert all(np.array_equal(first, second) for first, second in pairs)
    assert joined[0].process(given_block).samples[0]["cls"] == 7


@pytest.mark.parametrize("makers", PASSES[:5])
def test_rows_are_filled_where_the_batch_will_be(libraries: str, makers: Any, jpegs: list[bytes]) -> None:
    stage = fused(*numbered([make() for make in makers]))[-1]
    assert isinstance(stage, FillStage)
    assert stage.row is not None
    rows = np.zeros((len(jpegs), *stage.row[0]), stage.row[1])
    filled = stage.fill(block(jpegs), rows)
    for at, (sample, alone) in enumerate(zip(filled.samples, results(stage, block(jpegs)), strict=True)):
        assert np.shares_memory(sample["jpg"], rows[at])
        assert sample["jpg"].shape == stage.row[0]
        assert np.array_equal(rows[at], alone)
    apart = np.zeros((len(jpegs), *stage.row[0][:-1], 2 * stage.row[0][-1]), stage.row[1])[..., ::2]
    stage.fill(block(jpegs), apart)
    if stage.row[1] == np.uint8:
        assert np.array_equal(apart, rows)
    else:
        assert np.allclose(apart, rows, atol=1e-6)


def test_rows_are_told_ahead() -> None:
    assert random_resized_crop((20, 30)).row == ((20, 30, 3), np.uint8)
    joined = fused(random_resized_crop((20, 30)), flip(), normalize())
    assert [stage.row for stage in joined if isinstance(stage, FillStage)] == [((3, 20, 30), np.float32)]
    assert flip().row is None
    assert normalize().row is None


def test_a_pass_is_described_by_its_stages() -> None:
    joined = fused(Decode(), random_resized_crop(8), flip(), normalize())
    assert [describe(stage) for stage in joined] == ["decode()", "image(random_resized_crop, flip, normalize)"]
    assert describe(random_resized_crop(8)) == "random_resized_crop()"
    assert pickle.loads(pickle.dumps(joined)) == joined
    assert [stage.is_random for stage in joined] == [False, True]
    assert not any(stage.is_random for stage in fused(Decode(), center_crop(8), normalize()))


@pytest.mark.parametrize(
    "stages",
    [
        (flip(), random_resized_crop(8)),
        (flip(), flip()),
        (normalize(), flip()),
        (random_resized_crop(8), center_crop(8)),
        (random_resized_crop(8), flip(field="png")),
        (random_resized_crop(8), replace(flip(), pool=Pool(2))),
        (Decode(), replace(flip(), pool=Pool(2))),
        (Decode(DecodeOptions(images="l8")), flip()),
        (Decode(codecs={"jpg": len}), flip()),
        (Decode(codecs={"jpg": len}), flip(field="png;jpg")),
        (Decode(only=frozenset({"cls"})), flip()),
        (Decode(only=frozenset({"png"})), flip(field="jpg")),
    ],
)
def test_what_does_not_go_together_stays_apart(stages: tuple[BlockStage, ...]) -> None:
    assert fused(*stages) == stages


def test_stages_with_the_same_workers_are_one_pass() -> None:
    pool = Pool(2)
    joined = fused(replace(Decode(), pool=pool), replace(flip(), pool=pool), replace(normalize(), pool=pool))
    assert [stage.pool for stage in joined] == [pool, pool]


def test_a_decoder_leaves_only_the_picture_that_is_meant() -> None:
    data = encode("png", np.zeros((9, 9, 3), np.uint8))
    sample = {"__key__": "a", "jpg": data, "png": data, "seg.png": data, "cls": b"3"}
    given_block = Block([sample], ids=np.zeros(1, np.uint64))
    for field in ("jpg;png", "none;png;jpg", "seg.png"):
        stages = Decode(), center_crop(4, field=field)
        joined = fused(*stages)
        assert joined != stages
        apart, together = given_block, given_block
        for stage in stages:
            apart = stage.process(apart)
        for stage in joined:
            together = stage.process(together)
        assert {name: np.shape(value) for name, value in together.samples[0].items()} == {
            name: np.shape(value) for name, value in apart.samples[0].items()
        }


def test_two_pictures_are_two_passes() -> None:
    data = encode("png", np.zeros((9, 9, 3), np.uint8))
    joined = fused(Decode(), center_crop(4, field="a.png"), center_crop(5, field="b.png"))
    sample = {"__key__": "a", "a.png": data, "b.png": data}
    for stage in joined:
        sample = stage.process(Block([sample])).samples[0]
    assert (sample["a.png"].shape, sample["b.png"].shape) == ((4, 4, 3), (5, 5, 3))


# Randomness


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_what_is_drawn_follows_from_the_sample(cuts: list[int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    count = sum(cuts)
    stage = fused(*numbered([random_resized_crop(8), flip(), normalize()]))[0]
    whole = results(stage, block([pixels] * count, "png"), "png")
    ends = np.cumsum(cuts)
    parts = [block([pixels] * size, "png", range(end - size, end)) for size, end in zip(cuts, ends, strict=True)]
    again = [array for part in parts for array in results(stage, part, "png")]
    assert all(np.array_equal(first, second) for first, second in zip(whole, again, strict=True))


def test_epochs_stages_and_samples_draw_differently() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    stage = random_resized_crop(8)
    first, second = results(stage, block([pixels] * 2, "png"), "png")
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, results(replace(stage, random=1), block([pixels], "png"), "png")[0])
    assert not np.array_equal(first, results(stage, replace(block([pixels], "png"), salt=6), "png")[0])


def test_a_block_without_ids_cannot_be_drawn_for() -> None:
    with pytest.raises(PlanError, match="ids of samples"):
        flip().process(Block([{"__key__": "a", "jpg": b""}]))


@given(st.integers(1, 3000), st.integers(1, 3000), st.lists(st.floats(0, 0.999999), min_size=DRAWS, max_size=DRAWS))
def test_crops_lie_in_the_picture(width: int, height: int, numbers: list[float]) -> None:
    window = drawn(width, height, (224, 224), (0.08, 1.0), (3 / 4, 4 / 3), numbers)
    left, top, wide, tall = window[:4]
    assert 0 <= left <= left + wide <= width
    assert 0 <= top <= top + tall <= height
    assert wide >= 1
    assert tall >= 1
    region = region_of(window, width, height)
    assert 0 <= region.left < region.left + region.width <= -(-width // region.scale)
    assert 0 <= region.top < region.top + region.height <= -(-height // region.scale)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 400), st.integers(1, 400), st.integers(0, 500))
def test_middles_lie_in_the_picture(width: int, height: int, tall: int, wide: int, resize: int) -> None:
    window = centred(width, height, (tall, wide), resize or None)
    assert window.left >= 0
    assert window.top >= 0
    assert window.left + window.width <= width + 1e-6
    assert window.top + window.height <= height + 1e-6
    region = region_of(window, width, height)
    assert region.left + region.width <= -(-width // region.scale)
    assert region.top + region.height <= -(-height // region.scale)


def plain_draw(rng: np.random.Generator, width: int, height: int) -> tuple[float, ...]:
    """Draw a box as the paper and torchvision do."""
    while True:
        area, ratio = width * height * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, tall = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if wide <= width and tall <= height:
            return rng.integers(width - wide + 1), rng.integers(height - tall + 1), wide, tall


def test_boxes_are_distributed_as_they_should() -> None:
    boxes = np.array([spy(random_resized_crop(224), 500, 375, number) for number in range(3000)])
    areas, ratios = boxes[:, 2] * boxes[:, 3] / (500 * 375), boxes[:, 2] / boxes[:, 3]
    assert 0.075 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.73 < ratios.min() < 0.77
    assert 1.3 < ratios.max() < 1.36
    rng = np.random.default_rng(0)
    others = np.array([plain_draw(rng, 500, 375) for _ in range(3000)])
    for ours, theirs in zip(boxes.T, others.T, strict=True):
        places = np.sort(np.concatenate([ours, theirs]))
        shares = [np.searchsorted(np.sort(each), places, side="right") / 3000 for each in (ours, theirs)]
        assert np.abs(shares[0] - shares[1]).max() < 0.05  # more comes about by chance once in a thousand times


# All kinds of pictures


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (2, 3), (7, 5000), (3000, 4), (223, 225)])
@pytest.mark.parametrize("format_", ["JPEG", "PNG"])
def test_odd_shapes(libraries: str, shape: tuple[int, int], format_: str) -> None:
    data = save(Image.fromarray(np.full((*shape, 3), 100, np.uint8)), format_, quality=95)
    for crop in (random_resized_crop(24), center_crop(24, resize=28), random_resized_crop(24, ratio=(0.001, 900))):
        for found in results(fused(Decode(), crop, flip(), normalize()), block([data] * 3)):
            assert found.shape == (3, 24, 24)
            middle = (found * STD + MEAN)[:, 12, 12] * 255
            assert np.abs(middle - 100).max() <= 2


def sampled(kind: str) -> bytes:
    """Give a JPEG with this sampling of colours."""
    photo = skimage.data.coffee()[:211, :319]
    sampling, _, progressive = kind.partition(" ")
    if progressive:
        image = Image.fromarray(photo).convert("L" if sampling == "grey" else "RGB")
        number = {"444": 0, "422": 1, "420": 2, "grey": 0}[sampling]
        return save(image, "JPEG", quality=90, progressive=True, subsampling=number)
    return encode("jpg", photo[:, :, 0]) if sampling == "grey" else jpeg(photo, sampling)


PROGRESSIVE = ["444 progressive", "422 progressive", "420 progressive", "grey progressive"]


@pytest.mark.parametrize("kind", ["444", "422", "420", "440", "411", "grey", *PROGRESSIVE])
def test_a_part_of_a_jpeg_is_that_part_of_the_whole(libraries: str, kind: str) -> None:
    data = sampled(kind)
    whole = decode("jpg", data)
    assert np.array_equal(whole, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    rng = np.random.default_rng(1)
    for _ in range(30):
        left, right = sorted(rng.choice(320, 2, replace=False).tolist())
        top, bottom = sorted(rng.choice(212, 2, replace=False).tolist())
        region = Region(left, top, right - left, bottom - top)
        found = read_region("jpg", data, lambda *_, region=region: region, max_pixels=10**6)
        assert np.array_equal(found, cut_region(whole, region))


def test_memory_is_taken_for_the_part_only() -> None:
    data = jpeg(skimage.data.astronaut())
    asked: list[int] = []

    def memory(size: int) -> np.ndarray:
        asked.append(size)
        return np.empty(size, np.uint8)

    read_region("jpg", data, lambda *_: Region(100, 90, 64, 50), max_pixels=10**6, memory=memory)
    read_region("jpg", data, lambda *_: Region(0, 0, 64, 64, scale=8), max_pixels=10**6, memory=memory)
    assert asked[0] <= 3 * (64 + 2 + 16 + 2) * 50
    assert asked[1] == 3 * 64 * 64


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_a_part_at_a_smaller_scale_is_that_part_of_the_whole(scale: int) -> None:
    data = jpeg(skimage.data.coffee()[:211, :319])
    wide, tall = -(-319 // scale), -(-211 // scale)
    whole = read_region("jpg", data, lambda *_: Region(0, 0, wide, tall, scale), max_pixels=10**6)
    for box in ((3, 5, 9, 4), (wide - 5, tall - 4, 5, 4), (0, 0, 1, 1), (1, 1, wide - 2, tall - 2)):
        found = read_region("jpg", data, lambda *_, box=box: Region(*box, scale), max_pixels=10**6)
        assert np.array_equal(found, whole[box[1] : box[1] + box[3], box[0] : box[0] + box[2]])


@lru_cache(maxsize=1)
def kinds() -> dict[str, bytes]:
    """Give the same picture in many kinds of file."""
    photo = Image.fromarray(skimage.data.astronaut()[::4, ::4])
    grey = np.asarray(photo.convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    return {
        "grey png": save(photo.convert("L"), "PNG"),
        "deep png": save(deep, "PNG"),
        "alpha png": save(photo.convert("RGBA"), "PNG"),
        "palette": save(photo.convert("P"), "PNG"),
        "cmyk": save(photo.convert("CMYK"), "JPEG", quality=95),
        "webp": save(photo, "WEBP", lossless=True),
        "gif": save(photo, "GIF"),
    }


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_kind_becomes_rgb(libraries: str, kind: str) -> None:
    data = kinds()[kind]
    pixels = decode("png", data)
    joined = fused(Decode(), center_crop(64, resize=64, field="png"))
    assert len(joined) == 2
    found = results(joined, block([data], "png"), "png")[0]
    assert np.array_equal(found, one(center_crop(64, resize=64), pixels, "png"))
    assert np.array_equal(one(center_crop(128), memoryview(data), "png"), pixels)


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "1"])
def test_pil_images_become_rgb(mode: str) -> None:
    image = Image.fromarray(skimage.data.astronaut()[:50, :60]).convert(mode)
    assert np.array_equal(one(center_crop((50, 60)), image), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("shape", [(9, 8), (9, 8, 1), (9, 8, 3), (9, 8, 4)])
def test_arrays_become_rgb(libraries: str, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    wide = pixels.reshape(9, 8, -1)[:, :, :3]
    wanted = np.broadcast_to(wide, (9, 8, 3))
    assert np.array_equal(one(center_crop((9, 8)), pixels), wanted)
    assert np.array_equal(one(flip(p=1), pixels), wanted[:, ::-1])
    assert np.allclose(one(normalize(), pixels), plain_normalize(wanted), atol=2e-6)


# What is no picture


def header_of_a_bomb() -> bytes:
    """Give a whole JPEG whose header says 60000 x 60000."""
    data = bytearray(jpeg(np.zeros((16, 16, 3), np.uint8)))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 60_000, 60_000)
    return bytes(data)


@lru_cache(maxsize=1)
def broken() -> dict[str, tuple[bytes, str]]:
    whole = jpeg(skimage.data.astronaut())
    return {
        "cut": (whole[: len(whole) // 2], "truncated"),
        "cut near the end": (whole[:-300], "truncated|broken"),
        "empty": (b"", "no bytes at all"),
        "text": (b"<html>not found</html>", "begin with b'<html>"),
        "head only": (whole[:100], "expected a picture"),
        "bomb": (header_of_a_bomb(), "60000 x 60000 pixels, more than the limit"),
        "marks only": (b"\xff\xd8\xff\xd9", "expected a picture"),
        "png cut": (encode("png", skimage.data.astronaut())[:5000], "expected a picture"),
    }


@pytest.mark.parametrize("name", sorted(broken()))
@pytest.mark.parametrize("stage", [random_resized_crop(8, scale=(0.08, 0.1)), center_crop(8), flip(), normalize()])
def test_bad_pictures_are_named(libraries: str, name: str, stage: FillStage) -> None:
    data, text = broken()[name]
    for stages in ((stage,), fused(Decode(), stage)):
        with pytest.raises(DecodeError, match=text) as caught:
            results(stages, block([data]))
        assert (caught.value.key, caught.value.field, caught.value.shard) == ("k0", "jpg", "a.tar")


def test_a_cut_picture_is_an_error_wherever_the_crop_lies(libraries: str) -> None:
    data = jpeg(skimage.data.astronaut())
    for cut in (2, 3, 100, len(data) // 4):
        with pytest.raises(DecodeError):
            read_region("jpg", data[:-cut], lambda *_: Region(0, 0, 16, 16), max_pixels=10**7)


def test_damage_neither_crashes_nor_spoils_what_comes_next(libraries: str) -> None:
    whole = jpeg(skimage.data.astronaut()[:120, :140])
    stage = fused(random_resized_crop(32), normalize())[0]
    rng = np.random.default_rng(3)
    wanted = one(stage, whole)
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 4).tolist():
            data[at] = int(rng.integers(256))
        with contextlib.suppress(DecodeError):
            assert one(stage, bytes(data)).shape == (3, 32, 32)
        assert np.array_equal(one(stage, whole), wanted)


def test_the_limit_on_pixels_is_the_decoders_or_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    data = jpeg(np.zeros((40, 50, 3), np.uint8))
    with pytest.raises(DecodeError, match="50 x 40 pixels, more than the limit of 1999"):
        results(fused(Decode(DecodeOptions(max_pixels=1999)), flip()), block([data]))
    monkeypatch.setenv("SHOAL_MAX_PIXELS", "1500")
    with pytest.raises(DecodeError, match="limit of 1500"):
        one(flip(), data)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((9, 9, 3), np.float32), r"not float32 \(9, 9, 3\)"),
        (np.zeros((9, 9, 2), np.uint8), r"not uint8 \(9, 9, 2\)"),
        (np.zeros((0, 9, 3), np.uint8), r"not uint8 \(0, 9, 3\)"),
        (7, "not int"),
    ],
)
def test_values_that_are_no_picture_are_named(value: Any, text: str) -> None:
    with pytest.raises(SampleError, match=text) as caught:
        one(center_crop(4), value)
    assert (caught.value.key, caught.value.field) == ("k0", "jpg")


def test_the_picture_is_found_or_asked_for() -> None:
    pixels = np.zeros((9, 9, 3), np.uint8)
    stage = center_crop(4)
    assert one(stage, pixels, "x").shape == (4, 4, 3)
    assert stage.process(block([pixels], "photo.jpg", mask=pixels)).samples[0]["mask"].shape == (9, 9, 3)
    with pytest.raises(SampleError, match=r"sample 'k0'.*There are jpg, png; name one: field='jpg'"):
        stage.process(block([pixels], png=pixels))
    with pytest.raises(SampleError, match="no picture; it has cls, txt"):
        stage.process(block([b"1"], "cls", txt="a"))
    with pytest.raises(MissingFieldError, match=r"'jpg;jpeg'.*it has cls"):
        center_crop(4, field="jpg;jpeg").process(block([b"1"], "cls"))


def test_the_first_of_several_names_is_what_the_result_is_called() -> None:
    pixels = np.zeros((9, 9, 3), np.uint8)
    (sample,) = center_crop(4, field="jpg;png").process(block([pixels], "png", cls=1)).samples
    assert set(sample) == {"__key__", "jpg", "cls"}
    (sample,) = center_crop(4, field="jpg;png").process(block([pixels], "jpg", png=b"")).samples
    assert sample["png"] == b""


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: random_resized_crop(0), "size=0"),
        (lambda: random_resized_crop((3, 4, 5)), "size="),  # type: ignore[arg-type]
        (lambda: random_resized_crop(8, scale=(0.5, 0.1)), "scale="),
        (lambda: random_resized_crop(8, ratio=(0, 1)), "ratio="),
        (lambda: center_crop(8, resize=0), "resize=0"),
        (lambda: flip(1.5), "p=1.5"),
        (lambda: normalize(std=0), "std=0"),
        (lambda: normalize(mean=(1, 2)), "three for red"),
        (lambda: flip(field="jpg;"), "field='jpg;'"),
    ],
)
def test_wrong_options_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        make()


# In a dataset


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_what_the_stages_give(tmp_path: Path, workers: int, jpegs: list[bytes]) -> None:
    with TarWriter(str(tmp_path / "photos.tar")) as writer:
        for number in range(12):
            writer.write({"__key__": f"{number:02d}", "jpg": jpegs[number % 4], "cls": number})
    dataset = shoal.read_tar(str(tmp_path / "photos.tar")).shuffle(seed=3).decode()
    treated = dataset.apply(random_resized_crop(32), flip(), normalize())
    apart = dataset.apply(random_resized_crop(32)).apply(flip(), workers=1).apply(normalize())
    batch = next(iter(treated.loader(12, workers=workers)))
    assert batch["jpg"].shape == (12, 3, 32, 32)
    assert batch["jpg"].dtype == np.float32
    assert sorted(batch["cls"].tolist()) == list(range(12))
    for other in (treated.loader(4, workers=workers), apart.loader(4, workers=workers)):
        again = [array for small in other for array in small["jpg"]]
        assert np.array_equal(np.stack(again), batch["jpg"])


# Libraries and threads


def test_the_library_of_the_wheel_is_found() -> None:
    assert _turbo.library() is not None
    assert _turbo.decoder(b"any bytes") is not None


def test_a_library_that_is_not_there_or_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ["/nowhere/libturbojpeg.so", "libc.so.6"]
    monkeypatch.setattr(_turbo, "_candidates", lambda: iter(paths))
    assert _turbo.library.__wrapped__() is None


def test_a_system_library_is_tried_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise _turbo.importlib.metadata.PackageNotFoundError(name)

    assert list(_turbo._candidates())[-1] == "libturbojpeg.so.0"
    monkeypatch.setattr(_turbo.importlib.metadata, "files", missing)
    assert list(_turbo._candidates()) == ["libturbojpeg.so.0"]


def test_opencv_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert _pixels.opencv.__wrapped__() is None


def test_threads_give_the_same_pictures(libraries: str, jpegs: list[bytes]) -> None:
    stage = fused(*numbered([random_resized_crop(64), flip(), normalize()]))[0]
    given_block = block(jpegs * 4)
    wanted = results(stage, given_block)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: results(stage, given_block), range(8)):
            assert all(np.array_equal(first, second) for first, second in zip(found, wanted, strict=True))


def test_the_memory_of_a_giant_is_not_kept() -> None:
    scratch = _pixels.Scratch()
    small = scratch.take("a", 100)
    assert scratch.take("a", 100).base is small.base
    assert scratch.take("a", _pixels._KEPT + 1).size == _pixels._KEPT + 1
    assert scratch.take("a", 100).base is small.base

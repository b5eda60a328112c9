"""Shards for the tests of the WebDataset dialect, made of photos that scikit-image and scikit-learn bring along."""

from __future__ import annotations

import functools
import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import skimage.data
import sklearn.datasets
from PIL import Image

SAMPLES = 47


@functools.cache
def photos() -> tuple[Image.Image, ...]:
    arrays = [skimage.data.astronaut(), skimage.data.chelsea(), skimage.data.coffee()]
    arrays += sklearn.datasets.load_sample_images().images
    return tuple(Image.fromarray(np.asarray(array)) for array in arrays)


def crop(number: int, width: int = 64, height: int = 48) -> Image.Image:
    """A piece of a photo, another one for each number."""
    photo = photos()[number % len(photos())]
    left = number * 37 % (photo.width - 2 * width)
    top = number * 23 % (photo.height - 2 * height)
    return photo.crop((left, top, left + 2 * width, top + 2 * height)).resize((width, height))


def encoded(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def sample(number: int) -> dict[str, bytes]:
    """A sample as ImageNet has them; the first picture is 600 wide and 793 high."""
    image = photos()[0].resize((600, 793)) if number == 0 else crop(number)
    return {
        "png": encoded(image, "PNG"),
        "cls": b"%d" % (number * 7 % 1000),
        "wnid": b"n%08d" % number,
        "xml": b"<annotation><object>%d</object></annotation>" % number,
    }


@functools.cache
def samples() -> tuple[tuple[str, dict[str, bytes]], ...]:
    return tuple((f"{number:06d}", sample(number)) for number in range(SAMPLES))


def write_members(path: Path, members: Iterable[tuple[str, bytes]], compression: str = "") -> str:
    """Write a tar with Python's own tarfile, so that nothing of Shoal makes what Shoal reads."""
    with tarfile.open(path, f"w:{compression}") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def write_samples(path: Path, given: Iterable[tuple[str, Mapping[str, bytes]]], compression: str = "") -> str:
    members = ((f"{key}.{field}", data) for key, fields in given for field, data in fields.items())
    return write_members(path, members, compression)


def write_pictures(path: Path, compression: str = "") -> str:
    """The shard of 47 samples."""
    return write_samples(path, samples(), compression)


def write_numbers(folder: Path, shards: int, each: int, compression: str = "") -> list[str]:
    """Shards of small samples, numbered through; the keys say which shard they are of."""
    ending = "tgz" if compression == "gz" else "tar"
    return [
        write_samples(
            folder / f"numbers-{shard:04d}.{ending}",
            ((f"{shard:04d}/{n:04d}", {"cls": b"%d" % (shard * each + n)}) for n in range(each)),
            compression,
        )
        for shard in range(shards)
    ]

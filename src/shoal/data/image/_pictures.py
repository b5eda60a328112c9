"""Pictures in files as shards, one for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shoal import files
from shoal.data._xshards import XShards
from shoal.data.file import open_image
from shoal.errors import PlanError

__all__ = ["read_images"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_images(
    file_path: Paths,
    label_func: Callable[[str], Any] | None = None,
    target_path: Paths | None = None,
    image_type: str = ".jpg",
    target_type: str = ".png",
) -> XShards:
    """Read pictures as shards: each is a PIL image, or a pair with its label or with another picture.

    Paths are files, folders, wildcards or lists of these; of a folder it is the files that end in ``image_type``.
    They are in the order of their paths, in which pictures and targets belong together; those of the same name must.
    ``label_func`` is called with the path of a picture.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> Image.new("L", (4, 3)).save(f"{folder}/cat.png")
    >>> shards = read_images(folder, label_func=lambda path: path.rpartition("/")[2], image_type=".png")
    >>> [(image.size, label) for image, label in shards.collect()]
    [((4, 3), 'cat.png')]
    """
    if label_func is not None and target_path is not None:
        raise PlanError("label_func and target_path both say what belongs to a picture; give one of them")
    images = _files(file_path, image_type)
    if target_path is not None:
        return XShards.from_shards(_pairs(images, _files(target_path, target_type))).transform_shard(_both)
    return XShards.from_shards(images).transform_shard(partial(_labelled, label=label_func))


def _files(paths: Paths, ending: str) -> list[str]:
    return sorted(files.expand(paths, suffixes=(ending,)))


def _pairs(images: list[str], targets: list[str]) -> list[tuple[str, str]]:
    if len(images) != len(targets):
        raise PlanError(f"there are {len(images)} pictures and {len(targets)} targets; each picture needs one")
    pairs = list(zip(images, targets, strict=True))
    named = {_stem(image) for image in images} & {_stem(target) for target in targets}
    wrong = next((pair for pair in pairs if named and _stem(pair[0]) != _stem(pair[1])), None)
    if wrong is not None:
        image, target = map(files.display, wrong)
        raise PlanError(f"in the order of their paths {image} belongs to {target}, but their names differ")
    return pairs


def _stem(url: str) -> str:
    return url.rpartition("/")[2].rpartition(".")[0]


def _both(pair: tuple[str, str]) -> tuple[Any, Any]:
    return open_image(pair[0]), open_image(pair[1])


def _labelled(url: str, label: Callable[[str], Any] | None) -> Any:
    image = open_image(url)
    return image if label is None else (image, label(url))

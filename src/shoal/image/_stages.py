"""The stages that treat pictures, and the one that neighbours of them become."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal import settings
from shoal.abc import Block, Sample
from shoal.errors import PlanError
from shoal.image._draw import uniforms
from shoal.image._find import find_picture
from shoal.image._render import Job
from shoal.image._windows import DRAWS, Window, centred, drawn
from shoal.pipeline.stages import BlockStage, Decode, FillStage, Place

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "CenterCrop",
    "Flip",
    "Normalize",
    "PictureStage",
    "RandomResizedCrop",
    "center_crop",
    "flip",
    "normalize",
    "random_resized_crop",
]

#: What pictures are usually normalised with: the colours of ImageNet, for samples from 0 to 1.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Size: TypeAlias = int | tuple[int, int]
Colours: TypeAlias = float | Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureStage(FillStage):
    """A stage that treats the picture of each sample; those that follow one another are done in one pass."""

    shows_bytes = False
    step: ClassVar[int]
    """Stages are done in one pass if their steps go up."""

    field: str | None = None
    max_pixels: int | None = None
    """Pictures that their header says are larger are refused; by default the setting's number."""

    def __post_init__(self) -> None:
        if self.field is not None and not all(self.field.split(";")):
            raise PlanError(f"field={self.field!r}; it is a name, or several to try in turn like 'jpg;png'")

    @property
    def parts(self) -> tuple[PictureStage, ...]:
        """The stages that are done, in their order."""
        return (self,)

    @property
    def is_random(self) -> bool:
        """Whether numbers are drawn for each sample."""
        return any(part.is_random for part in self.parts)

    @property
    def row(self) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
        """The shape and type of the array; None without a crop, where they are the picture's own."""
        size = next((part.size for part in self.parts if isinstance(part, RandomResizedCrop | CenterCrop)), None)
        if size is None:
            return None
        if isinstance(self.parts[-1], Normalize):
            return (3, *size), np.dtype(np.float32)
        return (*size, 3), np.dtype(np.uint8)

    def fill(self, block: Block, rows: NDArray[Any] | None) -> Block:
        """Treat the picture of each sample, into the rows if they are given."""
        job = Job(self.row)
        job.max_pixels = settings.current().max_pixels if self.max_pixels is None else self.max_pixels
        for part in self.parts:
            part.enter(job, block)
        names = () if self.field is None else tuple(self.field.split(";"))
        samples = []
        for at, sample in enumerate(block.samples):
            with Place(self, sample, block):
                samples.append(_treated(job, sample, at, names, None if rows is None else rows[at]))
        return block.with_samples(samples)

    def after(self, before: BlockStage) -> tuple[BlockStage, ...] | None:
        """Join a decoder, which then leaves the picture to this stage, or picture stages of an earlier step."""
        if before.pool != self.pool:
            return None
        if isinstance(before, Decode):
            left = before.without_picture(() if self.field is None else tuple(self.field.split(";")))
            return None if left is None else (left, self._joined(self.parts, before.options.max_pixels))
        if not isinstance(before, PictureStage) or before.field != self.field:
            return None
        if before.parts[-1].step >= self.parts[0].step:
            return None
        limit = self.max_pixels if before.max_pixels is None else before.max_pixels
        return (self._joined((*before.parts, *self.parts), limit),)

    def _joined(self, parts: tuple[PictureStage, ...], max_pixels: int | None) -> PictureStage:
        return _Image(parts, field=self.field, max_pixels=max_pixels, pool=self.pool)

    @abstractmethod
    def enter(self, job: Job, block: Block) -> None:
        """Say what is to be done to the pictures of a block."""


@dataclass(frozen=True, slots=True)
class _Image(PictureStage):
    """Several stages in one pass."""

    joined: tuple[PictureStage, ...]

    @property
    def parts(self) -> tuple[PictureStage, ...]:
        return self.joined

    def enter(self, job: Job, block: Block) -> None:
        raise AssertionError("its parts are entered")


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(PictureStage):
    """Shows a random part of the picture at a fixed size; see `random_resized_crop`."""

    step = 1
    size: tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    random: int | None = None
    """The number of the stage, so that no two draw the same."""

    @property
    def is_random(self) -> bool:
        """True."""
        return True

    def enter(self, job: Job, block: Block) -> None:
        """Draw a window for each sample, once its size is known."""
        numbers = uniforms(block, self.random, "random_resized_crop", DRAWS).tolist()

        def window(at: int, width: int, height: int) -> Window:
            return drawn(width, height, self.size, self.scale, self.ratio, numbers[at])

        job.window = window


@dataclass(frozen=True, slots=True)
class CenterCrop(PictureStage):
    """Shows the middle of the picture at a fixed size; see `center_crop`."""

    step = 1
    size: tuple[int, int]
    resize: int | None = None

    @property
    def is_random(self) -> bool:
        """False."""
        return False

    def enter(self, job: Job, block: Block) -> None:
        """Look at the middle."""
        job.window = lambda at, width, height: centred(width, height, self.size, self.resize)


@dataclass(frozen=True, slots=True)
class Flip(PictureStage):
    """Exchanges left and right of some pictures; see `flip`."""

    step = 2
    p: float = 0.5
    random: int | None = None
    """The number of the stage, so that no two draw the same."""

    @property
    def is_random(self) -> bool:
        """True."""
        return True

    def enter(self, job: Job, block: Block) -> None:
        """Draw whether, for each sample."""
        job.flips = (uniforms(block, self.random, "flip", 1)[:, 0] < self.p).tolist()


@dataclass(frozen=True, slots=True)
class Normalize(PictureStage):
    """Makes float32 (3, height, width) of uint8 (height, width, 3); see `normalize`."""

    step = 3
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    @property
    def is_random(self) -> bool:
        """False."""
        return False

    def enter(self, job: Job, block: Block) -> None:
        """Put the division by 255 and by the deviation into one factor."""
        shift = [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        job.factors = [1 / (255 * std) for std in self.std], shift


def random_resized_crop(
    size: Size,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    field: str | None = None,
) -> RandomResizedCrop:
    """Show a random part of each picture at ``size``, a side or (height, width).

    The part's share of the area and its ratio of width to height lie in these ranges, as in torchvision. Which part it
    is follows from the sample and the epoch, never from threads or ranks.

    >>> random_resized_crop(224).row
    ((224, 224, 3), dtype('uint8'))
    """
    if not 0 < scale[0] <= scale[1] <= 1:
        raise PlanError(f"scale={scale}; it is the least and the most share of the area, above 0 and up to 1")
    if not 0 < ratio[0] <= ratio[1]:
        raise PlanError(f"ratio={ratio}; it is the least and the most width/height, above 0")
    return RandomResizedCrop(_pair(size), (scale[0], scale[1]), (ratio[0], ratio[1]), field=field)


def center_crop(size: Size, resize: int | None = None, field: str | None = None) -> CenterCrop:
    """Show the middle of each picture, ``size`` being a side or (height, width), as for evaluation.

    With ``resize`` the shorter side is first made that long: 256 before 224 is the usual pair. What a picture lacks is
    black, as in torchvision.

    >>> center_crop((192, 256), resize=256).row
    ((192, 256, 3), dtype('uint8'))
    """
    if resize is not None and (not isinstance(resize, int) or resize < 1):
        raise PlanError(f"resize={resize!r}; it is the length of the shorter side, at least 1")
    return CenterCrop(_pair(size), resize, field=field)


def flip(p: float = 0.5, field: str | None = None) -> Flip:
    """Exchange left and right of each picture with probability ``p``.

    >>> flip().p
    0.5
    """
    if not 0 <= p <= 1:
        raise PlanError(f"p={p}; a probability is from 0 to 1")
    return Flip(p, field=field)


def normalize(mean: Colours = IMAGENET_MEAN, std: Colours = IMAGENET_STD, field: str | None = None) -> Normalize:
    """Make float32 (3, height, width) of each picture: ``(x / 255 - mean) / std``, for each colour or for all.

    >>> normalize(0.5, 0.5).mean
    (0.5, 0.5, 0.5)
    """
    means, deviations = _colours("mean", mean), _colours("std", std)
    if not all(deviations):
        raise PlanError(f"std={std}; it must not be 0")
    return Normalize(means, deviations, field=field)


def _treated(job: Job, sample: Sample, at: int, names: tuple[str, ...], row: NDArray[Any] | None) -> Sample:
    name = find_picture(sample, names)
    made = dict(sample)
    value = made.pop(name) if names and name != names[0] else made[name]
    made[names[0] if names else name] = job.render(name, value, at, row)
    return made


def _pair(size: Size) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise PlanError(f"size={size!r}; it is a side, or (height, width), of at least 1 pixel")
    return pair[0], pair[1]


def _colours(name: str, given: Colours) -> tuple[float, float, float]:
    values = (given,) * 3 if isinstance(given, int | float) else tuple(given)
    if len(values) != 3:
        raise PlanError(f"{name}={given!r}; it is one number, or three for red, green and blue")
    return float(values[0]), float(values[1]), float(values[2])

"""Pascal VOC as a table: pictures with boxes around what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from shoal import files
from shoal.data.image._schema import DType, FeatureType, SchemaField
from shoal.data.image._table import ParquetDataset, Path, folder_of
from shoal.errors import CorruptShardError, PlanError, UrlNotFoundError

__all__ = ["write_voc"]

_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_SCHEMA = {
    "image": SchemaField(FeatureType.IMAGE, DType.UINT8),
    "label": SchemaField(FeatureType.NDARRAY, DType.FLOAT32, (-1, 6)),
    "image_id": SchemaField(FeatureType.SCALAR, DType.STRING),
}
_SIDES = ("xmin", "ymin", "xmax", "ymax")


def write_voc(
    voc_root_path: Path,
    splits_names: Sequence[tuple[int | str, str]],
    output_path: Path,
    classes: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Write a table of splits of Pascal VOC, such as ``[(2007, "trainval"), (2012, "trainval")]``.

    Its columns are ``image``, ``image_id`` (such as ``VOC2007/000005``) and ``label``: for each object a row of xmin,
    ymin, xmax, ymax (in pixels, counted from 0), the number of its class, and 1 if it is marked as difficult. Objects
    of other classes than ``classes`` are left out; by default these are the twenty of VOC, and any other is an error.
    Options are those of `ParquetDataset.write`.

    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> year = pathlib.Path(tempfile.mkdtemp(), "VOC2007")
    >>> for name in ("ImageSets/Main", "JPEGImages", "Annotations"):
    ...     (year / name).mkdir(parents=True)
    >>> box = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>4</ymax></bndbox>"
    >>> dog = f"<annotation><object><name>dog</name>{box}</object></annotation>"
    >>> _ = (year / "Annotations" / "1.xml").write_text(dog)
    >>> _ = (year / "ImageSets" / "Main" / "train.txt").write_text("1")
    >>> Image.new("RGB", (8, 6)).save(year / "JPEGImages" / "1.jpg")
    >>> write_voc(year.parent, [(2007, "train")], year.parent / "table", classes=["dog"])
    >>> from shoal.data.image import read_parquet
    >>> next(iter(read_parquet("dataset", year.parent / "table")))["label"].tolist()
    [[0.0, 0.0, 4.0, 3.0, 0.0, 0.0]]
    """
    root = folder_of(voc_root_path)
    if not all(isinstance(split, tuple | list) and len(split) == 2 for split in splits_names):
        raise PlanError(f'splits_names is {splits_names!r}; it is a list like [(2007, "trainval")]')
    labels = _Labels(tuple(_CLASSES if classes is None else classes), strict=classes is None)
    records = (record for year, split in splits_names for record in _records(root, f"VOC{year}", split, labels))
    ParquetDataset.write(output_path, records, _SCHEMA, **options)


@dataclass(frozen=True, slots=True)
class _Labels:
    """Which classes there are; with ``strict`` there must be no others."""

    classes: tuple[str, ...]
    strict: bool

    def rows(self, url: str) -> NDArray[np.float32]:
        """Read the objects of a picture from its XML."""
        rows = [self._row(thing, url) for thing in _parsed(url).iter("object")]
        return np.array([row for row in rows if row is not None], np.float32).reshape(-1, 6)

    def _row(self, thing: ElementTree.Element, url: str) -> list[float] | None:
        name = _text(thing, "name", url).strip()
        if name not in self.classes:
            if self.strict:
                _fail(url, f"it has an object of class {name!r}, which is none of VOC; name the classes you want")
            return None
        sides = [_number(thing, f"bndbox/{side}", url) - 1 for side in _SIDES]
        if not (0 <= sides[0] < sides[2] and 0 <= sides[1] < sides[3]):
            _fail(url, f"the box of a {name} is from ({sides[0]:g}, {sides[1]:g}) to ({sides[2]:g}, {sides[3]:g})")
        difficult = thing.find("difficult")
        return [*sides, self.classes.index(name), 0 if difficult is None else _number(thing, "difficult", url)]


class _Builder(ElementTree.TreeBuilder):
    """Builds a tree, and refuses what could make a small file a large one."""

    def doctype(self, *_: Any) -> NoReturn:
        raise ValueError("it declares a document type, by which entities could expand without end")


def _records(root: str, year: str, split: str, labels: _Labels) -> Iterator[dict[str, Any]]:
    for name in _names(f"{root}/{year}/ImageSets/Main/{split}.txt"):
        yield {
            "image": f"{root}/{year}/JPEGImages/{name}.jpg",
            "label": labels.rows(f"{root}/{year}/Annotations/{name}.xml"),
            "image_id": f"{year}/{name}",
        }


def _names(url: str) -> list[str]:
    with files.open_read(url) as file:
        lines = file.read().decode().splitlines()
    names = [line.split()[0] for line in lines if line.strip()]
    if not names:
        raise UrlNotFoundError(f"{files.display(url)} names no pictures", url=files.display(url))
    return names


def _parsed(url: str) -> ElementTree.Element:
    with files.open_read(url) as file:
        data = file.read()
    try:
        return ElementTree.fromstring(data, ElementTree.XMLParser(target=_Builder()))  # noqa: S314  (see _Builder)
    except (ElementTree.ParseError, ValueError) as error:
        _fail(url, f"it is no XML that can be read: {error}")


def _text(thing: ElementTree.Element, path: str, url: str) -> str:
    found = thing.findtext(path)
    if found is None:
        _fail(url, f"an object has no {path}")
    return found


def _number(thing: ElementTree.Element, path: str, url: str) -> float:
    text = _text(thing, path, url)
    try:
        return float(text)
    except ValueError:
        _fail(url, f"the {path} of an object is {text!r}, which is no number")


def _fail(url: str, text: str) -> NoReturn:
    raise CorruptShardError(text, shard=files.display(url))

"""Folders of pictures, one for each label, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal import files
from shoal.data.image._schema import DType, FeatureType, SchemaField
from shoal.data.image._table import ParquetDataset, Path, folder_of
from shoal.errors import PlanError, UrlNotFoundError
from shoal.order import permutation
from shoal.shards.codecs import is_picture

__all__ = ["write_from_directory"]

_SCHEMA = {
    "image": SchemaField(FeatureType.IMAGE, DType.UINT8),
    "label": SchemaField(FeatureType.SCALAR, DType.INT32),
    "image_id": SchemaField(FeatureType.SCALAR, DType.STRING),
    "label_str": SchemaField(FeatureType.SCALAR, DType.STRING),
}


def write_from_directory(
    directory: Path,
    label_map: Mapping[str, int],
    output_path: Path,
    shuffle: bool = True,
    seed: int = 0,
    **options: Any,
) -> None:
    """Write a table of the pictures in ``directory/<label>/``; ``label_map`` gives each label its number.

    Its columns are ``image``, ``label``, ``image_id`` (such as ``cats/1.jpg``) and ``label_str``. The order is that of
    the names, or with ``shuffle`` one that follows from ``seed``. Files that are not named like pictures are passed
    over. Options are those of `ParquetDataset.write`.

    >>> import pathlib, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> (root / "pets" / "cats").mkdir(parents=True)
    >>> (root / "pets" / "cats" / "1.jpg").write_bytes(b"the bytes of a picture")
    22
    >>> write_from_directory(root / "pets", {"cats": 7}, root / "table")
    >>> list(ParquetDataset.read_as_dicts(root / "table"))
    [{'image': b'the bytes of a picture', 'label': 7, 'image_id': 'cats/1.jpg', 'label_str': 'cats'}]
    """
    root = folder_of(directory)
    found = [name for label in sorted(_labels(root, label_map)) for name in _pictures(root, label)]
    if not found:
        raise UrlNotFoundError(f"there are no pictures in the folders of {files.display(root)}", url=root)
    order = permutation(len(found), seed).tolist() if shuffle else range(len(found))
    records = (_record(root, found[place], label_map) for place in order)
    ParquetDataset.write(output_path, records, _SCHEMA, **options)


def _labels(root: str, label_map: Mapping[str, int]) -> list[str]:
    """List the folders, which must be those that have a number."""
    names = (name for name in files.list_folder(root) if not name.startswith("."))
    labels = [name for name in names if not files.is_file(f"{root}/{name}")]
    unknown, missing = sorted({*labels} - label_map.keys()), sorted(label_map.keys() - {*labels})
    if unknown or missing:
        parts = [f"the folders {', '.join(unknown)} are not in label_map"] if unknown else []
        parts += [f"there are no folders {', '.join(missing)}"] if missing else []
        raise PlanError(f"in {files.display(root)}, {' and '.join(parts)}; each folder is a label with a number")
    return labels


def _pictures(root: str, label: str) -> list[str]:
    names = (name for name in files.list_folder(f"{root}/{label}") if not name.startswith("."))
    return [f"{label}/{name}" for name in names if "." in name and is_picture(name)]


def _record(root: str, name: str, label_map: Mapping[str, int]) -> dict[str, Any]:
    label = name.partition("/")[0]
    return {"image": f"{root}/{name}", "label": label_map[label], "image_id": name, "label_str": label}

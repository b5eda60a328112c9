"""Tables by the name of what they are made of, and of what is to be made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from shoal import files
from shoal.data.image._folders import write_from_directory
from shoal.data.image._manifest import Manifest, read_manifest
from shoal.data.image._mnist import write_mnist
from shoal.data.image._table import Path, dataset_of, folder_of
from shoal.data.image._voc import write_voc
from shoal.errors import PlanError

if TYPE_CHECKING:
    from shoal.pipeline import Dataset

__all__ = ["read_parquet", "write_parquet"]

#: format -> who writes it, and what it must be told
_WRITERS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "mnist": (write_mnist, ("image_file", "label_file")),
    "image_folder": (write_from_directory, ("directory", "label_map")),
    "voc": (write_voc, ("voc_root_path", "splits_names")),
}


def write_parquet(format: str, output_path: Path, **options: Any) -> None:
    """Write a table of ``"mnist"``, ``"image_folder"`` or ``"voc"``.

    Options are those of `write_mnist`, `write_from_directory` and `write_voc`.

    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> from shoal.data.image import read_parquet
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for kind in ("cat", "dog"):
    ...     (folder / "pets" / kind).mkdir(parents=True)
    ...     Image.new("RGB", (4, 3)).save(folder / "pets" / kind / "1.png")
    >>> write_parquet("image_folder", folder / "table", directory=folder / "pets", label_map={"cat": 0, "dog": 1})
    >>> [sample["label"] for sample in read_parquet("dataset", folder / "table")]
    [0, 1]
    """
    if format not in _WRITERS:
        raise PlanError(f"format={format!r} is not known; {', '.join(map(repr, _WRITERS))} are")
    write, needed = _WRITERS[format]
    for name in needed:
        if name not in options:
            raise PlanError(f"{name} is not specified for format {format}.")
    write(output_path=output_path, **options)


def read_parquet(
    format: str,
    path: Path,
    config: Mapping[str, int] | None = None,
    transforms: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    batch_size: int = 1,
    *,
    images: str = "rgb8",
) -> Any:
    """Read a table as a ``"dataset"``, or as a ``"dataloader"`` of torch that gives batches of tensors.

    With ``config={"num_shards": 4, "rank": 1}`` it has every fourth chunk from the second on; there must be a chunk for
    each. ``transforms`` is called with each sample. A dataset gives samples, or batches if ``batch_size`` is not 1. A
    picture becomes what ``images`` says.

    >>> import tempfile
    >>> from shoal.data.image import DType, FeatureType, ParquetDataset, SchemaField
    >>> folder = tempfile.mkdtemp()
    >>> schema = {"n": SchemaField(FeatureType.SCALAR, DType.INT32)}
    >>> ParquetDataset.write(folder, [{"n": n} for n in range(4)], schema, block_size=1)
    >>> [sample["n"] for sample in read_parquet("dataset", folder, {"num_shards": 2, "rank": 1})]
    [1, 3]
    """
    if format not in ("dataset", "dataloader"):
        raise PlanError(_no_format(format))
    table = read_manifest(folder_of(path))
    dataset = _share(table, dataset_of(table, images), config or {})
    if transforms is not None:
        dataset = dataset.map(transforms)
    if format == "dataset":
        return dataset if batch_size == 1 else dataset.batch(batch_size)
    return _data_loader(dataset, batch_size)


def _no_format(name: str) -> str:
    if name == "tf_dataset":
        other = 'read_parquet("dataset", path).loader(batch_size, to="tensorflow") gives batches of tensors'
        return f"tables are not read as tf.data yet; {other}"
    return f'format={name!r} is not known; "dataset" and "dataloader" are'


def _share(table: Manifest, dataset: Dataset, config: Mapping[str, int]) -> Dataset:
    num_shards, rank = config.get("num_shards", 1), config.get("rank", 0)
    if other := config.keys() - {"num_shards", "rank"}:
        raise PlanError(f"config has {', '.join(sorted(other))}; it has num_shards and rank")
    if not 0 <= rank < num_shards:
        raise PlanError(f"rank {rank} is not one of the {num_shards} shards 0 to {num_shards - 1}")
    if num_shards > len(table.chunks):
        text = f"num_shards is {num_shards}, and {files.display(table.path)} has only {len(table.chunks)} chunks"
        raise PlanError(f"{text}; write it with a smaller block_size")
    return dataset.part(rank, num_shards) if num_shards > 1 else dataset


def _data_loader(dataset: Dataset, batch_size: int) -> Any:
    from shoal.data.image._torch import data_loader

    # Who has which chunks is settled: what torch.distributed says must not divide them again.
    return data_loader(dataset.loader(batch_size, rank=0, world_size=1, to="torch"))

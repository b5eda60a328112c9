"""Tables of MNIST, of folders and of VOC, how workers read them, and pictures in files as shards."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import skimage
import sklearn.datasets
from PIL import Image

import shoal
from shoal.data.image import (
    DType,
    FeatureType,
    ParquetDataset,
    SchemaField,
    read_images,
    read_parquet,
    write_from_directory,
    write_mnist,
    write_parquet,
    write_voc,
)
from shoal.errors import CorruptShardError, PlanError, SampleError, TruncatedShardError, UrlNotFoundError
from shoal.image import center_crop
from support.clusters import running

PICTURES = Path(skimage.data_dir)
SKLEARN = Path(sklearn.datasets.__file__).parent / "images"
LABELS = {"animal": 0, "thing": 5}


@pytest.fixture(autouse=True)
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    if "engine" in request.fixturenames:
        yield
    else:
        with shoal.init("local", workers=2, mode="thread"):
            yield


def pixels(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as image:
        return np.asarray(image)


def write_numbers(path: Path, count: int, block_size: int = 2) -> None:
    schema = {"n": SchemaField(FeatureType.SCALAR, DType.INT32)}
    ParquetDataset.write(path, ({"n": number} for number in range(count)), schema, block_size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of animals and of things; one folder has a file that is none."""
    root = tmp_path_factory.mktemp("pictures")
    for label, names in (("animal", ("chelsea.png", "horse.png")), ("thing", ("coffee.png", "rocket.jpg", "page.png"))):
        (root / label).mkdir()
        for name in names:
            (root / label / name).write_bytes((PICTURES / name).read_bytes())
    (root / "thing" / "flower.jpg").write_bytes((SKLEARN / "flower.jpg").read_bytes())
    (root / "thing" / "notes.txt").write_text("no picture")
    (root / "thing" / ".hidden.png").write_text("no picture")
    return root


def test_pictures_keep_their_bytes(folder: Path, tmp_path: Path) -> None:
    write_from_directory(str(folder), LABELS, str(tmp_path), block_size=2)
    found = list(ParquetDataset.read_as_dicts(tmp_path))
    assert len(found) == 6
    for record in found:
        assert record["image"] == (folder / record["image_id"]).read_bytes()
        assert record["label_str"] == record["image_id"].partition("/")[0]
        assert record["label"] == LABELS[record["label_str"]]
    shards = ParquetDataset.read_as_xshards(tmp_path).collect()
    assert [image for shard in shards for image in shard["image"]] == [record["image"] for record in found]


def test_the_order_of_a_folder_follows_from_the_seed(folder: Path, tmp_path: Path) -> None:
    def order(**options: Any) -> list[str]:
        write_from_directory(folder, LABELS, tmp_path / "table", **options)
        return [record["image_id"] for record in ParquetDataset.read_as_dicts(tmp_path / "table")]

    plain = order(shuffle=False)
    assert plain == sorted(plain)
    assert order() == order(seed=0) != plain
    assert sorted(order(seed=1)) == plain
    assert len({tuple(order(seed=seed)) for seed in range(5)}) > 1


def test_folders_and_labels_must_agree(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="the folders thing are not in label_map and there are no folders plant"):
        write_from_directory(folder, {"animal": 0, "plant": 1}, tmp_path / "table")
    (tmp_path / "empty" / "animal").mkdir(parents=True)
    with pytest.raises(UrlNotFoundError, match="no pictures in the folders"):
        write_from_directory(tmp_path / "empty", {"animal": 0}, tmp_path / "table")


def test_pictures_are_decoded(folder: Path, tmp_path: Path) -> None:
    write_from_directory(folder, LABELS, tmp_path, shuffle=False)
    samples = {sample["image_id"]: sample for sample in ParquetDataset.read_as_dataset(tmp_path)}
    expected = pixels(folder / "thing" / "coffee.png")
    assert np.array_equal(samples["thing/coffee.png"]["image"], expected)
    as_bytes = next(iter(ParquetDataset.read_as_dataset(tmp_path, images="bytes")))
    assert as_bytes["image"] == (folder / as_bytes["image_id"]).read_bytes()
    cropped = ParquetDataset.read_as_dataset(tmp_path).apply(center_crop(64, field="image"))
    (batch,) = cropped.loader(6)
    assert batch["image"].shape == (6, 64, 64, 3)


def test_a_picture_may_have_any_name(tmp_path: Path) -> None:
    schema = {"photo": SchemaField(FeatureType.IMAGE, DType.UINT8), "jpg": SchemaField(FeatureType.SCALAR, DType.BYTES)}
    ParquetDataset.write(tmp_path, [{"photo": SKLEARN / "china.jpg", "jpg": b"no picture"}], schema)
    (sample,) = ParquetDataset.read_as_dataset(tmp_path, images="pil")
    assert sample["photo"].size == (640, 427)
    assert sample["jpg"] == b"no picture"


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    schema = {"photo": SchemaField(FeatureType.IMAGE, DType.UINT8)}
    with pytest.raises(UrlNotFoundError, match=r"nowhere\.jpg") as caught:
        ParquetDataset.write(tmp_path / "table", [{"photo": tmp_path / "nowhere.jpg"}], schema)
    assert "in record 0, column 'photo'" in caught.value.__notes__


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    loaded = sklearn.datasets.load_digits()
    return (loaded.images[:50] * 15).astype(np.uint8), loaded.target[:50].astype(np.uint8)


def idx(path: Path, array: np.ndarray[Any, Any], *, magic: int | None = None, cut: int = 0) -> Path:
    head = struct.pack(f">{1 + array.ndim}I", magic or 2048 + array.ndim, *array.shape)
    data = head + array.tobytes()
    data = data[: len(data) - cut] + b"x" * -cut
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist_comes_back(digits: Any, tmp_path: Path, ending: str) -> None:
    images, labels = digits
    paths = idx(tmp_path / f"images{ending}", images), idx(tmp_path / f"labels{ending}", labels)
    write_mnist(*paths, tmp_path / "table", block_size=20)
    shards = ParquetDataset.read_as_xshards(tmp_path / "table").collect()
    assert [len(shard["label"]) for shard in shards] == [20, 20, 10]
    assert np.array_equal(np.concatenate([shard["image"] for shard in shards]), images[..., np.newaxis])
    assert shards[0]["image"].dtype == np.uint8
    assert np.concatenate([shard["label"] for shard in shards]).tolist() == labels.tolist()


def test_idx_files_are_checked(digits: Any, tmp_path: Path) -> None:
    images, labels = digits
    good, names = idx(tmp_path / "images", images), idx(tmp_path / "labels", labels)
    zipped = idx(tmp_path / "zipped.gz", images)
    (tmp_path / "half.gz").write_bytes(zipped.read_bytes()[:-300])
    (tmp_path / "bad.gz").write_bytes(zipped.read_bytes()[:10] + b"\xff" * 100)
    (tmp_path / "huge").write_bytes(struct.pack(">4I", 2051, 2**32 - 1, 2**32 - 1, 2**32 - 1) + b"123")
    for bad, error, text in (
        (idx(tmp_path / "magic", images, magic=2052), CorruptShardError, r"shard .*magic: its magic number is 2052"),
        (idx(tmp_path / "cut", images, cut=7), TruncatedShardError, r"shard .*cut: it is cut off: 7 of 3200 bytes"),
        (idx(tmp_path / "more", images, cut=-1), CorruptShardError, r"shard .*more: there is more in it than"),
        (idx(tmp_path / "head", images, cut=3210), TruncatedShardError, r"shard .*head: it is cut off"),
        (tmp_path / "half.gz", TruncatedShardError, r"shard .*half\.gz: the gzip stream is cut off"),
        (tmp_path / "bad.gz", CorruptShardError, r"shard .*bad\.gz: the gzip stream is damaged"),
        (tmp_path / "huge", TruncatedShardError, r"shard .*huge: it is cut off"),
        (names, CorruptShardError, "its magic number is 2049, and that of such a file is 2051"),
    ):
        with pytest.raises(error, match=text):
            write_mnist(bad, names, tmp_path / "table")
    with pytest.raises(SampleError, match=r"50 pictures in .*images, and 49 labels in .*fewer"):
        write_mnist(good, idx(tmp_path / "fewer", labels[:49]), tmp_path / "table")
    assert not (tmp_path / "table").exists()


OBJECT = """<object><name>{name}</name>{difficult}
<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"""


def thing(name: str, *box: float, difficult: int | None = None) -> str:
    mark = "" if difficult is None else f"<difficult>{difficult}</difficult>"
    return OBJECT.format(name=name, box=box, difficult=mark)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Two years of two pictures each, of which one has nothing in it."""
    root = tmp_path / "VOCdevkit"
    for year in (2007, 2012):
        base = root / f"VOC{year}"
        for name in ("Annotations", "ImageSets/Main", "JPEGImages"):
            (base / name).mkdir(parents=True)
        for name, things in (
            ("000001", thing("cat", 1, 2, 51.5, 62) + thing("person", 11, 12, 21, 22, difficult=1)),
            ("000002", ""),
        ):
            (base / "JPEGImages" / f"{name}.jpg").write_bytes((SKLEARN / "china.jpg").read_bytes())
            (base / "Annotations" / f"{name}.xml").write_text(f"<annotation>{things}</annotation>")
        (base / "ImageSets" / "Main" / "trainval.txt").write_text("000001\n000002\n")
    return root


def test_voc_comes_back(voc: Path, tmp_path: Path) -> None:
    write_voc(voc, [(2007, "trainval"), (2012, "trainval")], tmp_path / "table")
    found = list(ParquetDataset.read_as_dicts(tmp_path / "table"))
    assert [record["image_id"] for record in found] == [
        "VOC2007/000001", "VOC2007/000002", "VOC2012/000001", "VOC2012/000002",
    ]  # fmt: skip
    assert found[0]["label"].tolist() == [[0.0, 1.0, 50.5, 61.0, 7.0, 0.0], [10.0, 11.0, 20.0, 21.0, 14.0, 1.0]]
    assert found[1]["label"].shape == (0, 6)
    assert found[3]["image"] == (SKLEARN / "china.jpg").read_bytes()


def test_only_some_classes_are_wanted(voc: Path, tmp_path: Path) -> None:
    write_voc(voc, [(2007, "trainval")], tmp_path / "table", classes=["dog", "person"])
    first = next(ParquetDataset.read_as_dicts(tmp_path / "table"))
    assert first["label"].tolist() == [[10.0, 11.0, 20.0, 21.0, 1.0, 1.0]]


BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]><annotation>&y;</annotation>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "declares a document type"),
        (f'<?xml version="1.0" encoding="UTF-16"?>{BOMB}', "declares a document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "declares a document type"),
        ("<annotation>", "no XML that can be read"),
        (f"<annotation>{thing('unicorn', 1, 1, 5, 5)}</annotation>", "class 'unicorn', which is none of VOC"),
        (f"<annotation>{thing('cat', 5, 1, 5, 5)}</annotation>", r"the box of a cat is from \(4, 0\) to \(4, 4\)"),
        ("<annotation><object><name>cat</name></object></annotation>", "an object has no bndbox/xmin"),
        (f"<annotation>{thing('cat', 1, 1, 5, 5)}</annotation>".replace("<xmax>5", "<xmax>?"), "is '[?]', which is no"),
    ],
)
def test_xml_is_checked(voc: Path, tmp_path: Path, text: str, message: str) -> None:
    encoding = "utf-16" if "UTF-16" in text else "utf-8"
    (voc / "VOC2007" / "Annotations" / "000002.xml").write_text(text, encoding=encoding)
    with pytest.raises(CorruptShardError, match=rf"000002\.xml: .*{message}"):
        write_voc(voc, [(2007, "trainval")], tmp_path / "table")


def test_splits_that_are_not_there(voc: Path, tmp_path: Path) -> None:
    with pytest.raises(UrlNotFoundError, match=r"test\.txt"):
        write_voc(voc, [(2007, "test")], tmp_path / "table")
    with pytest.raises(PlanError, match=r"splits_names is 'trainval'; it is a list like"):
        write_voc(voc, "trainval", tmp_path / "table")  # type: ignore[arg-type]


def test_formats_by_name(folder: Path, voc: Path, digits: Any, tmp_path: Path) -> None:
    images, labels = idx(tmp_path / "images", digits[0]), idx(tmp_path / "labels", digits[1])
    write_parquet("mnist", tmp_path / "a", image_file=images, label_file=labels)
    write_parquet("image_folder", str(tmp_path / "b"), directory=str(folder), label_map=LABELS, shuffle=False)
    write_parquet("voc", tmp_path / "c", voc_root_path=voc, splits_names=[(2012, "trainval")])
    counts = [read_parquet("dataset", tmp_path / name).count() for name in "abc"]
    assert counts == [50, 6, 2]


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("mnist", {"image_file": "a"}, r"^label_file is not specified for format mnist\.$"),
        ("image_folder", {"label_map": {}}, r"^directory is not specified for format image_folder\.$"),
        ("voc", {"voc_root_path": "a"}, r"^splits_names is not specified for format voc\.$"),
        ("coco", {}, "format='coco' is not known; 'mnist', 'image_folder', 'voc' are"),
    ],
)
def test_what_a_format_needs_is_told(name: str, given: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=text):
        write_parquet(name, tmp_path, **given)


def test_workers_share_chunks(tmp_path: Path) -> None:
    write_numbers(tmp_path, 25)
    shares = [
        [sample["n"] for sample in read_parquet("dataset", tmp_path, {"num_shards": 3, "rank": rank})]
        for rank in range(3)
    ]
    assert shares[1] == [2, 3, 8, 9, 14, 15, 20, 21]
    assert sorted(number for share in shares for number in share) == list(range(25))
    with pytest.raises(PlanError, match=r"num_shards is 14, and .* has only 13 chunks; write it with a smaller block"):
        read_parquet("dataset", tmp_path, {"num_shards": 14, "rank": 0})
    with pytest.raises(PlanError, match="rank 3 is not one of the 3 shards 0 to 2"):
        read_parquet("dataset", tmp_path, {"num_shards": 3, "rank": 3})
    with pytest.raises(PlanError, match="config has shards"):
        read_parquet("dataset", tmp_path, {"shards": 3})


def test_a_share_is_not_split_again(tmp_path: Path) -> None:
    write_numbers(tmp_path, 8)
    share = read_parquet("dataset", tmp_path, {"num_shards": 2, "rank": 1})
    with pytest.raises(PlanError, match="one sample in 4"):
        list(share.loader(2, rank=0, world_size=2))


def test_transforms_and_batches(tmp_path: Path) -> None:
    write_numbers(tmp_path, 5)
    dataset = read_parquet("dataset", tmp_path, transforms=lambda sample: {"m": sample["n"] * 10}, batch_size=3)
    assert [batch["m"].tolist() for batch in dataset] == [[0, 10, 20], [30, 40]]


def test_torch_loads_batches(digits: Any, tmp_path: Path) -> None:
    import torch

    images, labels = idx(tmp_path / "images", digits[0]), idx(tmp_path / "labels", digits[1])
    write_mnist(images, labels, tmp_path / "table", block_size=15)
    loader = read_parquet("dataloader", tmp_path / "table", transforms=lambda sample: sample, batch_size=20)
    assert isinstance(loader, torch.utils.data.DataLoader)
    for _ in range(2):
        batches = list(loader)
        assert [len(batch["label"]) for batch in batches] == [20, 20, 10]
        assert torch.cat([batch["label"] for batch in batches]).tolist() == digits[1].tolist()
        assert np.array_equal(torch.cat([batch["image"] for batch in batches]).numpy()[..., 0], digits[0])
    part = read_parquet("dataloader", tmp_path / "table", {"num_shards": 2, "rank": 1}, batch_size=100)
    assert [len(batch["label"]) for batch in part] == [20]


def test_formats_that_are_not_there_say_what_is(tmp_path: Path) -> None:
    write_numbers(tmp_path, 1)
    with pytest.raises(PlanError, match=r'not read as tf\.data yet; read_parquet\("dataset", path\)\.loader'):
        read_parquet("tf_dataset", tmp_path)
    with pytest.raises(PlanError, match='format=\'mxnet\' is not known; "dataset" and "dataloader" are'):
        read_parquet("mxnet", tmp_path)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Photographs, and a label for each pixel of them."""
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for name in ("rocket", "retina"):
        photo = Image.fromarray(pixels(PICTURES / f"{name}.jpg")).resize((30, 20))
        photo.save(tmp_path / "images" / f"{name}.jpg")
        labels = photo.convert("L").point(lambda value: value // 64)
        labels.putpalette(list(range(256)) * 3)
        labels.save(tmp_path / "labels" / f"{name}.png")
    (tmp_path / "images" / "notes.txt").write_text("no picture")
    return tmp_path


def test_a_shard_for_each_picture(pairs: Path) -> None:
    shards = read_images(str(pairs / "images"))
    assert shards.num_partitions() == 2
    found = shards.collect()
    assert [image.mode for image in found] == ["RGB", "RGB"]
    expected = [pixels(pairs / "images" / f"{name}.jpg") for name in ("retina", "rocket")]
    assert all(np.array_equal(np.asarray(image), array) for image, array in zip(found, expected, strict=True))


def test_pictures_with_labels(pairs: Path) -> None:
    shards = read_images(pairs / "images", label_func=lambda path: path.rpartition("/")[2])
    assert [(image.size, label) for image, label in shards.collect()] == [
        ((30, 20), "retina.jpg"),
        ((30, 20), "rocket.jpg"),
    ]


def test_pictures_with_targets(pairs: Path) -> None:
    shards = read_images(pairs / "images", target_path=pairs / "labels")
    for (image, target), name in zip(shards.collect(), ("retina", "rocket"), strict=True):
        assert (image.mode, target.mode) == ("RGB", "P")
        assert np.array_equal(np.asarray(target), pixels(pairs / "labels" / f"{name}.png"))


def test_other_types_and_lists(pairs: Path) -> None:
    names = [pairs / "labels" / "rocket.png", pairs / "labels" / "retina.png"]
    assert [path.rpartition("/")[2] for _, path in read_images(names, label_func=str).collect()] == [
        "retina.png",
        "rocket.png",
    ]
    assert read_images(pairs / "labels", image_type=".png").num_partitions() == 2
    with pytest.raises(UrlNotFoundError, match=r"\.jpg"):
        read_images(pairs / "labels")


def test_pictures_and_targets_must_belong_together(pairs: Path) -> None:
    with pytest.raises(PlanError, match="label_func and target_path both say"):
        read_images(pairs / "images", label_func=len, target_path=pairs / "labels")
    (pairs / "labels" / "rocket.png").rename(pairs / "labels" / "castle.png")
    with pytest.raises(PlanError, match=r"retina\.jpg belongs to .*castle\.png, but their names differ"):
        read_images(pairs / "images", target_path=pairs / "labels")
    (pairs / "labels" / "castle.png").unlink()
    with pytest.raises(PlanError, match="there are 2 pictures and 1 targets"):
        read_images(pairs / "images", target_path=pairs / "labels")


def test_pictures_in_a_store(pairs: Path) -> None:
    fsspec.filesystem("memory").put(str(pairs / "images"), f"{pairs}/there", recursive=True)
    assert read_images(f"memory:/{pairs}/there/").num_partitions() == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:pyspark")
@pytest.mark.parametrize("engine", ["local", "dask", "ray", "spark"])
def test_every_engine_reads_pictures(engine: str, pairs: Path) -> None:
    with running(engine, workers=2, **({"mode": "process"} if engine == "local" else {})):
        found = read_images(pairs / "images", target_path=pairs / "labels").collect()
    assert [target.mode for _, target in found] == ["P", "P"]
    assert np.array_equal(np.asarray(found[0][0]), pixels(pairs / "images" / "retina.jpg"))

"""The slides on input pipelines, cell by cell: the code as it stands there; only imports and places of data changed.

MNIST is scikit-learn's digits enlarged to 28x28 (``support.digits``). ImageNet is crops of bundled photos in 148 shards
``imagenet_train-{0000..0147}.tgz`` of three samples (cls, jpg, json), served by a web server on this machine. The cells
share one namespace, as in the notebook.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shoal.testing.faults import HttpServer, http_server
from support import torchvision_cpu
from support.webdataset_shards import crop, encoded, write_samples

SHARDS, EACH = 148, 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # What matplotlib and torch have to settle between them when a tensor is shown.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]

Run = Callable[[str], str]


def imagenet_shard(number: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for n in range(number * EACH, (number + 1) * EACH):
            fields = {
                "cls": b"%d" % (n + 1),
                "jpg": encoded(crop(n), "JPEG"),
                "json": json.dumps({"number": n}).encode(),
            }
            for name, data in fields.items():
                info = tarfile.TarInfo(f"n{n:08d}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with http_server() as server:
        for number in range(SHARDS):
            server.add(f"/lpr-imagenet/imagenet_train-{number:04d}.tgz", imagenet_shard(number))
        yield server


@pytest.fixture(scope="module")
def notebook() -> Iterator[dict[str, Any]]:
    """The namespace of the notebook; ``%pylab inline`` is pylab with the Agg backend, and IPython's figsize."""
    names: dict[str, Any] = {"__name__": "notebook"}
    prelude = """
        import matplotlib
        matplotlib.use("Agg")
        from pylab import *
        def figsize(sizex, sizey): rcParams["figure.figsize"] = [sizex, sizey]
    """
    exec(textwrap.dedent(prelude), names)
    with names["rc_context"]():
        yield names
    names["close"]("all")


@pytest.fixture
def run(notebook: dict[str, Any], server: HttpServer, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a cell, with the bucket at this machine's server, and give what it printed."""

    def cell(code: str) -> str:
        code = textwrap.dedent(code).replace("http://storage.googleapis.com", server.url(""))
        capsys.readouterr()
        exec(compile(code, "<cell>", "exec"), notebook)
        return capsys.readouterr().out

    return cell


def test_28_plotting(run: Run, notebook: dict[str, Any]) -> None:
    run("""
        rc("image", cmap="gray", interpolation="bicubic")
    """)
    assert notebook["rcParams"]["image.cmap"] == "gray"
    assert notebook["rcParams"]["image.interpolation"] == "bicubic"


def test_29_figure_size(run: Run, notebook: dict[str, Any]) -> None:
    run("""
        figsize(8,8)
    """)
    assert notebook["figure"]().get_size_inches().tolist() == [8, 8]


def test_30_an_item_of_mnist(run: Run, notebook: dict[str, Any]) -> None:
    assert torchvision_cpu.library
    printed = run("""
        from torch.utils.data import Dataset, IterableDataset, DataLoader
        from torchvision import transforms
        from support import digits as datasets

        mnist = datasets.MNIST(root="./__CACHE__", download=True)

        print(mnist[0])
    """)
    assert printed.startswith("(<PIL.Image.Image image mode=L size=28x28")
    assert printed.endswith(", 5)\n")


def test_31_showing_it(run: Run, notebook: dict[str, Any]) -> None:
    run("""
        image, label = mnist[0]
        figsize(4, 4); imshow(image)
    """)
    assert notebook["label"] == 5
    assert notebook["gca"]().images[-1].get_array().shape == (28, 28)


def test_32_transforms(run: Run) -> None:
    printed = run("""
        transform = transforms.Compose([
            transforms.ToTensor(),
            transforms.Normalize((0.5,), (1.0,))
        ])

        mnist = datasets.MNIST(transform=transform, train=True, root="./__CACHE__", download=True)
        image, label = mnist[0]
        print(type(image), image.shape, image.dtype, image.min().item(), image.max().item())
        imshow(image[0])
    """)
    assert printed == "<class 'torch.Tensor'> torch.Size([1, 28, 28]) torch.float32 -0.5 0.5\n"


def test_33_batches(run: Run) -> None:
    printed = run("""
        loader = DataLoader(mnist, batch_size=16, shuffle=True)
        images, labels = next(iter(loader))
        print(type(images), images.shape, images.dtype, images.min().item(), images.max().item())
    """)
    assert printed == "<class 'torch.Tensor'> torch.Size([16, 1, 28, 28]) torch.float32 -0.5 0.5\n"


def test_34_batches_from_eight_workers(run: Run) -> None:
    printed = run("""
        loader = DataLoader(mnist, batch_size=16, shuffle=True, num_workers=8)
        images, labels = next(iter(loader))
        print(type(images), images.shape, images.dtype, images.min().item(), images.max().item())
    """)
    assert printed == "<class 'torch.Tensor'> torch.Size([16, 1, 28, 28]) torch.float32 -0.5 0.5\n"


def test_35_listing_a_remote_shard(server: HttpServer) -> None:
    command = (
        "unset GZIP; curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz | tar -ztvf - | sed 5q"
    )
    command = command.replace("http://storage.googleapis.com", server.url(""))
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    assert names == ["n00000000.cls", "n00000000.jpg", "n00000000.json", "n00000001.cls", "n00000001.jpg"]


def test_36_constructing_reads_nothing(run: Run, server: HttpServer) -> None:
    before = len(server.requests)
    run("""
        from shoal.webdataset import WebDataset
        imagenet = WebDataset("http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz",
                              extensions="jpg cls")
    """)
    assert len(server.requests) == before


def test_37_iterating(run: Run, notebook: dict[str, Any]) -> None:
    printed = run("""
        for image, cls in imagenet:
            imshow(image)
            print(cls)
            break
    """)
    assert printed == "1\n"
    image = notebook["image"]
    assert isinstance(image, np.ndarray)
    assert image.dtype == np.float32
    assert image.shape == (48, 64, 3)
    assert 0 <= image.min() < image.max() <= 1


def test_38_base_class_and_indexing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TypeError, match="cannot be indexed"):
        run("""
            print(WebDataset.__base__)
            imagenet[0]
        """)
    assert capsys.readouterr().out == "<class 'torch.utils.data.dataset.IterableDataset'>\n"


def test_39_many_shards_as_tensors(run: Run, notebook: dict[str, Any]) -> None:
    printed = run("""
        from shoal.webdataset import WebDataset
        imagenet = WebDataset("http://storage.googleapis.com/lpr-imagenet/imagenet_train-{0000..0147}.tgz",
                              extensions="jpg cls", decoder="torch")

        for image, cls in imagenet:
            break
        imshow(image.permute(1, 2, 0))
        print(cls)
        print(image.shape, image.min().item(), image.max().item(), image.dtype)
    """)
    assert printed.startswith("1\ntorch.Size([3, 48, 64]) ")
    assert printed.endswith(" torch.float32\n")
    image = notebook["image"]
    assert isinstance(image, torch.Tensor)
    assert 0 <= image.min() < image.max() <= 1
    assert len(notebook["imagenet"].urls) == 148


def test_40_augmentation(run: Run, notebook: dict[str, Any]) -> None:
    run("""
        from torchvision import transforms

        augment = transforms.Compose([
            transforms.Resize(256),
            transforms.RandomCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        ])
    """)
    assert notebook["augment"](crop(0)).shape == (3, 224, 224)


def test_41_augmented_shards(run: Run, notebook: dict[str, Any]) -> None:
    printed = run("""
        from shoal.webdataset import WebDataset
        imagenet = WebDataset("http://storage.googleapis.com/lpr-imagenet/imagenet_train-{0000..0147}.tgz",
                              extensions="jpg cls",
                              decoder="pil",
                              transforms=[augment, lambda x: x-1])

        for image, cls in imagenet:
            break
        imshow(image.permute(1, 2, 0))
        print(cls)
    """)
    assert printed == "0\n"
    assert notebook["image"].shape == (3, 224, 224)


def test_42_shuffled_shards(run: Run, notebook: dict[str, Any]) -> None:
    run("""
        from shoal.webdataset import WebDataset
        imagenet = WebDataset("http://storage.googleapis.com/lpr-imagenet/imagenet_train-{0000..0147}.tgz",
                              shuffle=100,
                              extensions="jpg cls",
                              decoder="pil",
                              transforms=[augment, lambda x: x-1])

        for image, cls in imagenet:
            break
        imshow(image.permute(1, 2, 0))
        print(cls)
    """)
    order = [cls for _, cls in notebook["imagenet"]]
    assert sorted(order) == list(range(SHARDS * EACH)) != order
    shards = [order[at : at + EACH] for at in range(0, len(order), EACH)]
    assert all(len({cls // EACH for cls in shard}) == 1 for shard in shards)
    assert [shard[0] // EACH for shard in shards] != list(range(SHARDS))
    assert any(shard != sorted(shard) for shard in shards)


def test_43_a_loader_with_eight_workers(run: Run, notebook: dict[str, Any], server: HttpServer) -> None:
    printed = run("""
        imagenet = WebDataset("http://storage.googleapis.com/lpr-imagenet/imagenet_train-{0000..0147}.tgz",
                              extensions="jpg cls",
                              decoder="pil",
                              transforms=[augment, lambda x: x-1])
        loader = DataLoader(imagenet, batch_size=16, num_workers=8)
        images, classes = next(iter(loader))
        print(images.size(), classes.size())
    """)
    assert printed == "torch.Size([16, 3, 224, 224]) torch.Size([16])\n"
    server.requests.clear()
    epoch = torch.cat([classes for _, classes in notebook["loader"]]).tolist()
    assert sorted(epoch) == list(range(SHARDS * EACH))
    transfers = Counter(request.path for request in server.requests if request.range != "bytes=0-0")
    assert set(transfers.values()) == {1}
    assert len(transfers) == SHARDS


MAP_REDUCE = """
import multiprocessing as mp
import os
from shoal.webdataset import WebDataset

# 50: map a function over a shard
from shoal.webdataset.writer import TarWriter
sink = TarWriter("out2.tar")

def process_sample(sample):
    return dict(__key__=sample["__key__"],
                  png=sample["jpg"].resize((256, 256)),
                  cls=str(sample["cls"]))

for sample in WebDataset("small.tar", decoder="pil"):
    sink.write(process_sample(sample))

sink.close()
os.rename("out2.tar", "out2-sequential.tar")

# 51: the same with a pool
import multiprocessing as mp
pool = mp.Pool(8)

processed = pool.imap_unordered(process_sample, WebDataset("small.tar", decoder="pil"))

with TarWriter("out2.tar") as sink:
    for sample in processed: sink.write(sample)

# 52: the stub of the slide, and what takes its place
def distributed_map_unordered(*args, **kw): pass
assert distributed_map_unordered(process_sample, []) is None
from shoal.webdataset import distributed_map_unordered

# 53: many shards at once
import multiprocessing as mp
pool = mp.Pool(8)

def process_shard(input_shard, output_shard):
    processed = pool.imap_unordered(process_sample, WebDataset(input_shard, decoder="pil"))
    with TarWriter(output_shard) as sink:
        for sample in processed: sink.write(sample)

shards = [(f"mybucket/original-{i:04d}.tar", f"mybucket/rescaled-{i:04d}.tar")
              for i in range(5)]

distributed_map_unordered(process_shard, shards)
"""


def write_jpegs(path: Path, first: int) -> None:
    given = (
        (f"{n:06d}", {"cls": b"%d" % n, "jpg": encoded(crop(n), "JPEG"), "json": b"{}"})
        for n in range(first, first + 10)
    )
    write_samples(path, given)


def written(path: Path) -> dict[str, tuple[set[str], bytes, Any]]:
    """What is in a shard: for each key its fields, its class and the size of its picture."""
    from shoal.webdataset import WebDataset

    return {
        sample["__key__"]: (
            {name for name in sample if not name.startswith("__")},
            sample["cls"],
            sample["png"].size,
        )
        for sample in WebDataset(path).decode("pil", only="png")
    }


def test_50_to_53_map_reduce_in_python(tmp_path: Path) -> None:
    """The script runs as it stands, without a guard: what a user would type."""
    write_jpegs(tmp_path / "small.tar", 0)
    (tmp_path / "mybucket").mkdir()
    for number in range(5):
        write_jpegs(tmp_path / "mybucket" / f"original-{number:04d}.tar", 10 * number)
    (tmp_path / "slides.py").write_text(MAP_REDUCE)
    subprocess.run([sys.executable, "slides.py"], cwd=tmp_path, check=True, timeout=200)

    def expected(first: int) -> dict[str, Any]:
        return {f"{n:06d}": ({"png", "cls"}, b"%d" % n, (256, 256)) for n in range(first, first + 10)}

    assert written(tmp_path / "out2-sequential.tar") == expected(0)
    assert list(written(tmp_path / "out2-sequential.tar")) == sorted(expected(0))
    assert written(tmp_path / "out2.tar") == expected(0)
    for number in range(5):
        assert written(tmp_path / "mybucket" / f"rescaled-{number:04d}.tar") == expected(10 * number)


def test_53_with_a_pool_in_each_process(tmp_path: Path) -> None:
    """The same with processes of their own, each of which starts a pool: nothing hangs."""
    from shoal.webdataset import distributed_map_unordered

    pairs = []
    for number in range(2):
        write_jpegs(tmp_path / f"original-{number:04d}.tar", 10 * number)
        pairs.append((str(tmp_path / f"original-{number:04d}.tar"), str(tmp_path / f"rescaled-{number:04d}.tar")))
    distributed_map_unordered(process_shard, pairs, workers=2, mode="process")
    for number in range(2):
        assert len(written(tmp_path / f"rescaled-{number:04d}.tar")) == 10


def process_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "png": sample["jpg"].resize((256, 256)), "cls": str(sample["cls"])}


def process_shard(input_shard: str, output_shard: str) -> None:
    import multiprocessing

    from shoal.webdataset import TarWriter, WebDataset

    with multiprocessing.Pool(2) as pool:
        processed = pool.imap_unordered(process_sample, WebDataset(input_shard, decoder="pil"))
        with TarWriter(output_shard) as sink:
            for sample in processed:
                sink.write(sample)

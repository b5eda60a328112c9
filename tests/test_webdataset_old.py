"""The first API: WebDataset(urls, extensions=, decoder=, transforms=, ...)."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shoal.errors import PlanError, ShardError, TrustError
from shoal.shards.codecs import encode
from shoal.webdataset import WebDataset
from support.webdataset_shards import SAMPLES, samples, write_members, write_numbers, write_pictures, write_samples


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "pictures.tgz", "gz")


def plus_one(x: Any) -> Any:
    return x + 1


def test_dicts_with_a_key_by_default(pictures: str) -> None:
    got = list(WebDataset(pictures, decoder=None))
    assert len(got) == SAMPLES
    assert set(got[0]) == {"__key__", "png", "cls", "wnid", "xml"}
    assert [sample["__key__"] for sample in got] == [key for key, _ in samples()]
    assert len(list(WebDataset(pictures))) == SAMPLES


def test_extensions_make_tuples(pictures: str) -> None:
    got = list(WebDataset(pictures, extensions="png;jpg cls"))
    assert len(got) == SAMPLES
    assert all(type(sample) is tuple and len(sample) == 2 for sample in got)
    image = got[0][0]
    assert image.shape == (793, 600, 3)
    assert image.dtype == np.float32
    assert 0 <= image.min() < image.max() <= 1
    assert [cls for _, cls in got] == [number * 7 % 1000 for number in range(SAMPLES)]


@pytest.mark.parametrize("extensions", [["png;jpg", "cls"], [["png", "jpg"], ["cls"]], [["png", "jpg"], "cls"]])
def test_extensions_may_be_lists(pictures: str, extensions: Any) -> None:
    image, cls = next(iter(WebDataset(pictures, extensions=extensions, decoder=None)))
    assert image == samples()[0][1]["png"]
    assert cls == b"0"


def test_a_missing_field_is_none(pictures: str) -> None:
    assert next(iter(WebDataset(pictures, extensions="cls nothing"))) == (0, None)


def test_only_wanted_fields_are_decoded(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", [("a", {"cls": b"1", "json": b"{broken", "png": b"broken"})])
    assert list(WebDataset(path, extensions="cls")) == [(1,)]


def test_kinds_of_pictures(pictures: str) -> None:
    def first(decoder: Any) -> Any:
        return next(iter(WebDataset(pictures, extensions="png", decoder=decoder)))[0]

    assert first("rgb8").dtype == np.uint8
    assert first("l").shape == (793, 600)
    assert isinstance(first("pil"), Image.Image)
    assert first(None) == first(False) == samples()[0][1]["png"]
    assert np.array_equal(first(True), first("rgb"))
    assert first("torchl8").shape == (793, 600)


def test_torch_pictures_are_numpy_pictures_with_channels_first(pictures: str) -> None:
    arrays = WebDataset(pictures, extensions="png cls", decoder="rgb")
    tensors = WebDataset(pictures, extensions="png cls", decoder="torchrgb")
    for (array, label), (tensor, same) in zip(arrays, tensors, strict=True):
        assert isinstance(tensor, torch.Tensor)
        assert np.array_equal(array, tensor.permute(1, 2, 0).numpy())
        assert label == same


def test_transforms_go_place_by_place(pictures: str) -> None:
    plain = list(WebDataset(pictures, extensions="png cls"))
    got = list(WebDataset(pictures, extensions="png cls", transforms=[lambda image: image.mean(), lambda x: x - 1]))
    assert [cls for _, cls in got] == [cls - 1 for _, cls in plain]
    assert got[3][0] == plain[3][0].mean()


def test_too_few_transforms_go_round(pictures: str) -> None:
    assert next(iter(WebDataset(pictures, extensions="cls cls cls", transforms=[plus_one]))) == (1, 1, 1)
    assert next(iter(WebDataset(pictures, extensions="cls cls cls", transforms=[plus_one, None]))) == (1, 0, 1)
    assert next(iter(WebDataset(pictures, extensions="cls cls", transforms=plus_one))) == (1, 1)


def test_transforms_without_a_tuple_are_refused(pictures: str) -> None:
    with pytest.raises(PlanError, match="extensions="):
        WebDataset(pictures, transforms=[plus_one])


def test_a_function_decodes_the_whole_sample(pictures: str) -> None:
    def lengths(sample: dict[str, Any]) -> dict[str, Any]:
        return {name: len(value) for name, value in sample.items()}

    got = next(iter(WebDataset(pictures, extensions="png cls", decoder=lengths)))
    assert got == (len(samples()[0][1]["png"]), 1)


def test_a_dict_of_functions_decodes_by_extension(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", [("a", {"left.jpg": b"123", "cls": b"1"})])
    assert list(WebDataset(path, decoder={"jpg": len})) == [{"__key__": "a", "left.jpg": 3, "cls": b"1"}]


def test_a_decoder_that_is_none_of_these_is_refused(pictures: str) -> None:
    with pytest.raises(PlanError, match="decoder=3"):
        WebDataset(pictures, decoder=3)
    with pytest.raises(PlanError, match="did you mean 'rgb8'"):
        WebDataset(pictures, decoder="rgb88")


def test_decoding_by_extension(tmp_path: Path) -> None:
    fields = {
        "cls": b"7",
        "id": b"n02084071",
        "txt": "größer".encode(),
        "json": b'{"x": [1]}',
        "ten": encode("ten", [np.arange(3)]),
        "mp": encode("mp", {"a": 1}),
        "txt.gz": encode("txt.gz", "packed"),
        "xml": b"<x/>",
    }
    sample = next(iter(WebDataset(write_samples(tmp_path / "a.tar", [("a", fields)]), decoder="rgb")))
    assert sample["cls"] == 7
    assert sample["id"] == b"n02084071"
    assert sample["txt"] == "größer"
    assert sample["json"] == {"x": [1]}
    assert np.array_equal(sample["ten"][0], np.arange(3))
    assert sample["mp"] == {"a": 1}
    assert sample["txt.gz"] == "packed"
    assert sample["xml"] == b"<x/>"


def test_a_container_of_msgpack_is_a_sample(tmp_path: Path) -> None:
    members = [(f"{i:04d}.mp", encode("mp", {"x": i, "y": [i, i]})) for i in range(100)]
    got = list(WebDataset(write_members(tmp_path / "a.tar", members), container="mp"))
    assert len(got) == 100
    assert got[5] == {"__key__": "0005", "x": 5, "y": [5, 5]}


def test_a_container_of_tensors_is_a_tuple(tmp_path: Path) -> None:
    arrays = [np.random.default_rng(i).random((28, 28)) for i in range(2)]
    path = write_members(tmp_path / "a.tar", [("a.ten", encode("ten", arrays))])
    (got,) = WebDataset(path, container="ten")
    assert type(got) is tuple
    assert [array.shape for array in got] == [(28, 28), (28, 28)]
    assert got[0].dtype == np.float64
    assert list(WebDataset(path, container="ten", transforms=[np.sum])) == [(arrays[0].sum(), arrays[1].sum())]


def test_a_container_of_pickles_needs_trust(tmp_path: Path) -> None:
    path = write_members(tmp_path / "a.tar", [("a.pyd", pickle.dumps({"x": {1, 2}}))])
    with pytest.raises(TrustError, match="trust=True"):
        list(WebDataset(path, container="pyd"))
    with pytest.raises(TrustError):
        list(WebDataset(path, container="pyd", errors=False))
    assert list(WebDataset(path, container="pyd", trust=True)) == [{"__key__": "a", "x": {1, 2}}]


def test_an_unknown_container_is_refused(pictures: str) -> None:
    with pytest.raises(PlanError, match="mp, json, pyd, ten"):
        WebDataset(pictures, container="zip")


def test_length_is_believed_and_indexing_is_refused(pictures: str) -> None:
    assert len(WebDataset(pictures, length=100)) == 100
    with pytest.raises(TypeError, match="with_length"):
        len(WebDataset(pictures, extensions="cls"))
    with pytest.raises(TypeError, match="cannot be indexed"):
        WebDataset(pictures, extensions="cls")[0]


def test_epochs_go_through_the_shards_again(pictures: str) -> None:
    assert len(list(WebDataset(pictures, extensions="cls", epochs=3))) == 3 * SAMPLES


def test_association_by_dict_and_by_function(tmp_path: Path) -> None:
    path = write_samples(tmp_path / "a.tar", [("a", {"cls": b"1"}), ("b", {"cls": b"2"})])
    table = {"a": {"name": "ant"}}
    assert list(WebDataset(path, extensions="cls name", associate=table)) == [(1, "ant"), (2, None)]
    got = WebDataset(path, extensions="cls name", associate=lambda key: {"name": key * 2})
    assert list(got) == [(1, "aa"), (2, "bb")]


def test_the_pipeline_comes_last_and_sees_one_shard_at_a_time(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=2, each=3)
    dataset = WebDataset(urls, extensions="cls", transforms=[plus_one], pipeline=lambda samples: [list(samples)])
    assert list(dataset) == [[(1,), (2,), (3,)], [(4,), (5,), (6,)]]
    assert list(WebDataset(urls, extensions="cls", pipeline=[lambda s: s, lambda s: list(s)[:1]])) == [(0,), (3,)]


class TestShuffle:
    def test_one_shuffles_shards_only(self, tmp_path: Path) -> None:
        urls = write_numbers(tmp_path, shards=8, each=3)
        got = [cls for (cls,) in WebDataset(urls, extensions="cls", shuffle=1, seed=1)]
        runs = [tuple(got[at : at + 3]) for at in range(0, 24, 3)]
        assert set(runs) == {(n, n + 1, n + 2) for n in range(0, 24, 3)}
        assert runs != sorted(runs)

    @pytest.mark.parametrize("size", [2, 50, 98, 100, 1000])
    def test_more_mixes_the_samples_of_each_shard(self, tmp_path: Path, size: int) -> None:
        urls = write_numbers(tmp_path, shards=3, each=60)
        got = [cls for (cls,) in WebDataset(urls, extensions="cls", shuffle=size, seed=1)]
        shards = [got[at : at + 60] for at in range(0, 180, 60)]
        assert sorted(map(min, shards)) == [0, 60, 120]
        assert all(sorted(shard) == list(range(min(shard), min(shard) + 60)) for shard in shards)
        assert all(shard != sorted(shard) for shard in shards)

    def test_a_seed_repeats_the_epochs_of_another_instance(self, tmp_path: Path) -> None:
        urls = write_numbers(tmp_path, shards=5, each=5)
        one, other = (WebDataset(urls, extensions="cls", shuffle=10, seed=3) for _ in range(2))
        first, second = list(one), list(one)
        assert first != second
        assert [list(other), list(other)] == [first, second]

    def test_without_a_seed_each_epoch_differs(self, tmp_path: Path) -> None:
        dataset = WebDataset(write_numbers(tmp_path, shards=9, each=5), extensions="cls", shuffle=10)
        assert list(dataset) != list(dataset)


class TestErrors:
    def broken(self, folder: Path) -> list[str]:
        good = write_numbers(folder, shards=3, each=10)
        whole = Path(good[1]).read_bytes()
        Path(good[1]).write_bytes(whole[: 512 * 2 * 4 + 700])
        return good

    def test_true_raises_and_names_the_shard(self, tmp_path: Path) -> None:
        with pytest.raises(ShardError) as caught:
            list(WebDataset(self.broken(tmp_path), extensions="cls", errors=True))
        assert isinstance(caught.value, tarfile.ReadError)
        assert any("numbers-0001.tar" in note for note in caught.value.__notes__)

    def test_false_goes_on_in_silence(self, tmp_path: Path) -> None:
        got = [cls for (cls,) in WebDataset(self.broken(tmp_path), extensions="cls", errors=False)]
        assert got == [*range(10), *range(10, 14), *range(20, 30)]

    def test_warn_goes_on_with_a_warning(self, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match=r"numbers-0001\.tar"):
            got = list(WebDataset(self.broken(tmp_path), extensions="cls", errors="warn"))
        assert len(got) == 24

    def test_a_bad_sample_is_skipped_too(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "a.tar", [("a", {"json": b"{"}), ("b", {"json": b"[1]"})])
        assert list(WebDataset(path, extensions="json", errors=False)) == [([1],)]
        with pytest.raises(ValueError, match="sample 'a', field 'json'"):
            list(WebDataset(path, extensions="json"))


class TestArguments:
    def test_an_unknown_one_is_named_with_what_is_near(self) -> None:
        with pytest.raises(TypeError, match=r"'extension'; did you mean extensions"):
            WebDataset("a.tar", extension="jpg cls")
        with pytest.raises(TypeError, match="'zzz'; it has associate, cache_dir"):
            WebDataset("a.tar", zzz=1)

    def test_what_is_not_there_says_what_to_write_instead(self) -> None:
        with pytest.raises(TypeError, match="pipe:command"):
            WebDataset("a.tar", opener="cat {}")
        WebDataset("a.tar", mode=None)

    def test_old_and_new_words_for_the_same_are_refused(self) -> None:
        with pytest.raises(PlanError, match="errors= and handler="):
            WebDataset("a.tar", errors=True, handler=print)
        with pytest.raises(PlanError, match="errors='no'"):
            WebDataset("a.tar", errors="no")
        with pytest.raises(PlanError, match="shuffle=-1"):
            WebDataset("a.tar", shuffle=-1)

    def test_decoding_twice_is_refused(self, pictures: str) -> None:
        with pytest.raises(PlanError, match="decodes by itself"):
            WebDataset(pictures, extensions="png cls").decode("rgb")
        got = next(iter(WebDataset(pictures, decoder=None).decode("rgb8")))
        assert got["png"].shape == (793, 600, 3)

    def test_old_datasets_have_the_fluid_methods(self, pictures: str) -> None:
        got = WebDataset(pictures, extensions="png cls", decoder="l8").map_tuple(np.shape).slice(1, 3)
        assert list(got) == [((48, 64), 7), ((48, 64), 14)]


def test_constructing_opens_nothing() -> None:
    dataset = WebDataset("/nowhere/imagenet-{0000..0147}.tgz", extensions="jpg cls")
    assert len(dataset.urls) == 148
    with pytest.raises(FileNotFoundError):
        next(iter(dataset))


def test_a_dataset_can_be_pickled(tmp_path: Path) -> None:
    urls = write_numbers(tmp_path, shards=2, each=3)
    dataset = WebDataset(urls, extensions="cls", transforms=[plus_one], shuffle=5)
    next(iter(dataset))
    copy = pickle.loads(pickle.dumps(dataset))
    assert sorted(copy) == [(n,) for n in range(1, 7)]


def test_verbose_names_the_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    urls = write_numbers(tmp_path, shards=2, each=1)
    list(WebDataset(urls, extensions="cls", verbose=True))
    assert capsys.readouterr().err == "".join(f"# reading {url}\n" for url in urls)


def test_tars_of_any_compression(tmp_path: Path) -> None:
    for compression in ("", "gz", "bz2", "xz"):
        path = write_samples(tmp_path / f"any{compression}", [("a", {"cls": b"1"})], compression)
        assert list(WebDataset(path, extensions="cls")) == [(1,)]


def test_reading_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_samples(tmp_path / "a.tar", [("a", {"cls": b"1"})])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(Path(path).read_bytes()))))  # type: ignore[arg-type]
    assert list(WebDataset("-", extensions="cls")) == [(1,)]

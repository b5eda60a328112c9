"""Which samples come out of which shards: URLs, grouping, selection, damage, cache, trust."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

import pytest

from shoal.errors import DuplicateFieldError, SettingsError, TrustError, UrlNotFoundError
from shoal.files import ShardCache
from shoal.testing.faults import http_server
from shoal.webdataset import (
    DataPipeline,
    SimpleShardList,
    WebDataset,
    ignore_and_continue,
    ignore_and_stop,
    tarfile_to_samples,
    url_to_cache_name,
    warn_and_continue,
)
from support.webdataset_shards import SAMPLES, samples, write_members, write_numbers, write_pictures, write_samples


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_pictures(tmp_path_factory.mktemp("pictures") / "pictures.tgz", "gz")


class TestUrls:
    def test_two_colons_separate(self, pictures: str) -> None:
        dataset = WebDataset(f"{pictures}::{pictures}")
        assert dataset.urls == [pictures, pictures]
        assert len(list(dataset)) == 2 * SAMPLES

    def test_variables_come_from_the_environment(self, pictures: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WDS_TESTDATA", "${DEEPER}")
        monkeypatch.setenv("WDS_DEEPER", str(Path(pictures).parent))
        assert len(list(WebDataset("${TESTDATA}/pictures.tgz"))) == SAMPLES

    def test_an_unset_variable_is_named(self) -> None:
        with pytest.raises(SettingsError, match="WDS_NOT_THERE"):
            list(WebDataset("${NOT_THERE}/a.tar"))

    def test_variables_that_name_each_other_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WDS_A", "${A}x")
        with pytest.raises(SettingsError, match="10 rounds"):
            list(WebDataset("${A}"))

    def test_braces_in_a_shard_list(self) -> None:
        urls = SimpleShardList("t-{000000..000099}.tar")
        assert len(urls) == len(list(urls)) == 100
        assert list(urls)[99] == {"url": "t-000099.tar"}

    def test_wildcards_and_folders_are_listed_when_reading_begins(self, tmp_path: Path) -> None:
        by_wildcard, by_folder = WebDataset(f"{tmp_path}/*.tar"), WebDataset(tmp_path)
        write_numbers(tmp_path, shards=2, each=2)
        assert len(list(by_wildcard)) == len(list(by_folder)) == 4

    def test_a_generator_of_urls_can_be_read_twice(self, tmp_path: Path) -> None:
        urls = write_numbers(tmp_path, shards=2, each=2)
        dataset = WebDataset(url for url in urls)
        assert len(list(dataset)) == len(list(dataset)) == 4

    @pytest.mark.parametrize(
        ("url", "ndir", "name"),
        [
            ("http://e.com/path/to/file.txt", 0, "file.txt"),
            ("http://e.com/path/to/file.txt", 1, "to/file.txt"),
            ("http://e.com/path/to/file.txt", 3, "path/to/file.txt"),
            ("http://e.com/", 0, ""),
            ("http://e.com/a.tar?signature=/x", 0, "a.tar"),
        ],
    )
    def test_names_for_a_cache(self, url: str, ndir: int, name: str) -> None:
        assert url_to_cache_name(url, ndir) == name


class TestGrouping:
    """The rule itself is tested with the shards; here, what a user of the dialect sees of it."""

    @pytest.mark.parametrize(
        ("name", "key", "field"),
        [
            ("a/b.png", "a/b", "png"),
            ("a.b/c.png", "a.b/c", "png"),
            ("1.0/img.jpg", "1.0/img", "jpg"),
            ("img.v1.0.jpg", "img", "v1.0.jpg"),
            ("x.seg.png", "x", "seg.png"),
            ("a.b/c.d/e.f.g", "a.b/c.d/e", "f.g"),
            ("./000.jpg", "./000", "jpg"),
            ("X.JPG", "X", "jpg"),
            ("a.", "a", ""),
            ("dir/.hidden", "dir/", "hidden"),
            ("a/__x__.json", "a/__x__", "json"),
        ],
    )
    def test_names(self, tmp_path: Path, name: str, key: str, field: str) -> None:
        (sample,) = WebDataset(write_members(tmp_path / "a.tar", [(name, b"data")]))
        assert {k: v for k, v in sample.items() if not k.startswith("__")} == {field: b"data"}
        assert sample["__key__"] == key

    @pytest.mark.parametrize(
        "name", ["README", "a.b/c", ".hidden.png", "__meta__", "__x__/foo.json", "sub/__x__", "__x__"]
    )
    def test_what_belongs_to_no_sample(self, tmp_path: Path, name: str) -> None:
        path = write_members(tmp_path / "a.tar", [(name, b"data")])
        assert list(WebDataset(path, empty_check=False)) == []

    def test_only_neighbours_are_grouped(self, tmp_path: Path) -> None:
        path = write_members(tmp_path / "a.tar", [("a.png", b""), ("b.png", b""), ("a.cls", b"")])
        assert [sample["__key__"] for sample in WebDataset(path)] == ["a", "b", "a"]

    def test_a_field_twice_is_an_error(self, tmp_path: Path) -> None:
        path = write_members(tmp_path / "a.tar", [("a.jpg", b""), ("a.JPG", b"")])
        with pytest.raises(DuplicateFieldError, match="duplicate file name") as caught:
            list(WebDataset(path))
        assert isinstance(caught.value, ValueError)

    def test_samples_do_not_merge_over_the_border_of_shards(self, tmp_path: Path) -> None:
        urls = [
            write_members(tmp_path / "1.tar", [("a.png", b"1")]),
            write_members(tmp_path / "2.tar", [("a.cls", b"2")]),
        ]
        assert [set(sample) & {"png", "cls"} for sample in WebDataset(urls)] == [{"png"}, {"cls"}]

    def test_a_meta_file_does_not_split_a_sample(self, tmp_path: Path) -> None:
        path = write_members(tmp_path / "a.tar", [("a.png", b"1"), ("__meta__", b""), ("a.cls", b"2")])
        (sample,) = WebDataset(path)
        assert (sample["png"], sample["cls"]) == (b"1", b"2")


class TestSamples:
    def test_they_are_bytes_and_say_where_they_are_from(self, pictures: str) -> None:
        sample = next(iter(WebDataset(pictures)))
        assert sample == {
            "__key__": "000000",
            "__url__": pictures,
            "__local_path__": pictures,
            **samples()[0][1],
        }

    def test_a_plain_tar_gives_bytes_too(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "a.tar", [("a", {"bin": b"123"})])
        assert type(next(iter(WebDataset(path)))["bin"]) is bytes

    def test_select_files(self, pictures: str) -> None:
        for sample in WebDataset(pictures, select_files=lambda name: name.endswith(".png")):
            assert "png" in sample
            assert "cls" not in sample

    def test_rename_files_comes_before_select_files(self, pictures: str) -> None:
        dataset = WebDataset(
            pictures,
            rename_files=lambda name: name.replace(".cls", ".txt"),
            select_files=lambda name: name.endswith(".txt"),
        ).decode()
        got = [{k: v for k, v in sample.items() if not k.startswith("__")} for sample in dataset]
        assert got == [{"txt": str(number * 7 % 1000)} for number in range(SAMPLES)]

    def test_as_a_stage(self, pictures: str) -> None:
        stage = tarfile_to_samples(select_files=lambda name: name.endswith(".cls"))
        got = list(DataPipeline(SimpleShardList(pictures), stage))
        assert len(got) == SAMPLES
        assert set(got[0]) == {"__key__", "__url__", "__local_path__", "cls"}

    def test_as_a_context(self, pictures: str) -> None:
        with WebDataset(pictures) as dataset:
            assert len(list(dataset.slice(3))) == 3


class TestDamage:
    @pytest.fixture
    def truncated(self, tmp_path: Path) -> str:
        path = tmp_path / "cut.tar"
        write_pictures(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 9 // 10])
        return str(path)

    def test_a_truncated_tar_is_a_read_error(self, truncated: str) -> None:
        with pytest.raises(tarfile.ReadError):
            list(WebDataset(truncated))

    def test_what_lies_before_the_damage_is_read(self, truncated: str) -> None:
        got = list(WebDataset(truncated, handler=ignore_and_stop))
        assert 0 < len(got) < SAMPLES
        assert all({"png", "cls", "wnid", "xml"} <= set(sample) for sample in got)

    def test_stopping_ends_the_stream_and_continuing_takes_the_next_shard(self, truncated: str, tmp_path: Path) -> None:
        urls = [truncated, *write_numbers(tmp_path, shards=1, each=5)]
        stopped = len(list(WebDataset(urls, handler=ignore_and_stop)))
        assert len(list(WebDataset(urls, handler=ignore_and_continue))) == stopped + 5

    def test_a_missing_file(self, tmp_path: Path) -> None:
        urls = [str(tmp_path / "missing.tar"), *write_numbers(tmp_path, shards=1, each=5)]
        with pytest.raises(OSError, match=r"missing\.tar"):
            list(WebDataset(urls))
        assert len(list(WebDataset(urls, handler=ignore_and_continue))) == 5
        with pytest.warns(UserWarning, match=r"missing\.tar"):
            assert len(list(WebDataset(urls, handler=warn_and_continue))) == 5

    def test_no_samples_at_all_is_an_error(self, tmp_path: Path) -> None:
        path = write_members(tmp_path / "empty.tar", [])
        with pytest.raises(ValueError, match="No samples found"):
            list(WebDataset(path))
        assert list(WebDataset(path, empty_check=False)) == []


class TestCache:
    def test_a_remote_shard_is_fetched_once(self, tmp_path: Path) -> None:
        body = Path(write_numbers(tmp_path, shards=1, each=5)[0]).read_bytes()
        with http_server() as server:
            url = server.add("/data/numbers.tar", body)
            dataset = WebDataset(url, cache_dir=str(tmp_path / "cache"), cache_size=10**6).decode()
            assert [sample["cls"] for sample in dataset] == list(range(5))
            transfers = len(server.ranges("/data/numbers.tar"))
            assert [sample["cls"] for sample in dataset] == list(range(5))
            assert len(server.ranges("/data/numbers.tar")) == transfers
        assert any(name.endswith("numbers.tar") for name in os.listdir(tmp_path / "cache"))

    def test_the_environment_may_name_the_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("WDS_CACHE_SIZE", "1MB")
        body = Path(write_numbers(tmp_path, shards=1, each=5)[0]).read_bytes()
        with http_server() as server:
            assert len(list(WebDataset(server.add("/numbers.tar", body)))) == 5
        assert any(name.endswith("numbers.tar") for name in os.listdir(tmp_path / "cache"))

    def test_the_least_recently_used_shard_goes_first(self, tmp_path: Path) -> None:
        cache = ShardCache(tmp_path / "cache", max_bytes=2500)
        with http_server() as server:
            for number in range(4):
                url = server.add(f"/{number}.tar", bytes(1000))
                with cache.open(url):
                    time.sleep(0.01)
        kept = {name.rpartition("-")[2] for name in os.listdir(tmp_path / "cache") if name.endswith(".tar")}
        assert kept == {"2.tar", "3.tar"}


class TestTrust:
    def test_commands_need_trust(self, tmp_path: Path) -> None:
        (path,) = write_numbers(tmp_path, shards=1, each=3)
        with pytest.raises(TrustError, match="trust=True"):
            list(WebDataset(f"pipe:cat {path}"))
        with pytest.raises(TrustError):
            list(WebDataset(f"pipe:cat {path}", handler=ignore_and_continue))
        assert len(list(WebDataset(f"pipe:cat {path}", trust=True))) == 3
        assert len(list(tarfile_to_samples(trust=True)([f"pipe:cat {path}"]))) == 3

    def test_pickles_need_trust(self, tmp_path: Path) -> None:
        path = write_samples(tmp_path / "a.tar", [("a", {"pyd": b"\x80\x04K\x01."})])
        with pytest.raises(TrustError):
            list(WebDataset(path).decode())
        assert next(iter(WebDataset(path).decode(trust=True)))["pyd"] == 1
        with pytest.raises(TrustError):
            list(WebDataset(path).xdecode())
        assert next(iter(WebDataset(path).xdecode(trust=True)))["pyd"] == 1

    @pytest.mark.parametrize("form", ["{}", "file:{}", "pipe:cat {}"])
    def test_a_secured_program_reads_no_local_files_and_runs_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
    ) -> None:
        (path,) = write_numbers(tmp_path, shards=1, each=3)
        monkeypatch.setenv("WDS_SECURE", "1")
        with pytest.raises(TrustError, match="WDS_SECURE"):
            list(WebDataset(form.format(path), trust=True))

    def test_a_secured_program_reads_the_web_but_unpickles_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WDS_SECURE", "1")
        path = write_samples(tmp_path / "a.tar", [("a", {"pyd": b"\x80\x04K\x01.", "pth": b""})])
        with http_server() as server:
            url = server.add("/a.tar", Path(path).read_bytes())
            assert len(list(WebDataset(url))) == 1
            for field in ("pyd", "pth"):
                with pytest.raises(TrustError):
                    list(WebDataset(url).decode(trust=True, only=field))


def test_a_missing_remote_shard_is_said_to_be_missing() -> None:
    with http_server() as server, pytest.raises(UrlNotFoundError, match=r"nothing\.tar"):
        list(WebDataset(server.url("/nothing.tar")))

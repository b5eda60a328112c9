"""Writers with the arguments they have in WebDataset."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.errors import EncodeError, TrustError
from shoal.webdataset import ShardWriter, TarWriter, WebDataset
from support.webdataset_shards import crop


def members(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


class TestTarWriter:
    def test_fields_are_written_in_order(self, tmp_path: Path) -> None:
        with TarWriter(tmp_path / "w.tar") as writer:
            assert writer.write({"__key__": "a", "txt": "hello", "cls": "3"}) == 6
        assert members(tmp_path / "w.tar") == ["a.cls", "a.txt"]

    def test_the_name_says_the_compression(self, tmp_path: Path) -> None:
        for name, compress in (("w.tgz", None), ("w.tar", "gz"), ("w2.tar", True)):
            with TarWriter(tmp_path / name, compress=compress) as writer:
                writer.write({"__key__": "a", "cls": 1})
            assert gzip.decompress((tmp_path / name).read_bytes())
        with TarWriter(tmp_path / "plain.tgz", compress=False) as writer:
            writer.write({"__key__": "a", "cls": 1})
        assert (tmp_path / "plain.tgz").read_bytes()[257:262] == b"ustar"

    def test_commands_need_trust(self, tmp_path: Path) -> None:
        target = f"pipe:cat > {tmp_path / 'w.tar'}"
        with pytest.raises(TrustError):
            TarWriter(target)
        with TarWriter(target, trust=True) as writer:
            writer.write({"__key__": "a", "cls": 1})
        assert members(tmp_path / "w.tar") == ["a.cls"]

    def test_attributes(self, tmp_path: Path) -> None:
        with TarWriter(tmp_path / "w.tar", user="me", group="us", mode=0o600, mtime=1e9) as writer:
            writer.write({"__key__": "a", "cls": 1})
        with TarWriter(tmp_path / "default.tar") as writer:
            writer.write({"__key__": "a", "cls": 1})
        with tarfile.open(tmp_path / "w.tar") as tar:
            info = tar.getmember("a.cls")
        assert (info.uname, info.gname, info.mode, info.mtime) == ("me", "us", 0o600, 10**9)
        with tarfile.open(tmp_path / "default.tar") as tar:
            info = tar.getmember("a.cls")
        assert (info.uname, info.gname, info.mode, info.mtime) == ("bigdata", "bigdata", 0o444, 0)

    def test_meta_fields_are_left_out_unless_kept(self, tmp_path: Path) -> None:
        sample = {"__key__": "a", "cls": 1, "_note": "n", "__url__": "u"}
        for keep, names in ((False, ["a.cls"]), (True, ["a.__url__", "a._note", "a.cls"])):
            with TarWriter(tmp_path / f"{keep}.tar", keep_meta=keep) as writer:
                writer.write(sample)
            assert members(tmp_path / f"{keep}.tar") == names

    def test_encoding_by_extension(self, tmp_path: Path) -> None:
        image = crop(1)
        array = np.asarray(image)
        with TarWriter(tmp_path / "w.tar") as writer:
            writer.write({"__key__": "a", "png": image, "cls": 3, "json": [1], "npy": array, "ten": [array]})
            writer.write({"__key__": "b", "png": array / 255, "cls": "4", "json": {}, "npy": array, "ten": []})
        first, second = WebDataset(tmp_path / "w.tar").decode("rgb8")
        assert np.array_equal(first["png"], array)
        assert np.array_equal(second["png"], array)
        assert (first["cls"], second["cls"]) == (3, 4)
        assert np.array_equal(first["ten"][0], first["npy"])

    def test_jpegs_are_of_the_best_quality(self, tmp_path: Path) -> None:
        image = crop(1)
        with TarWriter(tmp_path / "w.tar") as writer:
            writer.write({"__key__": "a", "jpg": image})
        (sample,) = WebDataset(tmp_path / "w.tar").decode("rgb8")
        assert np.abs(sample["jpg"].astype(int) - np.asarray(image)).mean() < 4

    def test_what_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        with (
            pytest.raises(EncodeError, match="sample 'a', field 'xyz'"),
            TarWriter(tmp_path / "w.tar") as writer,
        ):
            writer.write({"__key__": "a", "xyz": 3})
        assert not (tmp_path / "w.tar").exists()
        with pytest.raises(EncodeError, match="encoding is off"), TarWriter(io.BytesIO(), encoder=False) as writer:
            writer.write({"__key__": "a", "cls": 3})
        with pytest.raises(EncodeError, match="__key__"), TarWriter(io.BytesIO()) as writer:
            writer.write({"cls": 3})

    def test_an_encoder_of_your_own(self, tmp_path: Path) -> None:
        def encode(sample: dict[str, Any]) -> dict[str, Any]:
            return {"__key__": sample["__key__"], "bin": b"%d" % sample["n"]}

        with TarWriter(tmp_path / "w.tar", encoder=encode) as writer:
            writer.write({"__key__": "a", "n": 7})
        assert next(iter(WebDataset(tmp_path / "w.tar")))["bin"] == b"7"

    def test_dwrite_takes_arguments(self, tmp_path: Path) -> None:
        with TarWriter(tmp_path / "w.tar") as writer:
            writer.dwrite("a", cls=1, left_txt="x")
        assert members(tmp_path / "w.tar") == ["a.cls", "a.left.txt"]

    def test_an_open_file(self) -> None:
        file = io.BytesIO()
        with TarWriter(file) as writer:
            writer.write({"__key__": "a", "cls": 1})
        assert file.getvalue()[:5] == b"a.cls"

    def test_the_module_is_where_it_was(self) -> None:
        from shoal.webdataset.writer import TarWriter as same

        assert same is TarWriter


class TestShardWriter:
    def write(self, writer: ShardWriter, count: int) -> None:
        for number in range(count):
            writer.write({"__key__": f"{number:06d}", "cls": number})

    def test_so_many_samples_a_shard(self, tmp_path: Path) -> None:
        with ShardWriter(f"{tmp_path}/out-%06d.tar", maxcount=5) as writer:
            self.write(writer, 50)
        assert len(list(tmp_path.iterdir())) == 10
        dataset = WebDataset(f"{tmp_path}/out-{{000000..000009}}.tar").decode()
        assert [sample["cls"] for sample in dataset] == list(range(50))

    def test_so_many_bytes_a_shard(self, tmp_path: Path) -> None:
        with ShardWriter(f"{tmp_path}/out-%06d.tar", maxsize=10 * 1024) as writer:
            self.write(writer, 50)
        assert all(path.stat().st_size <= 10 * 1024 for path in tmp_path.iterdir())
        assert len(list(WebDataset(str(tmp_path)))) == 50

    def test_writing_nothing_makes_no_shard(self, tmp_path: Path) -> None:
        with ShardWriter(f"{tmp_path}/out-%06d.tar"):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_post_hears_of_each_complete_shard(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        done: list[str] = []
        with ShardWriter(f"{tmp_path}/out-%d.tgz", 2, post=done.append, start_shard=7, verbose=1) as writer:
            self.write(writer, 5)
            assert done == [f"{tmp_path}/out-7.tgz", f"{tmp_path}/out-8.tgz"]
            writer.dwrite("last", seg_txt="x")
        assert done[-1] == f"{tmp_path}/out-9.tgz"
        assert all(gzip.decompress(Path(name).read_bytes()) for name in done)
        assert capsys.readouterr().err.count("# wrote ") == 3

    def test_a_quiet_writer_says_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with ShardWriter(f"{tmp_path}/out-%d.tar", 2) as writer:
            self.write(writer, 5)
        assert capsys.readouterr() == ("", "")

    def test_an_opener_gives_the_files(self, tmp_path: Path) -> None:
        opened: list[Any] = []

        def opener(name: str) -> Any:
            opened.append(open(name + ".mine", "wb"))  # noqa: SIM115 - the writer closes it
            return opened[-1]

        with ShardWriter(f"{tmp_path}/out-%d.tar", 2, opener=opener, user="me") as writer:
            self.write(writer, 3)
        assert all(file.closed for file in opened)
        assert members(tmp_path / "out-0.tar.mine") == ["000000.cls", "000001.cls"]
        with pytest.raises(EncodeError), ShardWriter(f"{tmp_path}/bad-%d.tar", opener=opener) as writer:
            writer.write({"__key__": "a", "xyz": object()})
        assert len(opened) == 3
        assert opened[-1].closed

    def test_the_options_of_the_tar_writer(self, tmp_path: Path) -> None:
        with ShardWriter(f"{tmp_path}/out-%d.tar", user="me", compress="gz") as writer:
            self.write(writer, 1)
        with tarfile.open(tmp_path / "out-0.tar", "r:gz") as tar:
            assert tar.getmember("000000.cls").uname == "me"

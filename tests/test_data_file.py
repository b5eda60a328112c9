"""Single files by URL: the same functions on a disk, in memory and in an S3 store."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import skimage
from PIL import Image

from shoal.data.file import (
    exists,
    get_remote_file_to_local,
    is_file,
    listdir,
    load_numpy,
    makedirs,
    open_image,
    open_text,
    put_local_file_to_remote,
    rmdir,
    write_text,
)
from shoal.errors import DecodeError, PlanError, TrustError, UrlError, UrlNotFoundError
from support.s3_server import s3_bucket

PICTURES = Path(skimage.data_dir)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_bucket() as url:
        yield url


@pytest.fixture(params=["path", "file", "memory", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "path":
            return str(tmp_path)
        case "file":
            return f"file://{tmp_path}"
        case "memory":
            return f"memory:/{tmp_path}"
    return f"{request.getfixturevalue('s3')}{tmp_path}"


def test_lines_of_a_text(root: str) -> None:
    assert write_text(f"{root}/pairs.csv", "Q1,Q1,1\nQ1,Q2,0\r\nQ2,Q1,0\nQ2,Q2,1\n\n") == 34
    assert open_text(f"{root}/pairs.csv") == ["Q1,Q1,1", "Q1,Q2,0", "Q2,Q1,0", "Q2,Q2,1"]
    write_text(f"{root}/abc.txt", "abc\n")
    assert open_text(f"{root}/abc.txt") == ["abc"]
    assert write_text(f"{root}/abc.txt", "für") == 4
    assert open_text(f"{root}/abc.txt") == ["für"]
    write_text(f"{root}/blank.txt", " \n")
    assert open_text(f"{root}/blank.txt") == []


def test_a_path_object_is_a_path(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "a")
    assert open_text(tmp_path / "a.txt") == ["a"]
    assert listdir(tmp_path) == ["a.txt"]


def test_what_is_there(root: str) -> None:
    write_text(f"{root}/a/b.txt", "b")
    assert exists(f"{root}/a/b.txt")
    assert is_file(f"{root}/a/b.txt")
    assert exists(f"{root}/a")
    assert not is_file(f"{root}/a")
    for missing in (f"{root}/a/c.txt", f"{root}/d"):
        assert not exists(missing)
        assert not is_file(missing)
    with pytest.raises(UrlNotFoundError, match=r"c\.txt"):
        open_text(f"{root}/a/c.txt")


def test_folders_are_listed_made_and_removed(root: str) -> None:
    makedirs(f"{root}/one/two")
    makedirs(f"{root}/one/two")
    for name in ("one/b.txt", "one/a.txt", "one/two/c.txt", "other/d.txt"):
        write_text(f"{root}/{name}", name)
    assert listdir(f"{root}/one") == ["a.txt", "b.txt", "two"]
    assert listdir(f"{root}/one/") == ["a.txt", "b.txt", "two"]
    with pytest.raises(UrlError, match=r"is not empty: there is 'a\.txt' in it; recursive=True"):
        rmdir(f"{root}/one")
    assert open_text(f"{root}/one/two/c.txt") == ["one/two/c.txt"]
    rmdir(f"{root}/one", recursive=True)
    assert not exists(f"{root}/one")
    assert open_text(f"{root}/other/d.txt") == ["other/d.txt"]
    with pytest.raises(UrlNotFoundError):
        listdir(f"{root}/one")
    with pytest.raises(UrlError):
        listdir(f"{root}/other/d.txt")


def test_an_empty_folder_goes(tmp_path: Path) -> None:
    makedirs(tmp_path / "a" / "b")
    assert exists(tmp_path / "a" / "b")
    rmdir(tmp_path / "a" / "b")
    assert listdir(tmp_path / "a") == []
    with pytest.raises(UrlNotFoundError, match="nowhere"):
        rmdir(tmp_path / "nowhere")


def test_web_servers_and_pipes_have_no_folders() -> None:
    for url in ("https://example.invalid/folder", "pipe:ls"):
        with pytest.raises(UrlError, match="neither streams nor web servers have folders"):
            listdir(url)


def test_pictures_keep_their_mode(root: str, tmp_path: Path) -> None:
    for name, mode in (("astronaut.png", "RGB"), ("camera.png", "L"), ("rocket.jpg", "RGB")):
        put_local_file_to_remote(PICTURES / name, f"{root}/{name}")
        image = open_image(f"{root}/{name}")
        assert image.mode == mode
        with Image.open(PICTURES / name) as expected:
            assert np.array_equal(np.asarray(image), np.asarray(expected))
    labels = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    labels.putpalette(list(range(256)) * 3)
    labels.save(tmp_path / "labels.png")
    assert open_image(tmp_path / "labels.png").mode == "P"
    assert np.asarray(open_image(tmp_path / "labels.png")).max() == 11


def test_what_is_no_picture_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "a.jpg", "no picture")
    with pytest.raises(DecodeError, match=r"a\.jpg: expected a picture, found 10 bytes"):
        open_image(tmp_path / "a.jpg")


def save(root: str, name: str, write: Any, *values: Any, **options: Any) -> str:
    with fsspec.open(f"{root}/{name}", "wb", auto_mkdir=True) as file:
        write(file, *values, **options)
    return f"{root}/{name}"


def test_arrays(root: str) -> None:
    array = np.arange(10.0).reshape(2, 5)
    assert load_numpy(save(root, "a.npy", np.save, array)).shape == (2, 5)
    assert np.array_equal(load_numpy(f"{root}/a.npy"), array)
    loaded = load_numpy(save(root, "b.npz", np.savez, x=array, y=np.ones(3)))
    assert list(loaded) == ["x", "y"]
    assert np.array_equal(loaded["x"], array)
    assert np.array_equal(load_numpy(save(root, "without-a-name", np.savez_compressed, array))["arr_0"], array)


def test_pickles_need_trust(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "trapped"),)

    (tmp_path / "trap.npy").write_bytes(pickle.dumps(Trap()))
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], object), allow_pickle=True)
    for name in ("trap.npy", "objects.npy"):
        with pytest.raises(TrustError, match="trust=True"):
            load_numpy(tmp_path / name)
    assert not (tmp_path / "trapped").exists()
    assert load_numpy(tmp_path / "objects.npy", trust=True)[0] == {"a": 1}
    (tmp_path / "pickled.pkl").write_bytes(pickle.dumps(np.arange(3)))
    assert load_numpy(tmp_path / "pickled.pkl", trust=True).tolist() == [0, 1, 2]


def test_what_holds_no_arrays_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "a.npy", "1,2,3")
    with pytest.raises(DecodeError, match=r"a\.npy holds no arrays.*begins with b'1,2,3'"):
        load_numpy(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.zeros(100))
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:-1])
    with pytest.raises(DecodeError, match=r"b\.npy: the npy header says"):
        load_numpy(tmp_path / "b.npy")


def test_files_go_to_a_store_and_back(root: str, tmp_path: Path) -> None:
    put_local_file_to_remote(PICTURES / "coffee.png", f"{root}/there/coffee.png")
    get_remote_file_to_local(f"{root}/there/coffee.png", tmp_path / "here.png")
    assert (tmp_path / "here.png").read_bytes() == (PICTURES / "coffee.png").read_bytes()
    with pytest.raises(PlanError, match=r"there is .*here\.png already.*overwrite=True"):
        get_remote_file_to_local(f"{root}/there/coffee.png", tmp_path / "here.png")
    put_local_file_to_remote(PICTURES / "camera.png", f"{root}/there/coffee.png", overwrite=True)
    get_remote_file_to_local(f"{root}/there/coffee.png", tmp_path / "here.png", overwrite=True)
    assert (tmp_path / "here.png").read_bytes() == (PICTURES / "camera.png").read_bytes()

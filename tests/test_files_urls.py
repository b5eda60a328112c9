"""What a URL is, and what a list of them stands for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from shoal.errors import MissingExtraError, UrlError, UrlNotFoundError
from shoal.files import display, expand, local_path, open_read, scheme


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.tar", "a.tar", "c.tgz", "d.tar.zst", "notes.txt", ".hidden.tar", "sub/e.tar", "sub/deep/f.tar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def memory() -> str:
    fs = fsspec.filesystem("memory")
    for name in ("b.tar", "a.tar", "notes.txt", "sub/e.tar"):
        fs.pipe_file(f"/expand/{name}", b"x")
    return "memory://expand"


@pytest.mark.parametrize(
    ("url", "name", "path"),
    [
        ("a.tar", "file", "a.tar"),
        ("/data/a%20b.tar", "file", "/data/a%20b.tar"),
        ("12:30.tar", "file", "12:30.tar"),
        ("c:d.tar", "file", "c:d.tar"),
        ("file:a%20b.tar", "file", "a%20b.tar"),
        ("file:///data/a%20b.tar", "file", "/data/a b.tar"),
        ("FILE://localhost/data/a.tar", "file", "/data/a.tar"),
        ("file://localhosted/a.tar", "file", "localhosted/a.tar"),
        ("s3://bucket/a.tar", "s3", None),
        ("HTTPS://host/a.tar", "https", None),
        ("simplecache::s3://bucket/a.tar", "simplecache", None),
        ("pipe:cat a://b", "pipe", None),
        ("-", "-", None),
    ],
)
def test_scheme_and_local_path(url: str, name: str, path: str | None) -> None:
    assert (scheme(url), local_path(url)) == (name, path)


def test_a_tilde_is_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert local_path("~/a.tar") == "/home/me/a.tar"
    assert local_path("~a.tar") == "~a.tar"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pass@host/a.tar", "https://***@host/a.tar"),
        ("https://me:p@ss@host/a.tar", "https://***@host/a.tar"),
        ("https://token@host/a.tar", "https://***@host/a.tar"),
        ("https://host/a.tar?X-Signature=abc&n=1", "https://host/a.tar?X-Signature=***&n=***"),
        ("s3://key:secret@bucket/a.tar", "s3://***@bucket/a.tar"),
        ("abfs://container@account/a.tar", "abfs://container@account/a.tar"),
        ("pipe:curl -H 'Authorization: Bearer abcdefgh' x", "pipe:curl -H 'Authorization: Bearer ***' x"),
        ("/data/a?b=c.tar", "/data/a?b=c.tar"),
    ],
)
def test_secrets_are_not_shown(url: str, shown: str) -> None:
    assert display(url) == shown


def test_urls_keep_their_order_and_paths_become_text() -> None:
    assert expand(["z{0..1}.tar", Path("a.tar")]) == ["z0.tar", "z1.tar", "a.tar"]
    assert expand(Path("b.tar")) == ["b.tar"]


def test_a_local_wildcard_is_sorted_and_gives_files_only(folder: Path) -> None:
    assert expand(f"{folder}/*.tar") == [f"{folder}/a.tar", f"{folder}/b.tar"]
    assert expand(f"file://{folder}/[ab].tar") == [f"{folder}/a.tar", f"{folder}/b.tar"]
    assert expand(f"{folder}/**/?.tar") == [f"{folder}/{n}.tar" for n in ("a", "b", "sub/deep/f", "sub/e")]
    assert expand(f"{folder}/s*/") == [f"{folder}/sub/e.tar"]


def test_braces_come_before_wildcards(folder: Path) -> None:
    assert expand(f"{folder}/{{b,a}}.t*") == [f"{folder}/b.tar", f"{folder}/a.tar"]


def test_a_folder_stands_for_its_shards(folder: Path) -> None:
    names = ["a.tar", "b.tar", "c.tgz", "d.tar.zst"]
    assert expand(folder) == expand(f"{folder}/") == [f"{folder}/{name}" for name in names]


def test_a_file_that_exists_is_taken_by_its_name(folder: Path) -> None:
    for name in ("what?.tar", "[x].tar", "{0..3}.tar"):
        (folder / name).touch()
        assert expand(folder / name) == [str(folder / name)]


def test_what_matches_nothing_is_an_error_that_names_it(folder: Path) -> None:
    with pytest.raises(UrlNotFoundError, match=r"nothing-\*\.tar matches no file"):
        expand(f"{folder}/nothing-*.tar")
    (folder / "empty").mkdir()
    with pytest.raises(UrlNotFoundError, match="empty holds no shards"):
        expand(folder / "empty")


def test_stores_are_listed_too(memory: str) -> None:
    assert expand(f"{memory}/*.tar") == [f"{memory}/a.tar", f"{memory}/b.tar"]
    assert expand(f"{memory}/") == [f"{memory}/a.tar", f"{memory}/b.tar"]
    assert expand(f"{memory}/**/*.tar")[-1] == f"{memory}/sub/e.tar"
    assert [open_read(url).read() for url in expand(f"{memory}/")] == [b"x", b"x"]
    with pytest.raises(UrlNotFoundError):
        expand(f"{memory}/none*.tar")
    with pytest.raises(UrlNotFoundError):
        expand("memory://no-such-folder/")


def test_the_inside_of_an_archive_is_listed_and_read(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("in/b.tar", b"bb")
        archive.writestr("in/a.tar", b"aa")
    urls = expand(f"zip://in/*.tar::file://{tmp_path}/all.zip")
    assert urls == [f"zip://in/{n}.tar::file://{tmp_path}/all.zip" for n in "ab"]
    assert [open_read(url).read() for url in urls] == [b"aa", b"bb"]


def test_web_urls_and_commands_are_not_listed() -> None:
    assert expand("http://host/a-{0..1}.tar?v=*[x]") == ["http://host/a-0.tar?v=*[x]", "http://host/a-1.tar?v=*[x]"]
    assert expand("pipe:cat {a,b}*.tar") == ["pipe:cat a*.tar", "pipe:cat b*.tar"]
    assert expand("-") == ["-"]
    with pytest.raises(UrlError, match="cannot be listed"):
        expand("http://host/folder/")


def test_an_unknown_scheme_names_its_neighbours() -> None:
    with pytest.raises(UrlError, match=r"unknown scheme 's33'; did you mean .*s3"):
        open_read("s33://bucket/a.tar")


def test_a_store_whose_library_is_missing_says_what_to_install() -> None:
    with pytest.raises(MissingExtraError, match="pip install"):
        open_read("sftp://host/a.tar")


@pytest.mark.parametrize(
    ("module", "url", "extra"), [("s3fs", "s3", "s3"), ("gcsfs", "gs", "gcs"), ("huggingface_hub", "hf", "huggingface")]
)
def test_an_extra_of_shoal_is_named_where_there_is_one(module: str, url: str, extra: str) -> None:
    script = f"import sys; sys.modules[{module!r}] = None; from shoal.files import open_read; open_read('{url}://b/a')"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"MissingExtraError: reaching {url}:// URLs needs {module}" in answer.stderr
    assert f'pip install "shoal[{extra}]"' in answer.stderr

"""Single files by URL: text, pictures, arrays, and the folders they lie in.

A path is a local one, ``file://``, or a URL of any store that fsspec knows (``s3://``, ``hdfs://``, ``gs://``, ...).
"""

from __future__ import annotations

import io
import os
import shutil
from typing import TYPE_CHECKING, Any, TypeAlias

from shoal import files
from shoal.errors import DecodeError, PlanError
from shoal.shards.codecs import DecodeOptions, decode

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "exists",
    "get_remote_file_to_local",
    "is_file",
    "listdir",
    "load_numpy",
    "makedirs",
    "open_image",
    "open_text",
    "put_local_file_to_remote",
    "rmdir",
    "write_text",
]

#: A local path or a URL.
Path: TypeAlias = str | os.PathLike[str]

#: first bytes of a file of arrays -> its extension
_ARRAYS = {b"\x93NUMPY": "npy", b"PK": "npz", b"\x80": "pkl"}
_COPIED = 1 << 20


def open_text(path: Path) -> list[str]:
    """Read a text in UTF-8 as a list of lines, without what is blank before the first and after the last.

    >>> import tempfile
    >>> name = f"{tempfile.mkdtemp()}/pairs.csv"
    >>> write_text(name, "Q1,Q1,1\\nQ1,Q2,0\\n")
    16
    >>> open_text(name)
    ['Q1,Q1,1', 'Q1,Q2,0']
    """
    with _text(path) as file:
        text = file.read().strip()
    return text.split("\n") if text else []


def open_image(path: Path) -> Image.Image:
    """Read a picture as a PIL image, in the mode that the file has.

    >>> import tempfile
    >>> from PIL import Image
    >>> name = f"{tempfile.mkdtemp()}/red.png"
    >>> Image.new("RGB", (4, 3), "red").save(name)
    >>> open_image(name).size
    (4, 3)
    """
    image: Image.Image = _decoded("image", _bytes(path), path, DecodeOptions(images="pilraw"))
    return image


def load_numpy(path: Path, *, trust: bool = False) -> Any:
    """Read an array (``.npy``), or a dict of arrays (``.npz``), whatever the file is called.

    Arrays of objects are pickles, and so are arrays that were pickled: a pickle can run any code, so it takes
    ``trust=True``.

    >>> import tempfile, numpy
    >>> name = f"{tempfile.mkdtemp()}/a.npy"
    >>> numpy.save(name, numpy.zeros((2, 5)))
    >>> load_numpy(name).shape
    (2, 5)
    """
    data = _bytes(path)
    kind = next((kind for magic, kind in _ARRAYS.items() if data.startswith(magic)), None)
    if kind is None:
        shown = files.display(os.fspath(path))
        raise DecodeError(f"{shown} holds no arrays: it is neither npy nor npz, and begins with {data[:8]!r}")
    return _decoded(kind, data, path, DecodeOptions(trust=trust))


def exists(path: Path) -> bool:
    """Tell whether there is a file or a folder of this name; in a store of objects, whether something lies under it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> exists(folder), exists(f"{folder}/a.txt")
    (True, False)
    """
    return files.exists(path)


def is_file(path: Path) -> bool:
    """Tell whether there is a file of this name.

    >>> import tempfile
    >>> is_file(tempfile.mkdtemp())
    False
    """
    return files.is_file(path)


def listdir(path: Path) -> list[str]:
    """List the names in a folder, sorted.

    >>> _ = write_text("memory://listed/b.txt", "b"), write_text("memory://listed/a.txt", "a")
    >>> listdir("memory://listed")
    ['a.txt', 'b.txt']
    """
    return files.list_folder(path)


def makedirs(path: Path) -> None:
    """Make a folder, and those it is in. Stores of objects have none, and need none.

    >>> import tempfile
    >>> folder = f"{tempfile.mkdtemp()}/a/b"
    >>> makedirs(folder)
    >>> exists(folder)
    True
    """
    files.make_folder(path)


def rmdir(path: Path, *, recursive: bool = False) -> None:
    """Remove a folder that is empty, or with ``recursive`` all that is in it.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = write_text(f"{folder}/a.txt", "a")
    >>> rmdir(folder, recursive=True)
    >>> exists(folder)
    False
    """
    files.remove_folder(path, recursive=recursive)


def write_text(path: Path, text: str) -> int:
    """Write a text in UTF-8, all or nothing, over what was there; tell how many bytes that were.

    >>> write_text("memory://written/a.txt", "für")
    4
    >>> open_text("memory://written/a.txt")
    ['für']
    """
    with files.open_write(path) as target:
        return target.write(text.encode())


def put_local_file_to_remote(local_path: Path, remote_path: Path, *, overwrite: bool = False) -> None:
    """Copy a file from here to a store. What is there already stays, unless ``overwrite`` is set.

    >>> import tempfile
    >>> name = f"{tempfile.mkdtemp()}/here.txt"
    >>> _ = write_text(name, "text")
    >>> put_local_file_to_remote(name, "memory://sent/there.txt")
    >>> open_text("memory://sent/there.txt")
    ['text']
    """
    _copied(local_path, remote_path, overwrite)


def get_remote_file_to_local(remote_path: Path, local_path: Path, *, overwrite: bool = False) -> None:
    """Copy a file from a store to here. What is here already stays, unless ``overwrite`` is set.

    >>> import tempfile
    >>> name = f"{tempfile.mkdtemp()}/here.txt"
    >>> _ = write_text("memory://fetched/there.txt", "text")
    >>> get_remote_file_to_local("memory://fetched/there.txt", name)
    >>> open_text(name)
    ['text']
    """
    _copied(remote_path, local_path, overwrite)


def _text(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(files.open_read(path), encoding="utf-8")


def _bytes(path: Path) -> bytes:
    with files.open_read(path) as file:
        return file.read()


def _decoded(kind: str, data: bytes, path: Path, options: DecodeOptions) -> Any:
    try:
        return decode(kind, data, options)
    except DecodeError as error:
        raise DecodeError(f"{files.display(os.fspath(path))}: {error.args[0]}") from error


def _copied(source: Path, target: Path, overwrite: bool) -> None:
    if not overwrite and files.exists(target):
        shown = files.display(os.fspath(target))
        raise PlanError(f"there is {shown} already; it is not replaced unless you say overwrite=True")
    with files.open_read(source) as file, files.open_write(target) as copy:
        shutil.copyfileobj(file, copy, _COPIED)

"""Handlers of fields that go through Shoal's codecs: pictures, the basic formats, sound, video."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shoal.shards.codecs import DecodeOptions, codec_for, decode, extension
from shoal.webdataset import _torch
from shoal.webdataset._trust import trusted

__all__ = [
    "BasicHandler",
    "Continue",
    "ImageHandler",
    "basichandlers",
    "gzfilter",
    "imagehandler",
    "is_picture",
    "torch_audio",
    "torch_video",
]

#: What is decoded without being asked for: the codecs know more (html, sound, video), which WebDataset leaves as bytes.
BASIC = frozenset(
    {"cls", "cls2", "class", "count", "index", "inx", "id", "txt", "text", "transcript", "json", "jsn"}
    | {"mp", "msgpack", "msg", "cbor", "npy", "npz", "ten", "tenbin", "tb", "pkl", "pickle", "pyd", "pth"}
)


@dataclass(frozen=True, slots=True)
class Continue:
    """Hands a field on to the next handler under another name, with other bytes.

    >>> Continue(".txt", b"hello").key
    '.txt'
    """

    key: str
    data: bytes


class ImageHandler:
    """Decodes pictures into one of the forms of `shoal.shards.codecs.DecodeOptions`.

    >>> ImageHandler("rgb8")(".txt", b"no picture") is None
    True
    """

    def __init__(self, imagespec: str, extensions: Collection[str] | None = None) -> None:
        self._options = DecodeOptions(images=imagespec)
        self._extensions = None if extensions is None else frozenset(extensions)

    def __call__(self, key: str, data: bytes) -> Any:
        name = extension(key)
        if not is_picture(name) if self._extensions is None else name not in self._extensions:
            return None
        return decode(name, data, self._options)


def imagehandler(imagespec: str, extensions: Collection[str] | None = None) -> ImageHandler:
    """Make a handler of pictures, of all kinds that are known or of these extensions.

    >>> imagehandler("pil", ["png"])(".jpg", b"not asked for") is None
    True
    """
    return ImageHandler(imagespec, extensions)


class BasicHandler:
    """Decodes numbers, text, JSON, MessagePack, CBOR and arrays, and with ``trust`` pickled objects.

    >>> BasicHandler()(".cls", b"7"), BasicHandler()(".html", b"<p>")
    (7, None)
    """

    def __init__(self, trust: bool = False) -> None:
        self._options = DecodeOptions(trust=trusted(trust))

    def __call__(self, key: str, data: bytes) -> Any:
        name = extension(key)
        return decode(name, data, self._options) if name in BASIC else None


def basichandlers(key: str, data: bytes) -> Any:
    """Decode what needs no trust, as ``decode()`` does after all other handlers.

    >>> basichandlers(".txt", b"seven")
    'seven'
    """
    return BasicHandler()(key, data)


def gzfilter(key: str, data: bytes) -> Continue | None:
    """Undo ``.gz``, and let the next handlers see the field without it.

    >>> import gzip
    >>> gzfilter(".txt.gz", gzip.compress(b"hello"))
    Continue(key='.txt', data=b'hello')
    """
    return Continue(key[:-3], decode("gz", data)) if key.endswith(".gz") else None


def is_picture(name: str) -> bool:
    """Tell whether a field holds a picture.

    >>> is_picture("left.png"), is_picture("txt")
    (True, False)
    """
    return codec_for(name).kind == codec_for("png").kind


def torch_video(key: str, data: bytes) -> Any:
    """Decode a video into frames (frames, height, width, 3), sound (which is not read, so empty), and an empty dict.

    >>> torch_video(".txt", b"no video") is None
    True
    """
    name = extension(key)
    if codec_for(name).kind != codec_for("mp4").kind:
        return None
    frames = _torch.tensor(decode(name, data))
    return frames, frames.new_empty((1, 0)), {}


def torch_audio(key: str, data: bytes) -> Any:
    """Decode sound into a float tensor (channels, frames) and its sampling rate.

    >>> torch_audio(".txt", b"no sound") is None
    True
    """
    name = extension(key)
    if codec_for(name).kind != codec_for("wav").kind:
        return None
    sound = decode(name, data)
    array = sound["array"]
    return _torch.tensor(array if array.ndim == 2 else array[:, None]).T, sound["sampling_rate"]

"""Which codec belongs to a field. A new format is one file and one line here."""

from __future__ import annotations

import importlib
from functools import lru_cache

from shoal.shards.codecs._codec import Codec
from shoal.shards.codecs._gzip import GzipCodec

__all__ = ["codec_for", "extension", "is_picture", "known_extensions"]

#: "module:Class" in this package -> the extensions it answers for
_TABLE = {
    "_integer:IntegerCodec": "cls cls2 class count index inx id",
    "_text:TextCodec": "txt text transcript html htm",
    "_json:JsonCodec": "json jsn",
    "_msgpack:MsgpackCodec": "mp msgpack msg",
    "_cbor:CborCodec": "cbor",
    "_npy:NpyCodec": "npy",
    "_npz:NpzCodec": "npz",
    "tenbin:TenbinCodec": "ten tenbin tb",
    "_pickle:PickleCodec": "pkl pickle pyd",
    "_torch:TorchCodec": "pth",
    "_image:ImageCodec": "png jpg jpeg jpe img image webp tif tiff bmp gif ppm pgm pbm pnm jp2 avif",
    "_audio:AudioCodec": "wav flac ogg mp3",
    "_video:VideoCodec": "mp4 mov mkv webm avi",
}
_MOST_WRAPPERS = 8  # a hostile name may end in any number of .gz
_TARGETS = {name: target for target, names in _TABLE.items() for name in names.split()}


# What is remembered of names is bounded: they come from the data, and a shard with a new name in every sample must not
# fill the memory.


def extension(field: str) -> str:
    """Give the extension of a field: what follows the last dot, in lower case.

    >>> extension("seg.PNG"), extension("cls"), extension("txt.gz")
    ('png', 'cls', 'gz')
    """
    return field.rpartition(".")[2].lower()


@lru_cache(maxsize=4096)
def is_picture(field: str) -> bool:
    """Tell whether the extension of a field promises a picture.

    >>> is_picture("seg.PNG"), is_picture("txt"), is_picture("png.gz")
    (True, False, False)
    """
    return _TARGETS.get(extension(field)) == "_image:ImageCodec"


def known_extensions() -> tuple[str, ...]:
    """List the extensions that have a codec, sorted; each may be followed by ``.gz``.

    >>> "png" in known_extensions()
    True
    """
    return tuple(sorted(_TARGETS))


@lru_cache(maxsize=4096)
def codec_for(field: str) -> Codec:
    """Give the codec of a field, importing it at the first use of its extension.

    >>> codec_for("page.html").kind, codec_for("page.unheard").kind
    ('UTF-8 text', 'bytes')
    """
    name = extension(field)
    if name == "gz" and field.lower().count(".gz") <= _MOST_WRAPPERS:
        return GzipCodec(codec_for(field[:-3]))
    target, _, attribute = _TARGETS.get(name, "_raw:RawCodec").partition(":")
    codec: Codec = getattr(importlib.import_module(f"shoal.shards.codecs.{target}"), attribute)(name)
    return codec

"""Field values as bytes and back, by the extension of the field.

A field's extension is what follows its last dot, in any case: ``seg.png`` is a png. A trailing ``.gz`` wraps any other:
``txt.gz`` is gzipped text, and its field keeps that name. What `decode` returns never looks into a memoryview it
was given, so a shard's buffer may be reused or unmapped at once.

==================================================== ==========================================================
extension                                            value
==================================================== ==========================================================
cls cls2 class count index inx id                    int
txt text transcript html htm                         str
json jsn, mp msgpack msg, cbor                       what the document holds
npy, npz                                             array, dict of arrays
ten tenbin tb                                        list of read-only arrays
pkl pickle pyd, pth                                  any object; decoded only with ``trust=True``
png jpg jpeg jpe img image webp tif tiff bmp gif     picture, see `DecodeOptions.images`
ppm pgm pbm pnm jp2 avif
wav flac ogg mp3                                     dict of ``array`` (float32) and ``sampling_rate``
mp4 mov mkv webm avi                                 uint8 array (frames, height, width, 3)
anything else                                        bytes
==================================================== ==========================================================

The codec of an extension is one module, imported when the extension is first met; the table is in ``_table``.
"""

from __future__ import annotations

from shoal.shards.codecs._codec import Codec, Data
from shoal.shards.codecs._field import decode, encode, open_picture
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._table import codec_for, extension, is_picture, known_extensions

__all__ = [
    "Codec",
    "Data",
    "DecodeOptions",
    "EncodeOptions",
    "codec_for",
    "decode",
    "encode",
    "extension",
    "is_picture",
    "known_extensions",
    "open_picture",
]

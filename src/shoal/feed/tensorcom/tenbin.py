"""Lists of arrays as bytes, in files (``.ten``) and in messages, under the names that Tensorcom has for it.

How an array is written is told in `shoal.shards.codecs.tenbin`. In a file, and in a message of a single part, each
header and each piece of data is a chunk with a prefix and padding; in a message of several parts it is a part.

>>> import numpy as np
>>> [array.tolist() for array in decode_buffer(encode_buffer([np.array([1, 2], "i4")]))]
[[1, 2]]
"""

from __future__ import annotations

from shoal.feed.tensorcom._arrays import (
    decode_buffer,
    decode_chunks,
    decode_header,
    decode_list,
    encode_buffer,
    encode_chunks,
    encode_header,
    encode_list,
    roundup,
    str64,
    unstr64,
)
from shoal.feed.tensorcom._messages import (
    sctp_recv,
    sctp_send,
    zrecv_multipart,
    zrecv_single,
    zsend_multipart,
    zsend_single,
)
from shoal.feed.tensorcom._streams import load, read, read_chunk, save, write, write_chunk

__all__ = [
    "decode_buffer",
    "decode_chunks",
    "decode_header",
    "decode_list",
    "encode_buffer",
    "encode_chunks",
    "encode_header",
    "encode_list",
    "load",
    "read",
    "read_chunk",
    "roundup",
    "save",
    "sctp_recv",
    "sctp_send",
    "str64",
    "unstr64",
    "write",
    "write_chunk",
    "zrecv_multipart",
    "zrecv_single",
    "zsend_multipart",
    "zsend_single",
]

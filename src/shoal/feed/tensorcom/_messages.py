"""Lists of arrays as messages of sockets that somebody else has opened."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from numpy.typing import NDArray

from shoal.errors import DecodeError
from shoal.feed.tensorcom._arrays import Infos, decode_buffer, decode_list, encode_buffer, encode_list

__all__ = ["sctp_recv", "sctp_send", "zrecv_multipart", "zrecv_single", "zsend_multipart", "zsend_single"]


def zsend_single(socket: Any, arrays: Sequence[NDArray[Any]], infos: Sequence[str] | None = None) -> None:
    """Send arrays as a message of a single part, by a socket of ZeroMQ.

    >>> import numpy as np, zmq
    >>> with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
    ...     _ = one.bind("inproc://pair"), other.connect("inproc://pair")
    ...     zsend_single(one, [np.array([1, 2], "i4")])
    ...     zrecv_single(other)
    [array([1, 2], dtype=int32)]
    """
    socket.send(encode_buffer(arrays, infos))


def zrecv_single(socket: Any, infos: Infos = False) -> Any:
    """Receive arrays as a message of a single part.

    >>> import numpy as np, zmq
    >>> with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
    ...     _ = one.bind("inproc://pair"), other.connect("inproc://pair")
    ...     zsend_single(one, [np.array([1, 2], "i4")])
    ...     zrecv_single(other)
    [array([1, 2], dtype=int32)]
    """
    parts = socket.recv_multipart()
    if len(parts) != 1:
        raise DecodeError(f"a message of {len(parts)} parts came, and a single one was expected; use zrecv_multipart")
    return decode_buffer(parts[0], infos)


def zsend_multipart(socket: Any, arrays: Sequence[NDArray[Any]], infos: Sequence[str] | None = None) -> None:
    """Send arrays as a message of two parts for each.

    >>> import numpy as np, zmq
    >>> with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
    ...     _ = one.bind("inproc://pair"), other.connect("inproc://pair")
    ...     zsend_multipart(one, [np.array([1, 2], "i4")])
    ...     zrecv_multipart(other)
    [array([1, 2], dtype=int32)]
    """
    socket.send_multipart(encode_list(arrays, infos))


def zrecv_multipart(socket: Any, infos: Infos = False) -> Any:
    """Receive arrays as a message of two parts for each.

    >>> import numpy as np, zmq
    >>> with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
    ...     _ = one.bind("inproc://pair"), other.connect("inproc://pair")
    ...     zsend_multipart(one, [np.array([1, 2], "i4")])
    ...     zrecv_multipart(other)
    [array([1, 2], dtype=int32)]
    """
    return decode_list(socket.recv_multipart(), infos)


def sctp_send(socket: Any, dest: Any, arrays: Sequence[NDArray[Any]], infos: Sequence[str] | None = None) -> None:
    """Send arrays as a message of SCTP, by a socket of the package ``pysctp``.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> stand_in = SimpleNamespace(sctp_send=lambda data, to: print(len(data), "bytes to", to))
    >>> sctp_send(stand_in, ("host", 7880), [np.zeros(3, "f4")])
    160 bytes to ('host', 7880)
    """
    socket.sctp_send(encode_buffer(arrays, infos), to=dest)


def sctp_recv(socket: Any, infos: Infos = False, maxsize: int = 100000000) -> Any:
    """Let the next one connect who sends arrays by SCTP, and receive them.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> data = encode_buffer([np.array([7], "u1")])
    >>> client = SimpleNamespace(sctp_recv=lambda size: (None, 0, data, None), close=lambda: None)
    >>> sctp_recv(SimpleNamespace(accept=lambda: (client, "host")))
    [array([7], dtype=uint8)]
    """
    client, _ = socket.accept()
    with closing(client):
        _, _, data, _ = client.sctp_recv(maxsize)
    return decode_buffer(data, infos)

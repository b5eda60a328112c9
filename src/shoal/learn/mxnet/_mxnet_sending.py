"""Functions on their way to an environment with another numpy: arrays in them go as bytes, which any numpy takes."""

from __future__ import annotations

import io
from typing import Any

import cloudpickle
import numpy as np

__all__ = ["sent"]


def sent(value: Any) -> bytes:
    """Pickle something for numpy 1, which does not know the names that numpy 2 has for what makes an array.

    >>> import pickle
    >>> b"_core" in pickle.dumps(np.arange(3)), b"_core" in sent(lambda: np.arange(3) + np.float32(1))
    (True, False)
    >>> pickle.loads(sent({"a": np.arange(3)}))
    {'a': array([0, 1, 2])}
    """
    buffer = io.BytesIO()
    _Sender(buffer).dump(value)
    return buffer.getvalue()


class _Sender(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes apart what belongs to one numpy alone."""

    def reducer_override(self, value: Any) -> Any:
        """Say how an array is made of bytes, and a scalar of a number."""
        if type(value) is np.ndarray and not value.dtype.hasobject and value.dtype.names is None:
            return np.ndarray, (value.shape, value.dtype.str, bytearray(value.tobytes()))
        if isinstance(value, np.number):
            return type(value), (value.item(),)
        return super().reducer_override(value)

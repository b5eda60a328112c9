"""Tensors: the pth codec, and pictures as torch knows them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal._optional import require
from shoal.errors import EncodeError
from shoal.shards.codecs._codec import Data
from shoal.shards.codecs._options import DecodeOptions, EncodeOptions
from shoal.shards.codecs._pickle import refuse_untrusted

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

__all__ = ["TorchCodec", "channels_first", "channels_last"]


@dataclass(frozen=True, slots=True)
class TorchCodec:
    """Write what torch.save writes, and read it on the CPU where the data is trusted.

    >>> data = TorchCodec("pth").encode([1, "two"], EncodeOptions())
    >>> TorchCodec("pth").decode(data, DecodeOptions(trust=True))
    [1, 'two']
    """

    extension: str
    kind = "an object saved by torch"

    def decode(self, data: Data, options: DecodeOptions) -> Any:
        """Load, only if told to trust the data."""
        refuse_untrusted(self.extension, options)
        return _library().load(io.BytesIO(data), map_location="cpu", weights_only=False)

    def encode(self, value: Any, options: EncodeOptions) -> bytes:
        """Save."""
        file = io.BytesIO()
        _library().save(value, file)
        return file.getvalue()


def channels_first(array: NDArray[Any]) -> torch.Tensor:
    """Give an array as a tensor, its last axis first unless it has only two."""
    turned = array if array.ndim == 2 else array.transpose(2, 0, 1).copy()
    tensor: torch.Tensor = _library().from_numpy(turned)
    return tensor


def channels_last(tensor: torch.Tensor) -> NDArray[Any]:
    """Give a (height, width) or (1, 3 or 4, height, width) tensor as an array with its channels last."""
    if tensor.ndim == 3 and tensor.shape[0] in (1, 3, 4):
        tensor = tensor.permute(1, 2, 0)
    elif tensor.ndim != 2:
        raise EncodeError(
            f"a tensor of shape {tuple(tensor.shape)} is not a picture with channels first; "
            "use tensor.permute(2, 0, 1) on (height, width, channels), or pass tensor.numpy()"
        )
    return tensor.detach().cpu().numpy()


def _library() -> Any:
    return require("torch", "reading and writing torch tensors")

"""WebDataset, old and new, over Shoal's own tar reader.

>>> from shoal.webdataset import WebDataset
>>> WebDataset("train-{0000..0147}.tar", extensions="jpg cls").urls[-1]
'train-0147.tar'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._lazy import attach

if TYPE_CHECKING:
    from shoal.webdataset._batch import batched, default_collation_fn, unbatched
    from shoal.webdataset._dataset import WebDataset
    from shoal.webdataset._decode import Decoder, DecodingError, decode, handle_extension
    from shoal.webdataset._distributed import distributed_map_unordered
    from shoal.webdataset._filters import associate, map, map_dict, map_tuple, rename, select, to_tuple
    from shoal.webdataset._formats import (
        Continue,
        basichandlers,
        gzfilter,
        imagehandler,
        torch_audio,
        torch_video,
    )
    from shoal.webdataset._handlers import (
        ignore_and_continue,
        ignore_and_stop,
        reraise_exception,
        warn_and_continue,
        warn_and_stop,
    )
    from shoal.webdataset._keys import extract_keys, rename_keys, xdecode
    from shoal.webdataset._read import tarfile_to_samples
    from shoal.webdataset._shardlists import ResampledShards, SimpleShardList, resampled
    from shoal.webdataset._split import single_node_only, split_by_node, split_by_worker
    from shoal.webdataset._stream import (
        Cached,
        detshuffle,
        info,
        listed,
        log_keys,
        non_empty,
        rsample,
        shuffle,
        slice,
        unlisted,
    )
    from shoal.webdataset._urls import url_to_cache_name
    from shoal.webdataset._wrappers import DataPipeline, FluidWrapper, MockDataset, RandomMix, RoundRobin, WebLoader
    from shoal.webdataset.writer import ShardWriter, TarWriter

_HOMES = {
    "_batch": ("batched", "default_collation_fn", "unbatched"),
    "_dataset": ("WebDataset",),
    "_decode": ("Decoder", "DecodingError", "decode", "handle_extension"),
    "_distributed": ("distributed_map_unordered",),
    "_filters": ("associate", "map", "map_dict", "map_tuple", "rename", "select", "to_tuple"),
    "_formats": ("Continue", "basichandlers", "gzfilter", "imagehandler", "torch_audio", "torch_video"),
    "_handlers": (
        "ignore_and_continue",
        "ignore_and_stop",
        "reraise_exception",
        "warn_and_continue",
        "warn_and_stop",
    ),
    "_keys": ("extract_keys", "rename_keys", "xdecode"),
    "_read": ("tarfile_to_samples",),
    "_shardlists": ("ResampledShards", "SimpleShardList", "resampled"),
    "_split": ("single_node_only", "split_by_node", "split_by_worker"),
    "_stream": (
        "Cached",
        "detshuffle",
        "info",
        "listed",
        "log_keys",
        "non_empty",
        "rsample",
        "shuffle",
        "slice",
        "unlisted",
    ),
    "_urls": ("url_to_cache_name",),
    "_wrappers": ("DataPipeline", "FluidWrapper", "MockDataset", "RandomMix", "RoundRobin", "WebLoader"),
    "writer": ("ShardWriter", "TarWriter"),
}

__all__ = [
    "Cached",
    "Continue",
    "DataPipeline",
    "Decoder",
    "DecodingError",
    "FluidWrapper",
    "MockDataset",
    "RandomMix",
    "ResampledShards",
    "RoundRobin",
    "ShardWriter",
    "SimpleShardList",
    "TarWriter",
    "WebDataset",
    "WebLoader",
    "associate",
    "basichandlers",
    "batched",
    "decode",
    "default_collation_fn",
    "detshuffle",
    "distributed_map_unordered",
    "extract_keys",
    "gzfilter",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "imagehandler",
    "info",
    "listed",
    "log_keys",
    "map",
    "map_dict",
    "map_tuple",
    "non_empty",
    "rename",
    "rename_keys",
    "reraise_exception",
    "resampled",
    "rsample",
    "select",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tarfile_to_samples",
    "to_tuple",
    "torch_audio",
    "torch_video",
    "unbatched",
    "unlisted",
    "url_to_cache_name",
    "warn_and_continue",
    "warn_and_stop",
    "xdecode",
]

__getattr__, __dir__ = attach(__name__, _HOMES)

"""Which sample comes when: pure functions of seed, epoch and position, without threads or IO."""

from shoal.order._digest import add_one_to_digest, add_to_digests, merge_digests
from shoal.order._elements import Anchor, ElementOrder, Ids, Lengths, Located, Walk, sample_id, sample_ids
from shoal.order._keys import Hashes, combine, combine_one, derive, scramble
from shoal.order._lanes import LANES, Part, lane_share, own_lanes, rank_part, slot_owner
from shoal.order._mixture import Mixing, Weights
from shoal.order._permute import permutation, permute, permute_in_chunks
from shoal.order._report import Batching, ShuffleReport, ShuffleRow, Stock, shuffle_report
from shoal.order._shuffle import Shuffle
from shoal.order._streams import StreamOrder, Turn

__all__ = [
    "LANES",
    "Anchor",
    "Batching",
    "ElementOrder",
    "Hashes",
    "Ids",
    "Lengths",
    "Located",
    "Mixing",
    "Part",
    "Shuffle",
    "ShuffleReport",
    "ShuffleRow",
    "Stock",
    "StreamOrder",
    "Turn",
    "Walk",
    "Weights",
    "add_one_to_digest",
    "add_to_digests",
    "combine",
    "combine_one",
    "derive",
    "lane_share",
    "merge_digests",
    "own_lanes",
    "permutation",
    "permute",
    "permute_in_chunks",
    "rank_part",
    "sample_id",
    "sample_ids",
    "scramble",
    "shuffle_report",
    "slot_owner",
]

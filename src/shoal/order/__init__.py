"""Which sample comes when: pure functions of seed, epoch and position, without threads or IO."""

from shoal.order._ranks import Part, rank_part, slot_owner
from shoal.order._shuffle import Shuffle, epoch_order

__all__ = ["Part", "Shuffle", "epoch_order", "rank_part", "slot_owner"]

"""Feature levels, and what came with each.

A level is what all members of a cluster do on the wire and in their files. A build can do a range of levels; the view
has the one in force. A member sends and writes at that level, and reads any level of its range.

| level | since | what is new |
|-------|-------|-------------|
| 1 | the first build with levels | stores travel and are written down one by one, and chunks as columns |
| 2 | the same build | stores that say nothing else are packed: in messages, in chunks, and in the journal (format 2) |
| 2 | the same build | an operator may evict a member that has ended (membership/V-9) |
| 3 | the first build that forgets maps | destroyed maps are forgotten, and begin again by a record (journal format 3) |
| 3 | the same build | two members exchange their slots in one migration (EXCHANGE) |
| 4 | the first build that changes maps in use | settings of maps are part of the view (membership/C-1) |
| 5 | the first build with one replica for both engines | updates of maps in zones have terms (raft_partition/Z-6) |
| 5 | the same build | maps in zones are cut (raft_partition/Z-7), journal format 4 |
| 5 | the same build | a replica of a zone is rebuilt from its leader's state (multiraft/H-9) |
| 5 | the same build | a group may serve several client partitions (raft_partition/R-3) |
| 6 | the first build that starts a metastore in use | the founding of the metastore is part of the view (model/F-1) |
| 7 | the first build that moves maps between engines | moves of maps are part of the view (model/M-1) |
| 7 | the same build | changed settings of maps are reset (model/C-2) |
| 8 | the first build that forwards frames | requests of clients are forwarded as they came (routing/R-14) |
| 8 | the same build | maximum idle times in zones (raft_partition/Z-9) |
| 8 | the same build | leaders of zones send invalidations for near caches (streams/E-1) |
| 9 | the first build that removes leftovers | a map from before is forgotten where it moves to (raft_partition/Z-11) |
| 10 | the first build with locks on primaries alone | backups hold no locks (store/K-1) |
| 11 | the first build with message batches | frequent messages of one step to one member are one message |
| 11 | the same build | transactions have branches in zones |
| 12 | the first build with queues, lists and sets | steps of collections, and their withdrawal (collections/C-1) |
| 13 | the first build with more structures | steps of structures other than queues, lists and sets |

To add a level: add a line here and in `SEGMENT_FORMATS`, raise `HIGHEST`, and check `Outbox.level` where the new thing
is sent or written (`docs/upgrading.md`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

LOWEST: Final = 1
HIGHEST: Final = 13
PACKED: Final = 2
EVICTS: Final = 2
FORGETS: Final = 3
EXCHANGES: Final = 3
CHANGES_MAPS: Final = 4
ZONE_COUNTERS: Final = 5
ZONE_CUTS: Final = 5
ZONE_REPAIRS: Final = 5
"""A replica of a zone can be rebuilt from its leader's state."""
SHARED_GROUPS: Final = 5
"""Maps can live in zones with fewer partitions than the cluster."""
STARTS_METASTORE: Final = 6
"""The founding of the metastore is part of the view."""
MOVES_MAPS: Final = 8
RESETS_MAPS: Final = 7
ZONE_NEAR_CACHES: Final = 8
ZONE_IDLE_TIMES: Final = 8
FORWARDS_FRAMES: Final = 8
FORGETS_LEFT_OVER: Final = 9
"""Replicas of zones forget what is left over of a map that moves there."""
PRIMARY_LOCKS: Final = 10
"""A primary stores locks of transactions only at a handover."""
ZONE_TRANSACTIONS: Final = 11
"""Transactions have branches in zones."""
MESSAGE_BATCHES: Final = 11
"""Frequent messages of one step to one member are one message."""
COLLECTIONS: Final = 12
"""Members decide steps of queues, lists and sets."""
STRUCTURES: Final = 13
"""Members decide steps of the structures that came after them."""

SEGMENT_FORMATS: Final = {1: 1, 2: 2, 3: 3, 4: 3, 5: 4, 6: 4, 7: 4, 8: 4, 9: 4, 10: 4, 11: 4, 12: 4, 13: 4}
"""Level -> format of journal segments."""


class FeatureLevels(msgspec.Struct, frozen=True, array_like=True):
    lowest: int = LOWEST
    highest: int = LOWEST

    def can(self, level: int) -> bool:
        return self.lowest <= level <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


OF_THIS_BUILD: Final = FeatureLevels(LOWEST, HIGHEST)


def common(everyone: Iterable[FeatureLevels]) -> int:
    """0: none."""
    known = list(everyone)
    highest = min((levels.highest for levels in known), default=0)
    return highest if all(levels.can(highest) for levels in known) else 0


def segment_format(level: int) -> int:
    return SEGMENT_FORMATS[level]

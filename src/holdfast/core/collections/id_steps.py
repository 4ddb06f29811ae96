"""Steps of a generator of ids: numbers of 63 bits, as Hazelcast's flake ids.

An id is the milliseconds since 2018 (41 bits), a number in the millisecond (6 bits), and a lane (16 bits), which is a
member's number in Hazelcast. Lane 0 is enough for 64,000 ids in a second; while it is used up, the next one serves.

- collections/I-1: An id is given once. In its lane it is higher than all before, also if the clock was set back, or the
  next primary has another clock. The highest ids are entries.
- collections/I-2: Ids are at most `AHEAD_MS` ahead of the clock. So a generator that has lost its entries gives no id
  again if that time has passed, and no clock was set back.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.model.collections import CollectionStep
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.records import Change

EPOCH_MS = 1_514_764_800_000
LANE_BITS = 16
NUMBER_BITS = 6
ID_STEP = 1 << LANE_BITS
"""Between the ids of a batch."""
LANES = 64
LANE_BYTES, SLOT_BYTES = 2, 8
AHEAD_MS = 5_000


def decide_ids(entries: Mapping[bytes, bytes], step: CollectionStep, wall_ms: int) -> Decision:
    now = max(0, wall_ms - EPOCH_MS) << NUMBER_BITS
    for lane in range(LANES):
        key = lane.to_bytes(LANE_BYTES, "big")
        first = max(now, int.from_bytes(entries.get(key, b""), "big"))
        end = first + step.count
        if end <= now + (AHEAD_MS << NUMBER_BITS):
            update = Update(Change.SET, key, end.to_bytes(SLOT_BYTES, "big"), 0, 0)
            return Decision(first << LANE_BITS | lane, (update,))
    return Decision(
        refused=f"all ids up to {AHEAD_MS // 1000} s ahead of the clock are given: the clock was set back, or too many "
        "ids were requested"
    )

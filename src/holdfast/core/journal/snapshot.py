"""The content of a checkpoint."""

from __future__ import annotations

from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.outbox import Outbox
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica


def snapshot_of(copy: PartitionCopy, out: Outbox) -> Snapshot | None:
    """None if there is nothing. Costs two lists for each map and copies no bytes. Services are written as pieces
    instead of entries.
    """
    maps = [_taken(held, out.now_ns) for held in copy if held.journal != "off" and held.updates.hwm]
    # A request of a map that is not journalled must not be known when its effect is gone.
    whole = all(held.journal != "off" or not held.updates.hwm for held in copy)
    requests = copy.requests.encode() if whole else b""
    return Snapshot(copy.partition, copy.epoch, maps, requests, out.wall_ms()) if maps else None


def _taken(held: AnyReplica, now_ns: int) -> MapSnapshot:
    taken = MapSnapshot(held.name, list(held.lineage), held.updates.encode(), [], [])
    held.state.write_to(taken, now_ns)
    assert len(taken.keys) == len(taken.values), "columns are of one length"
    return taken

"""What a checkpoint holds of a copy: its journalled maps, at one moment between two steps."""

from __future__ import annotations

from holdfast.core.machine import Outbox
from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.store.partition import PartitionCopy
from holdfast.core.store.replica import MapReplica


def snapshot_of(copy: PartitionCopy, out: Outbox) -> Snapshot | None:
    """The content of the copy's journalled maps at the time of the step; None when there is none.

    Costs two lists a map, no copy of bytes.
    """
    maps = [
        _map(held, out.now_ns)
        for held in copy.maps.values()
        if held.journal != "off" and held.updates.highest_applied
    ]
    # A request of a map that is not written down must not be known when what it did is gone.
    whole = all(held.journal != "off" for held in copy.maps.values())
    requests = copy.requests.encode() if whole else b""
    return Snapshot(copy.partition, copy.epoch, maps, requests, out.wall_ms()) if maps else None


def _map(held: MapReplica, now_ns: int) -> MapSnapshot:
    keys = list(held.state.entries)
    taken = MapSnapshot(
        held.name, list(held.lineage), held.updates.encode(), keys, list(held.state.entries.values())
    )
    if held.state.expiries:
        expiries = [held.state.expiries.get(key) for key in keys]
        taken.ttls_ms.extend(one.remaining_ttl_ms(now_ns) if one else 0 for one in expiries)
        taken.max_idles_ms.extend(one.max_idle_ms if one else 0 for one in expiries)
    if held.state.hashes:
        taken.key_hashes.extend(held.state.hashes.get(key, 0) for key in keys)
    return taken

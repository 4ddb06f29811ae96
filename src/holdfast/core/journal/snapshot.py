"""What a checkpoint holds of a copy: its journalled maps and services, at one moment between two steps."""

from __future__ import annotations

from holdfast.core.machine import Outbox
from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition import PartitionCopy
from holdfast.core.store.replica import AnyReplica
from holdfast.core.store.service_state import ServiceState

PLACE_BYTES = 8
"""Of the place of a piece, which stands where the key of an entry does."""


def snapshot_of(copy: PartitionCopy, out: Outbox) -> Snapshot | None:
    """The content of what is journalled of the copy at the time of the step; None when there is nothing.

    Costs two lists a map, no copy of bytes. Of a service its pieces are taken, in the place of entries.
    """
    maps = [
        _map(held, held.state, out.now_ns) if isinstance(held.state, MapState) else _service(held, held.state)
        for held in copy
        if held.journal != "off" and held.updates.highest_applied
    ]
    # A request of a map that is not written down must not be known when what it did is gone.
    whole = all(held.journal != "off" or not held.updates.highest_applied for held in copy)
    requests = copy.requests.encode() if whole else b""
    return Snapshot(copy.partition, copy.epoch, maps, requests, out.wall_ms()) if maps else None


def _service(held: AnyReplica, state: ServiceState) -> MapSnapshot:
    pieces = list(state.share.supply())
    places = [place.to_bytes(PLACE_BYTES, "big") for place in range(len(pieces))]
    return MapSnapshot(held.name, list(held.lineage), held.updates.encode(), places, pieces)


def _map(held: AnyReplica, state: MapState, now_ns: int) -> MapSnapshot:
    keys = list(state.entries)
    taken = MapSnapshot(
        held.name, list(held.lineage), held.updates.encode(), keys, list(state.entries.values())
    )
    if state.expiries:
        expiries = [state.expiries.get(key) for key in keys]
        taken.ttls_ms.extend(one.remaining_ttl_ms(now_ns) if one else 0 for one in expiries)
        taken.max_idles_ms.extend(one.max_idle_ms if one else 0 for one in expiries)
    if state.hashes:
        taken.key_hashes.extend(state.hashes.get(key, 0) for key in keys)
    return taken

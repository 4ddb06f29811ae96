"""Commands of operators on zones, each one guarded invoke.

- zones/A-7: A zone is created together with its first assignments, or not at all. A zone whose filter no member passes
  is rejected before anything is written.
- zones/A-8: No two zones have the same name, and no zone number is used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.metastore.invoke import If, PutKey, RemoveKey
from holdfast.core.zones.data_nodes import (
    data_nodes_changes,
    data_nodes_of,
    filter_altered,
    waits_altered,
)
from holdfast.core.zones.descriptors import (
    ClusterTopology,
    DataNodesEntry,
    ZoneDescriptor,
    ZoneRefused,
    ZoneSettings,
    checked,
    quorums,
)
from holdfast.core.zones.rendezvous import initial_changes
from holdfast.core.zones.transitions import Consistency
from holdfast.core.zones.zone_keys import (
    IDS_KEY,
    TOPOLOGY_KEY,
    KeysRead,
    encoded,
    name_key,
    part_keys,
    zone_key,
)


def created(read: KeysRead, settings: ZoneSettings, now_ms: int) -> tuple[ZoneDescriptor, If]:
    """Create a zone. Needs `creation_keys`. Raises ZoneRefused."""
    checked(settings)
    if read.entry(name_key(settings.name)).exists:
        raise ZoneRefused(f"there is a zone {settings.name} already")
    topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
    nodes = settings.taken(topology)
    if not nodes:
        raise ZoneRefused(
            f"zone {settings.name}: none of the {len(topology.members)} members passes its filter: "
            "no member could hold a partition"
        )
    number = (read.value(IDS_KEY, int) or 0) + 1
    zone = ZoneDescriptor(number, settings)
    history = (DataNodesEntry(now_ms, tuple(sorted(nodes))),)
    changes: list[PutKey | RemoveKey] = [
        PutKey(IDS_KEY, encoded(number)),
        PutKey(name_key(settings.name), encoded(number)),
        PutKey(zone_key(number, "descriptor"), encoded(zone)),
        PutKey(zone_key(number, "history"), encoded(history)),
        *initial_changes(zone, topology),
    ]
    return zone, read.guarded(changes)


def creation_keys(settings: ZoneSettings) -> list[bytes]:
    return [IDS_KEY, TOPOLOGY_KEY, name_key(settings.name)]


def found_zone(read: KeysRead, name: str) -> ZoneDescriptor:
    """Find a zone by its name. Needs the key of the name, then the descriptor. Raises ZoneRefused."""
    number = read.value(name_key(name), int)
    zone = None if number is None else read.value(zone_key(number, "descriptor"), ZoneDescriptor)
    if zone is None:
        raise ZoneRefused(f"there is no zone {name}")
    return zone


def altered(
    read: KeysRead, name: str, changes: Mapping[str, object], now_ms: int
) -> tuple[ZoneDescriptor, If]:
    """Alter settings of a zone, with the immediate effect on its data nodes. Needs the key of its name, its descriptor,
    its data nodes and the topology. Raises ZoneRefused.
    """
    zone = found_zone(read, name)
    fixed = sorted(changes.keys() & {"name", "partitions"})
    if fixed:
        why = {"name": "a zone is renamed apart", "partitions": "keys would belong to other partitions"}
        raise ZoneRefused(f"zone {name}: {fixed[0]} cannot be altered: {why[fixed[0]]}")
    unknown = sorted(changes.keys() - set(ZoneSettings.__struct_fields__))
    if unknown:
        raise ZoneRefused(f"zone {name}: there is no setting {unknown[0]!r}")
    settings = msgspec.structs.replace(zone.settings, **dict(changes))
    if "quorum" not in changes and settings.voters_needed not in quorums(settings.replicas):
        settings = msgspec.structs.replace(settings, quorum=None)
    checked(settings)
    if (settings.consistency is Consistency.HIGH_AVAILABILITY) != (
        zone.settings.consistency is Consistency.HIGH_AVAILABILITY
    ):
        raise ZoneRefused(
            f"zone {name}: consistency cannot be altered: what was in force before is not known"
        )
    before = data = data_nodes_of(read, zone.id)
    if "filter" in changes:
        topology = read.value(TOPOLOGY_KEY, ClusterTopology) or ClusterTopology()
        if not settings.taken(topology):
            raise ZoneRefused(f"zone {name}: no member passes that filter, so none could hold a partition")
        data = filter_altered(data, settings.taken(topology), now_ms)
    data = waits_altered(data, settings, now_ms)
    after = ZoneDescriptor(zone.id, settings)
    puts = [
        PutKey(zone_key(zone.id, "descriptor"), encoded(after)),
        *data_nodes_changes(zone.id, before, data),
    ]
    return after, read.guarded(puts)


def renamed(read: KeysRead, name: str, wanted: str) -> tuple[ZoneDescriptor, If]:
    """Rename a zone. Needs the keys of both names and the descriptor. Raises ZoneRefused."""
    zone = found_zone(read, name)
    settings = msgspec.structs.replace(zone.settings, name=wanted)
    checked(settings)
    if read.entry(name_key(wanted)).exists:
        raise ZoneRefused(f"there is a zone {wanted} already")
    after = ZoneDescriptor(zone.id, settings)
    changes: list[PutKey | RemoveKey] = [
        RemoveKey(name_key(name)),
        PutKey(name_key(wanted), encoded(zone.id)),
        PutKey(zone_key(zone.id, "descriptor"), encoded(after)),
    ]
    return after, read.guarded(changes)


ZONE_FIELDS: Final = ("descriptor", "history", "up", "down", "layout", "recovery")


def dropped(read: KeysRead, name: str) -> tuple[ZoneDescriptor, If]:
    """Drop a zone, even while its replicas move. Needs the key of its name and its descriptor. Raises ZoneRefused."""
    zone = found_zone(read, name)
    changes: list[PutKey | RemoveKey] = [RemoveKey(name_key(name))]
    changes += [RemoveKey(zone_key(zone.id, field)) for field in ZONE_FIELDS]
    for partition in range(zone.settings.partitions):
        changes += [RemoveKey(key) for key in part_keys(zone.id, partition)]
    return zone, read.guarded(changes)

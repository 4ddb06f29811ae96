"""Compares the replicas in the files of stopped or copied members. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.client.replica_questions import EntryCopy, ReplicaPage
from holdfast.config.local_paths import local_path
from holdfast.core.model.ids import GROUPS_FROM, place_of
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica_comparison import Finding, ReplicaDigest, compare_with_newest
from holdfast.errors import ConfigError
from holdfast.replica_comparison.comparison_report import Notes, Report
from holdfast.replica_comparison.key_differences import Differences, keys_that_differ
from holdfast.replica_comparison.stores import StoreState, read_store


@dataclass(frozen=True)
class FilesSource:
    """The directories of members; pickled. Each task reads its share of the partitions from all of them."""

    folders: tuple[str, ...]
    maps: tuple[str, ...] = ()

    @classmethod
    def of(cls, folders: Sequence[str | Path], maps: Sequence[str] = ()) -> FilesSource:
        """Raises ConfigError for fewer than two directories, and for URIs."""
        paths = tuple(dict.fromkeys(str(Path(local_path(folder)).absolute()) for folder in folders))
        if len(paths) < 2:
            raise ConfigError("a comparison of files needs the directories of two members, or more")
        return cls(paths, tuple(maps))

    def compare(self, part: int, parts: int, notes: Notes) -> list[Finding]:
        """Compare the partitions whose remainder by `parts` is `part`."""
        groups: dict[tuple[int, str], list[ReplicaDigest]] = {}
        zones: dict[tuple[int, int], list[_ZoneReplica]] = {}
        """By number of the zone, and partition."""
        for folder, label in zip(self.folders, self._labels(), strict=True):
            state = read_store(folder, lambda partition: partition % parts == part)
            if part == 0:
                notes.damage += [f"{label}: {each}" for each in state.damage]
            notes.damage += [f"{label}: {each}" for each in state.zone_doubts]
            notes.damage += [
                f"{label}: partition {partition}: {why}"
                for partition, why in state.uncertain.items()
                if partition not in state.copies
            ]
            for one in _digests_in(state, label):
                notes.maps.add(one.map)
                if not one.empty and (not self.maps or one.map in self.maps):
                    groups.setdefault((one.partition, one.map), []).append(one)
            for zone, partition, one_of_zone in _zone_replicas_in(state, label):
                notes.maps.update(one_of_zone.maps)
                zones.setdefault((zone, partition), []).append(one_of_zone)
        found = [finding for group in groups.values() for finding in compare_with_newest(group)]
        return found + [
            msgspec.structs.replace(finding, zone=str(zone))
            for (zone, partition), replicas in zones.items()
            for finding in _compare_in_zone(partition, replicas, self.maps)
        ]

    def differences(self, findings: Sequence[Finding]) -> Differences | None:
        partition, name, zone = findings[0].partition, findings[0].map, findings[0].zone
        wanted = {one for finding in findings for one in (finding.reference, finding.member)}
        parts: dict[str, ReplicaPage] = {}
        for folder, label in zip(self.folders, self._labels(), strict=True):
            if label in wanted:
                copy = _copy_in(folder, partition, zone)
                held = copy.maps.get(name) if copy is not None else None
                entries = held.state.entries if held is not None else {}
                parts[label] = ReplicaPage(0, {key: EntryCopy(value) for key, value in entries.items()})
        nothing = ReplicaPage(0, {})
        return Differences(partition, name, tuple(parts), keys_that_differ(parts, nothing, nothing))

    def _labels(self) -> list[str]:
        return labels_of([read_store(folder, lambda partition: False) for folder in self.folders])

    def check(self) -> Report:
        """An empty report about these directories. Raises ConfigError when they cannot be compared."""
        states = [read_store(folder, lambda partition: False) for folder in self.folders]
        clusters = {state.cluster_id for state in states if state.cluster_id}
        if len(clusters) > 1:
            raise ConfigError(f"the directories are of several clusters: {', '.join(sorted(clusters))}")
        return Report(sources=labels_of(states))


def _copy_in(folder: str, partition: int, zone: str) -> PartitionCopy | None:
    if not zone:
        return read_store(folder, lambda number: number == partition).copies.get(partition)
    state = read_store(folder, lambda number: number >= GROUPS_FROM and str(place_of(number)[0]) == zone)
    copies = [replica.copies[partition] for replica in state.zones if partition in replica.copies]
    return copies[0] if copies else None


def labels_of(states: Sequence[StoreState]) -> list[str]:
    """Distinct labels: the member's name, or the directory if two have the same name."""
    labels = [state.label for state in states]
    return [
        label if labels.count(label) == 1 else state.folder
        for label, state in zip(labels, states, strict=True)
    ]


def _digests_in(state: StoreState, label: str) -> list[ReplicaDigest]:
    found: list[ReplicaDigest] = []
    for partition, copy in state.copies.items():
        for held in copy.maps.values():
            doubt = state.uncertain.get(partition, "")
            if not held.updates.sequential:
                doubt = doubt or "it was being filled"
            lineage = tuple(held.proven_lineage())
            size, digest = len(held.state.entries), held.state.digest()
            found.append(
                ReplicaDigest(
                    label,
                    partition,
                    held.name,
                    held.counter,
                    size,
                    digest,
                    copy.epoch,
                    lineage,
                    doubt=doubt,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class _ZoneReplica:
    label: str
    index: int
    """The last applied entry of its log."""
    maps: dict[str, ReplicaDigest]


def _zone_replicas_in(state: StoreState, label: str) -> Iterator[tuple[int, int, _ZoneReplica]]:
    """With the number of the zone and the partition. Replicas of a partition are equal at one index of its log."""
    for replica in state.zones:
        for partition, copy in replica.copies.items():
            maps = {
                held.name: ReplicaDigest(
                    label,
                    partition,
                    held.name,
                    held.counter,
                    len(held.state.entries),
                    held.state.digest(),
                    lineage=tuple(held.proven_lineage()),
                    index=replica.index,
                )
                for held in copy.maps.values()
            }
            yield replica.zone, partition, _ZoneReplica(label, replica.index, maps)


def _compare_in_zone(
    partition: int, replicas: Sequence[_ZoneReplica], wanted: Sequence[str]
) -> Iterator[Finding]:
    """Map by map. A replica without a map that another one has lacks its entries, if it has applied the same log."""
    names = {one.map for replica in replicas for one in replica.maps.values() if not one.empty}
    for name in sorted(names):
        if not wanted or name in wanted:
            yield from compare_with_newest(
                [
                    replica.maps.get(name)
                    or ReplicaDigest(replica.label, partition, name, 0, 0, 0, index=replica.index)
                    for replica in replicas
                ]
            )

"""Compares the replicas of the Raft partitions of zones, also under load.

A cut of the zone's maps is an entry of each partition's log, and every replica keeps the content of the maps when it
applies the entry (raft_partition/Z-7). So replicas are compared at one index, whatever is written meanwhile, and one
look decides. A replica that has not reached the cut is asked again. One that keeps nothing of it, because a snapshot
from behind it has filled the replica, is compared at another cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.actions.show_zones import ListZones, ShowLeaders, ShowZone
from holdfast.client.action_messages import ask_on, ask_status
from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, end_cut, take_cut
from holdfast.client.replica_questions import CANNOT_ASK, ask_digests
from holdfast.core.model.zone_answers import ZoneDetails, ZoneList, ZonePartitionTold
from holdfast.core.store.replica_comparison import Finding, ReplicaDigest, compare_with_newest
from holdfast.errors import Denied, NotReady, Refused, Unsupported
from holdfast.replica_comparison.comparison_report import Report
from holdfast.wire import own

ROUNDS = 4
"""Cuts of a partition at most."""
LEADERLESS_ROUNDS = 10
"""Attempts to take a cut; with the pauses between them longer than several elections."""
LOOKS = 12
"""How often at most a replica is asked whether it has reached a cut."""
PAUSE_S = 0.1
"""After the first look; each further pause is longer by the same."""
CUT_S = 10.0
LEASE_S = 120.0

Progress = Callable[[int, int, int], None]
Pause = Callable[[float], None]


def zone_maps(client: Client) -> dict[str, str]:
    """Maps that live in a zone, with its name, by the members that respond. Raises NotReady if none does."""
    found: dict[str, str] = {}
    for member in client.table().members:
        try:
            found |= ask_status(client.to(member)).zone_maps
        except CANNOT_ASK:
            continue
    return found


def compare_zones(
    client: Client,
    report: Report,
    maps: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    *,
    progress: Progress = lambda decided, total, looks: None,
    pause: Pause = time.sleep,
) -> None:
    """Compare the replicas of all maps in zones, or of these maps and partitions. Raises NotReady."""
    if client.status().metastore is None:
        return
    housed = {name: zone for name, zone in zone_maps(client).items() if not maps or name in maps}
    try:
        answer: ZoneList = client.query(ListZones())
    except (NotReady, Unsupported) as failed:
        report.zones_unknown = str(failed)
        return
    there = {zone.name: zone for zone in answer.zones}
    report.maps_without_zone = {name: zone for name, zone in sorted(housed.items()) if zone not in there}
    for zone in there.values():
        names = sorted(name for name, its_zone in housed.items() if its_zone == zone.name)
        if maps and not names:
            continue
        count = int(zone.settings["partitions"])
        if count > client.partition_count:
            names = []  # No map can be written there.
        chosen = list(range(client.partition_count) if partitions is None else partitions)
        report.zones[zone.name] = len(chosen)
        for begin in range(0, len(names), own.CUT_MAPS_MAX):
            some = names[begin : begin + own.CUT_MAPS_MAX]
            comparison = ZoneComparison(client, zone.name, count, some, report.names)
            report.findings += comparison.run(chosen, progress, pause)


class ZoneComparison:
    def __init__(
        self, client: Client, name: str, count: int, maps: Sequence[str], names: dict[str, str]
    ) -> None:
        """`count`: the zone's partitions. `names`: receives the names of absent members by node."""
        self._client = client
        self._name = name
        self._count = count
        self._maps = maps
        self._only = maps[0] if len(maps) == 1 else None
        self._names = names
        self._nodes: Mapping[str, str] = {}

    def run(self, partitions: Sequence[int], progress: Progress, pause: Pause) -> list[Finding]:
        """Compare these client partitions, until every replica is compared or has had time enough."""
        found: dict[int, list[Finding]] = {}
        left = list(partitions)
        for turn in range(1, LEADERLESS_ROUNDS + 1):
            try:
                shown: ZoneDetails = self._client.query(ShowZone(self._name))
            except Denied:
                raise
            except Refused as failed:
                found.update({one: [self._nothing(one, "", str(failed))] for one in left})
                break
            self._nodes = self._present_nodes()
            self._names.update(
                {node: name for node, name in shown.members.items() if node not in self._nodes}
            )
            groups = {one.partition: one for one in shown.partitions}
            states = {one: groups[one % self._count] for one in left if one % self._count in groups}
            found.update(self._round(states, pause))
            left = [one for one in states if any(each.undecided for each in found[one])]
            progress(len(partitions) - len(left), len(partitions), turn)
            if turn >= ROUNDS:
                left = [one for one in left if not any(each.index for each in found[one])]
            if not left:
                break
            pause(PAUSE_S * turn)
        return [finding for partition in sorted(found) for finding in found[partition]]

    def _present_nodes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for member in self._client.table().members:
            try:
                found[ask_on(self._client.to(member), ShowLeaders()).node] = member
            except (*CANNOT_ASK, Unsupported):
                continue
        return found

    def _round(self, states: Mapping[int, ZonePartitionTold], pause: Pause) -> dict[int, list[Finding]]:
        """Compare one cut through these partitions. `states`: of the group of each."""
        why = "its leader takes no cut"
        led = [partition for partition, state in states.items() if state.leader in self._nodes]
        try:
            cut = take_cut(
                self._client, self._maps, lease_s=LEASE_S, timeout=CUT_S, partitions=led, whole=False
            )
        except (NotReady, *CANNOT_ASK) as failed:
            cut, why = Cut(b"", {}), str(failed)
        try:
            held, silent = self._digests(cut, states, pause)
        finally:
            if cut.id:
                end_cut(self._client, cut)
        done = {partition for _, partition in cut.marks}
        return {
            partition: self._compare(partition, state, held, silent)
            if partition in done
            else [
                self._nothing(
                    partition, state.leader or "", "it has no leader" if state.leader is None else why
                )
            ]
            for partition, state in states.items()
        }

    def _digests(
        self, cut: Cut, states: Mapping[int, ZonePartitionTold], pause: Pause
    ) -> tuple[dict[tuple[str, int], own.PartitionDigest], set[str]]:
        """Digests of the cut on the replicas, by member and partition; and the members that are silent."""
        written: dict[int, set[str]] = {}
        """Maps that have ever been written, by partition."""
        for (name, partition), mark in cut.marks.items():
            if mark.counter:
                written.setdefault(partition, set()).add(name)
        waits = {
            (self._nodes[node], partition)
            for partition in written
            for node in _replicas_of(states[partition])
            if node in self._nodes
        }
        held: dict[tuple[str, int], own.PartitionDigest] = {}
        silent: set[str] = set()
        for look in range(1, LOOKS + 1):
            asked: dict[str, list[int]] = {}
            for member, partition in sorted(waits):
                asked.setdefault(member, []).append(partition)
            answers, unheard = ask_digests(self._client, asked, self._only, cut.id)
            silent |= unheard
            held |= answers
            waits = {
                (member, partition)
                for member, partition in waits
                if member not in silent
                and not written[partition] <= _indexes(held.get((member, partition))).keys()
            }
            if not waits:
                break
            pause(PAUSE_S * look)
        return held, silent

    def _compare(
        self,
        partition: int,
        state: ZonePartitionTold,
        held: Mapping[tuple[str, int], own.PartitionDigest],
        silent: set[str],
    ) -> list[Finding]:
        copies = {node: held.get((self._nodes.get(node, ""), partition)) for node in _replicas_of(state)}
        index = max((each for copy in copies.values() for each in _indexes(copy).values()), default=0)
        findings: list[Finding] = []
        arrived: dict[str, Sequence[own.MapDigest]] = {}
        for node, copy in copies.items():
            if node not in self._nodes or self._nodes[node] in silent:
                findings.append(
                    self._nothing(partition, node, "its member is absent, or does not respond", index)
                )
            elif copy is not None and index in _indexes(copy).values():
                arrived[self._nodes[node]] = [one for one in copy.maps if one.index == index]
            elif index:
                late = self._nothing(partition, node, "it has not reached the cut, or keeps none", index)
                findings.append(msgspec.structs.replace(late, verdict="busy"))
        leader = self._nodes.get(state.leader or "", "")
        findings += compare_at_cut(partition, index, arrived, leader)
        return [msgspec.structs.replace(one, zone=self._name, leads=one.member == leader) for one in findings]

    def _nothing(self, partition: int, node: str, reason: str, index: int = 0) -> Finding:
        return Finding(
            partition=partition,
            member=self._nodes.get(node, node),
            verdict="unreachable",
            reason=reason,
            zone=self._name,
            index=index,
        )


def compare_at_cut(
    partition: int, index: int, copies: Mapping[str, Sequence[own.MapDigest]], leader: str
) -> list[Finding]:
    """Compare the replicas of a partition, by member, that keep a cut at this index of the log: map by map."""
    findings: list[Finding] = []
    for name in sorted({one.map for maps in copies.values() for one in maps}):
        group: list[ReplicaDigest] = []
        for member, maps in copies.items():
            held = next((one for one in maps if one.map == name), own.MapDigest(name, 0, 0, 0, []))
            lineage = tuple((term, start) for term, start in held.lineage)
            group.append(
                ReplicaDigest(
                    member,
                    partition,
                    name,
                    held.counter,
                    held.entries,
                    held.digest,
                    lineage=lineage,
                    index=index,
                )
            )
        findings += compare_with_newest(group, leader)
    return findings


def _indexes(copy: own.PartitionDigest | None) -> dict[str, int]:
    return {one.map: one.index for one in copy.maps} if copy is not None else {}


def _replicas_of(state: ZonePartitionTold) -> list[str]:
    return [] if state.stable is None else [*state.stable.peers, *state.stable.learners]

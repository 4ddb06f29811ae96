"""Compares the replicas of the Raft partitions of zones, also under load.

The leader of each partition puts a mark into its log, which changes nothing, and every replica keeps what it holds when
it applies the mark. So replicas are compared at one index, whatever is written meanwhile, and one look decides. A
replica that has not reached the mark is asked again. One that kept nothing at the mark, because it was sent a snapshot
from behind it or another leader's entry took its place, is asked for another mark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.client.agreed_client import ask_of_zones
from holdfast.client.blocking import Client
from holdfast.client.replica_questions import CANNOT_ASK, ask_zone_digests
from holdfast.core.model.zone_questions import (
    ListZones,
    MarkPartitions,
    PartitionMark,
    ShowZone,
    ZonePartitionTold,
)
from holdfast.core.store.replica_comparison import Finding, ReplicaDigest, compare_with_newest
from holdfast.replica_comparison.comparison_report import Report
from holdfast.wire import own

ROUNDS = 4
"""Marks that are put into the log of a partition at most."""
LEADERLESS_ROUNDS = 10
"""Attempts to put one there; with the pauses between them longer than several elections."""
LOOKS = 12
"""How often at most a replica is asked whether it has reached a mark."""
PAUSE_S = 0.1
"""After the first look; each further pause is longer by the same."""
BESIDE = "its time, its counters, or the requests that it knows to be applied are others"

Progress = Callable[[int, int, int], None]
Pause = Callable[[float], None]


def zone_maps(client: Client) -> dict[str, str]:
    """Maps that live in a zone by the settings of the member that answers, and its name. Raises NotReady."""
    maps = client.status().get("zone_maps")
    return {str(name): str(zone) for name, zone in maps.items()} if isinstance(maps, dict) else {}


def compare_zones(
    client: Client,
    report: Report,
    maps: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    *,
    progress: Progress = lambda decided, total, looks: None,
    pause: Pause = time.sleep,
) -> None:
    """Compare the replicas of all zones, or those of these maps and partitions. Raises NotReady."""
    if not client.status().get("metastore"):
        return
    housed = {name: zone for name, zone in zone_maps(client).items() if not maps or name in maps}
    answer = ask_of_zones(client, ListZones())
    if answer.failed:
        report.zones_unknown = answer.why
        return
    there = {zone.name: zone for zone in answer.zones}
    report.maps_without_zone = {name: zone for name, zone in sorted(housed.items()) if zone not in there}
    for zone in there.values():
        if maps and zone.name not in housed.values():
            continue
        count = int(zone.settings["partitions"])
        chosen = [one for one in (range(count) if partitions is None else partitions) if one < count]
        report.zones[zone.name] = len(chosen)
        comparison = ZoneComparison(client, zone.name, zone.id, maps, report.names)
        report.findings += comparison.run(chosen, progress, pause)


class ZoneComparison:
    """Compares the replicas of one zone."""

    def __init__(
        self, client: Client, name: str, zone: int, maps: Sequence[str], names: dict[str, str]
    ) -> None:
        """`names`: receives the names of members by node."""
        self._client = client
        self._name = name
        self._zone = zone
        self._maps = maps
        self._only = maps[0] if len(maps) == 1 else None
        self._names = names
        self._nodes: Mapping[str, str] = {}
        """Node -> UUID of the member."""

    def run(self, partitions: Sequence[int], progress: Progress, pause: Pause) -> list[Finding]:
        """Until every replica is compared, or has had time enough."""
        found: dict[int, list[Finding]] = {}
        left = list(partitions)
        for turn in range(1, LEADERLESS_ROUNDS + 1):
            shown = ask_of_zones(self._client, ShowZone(self._name))
            if shown.failed:
                found.update({one: [self._nothing(one, "", shown.why)] for one in left})
                break
            self._names.update(shown.members)
            self._nodes = self._present_nodes()
            states = {one.partition: one for one in shown.partitions if one.partition in left}
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
        """Nodes of the members that respond -> their UUIDs."""
        found: dict[str, str] = {}
        for member in self._client.table().members:
            try:
                connection = self._client.to(member)
                question = own.AskZoneDigests(connection.next_number(), 0, [], [])
                found[connection.ask(question, own.ZoneDigests).node] = member
            except CANNOT_ASK:
                continue
        return found

    def _round(self, states: Mapping[int, ZonePartitionTold], pause: Pause) -> dict[int, list[Finding]]:
        """One mark for each partition, and what the replicas hold there."""
        marks = self._marks(states)
        waits = {
            (node, partition)
            for partition in marks
            for node in _replicas_of(states[partition])
            if node in self._nodes
        }
        held: dict[tuple[str, int], own.ZoneCopyDigest] = {}
        silent: set[str] = set()
        for look in range(1, LOOKS + 1):
            asked: dict[str, list[PartitionMark]] = {}
            for node, partition in sorted(waits):
                asked.setdefault(self._nodes[node], []).append(marks[partition])
            answers, unheard = ask_zone_digests(self._client, self._zone, asked, self._only)
            silent |= unheard
            for node, partition in list(waits):
                copy = answers.get((self._nodes[node], partition))
                if copy is not None:
                    held[node, partition] = copy
                if copy is None or copy.term or copy.applied >= marks[partition].index:
                    waits.discard((node, partition))
            if not waits:
                break
            pause(PAUSE_S * look)
        return {
            partition: self._compare(state, marks.get(partition), held, silent)
            for partition, state in states.items()
        }

    def _marks(self, states: Mapping[int, ZonePartitionTold]) -> dict[int, PartitionMark]:
        """Marks in the logs of those of these partitions that have a leader."""
        led: dict[str, list[int]] = {}
        for partition, state in states.items():
            if state.leader is not None and state.leader in self._nodes:
                led.setdefault(self._nodes[state.leader], []).append(partition)
        marks: dict[int, PartitionMark] = {}
        for member, partitions in led.items():
            try:
                connection = self._client.to(member)
                order = MarkPartitions(self._zone, partitions)
                answer = connection.ask(own.OrderZone(connection.next_number(), order), own.ZoneSays).answer
            except CANNOT_ASK:
                continue
            marks.update({mark.partition: mark for mark in answer.marks})
        return marks

    def _compare(
        self,
        state: ZonePartitionTold,
        mark: PartitionMark | None,
        held: Mapping[tuple[str, int], own.ZoneCopyDigest],
        silent: set[str],
    ) -> list[Finding]:
        partition, leader = state.partition, state.leader or ""
        if mark is None:
            reason = "it has no leader" if state.leader is None else "its leader takes no mark"
            return [self._nothing(partition, leader, reason)]
        findings: list[Finding] = []
        copies: dict[str, own.ZoneCopyDigest] = {}
        for node in _replicas_of(state):
            copy = held.get((node, partition))
            if copy is not None and copy.term == mark.term:
                copies[node] = copy
            elif node not in self._nodes or self._nodes[node] in silent:
                findings.append(
                    self._nothing(partition, node, "its member is absent, or does not respond", mark)
                )
            elif copy is None:
                findings.append(self._nothing(partition, node, "its member runs no replica of it", mark))
            else:
                lag = max(0, mark.index - copy.applied)
                reason = f"{lag} entries behind" if lag else "it has nothing of that index"
                late = self._nothing(partition, node, reason, mark)
                findings.append(msgspec.structs.replace(late, verdict="busy", lag=lag))
        findings += compare_at_mark(partition, mark.index, copies, leader, self._maps)
        return [msgspec.structs.replace(one, zone=self._name, leads=one.member == leader) for one in findings]

    def _nothing(self, partition: int, node: str, reason: str, mark: PartitionMark | None = None) -> Finding:
        return Finding(
            partition=partition,
            member=node,
            verdict="unreachable",
            reason=reason,
            zone=self._name,
            index=mark.index if mark is not None else 0,
        )


def compare_at_mark(
    partition: int,
    index: int,
    copies: Mapping[str, own.ZoneCopyDigest],
    leader: str,
    maps: Sequence[str] = (),
) -> list[Finding]:
    """Compare replicas, by node, that have kept this index: map by map, and then their state beside the maps."""
    findings: list[Finding] = []
    for name in sorted({held.map for copy in copies.values() for held in copy.maps}):
        if not maps or name in maps:
            nothing = own.ZoneMapDigest(name, 0, 0, 0)
            held = {
                node: next((one for one in copy.maps if one.map == name), nothing)
                for node, copy in copies.items()
            }
            group = [
                ReplicaDigest(node, partition, name, one.counter, one.entries, one.digest, index=index)
                for node, one in held.items()
            ]
            findings += compare_with_newest(group, leader)
    if maps:
        # Time, counters and applied requests belong to no single map.
        return findings
    wrong = {finding.member for finding in findings if finding.verdict == "differs"}
    beside = [
        ReplicaDigest(node, partition, "", 0, 0, copy.beside, index=index)
        for node, copy in copies.items()
        if node not in wrong
    ]
    return findings + [
        msgspec.structs.replace(finding, reason=BESIDE)
        for finding in compare_with_newest(beside, leader)
        if finding.verdict == "differs"
    ]


def _replicas_of(state: ZonePartitionTold) -> list[str]:
    """Nodes with a replica, voters and learners."""
    return [] if state.stable is None else [*state.stable.peers, *state.stable.learners]

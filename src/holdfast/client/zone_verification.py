"""Do all replicas of each partition of a zone hold the same?

The members themselves are asked, also under load. The leader of each partition puts a mark into its log, which changes
nothing, and every replica keeps what it holds when it applies that. So replicas are compared at one place of the log,
whatever is written meanwhile, and one look decides: what differs there is wrong. A replica that is not there yet is
asked again; one that has nothing of that place, for it was sent a state from behind it, or for another leader's entry
has taken it, is asked for another mark.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from holdfast.client.blocking import Client
from holdfast.client.replica_questions import CANNOT_ASK, ask_zone_digests
from holdfast.core.model.zone_questions import (
    ListZones,
    MarkPartitions,
    PartitionMark,
    ShowZone,
    ZoneAnswer,
    ZoneOrder,
    ZonePartitionTold,
)
from holdfast.errors import Unreachable
from holdfast.wire import own

ZoneVerdict = Literal["equal", "differs", "busy", "unreachable"]
"""`busy`: the replica did not come to the mark in time. `unreachable`: nobody leads, the member is not here or does not
answer, or it runs no replica although the assignments name it."""

T = TypeVar("T")

ROUNDS = 4
"""So many marks at most are put into the log of a partition."""
LEADERLESS_ROUNDS = 10
"""So often it is tried to put one there. With the pauses between that is longer than an election takes, or several."""
LOOKS = 12
"""How often at most a replica is asked whether it has come to a mark."""
PAUSE_S = 0.1
"""After the first look; each further pause is longer by the same."""

Compared = Callable[[int, int, int], None]
"""Told: partitions that are decided, all that are looked at, and how often the rest was looked at so far."""


@dataclass(frozen=True, slots=True)
class ZoneFinding:
    """One map in one replica of a partition, against what most replicas hold (of as many, the leader's)."""

    zone: str
    partition: int
    map: str
    """Empty: nothing could be compared; or what differs is beside the entries of maps."""
    node: str
    """What the member is called in assignments."""
    member: str
    """Its name, as far as that is known."""
    leads: bool
    verdict: ZoneVerdict
    index: int = 0
    """Of the mark at which they were compared; 0: there is none."""
    lag: int = 0
    """How many entries up to the mark the replica had not applied when it was asked last."""
    counter: int = 0
    expected_counter: int = 0
    entries: int = 0
    expected_entries: int = 0
    digest: str = ""
    expected_digest: str = ""
    """64 bits over all entries and their ends, in hexadecimal."""
    why: str = ""
    """Of what could not be compared: in words."""


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """What was found."""

    findings: list[ZoneFinding] = field(default_factory=list)
    zones: tuple[str, ...] = ()
    """That were looked at."""
    partitions: int = 0
    """Of all of them."""
    homeless: Mapping[str, str] = field(default_factory=dict)
    """Maps that live in a zone that does not exist, with its name: there is nothing to compare."""
    unknown: str = ""
    """Why nobody can say which zones there are; empty: it is known."""

    @property
    def conflicts(self) -> list[ZoneFinding]:
        """Replicas that differ."""
        return [finding for finding in self.findings if finding.verdict == "differs"]

    @property
    def undecided(self) -> list[ZoneFinding]:
        """Replicas that could not be compared."""
        return [finding for finding in self.findings if finding.verdict in ("busy", "unreachable")]

    @property
    def compared(self) -> int:
        """Maps in replicas that were compared."""
        return sum(1 for finding in self.findings if finding.map and finding.verdict in ("equal", "differs"))


def zone_maps(client: Client) -> dict[str, str]:
    """Maps that live in a zone by the settings of the member that answers, and the name of it. Raises NotReady."""
    maps = client.status().get("zone_maps")
    return {str(name): str(zone) for name, zone in maps.items()} if isinstance(maps, dict) else {}


def compare_zones(
    client: Client,
    maps: Sequence[str] = (),
    partitions: Sequence[int] | None = None,
    *,
    progress: Compared = lambda decided, total, looks: None,
    pause: Callable[[float], None] = time.sleep,
) -> ZoneReport:
    """Compare the replicas of all zones, or those of these maps and partitions. Raises NotReady when nobody answers."""
    status = client.status()
    if not status.get("metastore"):
        return ZoneReport()
    housed = {name: zone for name, zone in zone_maps(client).items() if not maps or name in maps}
    answer = ask_of_zones(client, ListZones())
    if answer.failed:
        return ZoneReport(unknown=answer.why)
    there = {told.name: told for told in answer.zones}
    homeless = {name: zone for name, zone in sorted(housed.items()) if zone not in there}
    wanted = [told for name, told in there.items() if not maps or name in housed.values()]
    findings: list[ZoneFinding] = []
    looked = 0
    for told in wanted:
        count = int(told.settings["partitions"])
        chosen = [one for one in (range(count) if partitions is None else partitions) if one < count]
        looked += len(chosen)
        findings += _Comparing(client, told.name, told.id, maps).run(chosen, progress, pause)
    return ZoneReport(findings, tuple(told.name for told in wanted), looked, homeless)


def ask_of_zones(client: Client, order: ZoneOrder) -> ZoneAnswer:
    """What the first member says that answers this. Raises NotReady."""
    failures: list[str] = []
    for member in client.table().members:
        try:
            connection = client.to(member)
            question = own.OrderZone(connection.next_number(), order)
            return connection.ask(question, own.ZoneSays).answer
        except CANNOT_ASK as failed:
            failures.append(str(failed))
    raise Unreachable("no member answers: " + "; ".join(failures))


def _nodes(client: Client) -> dict[str, str]:
    """What the members that answer are called in assignments -> their UUIDs."""
    found: dict[str, str] = {}
    for member in client.table().members:
        try:
            connection = client.to(member)
            question = own.AskZoneDigests(connection.next_number(), 0, [], [])
            found[connection.ask(question, own.ZoneDigests).node] = member
        except CANNOT_ASK:
            continue
    return found


class _Comparing:
    """Compares the replicas of one zone."""

    def __init__(self, client: Client, name: str, zone: int, maps: Sequence[str]) -> None:
        self._client = client
        self._name = name
        self._zone = zone
        self._maps = maps
        self._only = maps[0] if len(maps) == 1 else None
        self._nodes: Mapping[str, str] = {}
        """Node -> UUID of the member."""
        self._called: Mapping[str, str] = {}
        """Node -> name of the member."""

    def run(
        self, partitions: Sequence[int], progress: Compared, pause: Callable[[float], None]
    ) -> list[ZoneFinding]:
        """Until every replica is compared, or has had time enough."""
        found: dict[int, list[ZoneFinding]] = {}
        left = list(partitions)
        for turn in range(1, LEADERLESS_ROUNDS + 1):
            shown = ask_of_zones(self._client, ShowZone(self._name))
            if shown.failed:
                why = shown.why
                found.update({one: [self._nothing(one, "", "unreachable", why)] for one in left})
                break
            self._called, self._nodes = shown.members, _nodes(self._client)
            told = {one.partition: one for one in shown.partitions if one.partition in left}
            found.update(self._round(told, pause))
            left = [
                one for one in told if any(each.verdict in ("busy", "unreachable") for each in found[one])
            ]
            progress(len(partitions) - len(left), len(partitions), turn)
            if turn >= ROUNDS:
                left = [one for one in left if not any(each.index for each in found[one])]
            if not left:
                break
            pause(PAUSE_S * turn)
        return [finding for partition in sorted(found) for finding in found[partition]]

    def _round(
        self, told: Mapping[int, ZonePartitionTold], pause: Callable[[float], None]
    ) -> dict[int, list[ZoneFinding]]:
        """One mark for each partition, and what replicas hold there."""
        marks = self._marks(told)
        waits = {
            (node, partition)
            for partition in marks
            for node in _named(told[partition])
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
            partition: self._compare(one, marks.get(partition), held, silent)
            for partition, one in told.items()
        }

    def _marks(self, told: Mapping[int, ZonePartitionTold]) -> dict[int, PartitionMark]:
        """Marks in the logs of these partitions, where somebody leads."""
        led: dict[str, list[int]] = {}
        for partition, one in told.items():
            if one.leader is not None and one.leader in self._nodes:
                led.setdefault(self._nodes[one.leader], []).append(partition)
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
        told: ZonePartitionTold,
        mark: PartitionMark | None,
        held: Mapping[tuple[str, int], own.ZoneCopyDigest],
        silent: set[str],
    ) -> list[ZoneFinding]:
        partition, leader = told.partition, told.leader or ""
        if mark is None:
            why = "it has no leader" if told.leader is None else "its leader takes no mark"
            return [self._nothing(partition, leader, "unreachable", why)]
        findings: list[ZoneFinding] = []
        copies: dict[str, own.ZoneCopyDigest] = {}
        for node in _named(told):
            copy = held.get((node, partition))
            if copy is not None and copy.term == mark.term:
                copies[node] = copy
                continue
            verdict: ZoneVerdict = "unreachable"
            lag = 0
            if node not in self._nodes or self._nodes[node] in silent:
                why = "its member is not here, or does not answer"
            elif copy is None:
                why = "its member runs no replica of it"
            else:
                verdict, lag = "busy", max(0, mark.index - copy.applied)
                why = f"{lag} entries behind" if lag else "it has nothing of that place"
            finding = self._nothing(partition, node, verdict, why, leads=node == told.leader)
            findings.append(replace(finding, index=mark.index, lag=lag))
        return self._judged(partition, leader, mark, copies) + findings

    def _judged(
        self, partition: int, leader: str, mark: PartitionMark, copies: Mapping[str, own.ZoneCopyDigest]
    ) -> list[ZoneFinding]:
        findings: list[ZoneFinding] = []
        for name in sorted({one.map for copy in copies.values() for one in copy.maps}):
            if self._maps and name not in self._maps:
                continue
            seen = {node: _digest_of(copy, name) for node, copy in copies.items()}
            right = _right(seen, leader)
            for node, one in seen.items():
                finding = self._nothing(partition, node, "equal" if one == right else "differs", "")
                findings.append(
                    replace(
                        finding,
                        map=name,
                        leads=node == leader,
                        index=mark.index,
                        counter=one.counter,
                        expected_counter=right.counter,
                        entries=one.entries,
                        expected_entries=right.entries,
                        digest=f"{one.digest:016x}",
                        expected_digest=f"{right.digest:016x}",
                    )
                )
        wrong = {finding.node for finding in findings if finding.verdict == "differs"}
        beside = {node: copy.beside for node, copy in copies.items() if node not in wrong}
        right_beside = _right(beside, leader) if beside else 0
        for node, found in beside.items():
            # Which requests were applied is not of one map.
            if found != right_beside and not self._maps:
                why = "its time, its counters, or the requests that it knows to be applied are others"
                finding = self._nothing(partition, node, "differs", why, leads=node == leader)
                findings.append(replace(finding, index=mark.index))
        return findings

    def _nothing(
        self, partition: int, node: str, verdict: ZoneVerdict, why: str, *, leads: bool = False
    ) -> ZoneFinding:
        return ZoneFinding(
            self._name, partition, "", node, self._called.get(node, node), leads, verdict, why=why
        )


def _named(told: ZonePartitionTold) -> list[str]:
    """Who holds a replica, voter or learner."""
    return [] if told.stable is None else [*told.stable.peers, *told.stable.learners]


def _may_pass(finding: ZoneFinding) -> bool:
    """Whether another mark may help: more than time is not given to who is only late."""
    return finding.verdict in ("busy", "unreachable") and not finding.lag


def _digest_of(copy: own.ZoneCopyDigest, name: str) -> own.ZoneMapDigest:
    return next((one for one in copy.maps if one.map == name), own.ZoneMapDigest(name, 0, 0, 0))


def _right(seen: Mapping[str, T], leader: str) -> T:
    """What most hold; of as many, what the leader holds, if it is among these."""
    counts = Counter(seen.values())
    most = max(counts.values())
    best = [one for one, count in counts.items() if count == most]
    theirs = seen.get(leader)
    return theirs if theirs is not None and theirs in best else best[0]

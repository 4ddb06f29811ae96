"""Judge of zones: invariants of a cluster with a metastore, some at rest and some always.

Always: a group has one leader in a term, at most one change of its configuration is in flight (I1), and each
committed configuration follows from the one before by a joint step or a reset (I2); without a pending
assignment none is planned (I4), triggers (I7) and tokens (I9) never fall. At rest: every replica of a partition
has the same state, no member has a replica that no assignment names (I5), nothing is pending, and the stable
assignments are those of the placement (I8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.core.member_view import MemberView
from holdfast.core.metastore.keyspace import Keyspace
from holdfast.core.metastore.metastore import KeyChange, Metastore
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, GroupNumber, group_of, place_of
from holdfast.core.multiraft.hosted_group import GroupClient, HostedGroup
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group
from holdfast.core.raft_partition.partition_snapshot import head_of
from holdfast.core.raft_partition.zone_partition import ZonePartition
from holdfast.core.store.expiry import Expiry
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.zones.adjusting import assignments_of
from holdfast.core.zones.assignments import PartitionKeys
from holdfast.core.zones.data_nodes import data_nodes_of
from holdfast.core.zones.descriptors import ClusterTopology, ZoneDescriptor
from holdfast.core.zones.rendezvous import EvenLayout, placed
from holdfast.core.zones.zone_keys import (
    TOPOLOGY_KEY,
    ZONES,
    KeysRead,
    part_keys,
    part_of,
    partition_keys,
    zone_key,
)


def judge(members: Sequence[MemberView], zone: int | None) -> list[str]:
    leaders = [member for member in members if member.consensus.groups.term(METASTORE_GROUP) is not None]
    if len(leaders) != 1:
        return [f"the metastore has {len(leaders)} leaders"]
    lead = leaders[0]
    problems = [*_metastores(members), *_group(members, METASTORE_GROUP, None), *_voters(lead, members)]
    if problems or zone is None:
        return problems
    keyspace = lead.consensus.metastore.keyspace
    read = KeysRead([*keyspace.scan(ZONES), keyspace.get(TOPOLOGY_KEY)], keyspace.revision)
    descriptor = read.value(zone_key(zone, "descriptor"), ZoneDescriptor)
    topology = read.value(TOPOLOGY_KEY, ClusterTopology)
    if descriptor is None or topology is None:
        return ["there is no zone, or no topology"]
    here = {member.consensus.groups.me for member in members if not member.info.lite}
    if topology.nodes != here:
        problems.append(f"the topology has {sorted(topology.nodes)}, and {sorted(here)} are there")
    nodes = data_nodes_of(read, zone).latest
    if nodes != descriptor.settings.taken(topology):
        problems.append(f"data nodes are {sorted(nodes)}, members that the zone takes are {sorted(here)}")
    layout = read.value(zone_key(zone, "layout"), EvenLayout)
    for partition in range(descriptor.settings.partitions):
        keys = partition_keys(read, zone, partition)
        problems += [f"partition {partition} of the zone: {each}" for each in _keys(keys)]
        wanted = placed(nodes, partition, descriptor.settings, layout)
        if keys.stable is None or not keys.stable.same_nodes(wanted):
            problems.append(f"partition {partition} of the zone: stable is {keys.stable}, placed is {wanted}")
        problems += _group(members, group_of(zone, partition), keys)
    return problems + _strays(members, zone, descriptor.settings.partitions)


def _metastores(members: Sequence[MemberView]) -> list[str]:
    states: dict[tuple[int, bytes], list[str]] = {}
    for member in members:
        keyspace: Keyspace = member.consensus.metastore.keyspace
        states.setdefault((keyspace.revision, b"".join(keyspace.pieces())), []).append(member.info.name)
    if len(states) > 1:
        told = "; ".join(f"revision {revision} on {names}" for (revision, _), names in states.items())
        return [f"metastores differ: {told}"]
    return []


def _voters(lead: MemberView, members: Sequence[MemberView]) -> list[str]:
    """The metastore has as many voters as ordered, or as members allow (metastore/V-2, metastore/V-7)."""
    founding = lead.view.metastore if lead.view is not None else None
    if founding is None:
        return []
    data = [member for member in members if not member.info.lite]
    staying = len(data) or len(members)
    if 0 < len(data) < min(founding.voters, len(members)) and len(data) % 2 == 0:
        staying += 1  # A lite member as witness.
    wanted = min(founding.voters, staying - 1 + staying % 2)
    found = len(lead.consensus.groups.hosted[METASTORE_GROUP].group.configuration.voters)
    if found != wanted:
        return [f"the metastore has {found} voters, {founding.voters} are ordered and {wanted} possible"]
    return []


def _keys(keys: PartitionKeys) -> list[str]:
    found = {"pending": keys.pending, "planned": keys.planned, "lock": keys.lock}
    return [f"{name} is {value}" for name, value in found.items() if value]


def _group(members: Sequence[MemberView], number: GroupNumber, keys: PartitionKeys | None) -> list[str]:
    """One leader that all follow, the whole log applied, and the same state everywhere."""
    zone, partition = place_of(number)
    name = "the metastore" if keys is None else f"partition {partition} of zone {zone}"
    hosted: dict[str, HostedGroup] = {
        member.consensus.groups.me: each
        for member in members
        if (each := member.consensus.groups.hosted.get(number)) is not None and not each.halted
    }
    leading = [node for node, each in hosted.items() if each.group.leading is not None]
    if len(leading) != 1:
        return [f"{name}: {len(leading)} leaders among {sorted(hosted)}"]
    lead = hosted[leading[0]].group
    problems = []
    configuration = lead.configuration
    if configuration.joint or (keys is not None and not lead.rests):
        problems.append(f"{name}: a change is under way: {configuration}")
    if keys is not None and keys.stable is not None:
        applied = assignments_of(configuration)
        if not applied.same_nodes(keys.stable):
            problems.append(f"{name}: its group is {configuration}, stable is {keys.stable}")
    if hosted.keys() != configuration.members:
        problems.append(
            f"{name}: {sorted(hosted)} have a replica, the group is {sorted(configuration.members)}"
        )
    for node, each in hosted.items():
        log = each.group.log
        if (log.last, log.committed, log.applied) != (lead.log.last, lead.log.last, lead.log.last):
            problems.append(f"{name}: {node} has applied {log.applied} of {lead.log.last}")
    if not problems and keys is not None:
        states = {node: _content(each.client) for node, each in hosted.items()}
        differing = [node for node, state in states.items() if state != states[leading[0]]]
        if differing:
            problems.append(f"{name}: {sorted(differing)} hold something else than {leading[0]}")
    return problems


def _content(client: GroupClient) -> list[object]:
    """Equal for equal states. The pieces of a table have its entries in an order that depends on its history."""
    if not isinstance(client, ZonePartition):
        return list(client.pieces())
    state = client.state
    return [
        [partition, head_of(copy, state.time_ms, counted=state.counted), _maps(copy)]
        for partition, copy in state.copies.items()
    ]


def _maps(copy: PartitionCopy) -> dict[str, list[dict[bytes, object]]]:
    return {
        name: [
            dict(held.state.entries),
            {key: _times(expiry) for key, expiry in held.state.expiries.items()},
            dict(held.state.hashes),
        ]
        for name, held in copy.maps.items()
    }


def _times(expiry: Expiry) -> tuple[int, ...]:
    used_ms = expiry.accessed_ns // MILLISECOND if expiry.max_idle_ms else 0
    return expiry.ttl_ms, expiry.stored_ns // MILLISECOND, expiry.max_idle_ms, used_ms


def _strays(members: Sequence[MemberView], zone: int, partitions: int) -> list[str]:
    """Replicas without an assignment (I5), in memory or in files, and other leftovers."""
    problems = []
    for member in members:
        name, agreed = member.info.name, member.consensus
        for number in [*agreed.groups.hosted, *agreed.groups.journal.found]:
            if number == METASTORE_GROUP:
                continue
            place = place_of(number)
            resting = number not in agreed.groups.hosted or agreed.groups.hosted[number].halted
            if resting or place[0] != zone or place[1] >= partitions:
                problems.append(f"{name} keeps a replica of partition {place[1]} of zone {place[0]}")
        left = {**agreed.groups.leftovers, **agreed.metastore.leftovers, **agreed.zones.leftovers}
        problems += [f"{name}: {count} left: {what}" for what, count in left.items() if count]
    return problems


class Revisions:
    """Watches the revisions of a metastore for invariants of partition keys. A `MetastoreWatcher`."""

    def __init__(self, metastore: Metastore, problems: list[str]) -> None:
        self._metastore = metastore
        self._problems = problems
        self._parts: dict[tuple[int, int], PartitionKeys] = {}

    def on_watch_begins(self, revision: int) -> None:
        self._parts = {}

    def on_leading(self, term: int | None) -> None: ...

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        touched = {part[:2] for _, entry in changes if (part := part_of(entry.key)) is not None}
        for place in sorted(touched):
            entries = [self._metastore.get(key, revision) for key in part_keys(*place)]
            after = partition_keys(KeysRead(entries, revision), *place)
            before = self._parts.get(place, PartitionKeys())
            self._parts[place] = after
            where = f"revision {revision}, partition {place[1]} of zone {place[0]}"
            if after.planned is not None and not after.pending:
                self._problems.append(f"{where}: planned without pending (I4)")
            if after.stable is not None and (after.trigger or 0) < (before.trigger or 0):
                self._problems.append(
                    f"{where}: the trigger goes from {before.trigger} to {after.trigger} (I7)"
                )
        return True


def changes_in_flight(group: Group) -> int:
    """Number of uncommitted configuration changes in a leader's log; 0 for others. A new leader counts once
    an entry of its own term is committed: before, it does not know what is.
    """
    if group.leading is None or not group.leading.settled:
        return 0
    behind = group.log.entries_from(max(group.log.committed + 1, group.log.first))
    return sum(entry.configuration is not None for entry in behind)


def leaps(group: Group, since: int = 0) -> Iterator[str]:
    """Committed configurations after an index that do not follow from the previous one (I2). A reset follows
    from nothing: its token is its generation, which is at most that of the group.
    """
    log = group.log
    since = max(since, log.base)
    before, term = log.configuration_at(since), log.term(since)
    for entry in log.entries_from(since + 1, upto=log.committed):
        if (after := entry.configuration) is not None:
            was_reset = 0 < after.token <= group.generation and entry.term > term
            if not _follows(before, after) and not was_reset:
                yield f"index {entry.index}: from {before} to {after}"
            before, term = after, entry.term


def _follows(before: Configuration, after: Configuration) -> bool:
    """Whether one change leads from a configuration to another: into a joint one, out of it, or to the same
    voters.
    """
    if not before.voters:
        return True  # The first one.
    if after.joint:
        return not before.joint and after.outgoing == before.voters
    return after.voters == before.voters


class GroupsSeen:
    """Invariants of groups over time: one leader in a term, one change at a time (I1) through a joint
    configuration (I2), and tokens of committed configurations that never fall (I9).
    """

    def __init__(self) -> None:
        self._leaders: dict[tuple[GroupNumber, int, int], str] = {}
        self._walked: dict[HostedGroup, int] = {}
        self._tokens: dict[HostedGroup, tuple[int, int]] = {}
        """Generation, and token of the committed configuration, by replica."""
        self.led: set[GroupNumber] = set()
        self.changes = 0

    def look(self, members: Sequence[MemberView]) -> list[str]:
        problems = []
        for member in members:
            groups = member.consensus.groups
            for number, hosted in groups.hosted.items():
                group = hosted.group
                place = (number, group.generation, group.term)
                if group.leading is not None:
                    self.changes += number in self.led and place not in self._leaders
                    self.led.add(number)
                    known = self._leaders.setdefault(place, groups.me)
                    if known != groups.me:
                        problems.append(f"group {number}: {known} and {groups.me} lead in term {group.term}")
                token = (group.generation, group.log.configuration_at(group.log.committed).token)
                if token < self._tokens.get(hosted, (0, 0)):
                    problems.append(
                        f"group {number}: the token on {groups.me} goes from {self._tokens[hosted]} to {token} (I9)"
                    )
                self._tokens[hosted] = token
                if changes_in_flight(group) > 1:
                    problems.append(f"group {number}: {groups.me} has more than one change in flight (I1)")
                found = leaps(group, self._walked.get(hosted, 0))
                problems += [f"group {number} on {groups.me}, {each} (I2)" for each in found]
                self._walked[hosted] = group.log.committed
        return problems

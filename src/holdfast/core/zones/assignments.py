"""Assignments of a zone's partition: which node holds a replica in which role, now, next and after that (J2).

How a replica moves: `stable` is {A, B, C}, and D replaces C in the zone. A trigger writes {A, B, D} to `pending`. The
leader of the group sends D the log while D has no vote yet: with A, B and an empty D as voters, and B down, nothing
could be committed until D has the whole state. When D has caught up, the leader locks the target (`TargetLock`), the
group changes by joint consensus, and `stable` becomes {A, B, D}. A target that comes up in the meantime waits in
`planned`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

Node = str
"""A member, by its name."""


class Assignments(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Replicas of one partition, by role. Compare with `same`, which ignores the timestamp."""

    peers: tuple[Node, ...] = ()
    """Voters of the partition's group."""
    learners: tuple[Node, ...] = ()
    """Replicas that follow the log and have no vote."""
    force: bool = False
    """Put in force without a vote of the majority: a reset."""
    from_reset: bool = False
    """The second phase of a reset."""
    ts: int = 0
    """Revision of the event that these were calculated for."""

    @property
    def nodes(self) -> frozenset[Node]:
        return frozenset(self.peers) | frozenset(self.learners)

    def same_nodes(self, other: Assignments) -> bool:
        mine = (frozenset(self.peers), frozenset(self.learners))
        return mine == (frozenset(other.peers), frozenset(other.learners))

    def same(self, other: Assignments) -> bool:
        flags = (self.force, self.from_reset) == (other.force, other.from_reset)
        return flags and self.same_nodes(other)

    def restricted(self, nodes: Collection[Node]) -> Assignments:
        """The part of these assignments that is on the given nodes."""
        return msgspec.structs.replace(
            self,
            peers=tuple(node for node in self.peers if node in nodes),
            learners=tuple(node for node in self.learners if node in nodes),
        )

    def with_(self, other: Assignments) -> Assignments:
        """The union of both; a node in both keeps the role that it has here."""
        return msgspec.structs.replace(
            self,
            peers=tuple(sorted({*self.peers, *(n for n in other.peers if n not in self.nodes)})),
            learners=tuple(sorted({*self.learners, *(n for n in other.learners if n not in self.nodes)})),
        )

    def plain(self, ts: int) -> Assignments:
        return Assignments(tuple(sorted(self.peers)), tuple(sorted(self.learners)), ts=ts)


class ChainLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Earlier assignments of a partition, with the term and index of its group's configuration at that time."""

    assignments: Assignments
    term: int = -1
    index: int = -1


class TargetLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leader is about to join the target of a pending entry, which may not be replaced any more."""

    revision: int
    """Revision of the pending entry."""
    term: int
    """Term of that leader."""


class PartitionKeys(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """All that the metastore holds about one partition of a zone."""

    stable: Assignments | None = None
    pending: tuple[Assignments, ...] = ()
    """The targets of the group: it moves to the first, then to the next."""
    planned: Assignments | None = None
    """The target after those."""
    trigger: int | None = None
    """Revision of the newest event that was taken into account."""
    switch_reduce: Assignments | None = None
    """Replicas to remove from the group for a while, because they lost their data."""
    switch_append: Assignments | None = None
    chain: tuple[ChainLink, ...] = ()
    """Only with high availability: the assignments since the last change that gave up no replica."""
    lock: TargetLock | None = None
    """Set while the group joins the head of `pending`, which must not change then."""
    generation: int = 0
    """Token of the last completed reset; replicas of older generations are destroyed. 0: no reset yet."""

"""Assignments of a zone's partition: nodes and roles, now, next and after that (J2).

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
"""A member's name."""


class Assignments(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Compare with `same`, which ignores the timestamp."""

    peers: tuple[Node, ...] = ()
    """Voters."""
    learners: tuple[Node, ...] = ()
    force: bool = False
    """A reset: in force without a vote of the majority."""
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
        return msgspec.structs.replace(
            self,
            peers=tuple(node for node in self.peers if node in nodes),
            learners=tuple(node for node in self.learners if node in nodes),
        )

    def with_(self, other: Assignments) -> Assignments:
        """A node in both keeps the role that it has here."""
        return msgspec.structs.replace(
            self,
            peers=tuple(sorted({*self.peers, *(n for n in other.peers if n not in self.nodes)})),
            learners=tuple(sorted({*self.learners, *(n for n in other.learners if n not in self.nodes)})),
        )

    def plain(self, ts: int) -> Assignments:
        return Assignments(tuple(sorted(self.peers)), tuple(sorted(self.learners)), ts=ts)


class ChainLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Earlier assignments, with the term and index of the group's configuration at that time."""

    assignments: Assignments
    term: int = -1
    index: int = -1


class TargetLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leader is about to join the target, which may not be replaced any more."""

    revision: int
    """The pending entry."""
    term: int
    """Term of that leader."""


class PartitionKeys(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The metastore's keys of one partition of a zone."""

    stable: Assignments | None = None
    pending: tuple[Assignments, ...] = ()
    """Targets of the group, one after the other."""
    planned: Assignments | None = None
    trigger: int | None = None
    """Revision of the newest event that was taken into account."""
    switch_reduce: Assignments | None = None
    """Replicas that lost their data, to remove from the group for a while."""
    switch_append: Assignments | None = None
    chain: tuple[ChainLink, ...] = ()
    """Only with high availability: the assignments since the last change that gave up no replica."""
    lock: TargetLock | None = None
    """The group joins the head of `pending`, which must not change then."""
    generation: int = 0
    """Token of the last completed reset; replicas of older generations are destroyed. 0: none."""

"""The nouns of a partition's assignments: who holds a replica in which role, now, next and after that (J2)."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

Node = str
"""A member, by its name."""


class Assignments(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Replicas of one partition, by role. Compared by `same`: when it was worked out is no difference."""

    peers: tuple[Node, ...] = ()
    """Voters of the partition's group."""
    learners: tuple[Node, ...] = ()
    """Replicas that hold everything and decide nothing."""
    force: bool = False
    """To be put in force without asking a majority: a reset."""
    from_reset: bool = False
    """The second phase of a reset."""
    ts: int = 0
    """When it was worked out: the timestamp of what it is placed by."""

    @property
    def nodes(self) -> frozenset[Node]:
        """Everybody, whatever their role."""
        return frozenset(self.peers) | frozenset(self.learners)

    def same_nodes(self, other: Assignments) -> bool:
        """Whether these are the same replicas in the same roles."""
        mine = (frozenset(self.peers), frozenset(self.learners))
        return mine == (frozenset(other.peers), frozenset(other.learners))

    def same(self, other: Assignments) -> bool:
        """Whether they are the same, and by the same way."""
        flags = (self.force, self.from_reset) == (other.force, other.from_reset)
        return flags and self.same_nodes(other)

    def restricted(self, nodes: Collection[Node]) -> Assignments:
        """Those of these replicas that are on one of the nodes."""
        return msgspec.structs.replace(
            self,
            peers=tuple(node for node in self.peers if node in nodes),
            learners=tuple(node for node in self.learners if node in nodes),
        )

    def with_(self, other: Assignments) -> Assignments:
        """These replicas and those of the other: who is in both stays as here."""
        return msgspec.structs.replace(
            self,
            peers=tuple(sorted({*self.peers, *(n for n in other.peers if n not in self.nodes)})),
            learners=tuple(sorted({*self.learners, *(n for n in other.learners if n not in self.nodes)})),
        )

    def plain(self, ts: int) -> Assignments:
        """These replicas, in order, with this timestamp and without flags."""
        return Assignments(tuple(sorted(self.peers)), tuple(sorted(self.learners)), ts=ts)


class ChainLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of the assignments that a partition had, with the configuration of its group at that time."""

    assignments: Assignments
    term: int = -1
    index: int = -1


class TargetLock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A leader is about to join the target of a pending entry: it is not replaced any more."""

    revision: int
    """Of the pending entry."""
    term: int
    """The leader's."""


class PartitionKeys(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the metastore holds of one partition of a zone."""

    stable: Assignments | None = None
    """What is in force."""
    pending: tuple[Assignments, ...] = ()
    """Where the group is moving: the first one is being put in force, then the next."""
    planned: Assignments | None = None
    """The target after that."""
    trigger: int | None = None
    """The timestamp of the newest event that was taken."""
    switch_reduce: Assignments | None = None
    """Replicas that are to be taken out for a while, because they have lost their data."""
    switch_append: Assignments | None = None
    """Those that are to be put back."""
    chain: tuple[ChainLink, ...] = ()
    """Of a zone of high availability: what was in force since the last time that nobody had to be given up."""
    lock: TargetLock | None = None
    """That the head of `pending` stays what it is, because the group is joining it."""
    generation: int = 0
    """The token of the last reset that has been carried out: what replicas of older ones have is given up. 0: none."""

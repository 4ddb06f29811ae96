"""Interfaces to a member, as the control of zones uses it: the metastore, the Raft groups, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.metastore.invoke import Branch, MetastoreEntry
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import Assignments, Node

Part = tuple[int, int]
"""A partition of a zone: both numbers."""


class ZoneStore(Protocol):
    """The metastore, as zones use it."""

    def get(self, key: bytes) -> MetastoreEntry:
        """As it is here, by now."""

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        """The keys that exist here, by now."""

    def read(self, keys: Sequence[bytes]) -> int:
        """What the leader knows; answers a ticket for `on_read`."""

    def invoke(self, branch: Branch) -> int:
        """Answers a ticket for `on_invoked`."""

    @property
    def leads(self) -> bool:
        """Whether this member leads the metastore's group."""


class ZoneGroups(Protocol):
    """The groups of this member, as zones use them. Those that need a leader raise ProposalRefused."""

    def copy(self, part: Part) -> LocalCopy | None:
        """What there is of a partition here."""

    def copies(self) -> Sequence[Part]:
        """All of which there is something here, sorted."""

    def found(self, part: Part, configuration: Configuration) -> None:
        """Begin a group, or this member's part of it."""

    def join(self, part: Part) -> None:
        """Run a replica, with what there is here; with nothing it waits for a leader."""

    def halt(self, part: Part) -> None:
        """Run it no more, and keep what is there."""

    def destroy(self, part: Part) -> None:
        """Run it no more, and keep nothing."""

    def in_doubt(self, part: Part) -> bool:
        """Whether there is a replica here that cannot run: its files may lack what it has promised."""

    def has_leader(self, part: Part) -> bool:
        """Whether the replica here knows who leads."""

    def term(self, part: Part) -> int | None:
        """The term in which this member leads; None: it does not."""

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer:
        """See `Group.change_peers`; it asks before it joins anybody (zones/A-12)."""

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.agree_change`."""

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.cancel_change`."""

    def reset(self, part: Part, voters: Sequence[Node], token: int) -> ChangeAnswer:
        """See `Group.reset`."""


class ZoneWorld(Protocol):
    """What else the controller needs of its member."""

    def jitter(self, most_ms: int) -> int:
        """A part of this time, at random."""

    def ask_replicas(self, node: Node, zone: int) -> None:
        """Ask a member for the states of its replicas; `on_replicas` is told, perhaps."""

    def failing(self, part: Part, attempts: int, why: str) -> None:
        """Somebody should look at it: the failure handler."""

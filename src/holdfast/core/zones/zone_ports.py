"""Interfaces of the zone controller to its member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.metastore.invoke import Branch, MetastoreEntry
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import Assignments, Node

Part = tuple[int, int]


class ZoneStore(Protocol):
    def get(self, key: bytes) -> MetastoreEntry: ...

    def scan(self, prefix: bytes) -> Sequence[MetastoreEntry]:
        """This member's copy of all existing keys with the prefix."""

    def read(self, keys: Sequence[bytes]) -> int:
        """Read from the leader; returns a ticket for `on_read`."""

    def invoke(self, branch: Branch) -> int:
        """Send an invoke; returns a ticket for `on_invoked`."""

    @property
    def leads(self) -> bool: ...


class ZoneGroups(Protocol):
    """The Raft groups of this member. Methods for leaders raise ProposalRefused on members that do not lead."""

    def copy(self, part: Part) -> LocalCopy | None: ...

    def copies(self) -> Sequence[Part]:
        """The partitions that have a replica here, sorted."""

    def found(self, part: Part, configuration: Configuration) -> None:
        """Start a new group, or this member's part of it."""

    def join(self, part: Part) -> None:
        """Use the data that is here; without data wait for a leader."""

    def halt(self, part: Part) -> None:
        """Stop the replica and keep its data."""

    def destroy(self, part: Part) -> None:
        """Stop the replica and delete its data."""

    def in_doubt(self, part: Part) -> bool:
        """Whether the replica here cannot run because its files may lack entries that it has acknowledged."""

    def has_leader(self, part: Part) -> bool: ...

    def term(self, part: Part) -> int | None:
        """The term in which this member leads the group; None: it does not lead."""

    def change_peers(self, part: Part, term: int, target: Assignments, token: int) -> ChangeAnswer: ...

    def agree_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.agree_change`."""

    def cancel_change(self, part: Part, term: int, token: int) -> bool:
        """See `Group.cancel_change`."""

    def reset(self, part: Part, voters: Sequence[Node], token: int) -> ChangeAnswer:
        """See `Group.reset`."""


class ZoneWorld(Protocol):
    def jitter(self, most_ms: int) -> int:
        """A random part of this time."""

    def ask_replicas(self, node: Node, zone: int) -> None:
        """Ask a member for the states of its replicas. The answer, if any, goes to `on_replicas`."""

    def failing(self, part: Part, attempts: int, why: str) -> None: ...

"""Messages between the replicas of a group, and the entries of their log."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec

from holdfast.core.raft.configuration import Configuration, NodeId

ENTRY_BYTES = 24
"""Bytes of an entry in a message besides its data, about."""


class RaftEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of the log."""

    term: int
    index: int
    data: bytes = b""
    """The command; empty in the first entry of a leader."""
    configuration: Configuration | None = None
    """The configuration in force from this entry on."""

    @property
    def size(self) -> int:
        """Bytes in a message, about."""
        return ENTRY_BYTES + len(self.data)


class RaftSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state at an index, by reference: the host transfers the state itself."""

    index: int
    term: int
    configuration: Configuration
    data: bytes = b""
    """Reference by which the receiver's host finds the state."""


@unique
class RaftKind(IntEnum):
    """The kind of a message."""

    APPEND = 0
    APPENDED = 1
    VOTE = 2
    VOTED = 3
    PRE_VOTE = 4
    PRE_VOTED = 5
    HEARTBEAT = 6
    HEARTBEAT_HEARD = 7
    SNAPSHOT = 8
    TIMEOUT_NOW = 9
    """Campaign at once: a leadership transfer."""
    TRANSFER = 10
    """A request for a leadership transfer."""
    PROPOSE = 11
    READ = 12
    """A request for a read index."""
    READ_AT = 13
    FORGET_LEADER = 14
    """Local: forget the leader until it is heard again."""


class RaftMessage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message from one replica of a group to another."""

    kind: RaftKind
    to: NodeId
    sender: NodeId
    generation: int = 0
    """Token of the last reset known to the sender; 0: none."""
    term: int = 0
    """The sender's term; in a pre-vote, the term it would have."""
    log_term: int = 0
    index: int = 0
    """With `log_term`: the place before the entries, the end of a candidate's log, or the acknowledged index."""
    commit: int = 0
    entries: tuple[RaftEntry, ...] = ()
    snapshot: RaftSnapshot | None = None
    refused: bool = False
    hint: int = 0
    """In a rejection: where the logs may match."""
    context: bytes = b""
    """Identifies a read; in a vote request, `HANDED_OVER` for a leadership transfer."""


LEADERS = frozenset({RaftKind.APPEND, RaftKind.HEARTBEAT, RaftKind.SNAPSHOT})
"""Kinds that only a leader sends."""
AFTER_DISK = frozenset({RaftKind.APPENDED, RaftKind.VOTED, RaftKind.PRE_VOTED})
"""Kinds that are sent only when everything before them is durable."""
HANDED_OVER = b"handed over"
"""Context of a vote request of a leadership transfer: voters grant it although they hear a leader (raft/E-3)."""

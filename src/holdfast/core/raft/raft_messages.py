"""Messages between the replicas of a group, and the entries of their log."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec

from holdfast.core.raft.configuration import Configuration, NodeId

ENTRY_BYTES = 24
"""Approximate, in a message, besides its data."""


class RaftEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    term: int
    index: int
    data: bytes = b""
    """Empty in the first entry of a leader."""
    configuration: Configuration | None = None
    """In force from this entry on."""

    @property
    def size(self) -> int:
        return ENTRY_BYTES + len(self.data)


class RaftSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state at an index, by reference: the host transfers the state itself."""

    index: int
    term: int
    configuration: Configuration
    data: bytes = b""
    """For the receiver's host."""


@unique
class RaftKind(IntEnum):
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
    TRANSFER = 10
    """Request for a leadership transfer."""
    PROPOSE = 11
    READ = 12
    READ_AT = 13
    FORGET_LEADER = 14
    """Local, until the leader is heard again."""


class RaftMessage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    kind: RaftKind
    to: NodeId
    sender: NodeId
    generation: int = 0
    """Token of the last reset that the sender knows; 0: none."""
    term: int = 0
    """The sender's; in a pre-vote, its future one."""
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
AFTER_DISK = frozenset({RaftKind.APPENDED, RaftKind.VOTED, RaftKind.PRE_VOTED})
"""Sent only when everything before them is durable."""
HANDED_OVER = b"handed over"
"""In a vote request of a leadership transfer: voters grant it although they hear a leader (raft/E-3)."""

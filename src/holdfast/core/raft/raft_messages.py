"""What the replicas of one group say to each other, and what is in their log."""

from __future__ import annotations

from enum import IntEnum, unique

import msgspec

from holdfast.core.raft.configuration import Configuration, NodeId

ENTRY_BYTES = 24
"""What an entry takes in a message besides its content, at about."""


class RaftEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One place of the log."""

    term: int
    index: int
    data: bytes = b""
    """The command; empty in the entry with which a leader begins."""
    configuration: Configuration | None = None
    """The configuration that is in force from here on."""

    @property
    def size(self) -> int:
        """Bytes in a message, at about."""
        return ENTRY_BYTES + len(self.data)


class RaftSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state as of an index, by reference: it travels apart, as the copy of a replica does."""

    index: int
    term: int
    configuration: Configuration
    data: bytes = b""
    """What the receiver needs to find the state."""


@unique
class RaftKind(IntEnum):
    """What a message is for."""

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
    """Campaign at once: the leader hands over."""
    TRANSFER = 10
    """Somebody wants another leader."""
    PROPOSE = 11
    READ = 12
    """Whoever leads: up to which index has everything to be applied before this read is answered?"""
    READ_AT = 13
    FORGET_LEADER = 14
    """Of this replica alone: follow nobody until the leader is heard of again."""


class RaftMessage(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message from one replica of a group to another."""

    kind: RaftKind
    to: NodeId
    sender: NodeId
    generation: int = 0
    """The token of the last reset that the sender knows of; 0: there was none."""
    term: int = 0
    """The sender's; of a request for a pre-vote, the one that it would have."""
    log_term: int = 0
    index: int = 0
    """With `log_term`: the place before the entries, the end of a candidate's log, or what is acknowledged."""
    commit: int = 0
    entries: tuple[RaftEntry, ...] = ()
    snapshot: RaftSnapshot | None = None
    refused: bool = False
    hint: int = 0
    """In a refusal: where the logs may match."""
    context: bytes = b""
    """Names a read, or says that a vote is asked for by a leader that hands over."""


LEADERS = frozenset({RaftKind.APPEND, RaftKind.HEARTBEAT, RaftKind.SNAPSHOT})
"""What only a leader sends."""
AFTER_DISK = frozenset({RaftKind.APPENDED, RaftKind.VOTED, RaftKind.PRE_VOTED})
"""What may leave only when everything before it is durable."""
HANDED_OVER = b"handed over"
"""The context of a vote that a leader has asked for: stickiness does not count."""

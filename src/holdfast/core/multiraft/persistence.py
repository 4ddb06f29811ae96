"""What a replica of a group writes down, and what a restart makes of that.

A group is in the journal as a partition is: it begins, its writes follow, and a checkpoint takes the place of all
before. A checkpoint is a list of pieces: the first is a `GroupHead`, the others are the state as its client tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftEntry, RaftSnapshot
from holdfast.core.raft.raft_state import HardState

NOTHING = RaftSnapshot(0, 0, Configuration())
"""What a replica begins with that was told nothing: it waits for a leader to send it the state."""


class GroupWrite(msgspec.Struct, frozen=True, array_like=True):
    """What one `RaftReady` wants written down."""

    hard: HardState | None = None
    """None: as before."""
    entries: tuple[RaftEntry, ...] = ()
    """They replace what was written down at their indexes and behind."""
    abandoned: bool = False
    """Whether all that was written down before is void."""
    begin: RaftSnapshot | None = None
    """The place after which the log begins; the state there is empty."""
    installing: int = 0
    """The index of a snapshot that entries and commit follow, and whose checkpoint may not be durable yet; 0: none."""


class GroupHead(msgspec.Struct, frozen=True, array_like=True):
    """What a checkpoint says of the log: the state is as of the snapshot's index."""

    hard: HardState
    snapshot: RaftSnapshot
    entries: tuple[RaftEntry, ...]
    """Those after it, applied or not."""


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_writes: msgspec.msgpack.Decoder[GroupWrite] = msgspec.msgpack.Decoder(GroupWrite)
_heads: msgspec.msgpack.Decoder[GroupHead] = msgspec.msgpack.Decoder(GroupHead)


def encoded(what: GroupWrite | GroupHead) -> bytes:
    """As it is written."""
    return _encoder.encode(what)


@dataclass(slots=True)
class RestoredGroup:
    """What a restart has of a replica."""

    hard: HardState = field(default_factory=HardState)
    snapshot: RaftSnapshot = NOTHING
    entries: list[RaftEntry] = field(default_factory=list)
    pieces: Sequence[bytes] = ()
    """The state as of the snapshot."""

    def log(self) -> RaftLog:
        """The log of the new life."""
        return RaftLog(self.snapshot, self.entries, committed=self.hard.commit)

    def take(self, write: GroupWrite) -> None:
        """One more write.

        What follows a snapshot that was being installed, and is not here, does not count, but for term and vote: nobody
        was told that it is held, and what is here may be another log than that which it follows.
        """
        missing = write.installing > self.snapshot.index
        if write.abandoned:
            self.snapshot, self.entries, self.pieces = NOTHING, [], ()
        if write.begin is not None:
            self.snapshot, self.entries, self.pieces = write.begin, [], ()
        if write.entries and not missing:
            begin = write.entries[0].index
            kept = begin - self.snapshot.index - 1
            if 0 <= kept <= len(self.entries):
                self.entries[kept:] = write.entries
            elif 0 < -kept < len(write.entries):
                self.entries = list(write.entries[-kept:])
        if write.hard is not None:
            self.hard = write.hard._replace(commit=self.hard.commit) if missing else write.hard


def regained(found: RecoveredGroup) -> RestoredGroup:
    """What these pieces and writes, in their order, say. Raises msgspec.DecodeError when they are none."""
    replica = RestoredGroup()
    if found.pieces:
        head = _heads.decode(found.pieces[0])
        replica = RestoredGroup(head.hard, head.snapshot, list(head.entries), found.pieces[1:])
    for data in found.writes:
        replica.take(_writes.decode(data))
    return replica

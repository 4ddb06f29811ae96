"""Journal format of a Raft replica, and its recovery after a restart.

The journal has a beginning of each group, its writes, and checkpoints that replace everything before them. A checkpoint
is a list of pieces: a `GroupHead`, then the state in the form of its client.
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
"""An empty replica, which waits for a snapshot of its leader."""


class GroupWrite(msgspec.Struct, frozen=True, array_like=True):
    """Everything that one `RaftReady` has to store."""

    hard: HardState | None = None
    """None: unchanged."""
    entries: tuple[RaftEntry, ...] = ()
    """They replace stored entries from their first index on."""
    abandoned: bool = False
    """Everything before is void."""
    begin: RaftSnapshot | None = None
    """The log starts after this index; the state there is empty."""
    installing: int = 0
    """Index of the snapshot on which entries and commit depend, while its checkpoint may not be durable; 0: none."""


class GroupHead(msgspec.Struct, frozen=True, array_like=True):
    """Head of a checkpoint: the state is that at the snapshot's index."""

    hard: HardState
    snapshot: RaftSnapshot
    entries: tuple[RaftEntry, ...]
    """After the snapshot, applied or not."""


_encoder = msgspec.msgpack.Encoder(order="deterministic")
decode_write = msgspec.msgpack.Decoder(GroupWrite).decode
_heads: msgspec.msgpack.Decoder[GroupHead] = msgspec.msgpack.Decoder(GroupHead)


def encoded(what: GroupWrite | GroupHead) -> bytes:
    return _encoder.encode(what)


@dataclass(slots=True)
class RestoredGroup:
    hard: HardState = field(default_factory=HardState)
    snapshot: RaftSnapshot = NOTHING
    entries: list[RaftEntry] = field(default_factory=list)
    pieces: Sequence[bytes] = ()
    """The state at the snapshot's index."""

    def log(self) -> RaftLog:
        return RaftLog(self.snapshot, self.entries, committed=self.hard.commit)

    def take(self, write: GroupWrite) -> None:
        """Example: the leader installs a snapshot at index 900, entries 901 to 905 follow, and the process crashes
        before the checkpoint of 900 is durable. These entries are dropped: no acknowledgement of them was sent, and the
        log here may be another one. Only term and vote count, since a vote must never be forgotten.
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
    """Apply the writes of a replica in order. Raises msgspec.DecodeError."""
    replica = RestoredGroup()
    if found.pieces:
        head = _heads.decode(found.pieces[0])
        replica = RestoredGroup(head.hard, head.snapshot, list(head.entries), found.pieces[1:])
    for data in found.writes:
        replica.take(decode_write(data))
    return replica

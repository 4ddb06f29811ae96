"""One replica of a Raft group on this member."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from holdfast.core.model.ids import GroupNumber, MemberId
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.group import Group, RaftWritten
from holdfast.core.raft.raft_messages import RaftEntry, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import GroupNotice, RaftRole


class LeadChanged(NamedTuple):
    """The leader of a group as this replica knows it; None: no leader is known."""

    lead: NodeId | None
    role: RaftRole
    term: int


ReplicaNotice = LeadChanged | GroupNotice


class StatePieces(Protocol):
    """The state as of one applied entry, read piece by piece while the group goes on."""

    @property
    def is_void(self) -> bool:
        """It cannot be read any more; ask for the present state instead."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes:
        """Raises StopIteration when these were all."""

    def close(self) -> None:
        """It is not read any more. Not needed after the last piece."""


class StateFill(Protocol):
    """A state that is filled piece by piece, beside the one in use."""

    def add(self, piece: bytes) -> None:
        """Raises ProtocolError."""

    def install(self) -> None:
        """Replace the client's whole state. Called at most once."""


class GroupClient(Protocol):
    """The state that a group replicates, on one member. No method may raise."""

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        """Apply committed entries: in order, each once after the last `restore`."""

    def read_ready(self, context: bytes) -> None:
        """The state now contains everything that this read must see."""

    def on_group(self, notice: ReplicaNotice) -> None:
        """The leader of the group or its configuration has changed."""

    def pieces(self) -> StatePieces:
        """The state as of the last applied entry."""

    def fill(self) -> StateFill:
        """A new state, still empty."""

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Replace the whole state; without pieces begin empty."""


class ListedPieces:
    """`StatePieces` of a small state, listed at once."""

    is_void = False

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(list(pieces))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        self._pieces = iter(())


class GatheredFill:
    """`StateFill` of a client with a small state: keeps the pieces, and restores them together."""

    def __init__(self, client: GroupClient) -> None:
        self._client = client
        self.pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def install(self) -> None:
        self._client.restore(self.pieces)


@dataclass(slots=True)
class PendingWrite:
    """The messages and the acknowledgement of one `RaftReady`, held back until its writes are durable."""

    after: Sequence[RaftMessage]
    written: RaftWritten | None
    durable: bool = False
    ticket: int = 0
    """A checkpoint that has to be durable as well; 0: none."""

    @property
    def done(self) -> bool:
        return self.durable and not self.ticket


@dataclass(slots=True)
class ArrivingState:
    sender: MemberId
    lead_term: int
    """In which it sends."""
    index: int
    term: int
    fill: StateFill
    taken: int = 0
    """Pieces."""

    def is_of(self, sender: MemberId, lead_term: int, snapshot: RaftSnapshot) -> bool:
        """Pieces of two leaders do not fit together, even at one index (multiraft/H-4)."""
        mine = (self.sender, self.lead_term, self.index, self.term)
        return mine == (sender, lead_term, snapshot.index, snapshot.term)


class HostedGroup:
    __slots__ = (
        "arriving",
        "asleep",
        "bytes_since",
        "client",
        "group",
        "halted",
        "known_to",
        "number",
        "quiet",
        "reads",
        "term_seen",
        "writing",
    )

    def __init__(self, number: GroupNumber, group: Group, client: GroupClient) -> None:
        self.number = number
        self.group = group
        self.client = client
        self.writing: deque[PendingWrite] = deque()
        """Not durable yet, oldest first."""
        self.reads: list[tuple[int, bytes]] = []
        """With the index that must be applied, and their contexts."""
        self.arriving: ArrivingState | None = None
        self.asleep: bool
        self.halted = False
        """It takes no part until it is resumed."""
        self.quiet: int
        """Ticks since something happened."""
        self.bytes_since = 0
        """Approximate, of entries applied since the log was last compacted."""
        self.term_seen = group.term
        self.known_to = group.log.last
        """Entries up to this index were in the files, or are applied again: they are not news (raft_partition/Z-10)."""

    def rebuild(self, snapshot: RaftSnapshot, fill: StateFill) -> bool:
        """Replace the state by the leader's at an applied index, and apply later entries again (multiraft/H-9). Returns
        whether that was done: not if the log here begins after that index.
        """
        log, index = self.group.log, snapshot.index
        assert index <= log.applied, "a newer state is installed as any"
        self.known_to = max(self.known_to, log.applied)
        if index < log.base or log.term(index) != snapshot.term or log.snapshot is not None:
            return False
        fill.install()
        later = log.entries_from(index + 1, upto=log.applied) if index < log.applied else ()
        if commands := [entry for entry in later if entry.data]:
            self.client.apply(commands)
        return True

    def is_idle(self, here: AbstractSet[NodeId]) -> bool:
        """Whether nothing is pending here and, if this replica leads, at any follower among the nodes in the view.

        Followers that are not in the view do not keep a leader awake, as long as those in it are a majority. Example:
        of the voters {a, b, c}, c has crashed and lacks entry 9, which a and b have. They sleep: heartbeats to c could
        not arrive, and the view that has c again wakes a, which then sends entry 9. If b crashes as well, a stays
        awake: it has to find out that it has no majority and to step down, so that requests do not wait for it.
        """
        group, log = self.group, self.group.log
        done = log.last == log.committed == log.applied and not self.writing and not self.reads
        leading = group.leading
        if leading is None:
            return done and log.snapshot is None
        return (
            done
            and leading.settled
            and group.rests
            and not group.configuration.lacks_majority(here)
            and all(
                progress.match == log.last and progress.sent_commit == log.committed
                for node, progress in leading.progress.items()
                if node != group.me and node in here
            )
        )

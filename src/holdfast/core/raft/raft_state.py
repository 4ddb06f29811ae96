"""The state that a replica has in every role."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import NamedTuple

from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import AFTER_DISK, RaftKind, RaftMessage


@unique
class RaftRole(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    """It asks whether it would win, before it raises its term."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class HardState(NamedTuple):
    """The state that must be durable besides the log."""

    term: int = 0
    vote: NodeId | None = None
    commit: int = 0
    generation: int = 0
    """Token of the last reset (raft/E-6)."""


class ReadAt(NamedTuple):
    """A read index: the read `context` may be answered when the index `upto` is applied."""

    context: bytes
    upto: int


class LeaderElected(NamedTuple):
    """This replica leads, and an entry of its term is committed."""

    term: int


@dataclass(frozen=True, slots=True)
class ChangeApplied:
    """This configuration, at this index, is final and committed. The leader may report it more than once."""

    configuration: Configuration
    term: int
    index: int


class ChangeFailed(NamedTuple):
    token: int
    why: str


class CaughtUp(NamedTuple):
    """The new voters of this change have caught up; it waits for `agree_change`."""

    token: int


GroupNotice = LeaderElected | ChangeApplied | ChangeFailed | CaughtUp


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """Settings of a group. Times are ticks, whose length the host decides."""

    election_ticks: int = 10
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    """A replica that was away does not depose a working leader."""
    check_quorum: bool = True
    """A leader without answers of a majority steps down; followers reject votes while they hear a leader."""
    message_bytes: int = 1 << 20
    """Approximate, of entries; 0: unlimited."""
    uncommitted_bytes: int = 64 << 20
    """Limit for proposals; 0: unlimited."""
    applying_bytes: int = 0
    """Limit for committed entries handed out and not applied; 0: unlimited."""
    window: int = 64
    """Messages with entries in flight to one follower."""
    window_bytes: int = 0
    lease_reads: bool = False
    """Answer reads without a round of messages. Safe only if clocks run at the same rate."""
    catch_up_margin: int = 1000
    """A new voter has caught up when at most so many entries are missing."""
    catch_up_ticks: int = 50
    """A change fails after so many ticks without progress."""
    starts_voted: bool = False
    """A replica without state may be the second one of its node (raft/E-7)."""
    sends_commits: bool = True
    """At once, not with the next entry or heartbeat."""
    keeps_leading_when_removed: bool = False
    """Until another leader is elected."""
    transfers_when_removed: bool = True
    """A removed leader asks a successor to campaign at once."""


class RaftState:
    __slots__ = (
        "after",
        "generation",
        "lead",
        "log",
        "me",
        "messages",
        "notices",
        "reads",
        "settings",
        "term",
        "uncommitted",
        "vote",
    )

    def __init__(self, me: NodeId, settings: RaftSettings, log: RaftLog, hard: HardState) -> None:
        self.me = me
        self.settings = settings
        self.log = log
        self.term = hard.term
        self.vote = hard.vote
        self.generation = hard.generation
        self.lead: NodeId | None = None
        self.messages: list[RaftMessage] = []
        self.after: list[RaftMessage] = []
        """To be sent when everything before them is durable; also to this replica itself."""
        self.reads: list[ReadAt] = []
        self.notices: list[GroupNotice] = []
        self.uncommitted = 0
        """Bytes of proposals accepted as leader."""

    @property
    def configuration(self) -> Configuration:
        """The last configuration in the log (raft/C-1)."""
        return self.log.configuration

    @property
    def is_empty(self) -> bool:
        """Whether this replica has never received anything of the group (raft/E-7)."""
        return not self.log.last

    @property
    def promotable(self) -> bool:
        """Whether it may campaign: a voter that installs no snapshot (raft/E-4)."""
        log = self.log
        if log.snapshot is not None:
            return False
        return log.configuration.votes(self.me) or log.configuration_at(log.committed).votes(self.me)

    def send(self, kind: RaftKind, to: NodeId, *, term: int | None = None, **more: object) -> None:
        """Queue a message, for after the disk if its kind is in `AFTER_DISK`. `term`: None: this term."""
        message = RaftMessage(
            kind=kind,
            to=to,
            sender=self.me,
            generation=self.generation,
            term=self.term if term is None else term,
            **more,  # type: ignore[arg-type]
        )
        (self.after if kind in AFTER_DISK else self.messages).append(message)

    def forward(self, message: RaftMessage, to: NodeId) -> None:
        """Forward a request to the leader, without a term."""
        self.messages.append(
            RaftMessage(
                kind=message.kind,
                to=to,
                sender=message.sender,
                generation=self.generation,
                entries=message.entries,
                context=message.context,
            )
        )

"""What a replica of a group always has, whatever its role: its log, its term and vote, and what it is about to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import NamedTuple

from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import AFTER_DISK, RaftKind, RaftMessage


@unique
class RaftRole(Enum):
    """What a replica is in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    """It asks whether it would be elected, before it disturbs anybody."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class HardState(NamedTuple):
    """What has to be durable before anybody is answered."""

    term: int = 0
    vote: NodeId | None = None
    commit: int = 0
    generation: int = 0
    """The token of the last reset (raft/E-6)."""


class ReadAt(NamedTuple):
    """A read may be answered when everything up to the index `upto` is applied."""

    context: bytes
    upto: int


class LeaderElected(NamedTuple):
    """This replica leads, and an entry of its term is committed."""

    term: int


@dataclass(frozen=True, slots=True)
class ChangeApplied:
    """This configuration, which has these term and index, is final: told by the leader, perhaps again."""

    configuration: Configuration
    term: int
    index: int


class ChangeFailed(NamedTuple):
    """Of a change that was started nothing has come, and nothing will."""

    token: int
    why: str


class CaughtUp(NamedTuple):
    """The new voters of the change by this token are close to the end of the log; it waits for `agree_change`."""

    token: int


GroupNotice = LeaderElected | ChangeApplied | ChangeFailed | CaughtUp


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """How a group behaves. Times are ticks: whoever drives the group says how long one is."""

    election_ticks: int = 10
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    """Whether it is asked first who would vote: so one that was away does not end a good leader's term."""
    check_quorum: bool = True
    """Whether a leader that does not hear of a majority steps down, and followers stick to one that they hear of."""
    message_bytes: int = 1 << 20
    """Entries of one message, at about; 0: without bound."""
    uncommitted_bytes: int = 64 << 20
    """How much a leader takes before it is committed; 0: without bound."""
    applying_bytes: int = 0
    """By how much applying may be behind; 0: without bound."""
    window: int = 64
    """Messages with entries that may be on their way to a follower."""
    window_bytes: int = 0
    lease_reads: bool = False
    """Whether a leader answers reads by its lease, for which clocks must run alike."""
    catch_up_margin: int = 1000
    """A new voter has caught up when no more entries than this are missing there."""
    catch_up_ticks: int = 50
    """How long it may get nothing before a change is given up."""
    begins_voted: bool = False
    """Whether a replica that has nothing may be the second one of its node (raft/E-7)."""
    commits_told: bool = True
    """Whether a leader tells followers of each commit at once. Otherwise with the next entry, or heartbeat."""
    removed_leads: bool = False
    """Whether a leader that was removed goes on until another one is elected."""
    bequeaths: bool = True
    """Whether one that steps down for that asks another to campaign at once."""


class RaftState:
    """A replica of a group, without its role."""

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
        """Who leads in this term, as far as is known."""
        self.messages: list[RaftMessage] = []
        """What may leave at once."""
        self.after: list[RaftMessage] = []
        """What may leave when everything before it is durable; also to this replica itself."""
        self.reads: list[ReadAt] = []
        """Reads of this replica that may be answered."""
        self.notices: list[GroupNotice] = []
        """What whoever drives the group wants to know."""
        self.uncommitted = 0
        """Bytes of entries that were taken as leader and are not committed."""

    @property
    def configuration(self) -> Configuration:
        """The one in force: the last in the log (raft/C-1)."""
        return self.log.configuration

    @property
    def promotable(self) -> bool:
        """Whether it may become a leader: a voter that is not busy with a snapshot (raft/E-4)."""
        log = self.log
        if log.snapshot is not None:
            return False
        return log.configuration.votes(self.me) or log.configuration_at(log.committed).votes(self.me)

    def send(self, kind: RaftKind, to: NodeId, *, term: int | None = None, **more: object) -> None:
        """Say something in this term, or in another one."""
        message = RaftMessage(
            kind=kind,
            to=to,
            sender=self.me,
            generation=self.generation,
            term=self.term if term is None else term,
            **more,  # type: ignore[arg-type]
        )
        (self.after if kind in AFTER_DISK else self.messages).append(message)

    def pass_on(self, message: RaftMessage, to: NodeId) -> None:
        """Give somebody's request to the leader. It is of no term."""
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

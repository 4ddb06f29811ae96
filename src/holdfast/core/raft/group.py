"""One replica of a Raft group: follower, candidate or leader. Messages in, `RaftReady` out.

A replica has no clock, disk or network. Its host calls `tick` at a steady rate and `step` for each message, carries out
what `ready` returns, and reports back with `written` (durable) and `applied`.

- raft/E-1: A term and a vote are durable before another replica learns of them. A candidate leads only when its own
  vote is durable: no replica leads twice in one term with different logs.
- raft/E-2: A replica grants one vote a term, to a candidate whose log is at least as up to date as its own. Learners
  grant votes, too. Example: leader a appends, on a and b, the configuration {a, b, d} that makes learner d a voter, and
  crashes. b needs the vote of d, and d does not know yet that it is a voter.
- raft/E-3: A pre-vote comes before each election. A replica that hears of a leader rejects it, unless that leader
  transfers leadership.
- raft/E-4: A replica that is no voter, or that installs a snapshot, does not campaign. A removed voter still does until
  its removal is committed: its log may be the only complete one.
- raft/E-5: A write that was started in an older term does not acknowledge anything: its entries may have been replaced.
- raft/E-6: A reset starts a new generation of the group. Messages of older generations are ignored, however high their
  term. A replica of an older generation that hears a leader of a newer one drops its log.
- raft/E-7: A replica without any state grants no vote, and counts the first leader it hears of as its vote. Another
  replica of the same node may have voted in this term, and have been destroyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.follower import Follower
from holdfast.core.raft.leader import Leader, ProposalRefused
from holdfast.core.raft.quorum import Election, vote
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import (
    HANDED_OVER,
    LEADERS,
    RaftEntry,
    RaftKind,
    RaftMessage,
    RaftSnapshot,
)
from holdfast.core.raft.raft_state import GroupNotice, HardState, RaftRole, RaftSettings, RaftState, ReadAt
from holdfast.core.raft.reconfiguration import ChangeAnswer, ChangeStage, Reconfiguration


@dataclass(frozen=True, slots=True)
class RaftWritten:
    """State that becomes durable when a `RaftReady` is written."""

    term: int
    last: tuple[int, int]
    """Index and term; (0, 0): no entries."""
    snapshot: int
    """Index; 0: none."""


@dataclass(slots=True)  # one for each step: a frozen one takes three times as long to make
class RaftReady:
    """Work for the host, in this order. All of it must be done."""

    lead: NodeId | None
    role: RaftRole
    leadership_changed: bool
    hard: HardState | None
    """Write it; None: unchanged."""
    abandoned: bool
    """Destroy the old log and state first (raft/E-6)."""
    snapshot: RaftSnapshot | None
    """Install it before entries are written."""
    entries: Sequence[RaftEntry]
    """Write them. They replace all stored entries from the first of these indexes on."""
    must_sync: bool
    """The write must be durable (fsync) before `after` is sent."""
    messages: Sequence[RaftMessage]
    """Send them at once."""
    after: Sequence[RaftMessage]
    """Send them when the write is durable; give messages to this replica back to `step`."""
    committed: Sequence[RaftEntry]
    """Apply them in this order, then report them with `applied`."""
    reads: Sequence[ReadAt]
    notices: Sequence[GroupNotice]
    written: RaftWritten | None
    """Pass it to `written` when it is durable, after `after` was sent."""


class Group:
    def __init__(
        self,
        me: NodeId,
        name: bytes,
        log: RaftLog,
        hard: HardState | None = None,
        settings: RaftSettings | None = None,
    ) -> None:
        """`name`: spreads the election timeouts of a node's groups. `log`, `hard`: as read from disk."""
        hard = hard or HardState()
        self._state = RaftState(me, settings or RaftSettings(), log, hard)
        self.me = me
        self.log = log
        self._name = name
        self.role: RaftRole
        self._following = Follower(self._state)
        self.leading: Leader | None
        """While this replica leads."""
        self._changing: Reconfiguration | None = None
        """While this replica leads."""
        self._elapsed: int
        """Ticks since a leader was heard or a vote granted; for a leader, since it last checked its quorum."""
        self._heartbeat_elapsed: int
        self.timeout_ticks: int
        self._votes: dict[NodeId, bool]
        self._abandoned = False
        """Not reported by `ready` yet."""
        self._told_lead: tuple[NodeId | None, RaftRole] = (None, RaftRole.FOLLOWER)
        log.commit_to(hard.commit)
        self._become_follower(hard.term)
        self._told_hard = self.hard

    # -- state

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def generation(self) -> int:
        """Token of the last reset; 0: none."""
        return self._state.generation

    @property
    def lead(self) -> NodeId | None:
        return self._state.lead

    @property
    def matched_by_active(self) -> int:
        """No active follower lacks an entry up to this index. The last index, if this node does not lead."""
        return self.leading.matched_by_active if self.leading is not None else self.log.last

    @property
    def configuration(self) -> Configuration:
        """The last configuration in the log, committed or not."""
        return self.log.configuration

    @property
    def rests(self) -> bool:
        """Whether no change of peers, leadership transfer or read is in progress."""
        changing = self._changing
        return changing is None or (changing.stage is ChangeStage.NONE and not changing.leading.busy)

    @property
    def hard(self) -> HardState:
        return HardState(self._state.term, self._state.vote, self.log.committed, self._state.generation)

    # -- roles

    def _reset(self, term: int) -> None:
        if term != self._state.term:
            self._state.term, self._state.vote = term, None
        self._state.lead = None
        self._elapsed = self._heartbeat_elapsed = 0
        self._votes = {}
        if self._changing is not None:
            self._changing.end()
        self.leading = self._changing = None
        self._draw_timeout()

    def _draw_timeout(self) -> None:
        """Draw between T and 2T ticks, pseudo-random by group, replica and term, so that runs can be repeated."""
        ticks = self._state.settings.election_ticks
        word = blake2b(self._name + f"/{self.me}/{self._state.term}".encode(), digest_size=8).digest()
        self.timeout_ticks = ticks + int.from_bytes(word, "big") % ticks

    def _become_follower(self, term: int) -> None:
        """The leader becomes known with its first message (`Follower.on_message`)."""
        self._reset(term)
        self.role = RaftRole.FOLLOWER

    def _become_pre_candidate(self) -> None:
        """The term and the vote stay as they are."""
        assert self.leading is None, "a leader does not ask who would vote for it"
        self._votes = {}
        self._state.lead = None
        self.role = RaftRole.PRE_CANDIDATE

    def _become_candidate(self) -> None:
        self._reset(self._state.term + 1)
        self._state.vote = self.me
        self.role = RaftRole.CANDIDATE

    def _become_leader(self) -> None:
        assert self.role is not RaftRole.FOLLOWER, "a leader was elected"
        self._reset(self._state.term)
        self._state.lead = self.me
        self.role = RaftRole.LEADER
        self.leading = Leader(self._state)
        self._changing = Reconfiguration(self._state, self.leading)

    # -- time

    def tick(self) -> None:
        changing = self._changing
        if changing is None:
            self._elapsed += 1
            if self._state.promotable and self._elapsed >= self.timeout_ticks:
                self._elapsed = 0
                self.campaign()
            return
        leading, settings = changing.leading, self._state.settings
        self._heartbeat_elapsed += 1
        self._elapsed += 1
        if self._elapsed >= settings.election_ticks:
            self._elapsed = 0
            if settings.check_quorum and not leading.has_quorum():
                self._become_follower(self._state.term)
                return
            leading.transferee = None
        if self._heartbeat_elapsed >= settings.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            leading.heartbeat()
        leading.tick()
        changing.tick()

    # -- elections

    def campaign(self, *, handed_over: bool = False) -> None:
        """Start an election if this replica may (raft/E-4). With `handed_over` it does not ask for pre-votes first."""
        if self.leading is not None or not self._state.promotable:
            return
        if self._state.settings.pre_vote and not handed_over:
            self._become_pre_candidate()
            self._request(RaftKind.PRE_VOTE, self._state.term + 1, b"")
        else:
            self._become_candidate()
            self._request(RaftKind.VOTE, self._state.term, HANDED_OVER if handed_over else b"")

    def _request(self, kind: RaftKind, term: int, context: bytes) -> None:
        sets, log = self.configuration.sets, self.log
        for node in sorted(sets[0] | sets[1] | {self.me}):
            if node == self.me:
                # Its own vote comes back through `RaftReady.after`, when it is durable (raft/E-1). A removed voter
                # (raft/E-4) waits for it as well, although it does not count.
                answer = RaftKind.VOTED if kind is RaftKind.VOTE else RaftKind.PRE_VOTED
                self._state.send(answer, node, term=term)
            else:
                self._state.send(
                    kind, node, term=term, index=log.last, log_term=log.last_term, context=context
                )

    def _on_vote(self, message: RaftMessage) -> None:
        """Grant or reject a vote or a pre-vote (raft/E-2)."""
        state, pre = self._state, message.kind is RaftKind.PRE_VOTE
        answer = RaftKind.PRE_VOTED if pre else RaftKind.VOTED
        free = state.vote == message.sender or (state.vote is None and state.lead is None)
        free = free and not (state.settings.starts_voted and state.is_empty)
        # A vote request of a higher term has raised this term already; only a pre-vote names a future one.
        free = free or message.term > state.term
        if free and self.log.up_to_date(message.index, message.log_term):
            state.send(answer, message.sender, term=message.term)
            if not pre:
                self._elapsed = 0
                state.vote = message.sender
        else:
            state.send(answer, message.sender, refused=True)

    def _on_voted(self, message: RaftMessage) -> None:
        self._votes.setdefault(message.sender, not message.refused)
        result = vote(self.configuration.sets, self._votes)
        if result is Election.LOST:
            self._become_follower(self._state.term)
        elif result is Election.WON and self.role is RaftRole.PRE_CANDIDATE:
            self._become_candidate()
            self._request(RaftKind.VOTE, self._state.term, b"")
        elif result is Election.WON and self.me in self._votes:
            # Not before its own vote is durable, even if the others are a majority. Otherwise: a leads in term 2 with
            # the votes of b and c, b stores entry 2/9, a loses power and comes back in term 1. It campaigns in term 2
            # again, c grants it the same vote again, and another entry 2/9 is committed.
            self._become_leader()
            assert self.leading is not None
            self.leading.broadcast()

    # -- messages

    def step(self, message: RaftMessage) -> None:
        """Handle a message from another replica, or from this one by `RaftReady.after`."""
        if message.generation != self._state.generation and not self._in_generation(message):
            return
        if message.kind not in (RaftKind.PROPOSE, RaftKind.READ, RaftKind.TRANSFER) and not self._in_term(
            message
        ):
            return
        if message.kind in (RaftKind.VOTE, RaftKind.PRE_VOTE):
            self._on_vote(message)
        elif self.leading is not None:
            self._step_leader(self.leading, message)
        elif message.kind in LEADERS:
            if self.role is not RaftRole.FOLLOWER:
                self._become_follower(message.term)
            self._elapsed = 0
            self._following.on_message(message)
        elif self.role is RaftRole.FOLLOWER:
            self._step_follower(message)
        elif message.kind is (RaftKind.PRE_VOTED if self.role is RaftRole.PRE_CANDIDATE else RaftKind.VOTED):
            self._on_voted(message)
        self._after_step()

    def _in_generation(self, message: RaftMessage) -> bool:
        """Whether to handle a message of another generation (raft/E-6): only a newer leader's, for which this replica
        drops its log.
        """
        if message.generation < self._state.generation or message.kind not in LEADERS:
            return False
        self._state.generation = message.generation
        self.log.abandon()
        self._abandoned = True
        self._become_follower(max(message.term, self._state.term))
        self._state.messages, self._state.after = [], []
        return True

    def _in_term(self, message: RaftMessage) -> bool:
        """Whether the message is of the current term, which it may have raised."""
        kind, state, settings = message.kind, self._state, self._state.settings
        if message.term > state.term:
            if kind in (RaftKind.VOTE, RaftKind.PRE_VOTE):
                sticks = settings.check_quorum and state.lead is not None
                if sticks and self._elapsed < settings.election_ticks and message.context != HANDED_OVER:
                    return False  # raft/E-3
            if kind is RaftKind.PRE_VOTE or (kind is RaftKind.PRE_VOTED and not message.refused):
                return True  # It names a term that has not begun.
            self._become_follower(message.term)
        elif message.term < state.term:
            if kind in (RaftKind.HEARTBEAT, RaftKind.APPEND) and (settings.check_quorum or settings.pre_vote):
                # With pre-votes or quorum checks this replica does not raise the old leader's term by campaigning.
                # Without an answer that leader would not learn that its term has ended.
                state.send(RaftKind.APPENDED, message.sender)
            elif kind is RaftKind.PRE_VOTE:
                state.send(RaftKind.PRE_VOTED, message.sender, refused=True)
            return False
        return True

    def _step_leader(self, leading: Leader, message: RaftMessage) -> None:
        kind = message.kind
        if kind is RaftKind.APPENDED:
            leading.on_appended(message)
        elif kind is RaftKind.HEARTBEAT_HEARD:
            leading.on_heartbeat_heard(message)
        elif kind is RaftKind.PROPOSE:
            try:
                leading.propose([entry.data for entry in message.entries])
            except ProposalRefused:
                pass  # The replica that forwarded it retries.
        elif kind is RaftKind.READ:
            leading.on_read(message)
        elif kind is RaftKind.TRANSFER:
            self.transfer(message.sender)

    def _step_follower(self, message: RaftMessage) -> None:
        kind, state = message.kind, self._state
        if kind is RaftKind.TIMEOUT_NOW:
            self.campaign(handed_over=True)
        elif kind is RaftKind.READ_AT:
            state.reads.append(ReadAt(message.context, message.index))
        elif kind in (RaftKind.PROPOSE, RaftKind.READ, RaftKind.TRANSFER) and state.lead is not None:
            state.forward(message, state.lead)

    def _after_step(self) -> None:
        """Continue a change of peers after a commit; step down if this leader is removed."""
        changing = self._changing
        if changing is None:
            return
        leading = changing.leading
        leading.leave_joint()
        changing.look()
        if leading.is_removed and not self._state.settings.keeps_leading_when_removed:
            if self._state.settings.transfers_when_removed:
                leading.transfer_after_removal()
            self._become_follower(self._state.term)

    # -- requests of the host

    def propose(self, commands: Sequence[bytes]) -> int | None:
        """Append commands as leader, or forward them to the leader. Returns the index of the last one, None if
        forwarded. Raises ProposalRefused.
        """
        if self.leading is not None:
            return self.leading.propose(commands)
        if self._state.lead is None:
            raise ProposalRefused("no leader is known")
        entries = tuple(RaftEntry(0, 0, data) for data in commands)
        message = RaftMessage(kind=RaftKind.PROPOSE, to=self._state.lead, sender=self.me, entries=entries)
        self._state.forward(message, self._state.lead)
        return None

    def change_peers(
        self,
        term: int,
        voters: Iterable[NodeId],
        learners: Iterable[NodeId],
        token: int,
        *,
        asks: bool = False,
    ) -> ChangeAnswer:
        """Start a change of the peers; `RaftReady.notices` reports its outcome. `asks`: wait for `agree_change` after
        the new peers have caught up. Raises ProposalRefused if this replica does not lead.
        """
        if self._changing is None:
            raise ProposalRefused("only a leader changes the peers")
        answer = self._changing.request(term, voters, learners, token, asks=asks)
        self._after_step()
        return answer

    def agree_change(self, term: int, token: int) -> bool:
        """Log the change, whose peers have caught up. Returns whether it was waiting for that. Raises
        ProposalRefused.
        """
        if self._changing is None:
            raise ProposalRefused("only a leader changes the peers")
        agreed = self._changing.agree(term, token)
        self._after_step()
        return agreed

    def cancel_change(self, term: int, token: int) -> bool:
        """Cancel a change whose peers still catch up. Returns whether it will not happen. Raises ProposalRefused."""
        if self._changing is None:
            raise ProposalRefused("only a leader changes the peers")
        return self._changing.cancel(term, token)

    def change(self, configuration: Configuration) -> int:
        """Append a configuration without waiting until its replicas have caught up; returns its index. Raises
        ProposalRefused.
        """
        if self.leading is None:
            raise ProposalRefused("only a leader changes the configuration")
        index = self.leading.change(configuration)
        self._after_step()
        return index

    def read(self, context: bytes) -> None:
        """`RaftReady.reads` reports the index that must be applied before the read is answered.

        `context` identifies the read among all reads of all replicas. Raises ProposalRefused.
        """
        message = RaftMessage(kind=RaftKind.READ, to=self.me, sender=self.me, context=context)
        if self.leading is not None:
            self.leading.on_read(message)
        elif self._state.lead is not None:
            self._state.forward(message, self._state.lead)
        else:
            raise ProposalRefused("no leader is known")

    def transfer(self, node: NodeId) -> None:
        """Transfer the leadership, unless a change of peers is running. The transfer is abandoned after an election
        timeout.
        """
        if self._changing is not None:
            if self._changing.stage is ChangeStage.NONE:
                self._elapsed = 0
                self._changing.leading.transfer(node)
        elif self._state.lead is not None:
            message = RaftMessage(kind=RaftKind.TRANSFER, to=self._state.lead, sender=node)
            self._state.forward(message, self._state.lead)

    def forget_leader(self) -> None:
        """Regard the leader as unknown until it is heard again, and grant pre-votes of others."""
        if self.role is RaftRole.FOLLOWER and not self._state.settings.lease_reads:
            self._state.lead = None

    def reset(self, voters: Iterable[NodeId], token: int, *, term: int = 0) -> ChangeAnswer:
        """Make these voters the group (raft/E-6): an operator has given up the majority. Called on each of them that
        has data; the election that follows completes it.

        Why a generation: with voters a, b, c and b, c lost for the moment, a is reset to {a}. If b and c come back,
        they are a majority of the old configuration and would elect a leader of their own, with a longer log perhaps.

        `term`: the new terms are higher than this one. A replica without data knows no term; if it led in term 2,
        others would still send requests to the leader of term 3 of the group that was given up.
        """
        if token <= max(self.configuration.token, self._state.generation):
            return ChangeAnswer.STALE
        if self._changing is not None and self._changing.stage in (ChangeStage.JOINT, ChangeStage.FINAL):
            return ChangeAnswer.BUSY
        self._state.generation = token
        self._become_follower(max(self._state.term, term) + 1)
        configuration = Configuration(frozenset(voters), token=token)
        self.log.append([RaftEntry(self._state.term, self.log.last + 1, configuration=configuration)])
        return ChangeAnswer.STARTED

    # -- work for the host

    @property
    def has_ready(self) -> bool:
        state, log = self._state, self.log
        return bool(
            state.messages
            or state.after
            or state.reads
            or state.notices
            or log.has_unwritten
            or (log.snapshot is not None and not log.snapshot_handed)
            or self._told_lead != (state.lead, self.role)
            or self._told_hard != self.hard
            or log.has_applicable(unstable=False)
        )

    def ready(self, *, unstable: bool = False) -> RaftReady:
        """Return the work for the host. `unstable`: the host writes before it applies, so committed entries may be
        applied before they are durable here.
        """
        state, log, hard = self._state, self.log, self.hard
        entries = log.unwritten
        snapshot = log.snapshot if not log.snapshot_handed else None
        committed = log.applicable(unstable=unstable)
        before = self._told_hard
        written: RaftWritten | None = None
        if log.writing or log.snapshot is not None:
            end = (log.last, log.last_term) if log.writing else (0, 0)
            written = RaftWritten(state.term, end, log.snapshot.index if log.snapshot is not None else 0)
        ready = RaftReady(
            state.lead,
            self.role,
            self._told_lead != (state.lead, self.role),
            hard if hard != before else None,
            self._abandoned,
            snapshot,
            entries,
            bool(entries) or hard[:2] != before[:2] or hard.generation != before.generation,
            state.messages,
            state.after,
            committed,
            state.reads,
            state.notices,
            written,
        )
        self._told_lead, self._told_hard, self._abandoned = (state.lead, self.role), hard, False
        state.messages, state.after, state.reads, state.notices = [], [], [], []
        log.handed_over()
        if committed:
            log.apply(committed, unstable=unstable)
        return ready

    def written(self, what: RaftWritten) -> None:
        if what.term == self._state.term:
            self.log.written(*what.last)
        self.log.installed(what.snapshot)

    def applied(self, entries: Sequence[RaftEntry]) -> None:
        self.log.has_applied(entries[-1].index, sum(entry.size for entry in entries))

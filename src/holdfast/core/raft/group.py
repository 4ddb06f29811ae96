"""One replica of a Raft group: follower, candidate or leader, in the term that it knows. Messages in, `Ready` out.

It knows no clock: `tick` is called once in a while. What it wants to be done it says in `ready`: what to write down,
what to send now, what to send when that is durable, what to apply. `written` and `applied` tell it when that is done.

- raft/E-1: A term and a vote are durable before anybody hears of them. A candidate leads only when its own vote is
  durable: no replica leads twice in one term with different logs.
- raft/E-2: One vote a term, and only for a log that is not behind; a learner votes, too, for it may be a voter by
  now and not know it.
- raft/E-3: Before an election it is asked who would vote; who hears of a leader would not, unless that one hands
  over.
- raft/E-4: Who is no voter, or is busy with a snapshot, does not campaign. Who was removed still does until it
  knows that to be committed: it may be the only one whose log is complete.
- raft/E-5: What was written down in an older term may have been replaced since: its end counts for nothing.
- raft/E-6: A reset begins a new generation of the group. Who is of an older one is not listened to, however long
  its log and however high its term; when it hears of a leader of the newer one it abandons what it has.
- raft/E-7: Who has nothing votes for nobody, and has voted for the first leader that it hears of: there may have
  been a replica here before, which has voted, and was destroyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from holdfast.core.raft.configuration import Configuration, NodeId
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
    """What is durable when a `Ready` has been written down."""

    term: int
    """The replica's when it handed it over (raft/E-5)."""
    last: tuple[int, int]
    """Index and term of the last entry; (0, 0): there is none to tell of."""
    snapshot: int
    """The index of the snapshot that is installed; 0: none."""


@dataclass(slots=True)  # one for each step: a frozen one takes three times as long to make
class RaftReady:
    """What a replica wants to be done. No part of it may be left out, and one follows the other."""

    lead: NodeId | None
    role: RaftRole
    leadership_changed: bool
    hard: HardState | None
    """To be written down; None: as before."""
    abandoned: bool
    """Whether what was written down, and the state, is to be destroyed before anything else (raft/E-6)."""
    snapshot: RaftSnapshot | None
    """To be installed before any entry is written down."""
    entries: Sequence[RaftEntry]
    """To be written down. They replace what was written down at their indexes and behind."""
    must_sync: bool
    """Whether it has to be durable before `after` may leave."""
    messages: Sequence[RaftMessage]
    """To be sent, now."""
    after: Sequence[RaftMessage]
    """To be sent when everything is durable that is to be written down; those to this replica are given to it."""
    committed: Sequence[RaftEntry]
    """To be applied, in this order. `applied` tells when they are."""
    reads: Sequence[ReadAt]
    notices: Sequence[GroupNotice]
    written: RaftWritten | None
    """To be told when it is durable, after `after`."""


class Group:
    """One replica of one group."""

    def __init__(
        self,
        me: NodeId,
        name: bytes,
        log: RaftLog,
        hard: HardState | None = None,
        settings: RaftSettings | None = None,
    ) -> None:
        """`name`: the group's, so that not all of a member's campaign at once. `log`, `hard`: as they were written."""
        hard = hard or HardState()
        self._seat = RaftState(me, settings or RaftSettings(), log, hard)
        self.me = me
        self.log = log
        self._name = name
        self.role: RaftRole
        self.leading: Leader | None
        """The leader's side; None while it does not lead."""
        self._changing: Reconfiguration | None = None
        """The change of the peers that it is at; None while it does not lead."""
        self._elapsed: int
        """Ticks since a leader, or a vote, was heard of; of a leader, since it asked itself for a majority."""
        self._heartbeat_elapsed: int
        self.timeout_ticks: int
        self._votes: dict[NodeId, bool]
        self._abandoned = False
        """Whether that has to be told yet."""
        self._told_lead: tuple[NodeId | None, RaftRole] = (None, RaftRole.FOLLOWER)
        log.commit_to(hard.commit)
        self._follow(hard.term)
        self._told_hard = self.hard

    # -- what it is now

    @property
    def term(self) -> int:
        """The term that it knows."""
        return self._seat.term

    @property
    def generation(self) -> int:
        """The token of the last reset; 0: there was none."""
        return self._seat.generation

    @property
    def lead(self) -> NodeId | None:
        """Who leads in this term, as far as is known."""
        return self._seat.lead

    @property
    def configuration(self) -> Configuration:
        """The one in force."""
        return self.log.configuration

    @property
    def rests(self) -> bool:
        """Whether nothing is under way that the log does not show: no change of peers, no handing over, no read."""
        changing = self._changing
        return changing is None or (changing.stage is ChangeStage.NONE and not changing.leading.busy)

    @property
    def hard(self) -> HardState:
        """What has to be durable."""
        return HardState(self._seat.term, self._seat.vote, self.log.committed, self._seat.generation)

    @property
    def _has_nothing(self) -> bool:
        """Whether it has never been told anything of the group (raft/E-7)."""
        return not self.log.last

    # -- roles

    def _reset(self, term: int) -> None:
        if term != self._seat.term:
            self._seat.term, self._seat.vote = term, None
        self._seat.lead = None
        self._elapsed = self._heartbeat_elapsed = 0
        self._votes = {}
        if self._changing is not None:
            self._changing.end()
        self.leading = self._changing = None
        self._draw_timeout()

    def _draw_timeout(self) -> None:
        """From T to 2T, another one for each replica and term."""
        ticks = self._seat.settings.election_ticks
        word = blake2b(self._name + f"/{self.me}/{self._seat.term}".encode(), digest_size=8).digest()
        self.timeout_ticks = ticks + int.from_bytes(word, "big") % ticks

    def _follow(self, term: int) -> None:
        """Become a follower; of whom a leader's message says (`_from_leader`)."""
        self._reset(term)
        self.role = RaftRole.FOLLOWER

    def _ask(self) -> None:
        """Become a pre-candidate: nothing is changed by it but what it waits for."""
        assert self.leading is None, "a leader does not ask who would vote for it"
        self._votes = {}
        self._seat.lead = None
        self.role = RaftRole.PRE_CANDIDATE

    def _run(self) -> None:
        self._reset(self._seat.term + 1)
        self._seat.vote = self.me
        self.role = RaftRole.CANDIDATE

    def _lead(self) -> None:
        assert self.role is not RaftRole.FOLLOWER, "a leader was elected"
        self._reset(self._seat.term)
        self._seat.lead = self.me
        self.role = RaftRole.LEADER
        self.leading = Leader(self._seat)
        self._changing = Reconfiguration(self._seat, self.leading)

    # -- time

    def tick(self) -> None:
        """Some time has passed."""
        changing = self._changing
        if changing is None:
            self._elapsed += 1
            if self._seat.promotable and self._elapsed >= self.timeout_ticks:
                self._elapsed = 0
                self.campaign()
            return
        leading, settings = changing.leading, self._seat.settings
        self._heartbeat_elapsed += 1
        self._elapsed += 1
        if self._elapsed >= settings.election_ticks:
            self._elapsed = 0
            if settings.check_quorum and not leading.has_quorum():
                self._follow(self._seat.term)
                return
            leading.transferee = None
        if self._heartbeat_elapsed >= settings.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            leading.heartbeat()
        leading.tick()
        changing.tick()

    # -- elections

    def campaign(self, *, handed_over: bool = False) -> None:
        """Try to be elected, where that is possible (raft/E-4)."""
        if self.leading is not None or not self._seat.promotable:
            return
        if self._seat.settings.pre_vote and not handed_over:
            self._ask()
            self._request(RaftKind.PRE_VOTE, self._seat.term + 1, b"")
        else:
            self._run()
            self._request(RaftKind.VOTE, self._seat.term, HANDED_OVER if handed_over else b"")

    def _request(self, kind: RaftKind, term: int, context: bytes) -> None:
        sets, log = self.configuration.sets, self.log
        for node in sorted(sets[0] | sets[1] | {self.me}):
            if node == self.me:
                # It arrives when term and vote are durable (raft/E-1). A removed voter (raft/E-4) waits for
                # it, too, though it does not count.
                answer = RaftKind.VOTED if kind is RaftKind.VOTE else RaftKind.PRE_VOTED
                self._seat.send(answer, node, term=term)
            else:
                self._seat.send(
                    kind, node, term=term, index=log.last, log_term=log.last_term, context=context
                )

    def _on_vote(self, message: RaftMessage) -> None:
        """Somebody asks for a vote (raft/E-2)."""
        seat, pre = self._seat, message.kind is RaftKind.PRE_VOTE
        answer = RaftKind.PRE_VOTED if pre else RaftKind.VOTED
        free = seat.vote == message.sender or (seat.vote is None and seat.lead is None)
        free = free and not (seat.settings.begins_voted and self._has_nothing)
        # Only a pre-vote speaks of a term that has not come.
        free = free or message.term > seat.term
        if free and self.log.up_to_date(message.index, message.log_term):
            seat.send(answer, message.sender, term=message.term)
            if not pre:
                self._elapsed = 0
                seat.vote = message.sender
        else:
            seat.send(answer, message.sender, refused=True)

    def _on_voted(self, message: RaftMessage) -> None:
        self._votes.setdefault(message.sender, not message.refused)
        result = vote(self.configuration.sets, self._votes)
        if result is Election.LOST:
            self._follow(self._seat.term)
        elif result is Election.WON and self.role is RaftRole.PRE_CANDIDATE:
            self._run()
            self._request(RaftKind.VOTE, self._seat.term, b"")
        elif result is Election.WON and self.me in self._votes:
            # Not before its own vote is durable, even if the others are a majority. Otherwise: a leads in term 2 with
            # the votes of b and c, b stores entry 2/9, a loses power and comes back in term 1. It campaigns in term 2
            # again, c grants it the same vote again, and another entry 2/9 is committed.
            self._lead()
            assert self.leading is not None
            self.leading.broadcast()

    # -- messages

    def step(self, message: RaftMessage) -> None:
        """A message of another replica has come, or one to itself from `Ready.after`."""
        if message.generation != self._seat.generation and not self._in_generation(message):
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
                self._follow(message.term)
            self._from_leader(message)
        elif self.role is RaftRole.FOLLOWER:
            self._step_follower(message)
        elif message.kind is (RaftKind.PRE_VOTED if self.role is RaftRole.PRE_CANDIDATE else RaftKind.VOTED):
            self._on_voted(message)
        self._after_step()

    def _in_generation(self, message: RaftMessage) -> bool:
        """Whether to listen to who knows of another reset (raft/E-6)."""
        if message.generation < self._seat.generation or message.kind not in LEADERS:
            return False
        self._seat.generation = message.generation
        self.log.abandon()
        self._abandoned = True
        self._follow(max(message.term, self._seat.term))
        self._seat.messages, self._seat.after = [], []
        return True

    def _in_term(self, message: RaftMessage) -> bool:
        """Whether it counts in the term that this replica is in, perhaps since this message."""
        kind, seat, settings = message.kind, self._seat, self._seat.settings
        if message.term > seat.term:
            if kind in (RaftKind.VOTE, RaftKind.PRE_VOTE):
                sticks = settings.check_quorum and seat.lead is not None
                if sticks and self._elapsed < settings.election_ticks and message.context != HANDED_OVER:
                    return False  # raft/E-3
            if kind is RaftKind.PRE_VOTE or (kind is RaftKind.PRE_VOTED and not message.refused):
                return True  # It speaks of a term that may come.
            self._follow(message.term)
        elif message.term < seat.term:
            if kind in (RaftKind.HEARTBEAT, RaftKind.APPEND) and (settings.check_quorum or settings.pre_vote):
                # A leader of an older term, which does not disturb anybody, would never hear of this one.
                seat.send(RaftKind.APPENDED, message.sender)
            elif kind is RaftKind.PRE_VOTE:
                seat.send(RaftKind.PRE_VOTED, message.sender, refused=True)
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
                pass  # Who has passed it on asks again.
        elif kind is RaftKind.READ:
            leading.on_read(message)
        elif kind is RaftKind.TRANSFER:
            self.transfer(message.sender)

    def _step_follower(self, message: RaftMessage) -> None:
        kind, seat = message.kind, self._seat
        if kind is RaftKind.TIMEOUT_NOW:
            self.campaign(handed_over=True)
        elif kind is RaftKind.READ_AT:
            seat.reads.append(ReadAt(message.context, message.index))
        elif kind in (RaftKind.PROPOSE, RaftKind.READ, RaftKind.TRANSFER) and seat.lead is not None:
            seat.pass_on(message, seat.lead)

    # -- following

    def _from_leader(self, message: RaftMessage) -> None:
        self._elapsed = 0
        seat, sender = self._seat, message.sender
        seat.lead = sender
        if seat.settings.begins_voted and seat.vote is None and self._has_nothing:
            seat.vote = sender
        if message.kind is RaftKind.HEARTBEAT:
            if message.commit <= self.log.last:
                self.log.commit_to(message.commit)
            elif seat.settings.begins_voted and self._has_nothing:
                # It speaks of a replica that was here before, and was destroyed.
                seat.send(RaftKind.APPENDED, sender, index=message.commit, refused=True)
            seat.send(RaftKind.HEARTBEAT_HEARD, sender, context=message.context)
        elif message.kind is RaftKind.SNAPSHOT:
            self._on_snapshot(message)
        else:
            self._on_append(message)

    def _on_append(self, message: RaftMessage) -> None:
        log, seat, sender = self.log, self._seat, message.sender
        if message.index < log.committed:
            seat.send(RaftKind.APPENDED, sender, index=log.committed)
            return
        last = log.take(message.index, message.log_term, message.entries, message.commit)
        if last is not None:
            seat.send(RaftKind.APPENDED, sender, index=last)
            return
        hint, hint_term = log.conflict_hint(min(message.index, log.last), message.log_term)
        seat.send(RaftKind.APPENDED, sender, index=message.index, refused=True, hint=hint, log_term=hint_term)

    def _on_snapshot(self, message: RaftMessage) -> None:
        snapshot, log, sender = message.snapshot, self.log, message.sender
        assert snapshot is not None, "a message with a snapshot has one"
        if snapshot.index > log.committed and not self._knows(snapshot):
            log.restore(snapshot)
            self._seat.send(RaftKind.APPENDED, sender, index=log.last)
        else:
            self._seat.send(RaftKind.APPENDED, sender, index=log.committed)

    def _knows(self, snapshot: RaftSnapshot) -> bool:
        """Whether the log has all that is in the snapshot, which is then known to be committed."""
        if not self.log.matches(snapshot.index, snapshot.term):
            return False
        self.log.commit_to(snapshot.index)
        return True

    def _after_step(self) -> None:
        """What a leader does when something was committed: leave a joint configuration, or leave itself."""
        changing = self._changing
        if changing is None:
            return
        leading = changing.leading
        leading.leave_joint()
        changing.look()
        if leading.over and not self._seat.settings.removed_leads:
            if self._seat.settings.bequeaths:
                leading.bequeath()
            self._follow(self._seat.term)

    # -- what this replica is asked

    def propose(self, commands: Sequence[bytes]) -> int | None:
        """Take commands as leader, or pass them on to it; answers the index of the last (None: passed on). Raises
        ProposalRefused.
        """
        if self.leading is not None:
            return self.leading.propose(commands)
        if self._seat.lead is None:
            raise ProposalRefused("no leader is known")
        entries = tuple(RaftEntry(0, 0, data) for data in commands)
        message = RaftMessage(kind=RaftKind.PROPOSE, to=self._seat.lead, sender=self.me, entries=entries)
        self._seat.pass_on(message, self._seat.lead)
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
        """Bring the group to these peers; what comes of it is told in `Ready.notices`. `asks`: wait for `agree_change`
        when they have caught up. Raises ProposalRefused where this replica does not lead.
        """
        if self._changing is None:
            raise ProposalRefused("only a leader changes the peers")
        answer = self._changing.request(term, voters, learners, token, asks=asks)
        self._after_step()
        return answer

    def agree_change(self, term: int, token: int) -> bool:
        """Let the change by this token, which has caught up, be logged; whether it was waiting for that. Raises
        ProposalRefused.
        """
        if self._changing is None:
            raise ProposalRefused("only a leader changes the peers")
        agreed = self._changing.agree(term, token)
        self._after_step()
        return agreed

    def cancel_change(self, term: int, token: int) -> bool:
        """Give up the change by this token; whether nothing will come of it. Raises ProposalRefused."""
        if self._changing is None:
            raise ProposalRefused("only a leader changes the peers")
        return self._changing.cancel(term, token)

    def change(self, configuration: Configuration) -> int:
        """Put another configuration in force at once; answers its index. Raises ProposalRefused."""
        if self.leading is None:
            raise ProposalRefused("only a leader changes the configuration")
        index = self.leading.change(configuration)
        self._after_step()
        return index

    def read(self, context: bytes) -> None:
        """Say in `Ready.reads` from which index on a read sees all that was answered before. `context` names it, and no
        other read of any replica. Raises ProposalRefused.
        """
        message = RaftMessage(kind=RaftKind.READ, to=self.me, sender=self.me, context=context)
        if self.leading is not None:
            self.leading.on_read(message)
        elif self._seat.lead is not None:
            self._seat.pass_on(message, self._seat.lead)
        else:
            raise ProposalRefused("no leader is known")

    def transfer(self, node: NodeId) -> None:
        """Hand leadership over to this voter, unless the peers are changing; given up when it takes as long as an
        election.
        """
        if self._changing is not None:
            if self._changing.stage is ChangeStage.NONE:
                self._elapsed = 0
                self._changing.leading.transfer(node)
        elif self._seat.lead is not None:
            message = RaftMessage(kind=RaftKind.TRANSFER, to=self._seat.lead, sender=node)
            self._seat.pass_on(message, self._seat.lead)

    def forget_leader(self) -> None:
        """Follow nobody until the leader is heard of again: then this one would vote for another."""
        if self.role is RaftRole.FOLLOWER and not self._seat.settings.lease_reads:
            self._seat.lead = None

    def reset(self, voters: Iterable[NodeId], token: int, *, term: int = 0) -> ChangeAnswer:
        """An operator has given up the majority: from here on these are the group, with what this replica holds
        (raft/E-6). To be said to each of them that has data; the election that follows tells that it is done.

        `term`: its terms are higher than this one. A replica that begins with nothing knows of no term; were it to lead
        in term 2, others would go on to send requests to the leader of term 3 of the group that was given up.
        """
        if token <= max(self.configuration.token, self._seat.generation):
            return ChangeAnswer.STALE
        if self._changing is not None and self._changing.stage in (ChangeStage.JOINT, ChangeStage.FINAL):
            return ChangeAnswer.BUSY
        self._seat.generation = token
        self._follow(max(self._seat.term, term) + 1)
        configuration = Configuration(frozenset(voters), token=token)
        self.log.append([RaftEntry(self._seat.term, self.log.last + 1, configuration=configuration)])
        return ChangeAnswer.STARTED

    # -- deeds

    @property
    def has_ready(self) -> bool:
        """Whether `ready` would say anything."""
        seat, log = self._seat, self.log
        return bool(
            seat.messages
            or seat.after
            or seat.reads
            or seat.notices
            or log.unwritten
            or (log.snapshot is not None and not log.snapshot_handed)
            or self._told_lead != (seat.lead, self.role)
            or self._told_hard != self.hard
            or log.applicable(unstable=False)
        )

    def ready(self, *, unstable: bool = False) -> RaftReady:
        """What is to be done now. `unstable`: whoever does it writes down before it applies, so also entries may be
        applied that are not durable here yet.
        """
        seat, log, hard = self._seat, self.log, self.hard
        entries = log.unwritten
        snapshot = log.snapshot if not log.snapshot_handed else None
        committed = log.applicable(unstable=unstable)
        before = self._told_hard
        written: RaftWritten | None = None
        if log.writing or log.snapshot is not None:
            end = (log.last, log.last_term) if log.writing else (0, 0)
            written = RaftWritten(seat.term, end, log.snapshot.index if log.snapshot is not None else 0)
        ready = RaftReady(
            seat.lead,
            self.role,
            self._told_lead != (seat.lead, self.role),
            hard if hard != before else None,
            self._abandoned,
            snapshot,
            entries,
            bool(entries) or hard[:2] != before[:2] or hard.generation != before.generation,
            seat.messages,
            seat.after,
            committed,
            seat.reads,
            seat.notices,
            written,
        )
        self._told_lead, self._told_hard, self._abandoned = (seat.lead, self.role), hard, False
        seat.messages, seat.after, seat.reads, seat.notices = [], [], [], []
        log.handed_over()
        if committed:
            log.apply(committed, unstable=unstable)
        return ready

    def written(self, what: RaftWritten) -> None:
        """What was to be written down is durable."""
        if what.term == self._seat.term:
            self.log.written(*what.last)
        self.log.installed(what.snapshot)

    def applied(self, entries: Sequence[RaftEntry]) -> None:
        """These committed entries are applied."""
        self.log.has_applied(entries[-1].index, sum(entry.size for entry in entries))

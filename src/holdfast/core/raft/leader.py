"""What does a leader do? It brings its log to everybody, finds out what a majority holds, and answers reads.

- raft/R-1: Only entries of its own term are committed by counting; what is before them is committed with them.
- raft/R-2: What it holds itself counts when it is durable here.
- raft/R-3: A read is answered when a majority has confirmed, after it came, that this is the leader, and not
  before an entry of its term is committed.
- raft/R-4: One change of the configuration at a time, and none before an entry of its own term is committed.
- raft/R-5: A leader that the final configuration does not have steps down when that is committed, and asks who has
  the longest log to campaign at once: the others would wait as long as for a leader that is dead.
- raft/R-6: It takes nothing from the moment on at which that configuration is in its log. What it has taken before
  is committed by then, and so it can say what has become of it; of later entries it would hear nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from holdfast.core.raft.configuration import Configuration, NodeId, leave_joint
from holdfast.core.raft.follower_progress import GONE, FollowerProgress, Inflight, LogFlow
from holdfast.core.raft.quorum import Election, committed, vote
from holdfast.core.raft.raft_log import Compacted
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import LeaderElected, RaftState, ReadAt


class ProposalRefused(Exception):
    """This is not taken now; nothing has happened."""


@dataclass(slots=True)
class _Read:
    """A read that waits for a majority to confirm the leader."""

    asker: NodeId
    context: bytes
    index: int
    confirmed: set[NodeId] = field(default_factory=set)


class Leader:
    """The leader's side of a group, from its election to its end."""

    def __init__(self, seat: RaftState) -> None:
        self._seat = seat
        self._log = seat.log
        self.progress: dict[NodeId, FollowerProgress] = {}
        self.transferee: NodeId | None = None
        """To whom it is handing over: nothing is taken meanwhile."""
        self.began = self._log.last + 1
        """The first index of this leader's term."""
        self._accompanied: frozenset[NodeId] = frozenset()
        """Who gets the log, and does not belong to the group yet."""
        self._reads: list[_Read] = []
        self._early_reads: list[RaftMessage] = []
        """Reads that came before an entry of this term was committed."""
        for node in self._seat.configuration.members:
            self._follow(node, self.began)
        seat.uncommitted = 0
        self.append([RaftEntry(seat.term, self.began)])

    def _follow(self, node: NodeId, following: int) -> None:
        settings, configuration = self._seat.settings, self._seat.configuration
        self.progress[node] = FollowerProgress(
            following,
            Inflight(settings.window, settings.window_bytes),
            learner=not configuration.votes(node),
        )

    @property
    def others(self) -> list[NodeId]:
        """Everybody else, sorted."""
        return sorted(node for node in self.progress if node != self._seat.me)

    @property
    def busy(self) -> bool:
        """Whether somebody waits for a read, or for leadership."""
        return bool(self._reads or self._early_reads or self.transferee is not None)

    # -- the log grows

    def propose(self, commands: Sequence[bytes]) -> int:
        """Take these commands; answers the index of the last. Raises ProposalRefused."""
        if self.over or (self.removed and not self._seat.settings.removed_leads):
            raise ProposalRefused("this leader was removed from the group")
        if self.transferee is not None:
            raise ProposalRefused(f"leadership is being handed over to {self.transferee}")
        size = sum(map(len, commands))
        most = self._seat.settings.uncommitted_bytes
        if most and size and self._seat.uncommitted and self._seat.uncommitted + size > most:
            raise ProposalRefused("too much is not committed yet")
        first = self._log.last + 1
        entries = [RaftEntry(self._seat.term, first + at, data) for at, data in enumerate(commands)]
        self.append(entries)
        self.broadcast()
        return self._log.last

    def append(self, entries: Sequence[RaftEntry]) -> None:
        """Append entries of this term: this replica holds them when they are durable (raft/R-2)."""
        last = self._log.append(entries)
        self._seat.uncommitted += sum(len(entry.data) for entry in entries)
        self._seat.send(RaftKind.APPENDED, self._seat.me, index=last)

    def change(self, configuration: Configuration) -> int:
        """Put this configuration in force; answers its index. Raises ProposalRefused (raft/R-4)."""
        log = self._log
        if self.transferee is not None:
            raise ProposalRefused(f"leadership is being handed over to {self.transferee}")
        if log.configuration_index > log.committed:
            raise ProposalRefused("another change of the configuration is not committed yet")
        if not self.settled:
            raise ProposalRefused("nothing of this leader's term is committed yet")
        self.append([RaftEntry(self._seat.term, log.last + 1, configuration=configuration)])
        self.switched()
        self.broadcast()
        return log.last

    @property
    def settled(self) -> bool:
        """Whether an entry of this leader's term is committed."""
        return self._log.committed >= self.began

    def accompany(self, nodes: frozenset[NodeId]) -> None:
        """Send these the log, too, so that they catch up before they belong to the group."""
        self._accompanied = nodes
        self.switched()
        for node in sorted(nodes):
            self.send_append(node)

    def switched(self) -> None:
        """Another configuration is in force: follow those in it. Who is not gets the log until that is committed."""
        configuration, log = self._seat.configuration, self._log
        committed_members = log.configuration_at(log.committed).members
        members = configuration.members | committed_members | self._accompanied
        for node in sorted(members - self.progress.keys()):
            self._follow(node, self._log.last)
            # It has not had an occasion yet to be heard of.
            self.progress[node].active = True
        for node in self.progress.keys() - members:
            del self.progress[node]
        for node, progress in self.progress.items():
            progress.learner = not configuration.votes(node)
        assert configuration.members <= self.progress.keys(), "everybody in force is followed"
        if self.transferee is not None and not configuration.votes(self.transferee):
            self.transferee = None

    # -- sending

    def broadcast(self) -> None:
        """Send everybody what there is, or that there is nothing."""
        for node in self.others:
            self.send_append(node)

    def send_append(self, node: NodeId, *, even_empty: bool = True) -> bool:
        """Send a follower what comes next, unless it has as much as it may have; whether anything was sent."""
        progress, log = self.progress[node], self._log
        if progress.waits:
            return False
        before = progress.next - 1
        try:
            before_term = log.term(before)
            entries: tuple[RaftEntry, ...] = ()
            if not progress.inflight.full:
                entries = log.entries_from(progress.next, self._seat.settings.message_bytes)
        except Compacted:
            return self._send_snapshot(node, progress)
        if not entries and not even_empty:
            return False
        self._seat.send(
            RaftKind.APPEND, node, index=before, log_term=before_term, entries=entries, commit=log.committed
        )
        progress.sent(len(entries), sum(entry.size for entry in entries))
        progress.told_commit = log.committed
        return True

    def _send_snapshot(self, node: NodeId, progress: FollowerProgress) -> bool:
        if not progress.active:
            return False
        index = self._log.applied
        configuration = self._log.configuration_at(index)
        snapshot = RaftSnapshot(index, self._log.term(index), configuration)
        progress.send_snapshot(index)
        self._seat.send(RaftKind.SNAPSHOT, node, snapshot=snapshot)
        return True

    def heartbeat(self) -> None:
        """Let everybody know that there is a leader, and what it has committed of what they hold."""
        self._heartbeat(self._reads[-1].context if self._reads else b"")

    def _heartbeat(self, context: bytes) -> None:
        for node in self.others:
            progress = self.progress[node]
            commit = min(progress.match, self._log.committed)
            self._seat.send(RaftKind.HEARTBEAT, node, commit=commit, context=context)
            progress.told_commit = commit

    # -- what followers say

    def on_appended(self, message: RaftMessage) -> None:
        """A follower, or this replica itself, holds more, or refuses what does not follow its log."""
        progress = self.progress.get(message.sender)
        if progress is None:
            return
        progress.heard()
        if message.refused:
            self._on_refused(message, progress)
            return
        node, log = message.sender, self._log
        probed = progress.match == message.index and progress.flow is LogFlow.PROBE
        if not progress.acknowledged(message.index) and not probed:
            return
        if progress.flow is LogFlow.PROBE:
            progress.replicate()
        elif progress.flow is LogFlow.SNAPSHOT:
            if progress.match + 1 >= log.first:
                progress.replicate()
        else:
            progress.inflight.arrived(message.index)
        more, told = self.count(), self._seat.settings.commits_told
        if more and told:
            self.broadcast()
        elif told and node != self._seat.me and progress.may_tell_commit(log.committed):
            self.send_append(node)
        if node != self._seat.me:
            while self.send_append(node, even_empty=False):
                pass
        if node == self.transferee and progress.match == log.last:
            self._seat.send(RaftKind.TIMEOUT_NOW, node)

    def _on_refused(self, message: RaftMessage, progress: FollowerProgress) -> None:
        hint = message.hint
        if not hint and not message.log_term and progress.match and self._seat.settings.begins_voted:
            progress.begins_anew()
        else:
            if message.log_term:
                hint, _ = self._log.conflict_hint(hint, message.log_term)
            if not progress.refused(message.index, hint):
                return
            if progress.flow is LogFlow.REPLICATE:
                progress.probe()
        self.send_append(message.sender)

    def count(self) -> bool:
        """Commit what a majority holds; whether that is more than before (raft/R-1)."""
        log = self._log
        held = {node: progress.match for node, progress in self.progress.items()}
        index = committed(self._seat.configuration.sets, held)
        if index <= log.committed or not log.matches(index, self._seat.term):
            return False
        before, settled = log.committed, self.settled
        log.commit_to(index)
        if not settled:
            self._seat.notices.append(LeaderElected(self._seat.term))
        if before < log.configuration_index <= index:
            self.switched()
        done = log.entries_from(before + 1, 0, index)
        self._seat.uncommitted = max(0, self._seat.uncommitted - sum(len(entry.data) for entry in done))
        early, self._early_reads = self._early_reads, []
        for read in early:
            self.on_read(read)
        return True

    def on_heartbeat_heard(self, message: RaftMessage) -> None:
        """A follower has heard that this is the leader."""
        progress = self.progress.get(message.sender)
        if progress is None:
            return
        progress.heard()
        progress.paused = False
        if progress.match < self._log.last or progress.flow is LogFlow.PROBE:
            self.send_append(message.sender)
        if message.context:
            self._confirm(message.sender, message.context)

    def most_are_heard(self, nodes: Collection[NodeId]) -> bool:
        """Whether most of these were heard of not long ago."""
        patience = 2 * self._seat.settings.election_ticks
        heard = [
            node
            for node in nodes
            if node == self._seat.me or (node in self.progress and self.progress[node].silent < patience)
        ]
        return 2 * len(heard) > len(nodes)

    def unreachable(self, node: NodeId) -> None:
        """What was on its way to this one may be lost."""
        progress = self.progress.get(node)
        if progress is None:
            return
        progress.silent = GONE
        if progress.flow is LogFlow.REPLICATE:
            progress.probe()

    def moved(self, node: NodeId) -> None:
        """Some of the state has arrived there, which no index shows."""
        progress = self.progress.get(node)
        if progress is not None:
            progress.quiet = 0

    def tick(self) -> None:
        """Some time has passed: of a snapshot nothing may be heard any more."""
        for node, progress in self.progress.items():
            progress.quiet += 1
            progress.silent += 1
            if progress.quiet >= self._seat.settings.catch_up_ticks:
                self.snapshot_ended(node, well=False)

    def snapshot_ended(self, node: NodeId, *, well: bool) -> None:
        """A snapshot has arrived there, or could not be sent."""
        progress = self.progress.get(node)
        if progress is None or progress.flow is not LogFlow.SNAPSHOT:
            return
        if not well:
            progress.snapshot = 0
        progress.probe()
        # Its answer, or a heartbeat's, goes on.
        progress.paused = True

    # -- whether it still leads

    def has_quorum(self) -> bool:
        """Whether a majority was heard of since this was asked last."""
        heard = {node: progress.active or node == self._seat.me for node, progress in self.progress.items()}
        for node, progress in self.progress.items():
            progress.active = node == self._seat.me
        return vote(self._seat.configuration.sets, heard) is Election.WON

    @property
    def removed(self) -> bool:
        """Whether the final configuration does not have it (raft/R-6)."""
        configuration = self._seat.configuration
        return not configuration.joint and self._seat.me not in configuration.voters

    @property
    def over(self) -> bool:
        """Whether that is committed, too (raft/R-5)."""
        return self.removed and self._log.configuration_index <= self._log.committed

    def bequeath(self) -> None:
        """Ask the voter that has most to campaign at once."""
        heir = max(sorted(self._seat.configuration.voters), key=lambda node: self.progress[node].match)
        self._seat.send(RaftKind.TIMEOUT_NOW, heir)

    def leave_joint(self) -> bool:
        """Go on to the final configuration where that is due; whether it was."""
        configuration, log = self._seat.configuration, self._log
        due = configuration.auto_leave and self.transferee is None
        if not due or log.committed < max(log.configuration_index, self.began):
            return False
        self.append([RaftEntry(self._seat.term, log.last + 1, configuration=leave_joint(configuration))])
        self.switched()
        self.broadcast()
        return True

    # -- handing over

    def transfer(self, node: NodeId) -> None:
        """Hand over to this voter when its log is complete."""
        progress = self.progress.get(node)
        if progress is None or progress.learner or node == self.transferee or node == self._seat.me:
            return
        self.transferee = node
        if progress.match == self._log.last:
            self._seat.send(RaftKind.TIMEOUT_NOW, node)
        else:
            self.send_append(node)

    # -- reads

    def on_read(self, message: RaftMessage) -> None:
        """A read of this replica, or passed on by another one."""
        sets = self._seat.configuration.sets
        if not self.settled:
            self._early_reads.append(message)
        elif self._seat.settings.lease_reads or vote(sets, {self._seat.me: True}) is Election.WON:
            self._answer(_Read(message.sender, message.context, self._log.committed))
        else:
            read = _Read(message.sender, message.context, self._log.committed, {self._seat.me})
            self._reads.append(read)
            self._heartbeat(read.context)

    def _confirm(self, node: NodeId, context: bytes) -> None:
        """This one has confirmed that it followed when this read, and all before it, had come (raft/R-3)."""
        for at, read in enumerate(self._reads):
            if read.context == context:
                read.confirmed.add(node)
                if vote(self._seat.configuration.sets, dict.fromkeys(read.confirmed, True)) is Election.WON:
                    ready, self._reads = self._reads[: at + 1], self._reads[at + 1 :]
                    for one in ready:
                        self._answer(one)
                return

    def _answer(self, read: _Read) -> None:
        if read.asker == self._seat.me:
            self._seat.reads.append(ReadAt(read.context, read.index))
        else:
            self._seat.send(RaftKind.READ_AT, read.asker, index=read.index, context=read.context)

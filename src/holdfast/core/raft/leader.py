"""The leader's side of a group.

- raft/R-1: The leader counts replicas only for entries of its own term; earlier entries are committed with them.
  Example (figure 8 of the paper): entry 2, of term 2, is on a, b and c of {a..e}, and a leads again, in term 4. If it
  counted that entry as committed and crashed, e, whose log ends in term 3, could win with the votes of b, c and d and
  overwrite it.
- raft/R-2: The leader's own log counts when it is durable.
- raft/R-3: A read index is confirmed when a majority has acknowledged the leader after the read arrived, and an entry
  of the leader's term is committed: before that the leader may not know everything that is committed.
- raft/R-4: One change of the configuration at a time, and none before an entry of the leader's term is committed.
- raft/R-5: A leader that the final configuration does not contain steps down when that configuration is committed, and
  asks the voter with the longest log to campaign at once. Otherwise the others would wait for an election timeout.
- raft/R-6: Such a leader rejects proposals as soon as the configuration is in its log. It would never learn the fate of
  later entries.
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
    """The proposal was rejected; nothing has changed."""


@dataclass(slots=True)
class _Read:
    """A read index that waits for a majority to confirm the leader."""

    asker: NodeId
    context: bytes
    index: int
    confirmed: set[NodeId] = field(default_factory=set)


class Leader:
    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._log = state.log
        self.progress: dict[NodeId, FollowerProgress] = {}
        self.transferee: NodeId | None = None
        """Proposals are rejected meanwhile."""
        self.began = self._log.last + 1
        """First index of this leader's term: an empty entry."""
        self._catching_up: frozenset[NodeId] = frozenset()
        self._reads: list[_Read] = []
        self._early_reads: list[RaftMessage] = []
        """They arrived before an entry of this term was committed."""
        for node in self._state.configuration.members:
            self._track(node, self.began)
        state.uncommitted = 0
        self.append([RaftEntry(state.term, self.began)])

    def _track(self, node: NodeId, following: int) -> None:
        settings, configuration = self._state.settings, self._state.configuration
        self.progress[node] = FollowerProgress(
            following,
            Inflight(settings.window, settings.window_bytes),
            learner=not configuration.votes(node),
        )

    @property
    def others(self) -> list[NodeId]:
        return sorted(node for node in self.progress if node != self._state.me)

    @property
    def busy(self) -> bool:
        """Whether a read or a leadership transfer is pending."""
        return bool(self._reads or self._early_reads or self.transferee is not None)

    @property
    def matched_by_active(self) -> int:
        """Last index that the logs of all active followers have; those that are sent the whole state do not count."""
        matches = [
            progress.match
            for node, progress in self.progress.items()
            if node != self._state.me and progress.active and progress.flow is not LogFlow.SNAPSHOT
        ]
        return min(matches, default=self._log.last)

    @property
    def oldest_snapshot(self) -> int | None:
        """The lowest index of a snapshot that a follower was sent and has not acknowledged; None: there is none."""
        flows = [each for each in self.progress.values() if each.flow is LogFlow.SNAPSHOT]
        return min((each.snapshot for each in flows), default=None)

    # -- the log grows

    def propose(self, commands: Sequence[bytes]) -> int:
        """Append commands; returns the index of the last one. Raises ProposalRefused."""
        if self.is_removed or (self.is_leaving and not self._state.settings.keeps_leading_when_removed):
            raise ProposalRefused("this leader was removed from the group")
        if self.transferee is not None:
            raise ProposalRefused(f"leadership is being handed over to {self.transferee}")
        size = sum(map(len, commands))
        most = self._state.settings.uncommitted_bytes
        if most and size and self._state.uncommitted and self._state.uncommitted + size > most:
            raise ProposalRefused("too much is not committed yet")
        first = self._log.last + 1
        entries = [RaftEntry(self._state.term, first + at, data) for at, data in enumerate(commands)]
        self.append(entries)
        self.broadcast()
        return self._log.last

    def append(self, entries: Sequence[RaftEntry]) -> None:
        """Append entries. This replica acknowledges them when they are durable (raft/R-2)."""
        last = self._log.append(entries)
        self._state.uncommitted += sum(len(entry.data) for entry in entries)
        self._state.send(RaftKind.APPENDED, self._state.me, index=last)

    def change(self, configuration: Configuration) -> int:
        """Append a configuration; returns its index. Raises ProposalRefused (raft/R-4)."""
        log = self._log
        if self.transferee is not None:
            raise ProposalRefused(f"leadership is being handed over to {self.transferee}")
        if log.configuration_index > log.committed:
            raise ProposalRefused("another change of the configuration is not committed yet")
        if not self.settled:
            raise ProposalRefused("nothing of this leader's term is committed yet")
        self.append([RaftEntry(self._state.term, log.last + 1, configuration=configuration)])
        self.track_configuration()
        self.broadcast()
        return log.last

    @property
    def settled(self) -> bool:
        """Whether an entry of this leader's term is committed."""
        return self._log.committed >= self.began

    def add_catching_up(self, nodes: frozenset[NodeId]) -> None:
        """Send the log to these replicas, too, which catch up before they join the configuration."""
        self._catching_up = nodes
        self.track_configuration()
        for node in sorted(nodes):
            self.send_append(node)

    def track_configuration(self) -> None:
        """Track the replicas that get the log. Removed ones get it until their removal is committed."""
        configuration, log = self._state.configuration, self._log
        committed_members = log.configuration_at(log.committed).members
        members = configuration.members | committed_members | self._catching_up
        for node in sorted(members - self.progress.keys()):
            self._track(node, self._log.last)
            # It had no chance to answer yet, so the next quorum check must not count it as silent.
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
        """Send an append, perhaps an empty one, to every follower that may get one."""
        for node in self.others:
            self.send_append(node)

    def send_append(self, node: NodeId, *, even_empty: bool = True) -> bool:
        """Send an append, or a snapshot if the entries were compacted, unless the follower has to answer first. Returns
        whether anything was sent.
        """
        progress, log = self.progress[node], self._log
        if progress.waits:
            return False
        before = progress.next - 1
        try:
            before_term = log.term(before)
            entries: tuple[RaftEntry, ...] = ()
            if not progress.inflight.full:
                entries = log.entries_from(progress.next, self._state.settings.message_bytes)
        except Compacted:
            return self._send_snapshot(node, progress)
        if not entries and not even_empty:
            return False
        self._state.send(
            RaftKind.APPEND, node, index=before, log_term=before_term, entries=entries, commit=log.committed
        )
        progress.sent(len(entries), sum(entry.size for entry in entries))
        progress.sent_commit = log.committed
        return True

    def _send_snapshot(self, node: NodeId, progress: FollowerProgress) -> bool:
        if not progress.active:
            return False
        index = self._log.applied
        configuration = self._log.configuration_at(index)
        snapshot = RaftSnapshot(index, self._log.term(index), configuration)
        progress.send_snapshot(index)
        self._state.send(RaftKind.SNAPSHOT, node, snapshot=snapshot)
        return True

    def heartbeat(self) -> None:
        """Send heartbeats, each with the commit index as far as that follower is known to match."""
        self._heartbeat(self._reads[-1].context if self._reads else b"")

    def _heartbeat(self, context: bytes) -> None:
        for node in self.others:
            progress = self.progress[node]
            commit = min(progress.match, self._log.committed)
            self._state.send(RaftKind.HEARTBEAT, node, commit=commit, context=context)
            progress.sent_commit = commit

    # -- answers of followers

    def on_appended(self, message: RaftMessage) -> None:
        """A follower, or this replica itself, has acknowledged or rejected an append."""
        progress = self.progress.get(message.sender)
        if progress is None:
            return
        progress.heard()
        if message.refused:
            self._on_rejected(message, progress)
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
        more, told = self.count(), self._state.settings.sends_commits
        if more and told:
            self.broadcast()
        elif told and node != self._state.me and progress.may_send_commit(log.committed):
            self.send_append(node)
        if node != self._state.me:
            while self.send_append(node, even_empty=False):
                pass
        if node == self.transferee and progress.match == log.last:
            self._state.send(RaftKind.TIMEOUT_NOW, node)

    def _on_rejected(self, message: RaftMessage, progress: FollowerProgress) -> None:
        hint = message.hint
        if not hint and not message.log_term and progress.match and self._state.settings.starts_voted:
            progress.restart()
        else:
            if message.log_term:
                hint, _ = self._log.conflict_hint(hint, message.log_term)
            if not progress.refused(message.index, hint):
                return
            if progress.flow is LogFlow.REPLICATE:
                progress.probe()
        self.send_append(message.sender)

    def count(self) -> bool:
        """Raise the commit index as far as a majority holds the log (raft/R-1). Returns whether it rose."""
        log = self._log
        held = {node: progress.match for node, progress in self.progress.items()}
        index = committed(self._state.configuration.sets, held)
        if index <= log.committed or not log.matches(index, self._state.term):
            return False
        before, settled = log.committed, self.settled
        log.commit_to(index)
        if not settled:
            self._state.notices.append(LeaderElected(self._state.term))
        if before < log.configuration_index <= index:
            self.track_configuration()
        done = log.entries_from(before + 1, 0, index)
        self._state.uncommitted = max(0, self._state.uncommitted - sum(len(entry.data) for entry in done))
        early, self._early_reads = self._early_reads, []
        for read in early:
            self.on_read(read)
        return True

    def on_heartbeat_heard(self, message: RaftMessage) -> None:
        progress = self.progress.get(message.sender)
        if progress is None:
            return
        progress.heard()
        progress.paused = False
        if progress.match < self._log.last or progress.flow is LogFlow.PROBE:
            self.send_append(message.sender)
        if message.context:
            self._confirm(message.sender, message.context)

    def hears_majority_of(self, nodes: Collection[NodeId]) -> bool:
        """Whether most of these nodes answered within two election timeouts."""
        heard = [node for node in nodes if node == self._state.me or not self._is_silent(node)]
        return 2 * len(heard) > len(nodes)

    def _is_silent(self, node: NodeId) -> bool:
        return node not in self.progress or self.progress[node].silent >= self._patience

    @property
    def _patience(self) -> int:
        return 2 * self._state.settings.election_ticks

    def expect_answers(self, nodes: Collection[NodeId]) -> None:
        """Regard them as silent until they answer, and ask them now."""
        for node in nodes:
            self.progress[node].silent = max(self.progress[node].silent, self._patience)
        self.ask_silent(nodes)

    def ask_silent(self, nodes: Collection[NodeId]) -> None:
        """A replica that sleeps ignores a heartbeat, as it may be an old one, so each gets an append, perhaps empty."""
        for node in self.others:
            if node in nodes and self._is_silent(node):
                self.send_append(node)

    def unreachable(self, node: NodeId) -> None:
        """The transport reports that messages to this node may be lost."""
        progress = self.progress.get(node)
        if progress is None:
            return
        progress.silent = GONE
        if progress.flow is LogFlow.REPLICATE:
            progress.probe()

    def snapshot_moved(self, node: NodeId, index: int) -> None:
        """It is sent the state at this index instead of an earlier one."""
        progress = self.progress.get(node)
        if progress is not None and progress.flow is LogFlow.SNAPSHOT:
            progress.send_snapshot(index)

    def moved(self, node: NodeId) -> None:
        """A part of a snapshot arrived there: it makes progress, though its index does not rise."""
        progress = self.progress.get(node)
        if progress is not None:
            progress.quiet = 0

    def tick(self) -> None:
        """Count the ticks of every follower, and give up snapshots without progress."""
        for node, progress in self.progress.items():
            progress.quiet += 1
            progress.silent += 1
            if progress.quiet >= self._state.settings.catch_up_ticks:
                self.snapshot_ended(node, well=False)

    def snapshot_ended(self, node: NodeId, *, well: bool) -> None:
        """The snapshot was installed (`well`), or failed."""
        progress = self.progress.get(node)
        if progress is None or progress.flow is not LogFlow.SNAPSHOT:
            return
        if not well:
            progress.snapshot = 0
        progress.probe()
        # Its next acknowledgement, or that of a heartbeat, resumes replication.
        progress.paused = True

    # -- stepping down

    def has_quorum(self) -> bool:
        """Whether a majority answered since the last call."""
        heard = {node: progress.active or node == self._state.me for node, progress in self.progress.items()}
        for node, progress in self.progress.items():
            progress.active = node == self._state.me
        return vote(self._state.configuration.sets, heard) is Election.WON

    @property
    def is_leaving(self) -> bool:
        """Whether the final configuration, perhaps not committed yet, does not contain this leader (raft/R-6)."""
        configuration = self._state.configuration
        return not configuration.joint and self._state.me not in configuration.voters

    @property
    def is_removed(self) -> bool:
        """Whether that configuration is committed, so that this leader has to step down (raft/R-5)."""
        return self.is_leaving and self._log.configuration_index <= self._log.committed

    def transfer_after_removal(self) -> None:
        """Ask the voter with the longest log to campaign at once (raft/R-5)."""
        successor = max(sorted(self._state.configuration.voters), key=lambda node: self.progress[node].match)
        self._state.send(RaftKind.TIMEOUT_NOW, successor)

    def leave_joint(self) -> bool:
        """Append the final configuration if that is due; returns whether it was."""
        configuration, log = self._state.configuration, self._log
        due = configuration.auto_leave and self.transferee is None
        if not due or log.committed < max(log.configuration_index, self.began):
            return False
        self.append([RaftEntry(self._state.term, log.last + 1, configuration=leave_joint(configuration))])
        self.track_configuration()
        self.broadcast()
        return True

    # -- leadership transfer

    def transfer(self, node: NodeId) -> None:
        progress = self.progress.get(node)
        if progress is None or progress.learner or node == self.transferee or node == self._state.me:
            return
        self.transferee = node
        if progress.match == self._log.last:
            self._state.send(RaftKind.TIMEOUT_NOW, node)
        else:
            self.send_append(node)

    # -- reads

    def on_read(self, message: RaftMessage) -> None:
        sets = self._state.configuration.sets
        if not self.settled:
            self._early_reads.append(message)
        elif self._state.settings.lease_reads or vote(sets, {self._state.me: True}) is Election.WON:
            self._answer(_Read(message.sender, message.context, self._log.committed))
        else:
            read = _Read(message.sender, message.context, self._log.committed, {self._state.me})
            self._reads.append(read)
            self._heartbeat(read.context)

    def _confirm(self, node: NodeId, context: bytes) -> None:
        """Note that this node acknowledged the leader after this read, and all earlier ones, arrived (raft/R-3)."""
        for at, read in enumerate(self._reads):
            if read.context == context:
                read.confirmed.add(node)
                if vote(self._state.configuration.sets, dict.fromkeys(read.confirmed, True)) is Election.WON:
                    ready, self._reads = self._reads[: at + 1], self._reads[at + 1 :]
                    for one in ready:
                        self._answer(one)
                return

    def _answer(self, read: _Read) -> None:
        if read.asker == self._state.me:
            self._state.reads.append(ReadAt(read.context, read.index))
        else:
            self._state.send(RaftKind.READ_AT, read.asker, index=read.index, context=read.context)

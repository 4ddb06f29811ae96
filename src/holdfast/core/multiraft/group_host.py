"""Drives all Raft groups that have a replica on this member.

They share one timer and, in a step, one message to each other member and one wait for the disk.

A replica's *node* is its member's files, where it keeps any, else the member itself: a member that returns with its
files is the same voter, and one that returns without them is another.

- multiraft/H-3: A group with nothing to do sleeps: it does not tick. Its leader notifies followers that have
  everything, and they stop waiting for heartbeats. Followers that are not in the view are not waited for, as long as
  those in it are a majority. Any event of the group wakes it; so does a view in which a member of the group has left or
  come, and a request that the leader does not answer.
- multiraft/H-6: A member whose ticks come late, because it gets little processor time, waits longer for leaders before
  it campaigns: it has not read their messages either. With 271 groups whose members take turns of 300 ms, ten ticks
  hardly suffice for an election with files.
- multiraft/H-7: In one step at most `GROUPS_AT_ONCE` groups tick, learn that members have gone or come, or learn that
  their writes are durable; the next ones do so in a step of their own. That bounds the size of messages and the delay
  of other maps.

Example for multiraft/H-3: groups 1-271 were written, and then nothing happens. Ten ticks later each leader sends
`(group, term, last index)` with the next message to its followers. A follower whose log ends there sleeps, too; one
that lacks an entry keeps ticking, and campaigns if the leader stays silent. If the member of the leader leaves the
view, `on_view` wakes the replicas that followed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from holdfast.core.journal.log import Log
from holdfast.core.journal.recovery import RecoveredGroup
from holdfast.core.messages import GroupMessages, GroupState
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, SECOND, GroupNumber, MemberId
from holdfast.core.model.notices import CheckpointEnded, ViewInstalled
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import MemberInfo
from holdfast.core.multiraft.group_journal import GroupJournal
from holdfast.core.multiraft.hosted_group import GroupClient, HostedGroup, LeadChanged, PendingWrite
from holdfast.core.multiraft.read_rounds import ReadRounds
from holdfast.core.multiraft.replica_rebuilds import ReplicaRebuilds
from holdfast.core.multiraft.snapshot_transfer import SnapshotTransfer
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.group import Group, RaftReady
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage
from holdfast.core.raft.raft_state import RaftSettings

TICK_NS = 100 * MILLISECOND
LATE_TICKS = 2
"""A tick is late when more than this many tick times have passed since the last one;"""
LATE_COUNTS = 3
"""replicas that wait for a leader then count only every third tick."""
GROUPS_AT_ONCE = 32
"""Per step (multiraft/H-7): a few milliseconds of work."""
SLEEP_TICKS = 10
"""A group may sleep after so many ticks without an event."""
LOG_ENTRIES = 4096
"""Applied entries for followers that lack some; a log is compacted when it has twice as many,"""
LOG_BYTES = 64 * 1024
"""or when about this many bytes were applied since, if no follower still needs them;"""
LOG_BYTES_MOST = 16 << 20
"""above it without regard to followers: one that stays behind is sent the whole state."""
STATE_LOG_BYTES = 4 * LOG_BYTES_MOST
"""Kept at most for a follower that has not installed the state yet: without the entries after it, it would need another
one."""
METASTORE_LOG_BYTES = 1 << 20
"""The same for the metastore, whose whole state is not much larger."""


class GroupOpener(Protocol):
    def open_group(self, number: GroupNumber) -> GroupClient | None:
        """Another member has sent a message for this group. None: start no replica."""


class GroupHost:
    def __init__(
        self,
        info: MemberInfo,
        out: Outbox,
        log: Log,
        opener: GroupOpener,
        recovered: dict[GroupNumber, RecoveredGroup] | None = None,
        settings: RaftSettings | None = None,
        *,
        patience_ns: int = 60 * SECOND,
        log_bytes: int = LOG_BYTES,
    ) -> None:
        """`recovered`: in this member's files. `patience_ns`: how long reads wait for a confirmation. `log_bytes`:
        applied entries that each group keeps for followers that lack some, approximately.
        """
        self.me: NodeId = node_of(info)
        self._out = out
        self._opener = opener
        self._log_bytes = log_bytes
        self._settings = replace(settings or RaftSettings(), starts_voted=True)
        self._zone_settings = replace(self._settings, sends_commits=False)
        """For all groups but the metastore's: followers learn the commit index with the next entries."""
        self.hosted: dict[GroupNumber, HostedGroup] = {}
        self.rounds = ReadRounds(self.me, out, self.hosted, patience_ns)
        self.journal = GroupJournal(out, log, self.hosted, recovered)
        self.transfers = SnapshotTransfer(self.me, out, self.hosted)
        self.rebuilds = ReplicaRebuilds(out, self.journal, self)
        self._members: dict[NodeId, MemberId] = {}
        self._dirty: set[GroupNumber] = set()
        """To look at when the step ends."""
        self._outgoing: dict[NodeId, dict[GroupNumber, list[RaftMessage]]] = {}
        self._asleep: dict[NodeId, list[tuple[GroupNumber, int, int]]] = {}
        """For followers: term and last index of groups that sleep."""
        self._ticking = False
        self._ticked_ns = self._late = 0
        self._follows = True
        """Replicas that wait for a leader count the current tick (multiraft/H-6)."""
        self._to_tick: deque[HostedGroup] = deque()
        self._to_regard: dict[GroupNumber, set[NodeId]] = {}
        """They have not processed the last views, in which these nodes have gone or come."""

    # -- replicas

    def start(
        self, number: GroupNumber, configuration: Configuration, client: GroupClient
    ) -> HostedGroup | None:
        """Start a replica from the files, or else a new one of a group with this configuration.

        Without voters it waits for a leader. Returns None if its files cannot be used (multiraft/H-2).
        """
        assert number not in self.hosted, "a member has one replica of a group"
        replica = self.journal.open(number, configuration)
        if replica is None:
            return None
        client.restore(replica.pieces)
        name = number.to_bytes(8, "big")
        chosen = self._settings if number == METASTORE_GROUP else self._zone_settings
        group = Group(self.me, name, replica.log(), replica.hard, chosen)
        hosted = self.hosted[number] = HostedGroup(number, group, client)
        self.rounds.changed()
        self._wake(hosted)
        return hosted

    def halt(self, number: GroupNumber) -> None:
        """Keep the replica, but let it neither send nor receive until `resume`."""
        hosted = self.hosted.get(number)
        if hosted is not None:
            hosted.halted = hosted.asleep = True
            self.rounds.changed()
            self.rounds.lead_lost(number)

    def resume(self, number: GroupNumber) -> None:
        hosted = self.hosted[number]
        hosted.halted = False
        self._wake(hosted)

    def rouse(self, number: GroupNumber) -> None:
        """Its leader does not answer a request.

        The replica then waits for a heartbeat for an election timeout, and campaigns if the leader has stopped
        (multiraft/H-3).
        """
        hosted = self.hosted.get(number)
        if hosted is not None and hosted.asleep and not hosted.halted:
            self._wake(hosted)

    def stop(self, number: GroupNumber) -> None:
        """End the replica, and void its files."""
        self.journal.drop(number, hosted=self.hosted.pop(number, None) is not None)
        self.rounds.changed()
        self.rounds.ended(number)
        self.transfers.abort(number)
        self.rebuilds.end(number)

    # -- requests

    def lead(self, number: GroupNumber) -> NodeId | None:
        hosted = self.hosted.get(number)
        return hosted.group.lead if hosted is not None else None

    def member(self, node: NodeId) -> MemberId | None:
        return self._members.get(node)

    def term(self, number: GroupNumber) -> int | None:
        """The term in which this member leads the group; None: it does not lead."""
        hosted = self.hosted.get(number)
        return hosted.group.term if hosted is not None and hosted.group.leading is not None else None

    def current(self, number: GroupNumber) -> bool:
        """Whether this member leads the group and has applied everything that earlier leaders acknowledged."""
        hosted = self.hosted.get(number)
        if hosted is None or hosted.halted or hosted.group.leading is None:
            return False
        return hosted.group.log.applied >= hosted.group.leading.began

    def running(self, number: GroupNumber) -> Group:
        """The group, awake: its methods may be called in this step. Raises ProposalRefused."""
        hosted = self.hosted.get(number)
        if hosted is None or hosted.halted:
            raise ProposalRefused("no replica of this group runs here")
        self._wake(hosted)
        return hosted.group

    def _wake(self, hosted: HostedGroup) -> None:
        """See multiraft/H-3."""
        hosted.quiet = 0
        hosted.asleep = False
        self._dirty.add(hosted.number)
        self.start_ticking()

    def start_ticking(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._out.timer(TimerName.GROUPS, TICK_NS)

    def propose(self, number: GroupNumber, commands: Sequence[bytes]) -> int | None:
        """Returns the index of the last. A follower forwards commands, perhaps in vain, and returns None. Raises
        ProposalRefused.
        """
        return self.running(number).propose(commands)

    def read(self, number: GroupNumber, context: bytes) -> None:
        """`GroupClient.read_ready` follows, if nothing is lost. Raises ProposalRefused."""
        hosted = self.hosted.get(number)
        if hosted is not None and not hosted.halted and self.rounds.takes(hosted.group):
            self.rounds.ask(number, context)
        else:
            self.running(number).read(context)

    # -- views and ticks

    def on_view(self, notice: ViewInstalled) -> None:
        """Wake groups if one of their members has gone or come (multiraft/H-3)."""
        members = notice.new.members if notice.new is not None else []
        before, self._members = self._members, {node_of(info): info.uuid for info in members}
        self.rounds.on_view(self._members)
        changed = {
            node
            for node in before.keys() | self._members.keys()
            if before.get(node) != self._members.get(node)
        }
        for node in notice.gone | notice.came:
            changed |= {each for each, member in self._members.items() if member == node}
        if changed:
            for number in sorted(self.hosted):
                self._to_regard.setdefault(number, set()).update(changed)
            self._regard_some()
        self.transfers.on_view(self._members, changed)

    def _regard_some(self) -> None:
        """multiraft/H-7."""
        for number in list(self._to_regard)[:GROUPS_AT_ONCE]:
            changed = self._to_regard.pop(number)
            hosted = self.hosted.get(number)
            if hosted is not None and not hosted.halted:
                self._members_changed(hosted, changed)
        self._more()

    def _more(self) -> None:
        """Set the timer if groups, or checkpoints of theirs, still wait for their turn."""
        if self._to_tick or self._to_regard or self.journal.durable or self.journal.collecting:
            self._out.timer(TimerName.GROUPS_MORE, 0)

    def on_more(self) -> None:
        """One kind of work in a step."""
        if self._to_regard:
            self._regard_some()
        elif self.journal.collecting and not self._to_tick:
            self.journal.collect_some()
            self._more()
        elif not self.journal.durable:
            self._tick_some()

    def _members_changed(self, hosted: HostedGroup, changed: set[NodeId]) -> None:
        group = hosted.group
        if not changed & group.configuration.members:
            return
        self._wake(hosted)
        if group.leading is not None:
            for node in sorted(changed):
                group.leading.unreachable(node)
        elif group.lead in changed:
            group.forget_leader()
            # The first voter that is here campaigns at once; the others wait for their election timeouts.
            here = [node for node in sorted(group.configuration.voters) if node in self._members]
            if here and here[0] == self.me:
                group.campaign()

    def on_timer(self) -> None:
        self._ticking = False
        self.transfers.on_tick()
        self.rebuilds.on_tick()
        self._follows = self._follows_now()
        if not self._to_tick:
            awake = sorted([each for each in self.hosted.items() if not each[1].asleep])
            self._to_tick.extend(hosted for _, hosted in awake)
        self._tick_some()

    def _tick_some(self) -> None:
        """multiraft/H-7."""
        awake, here = False, self._members.keys()
        for _ in range(min(len(self._to_tick), GROUPS_AT_ONCE)):
            hosted = self._to_tick.popleft()
            if hosted.asleep or self.hosted.get(hosted.number) is not hosted:
                continue
            hosted.quiet += 1
            if (
                hosted.quiet >= SLEEP_TICKS
                and hosted.group.leading is not None
                and hosted.is_idle(here)
                and not self.transfers.has_waiting(hosted.number)
            ):
                self._fall_asleep(hosted)
                continue
            awake = True
            if self._follows or hosted.group.leading is not None:
                hosted.group.tick()
                self._dirty.add(hosted.number)
        self._more()
        if awake or self.rebuilds.running:
            self.start_ticking()

    def _follows_now(self) -> bool:
        """Whether replicas that wait for a leader count this tick (multiraft/H-6)."""
        now_ns, before_ns = self._out.now_ns, self._ticked_ns
        self._ticked_ns = now_ns
        late = before_ns and now_ns - before_ns > LATE_TICKS * TICK_NS
        self._late = self._late + 1 if late else 0
        return not late or self._late % LATE_COUNTS == 0

    def _fall_asleep(self, hosted: HostedGroup) -> None:
        group = hosted.group
        hosted.asleep = True
        # Its followers have everything: a state that one of them did not answer is not needed.
        self.transfers.abort(hosted.number)
        for node in sorted(group.configuration.members - {self.me}):
            self._asleep.setdefault(node, []).append((hosted.number, group.term, group.log.last))

    # -- messages

    def on_messages(self, sender: MemberId, message: GroupMessages) -> None:
        for number, messages in message.groups:
            hosted = self.hosted.get(number) or self._open(number)
            if hosted is None or hosted.halted:
                continue
            for each in messages:
                self._step(hosted, each)
        for number, term, last in message.asleep:
            asleep = self.hosted.get(number)
            if asleep is not None:
                self._may_sleep(asleep, sender, term, last)

    def _open(self, number: GroupNumber) -> HostedGroup | None:
        client = self._opener.open_group(number)
        return self.start(number, Configuration(), client) if client is not None else None

    def _step(self, hosted: HostedGroup, message: RaftMessage) -> None:
        if message.to != self.me or message.kind is RaftKind.SNAPSHOT:
            return
        # A heartbeat that was under way when the leader fell asleep must not wake this replica again, and one that
        # arrives while it is awake is no event that keeps it awake.
        beat = message.kind in (RaftKind.HEARTBEAT, RaftKind.HEARTBEAT_HEARD) and not message.context
        if beat and hosted.asleep and message.term == hosted.group.term:
            if message.kind is RaftKind.HEARTBEAT:
                # A leader that something else keeps awake would step down if its sleeping followers did not respond.
                self._dirty.add(hosted.number)
                hosted.group.step(message)
            return
        quiet = hosted.quiet
        self._wake(hosted)
        if beat:
            hosted.quiet = quiet
        hosted.group.step(message)

    def _may_sleep(self, hosted: HostedGroup, sender: MemberId, term: int, last: int) -> None:
        """The leader sleeps: so does this follower if it has everything."""
        group, log = hosted.group, hosted.group.log
        leader = group.lead is not None and self._members.get(group.lead) == sender
        if leader and term == group.term and log.last == last and hosted.is_idle(self._members.keys()):
            hosted.asleep = True

    def on_state(self, sender: MemberId, message: GroupState) -> None:
        """Take a part of a snapshot's state; with the last part, the snapshot."""
        hosted = self.hosted.get(message.group) or self._open(message.group)
        if hosted is None or hosted.halted:
            return
        log = hosted.group.log
        if log.snapshot is not None and not log.snapshot_handed:
            # The end of the step takes its pieces.
            return
        if not self.transfers.receive(sender, hosted, message):
            return
        self._wake(hosted)
        rebuilds = self.rebuilds.progressed(hosted.number)
        if not message.last:
            return
        snapshot = message.snapshot.snapshot
        assert snapshot is not None, "only parts of a snapshot are received"
        if not rebuilds or snapshot.index > log.applied:
            hosted.group.step(message.snapshot)
        if rebuilds and log.snapshot is None:
            # It is not installed, since the log has its entries.
            self.rebuilds.take(hosted, snapshot, self.transfers.take_arrived(hosted, snapshot))
        elif log.snapshot is None or log.snapshot_handed:
            # Raft does not need it: the leader had sent another one meanwhile, or the entries.
            hosted.arriving = None

    # -- the end of a step

    def flush(self) -> None:
        """Carry out the `RaftReady` of all dirty groups, and send their messages."""
        rounds = self.rounds
        if self.journal.durable:
            self._release_some()
        for number in rounds.take_doubted():
            # The responses to this heartbeat show the reason: a higher term, or a replica that is gone.
            self._wake(self.hosted[number])
            if (leading := self.hosted[number].group.leading) is not None:
                leading.heartbeat()
        if not (self._dirty or self._asleep or rounds.dirty or rounds.ready):
            return
        for number in rounds.take_ready():
            self._answer_reads(self.hosted[number])
        while self._dirty:
            dirty, self._dirty = sorted(self._dirty), set()
            for number in dirty:
                hosted = self.hosted.get(number)
                while hosted is not None and hosted.group.has_ready:
                    self._carry_out(hosted, hosted.group.ready())
        rounds.flush()
        for node in sorted(self._outgoing.keys() | self._asleep.keys()):
            groups = self._outgoing.get(node, {})
            member = self._members.get(node)
            if member is not None:
                self._out.send(member, GroupMessages(list(groups.items()), self._asleep.get(node, [])))
        self._outgoing, self._asleep = {}, {}
        self.journal.flush()

    def _carry_out(self, hosted: HostedGroup, ready: RaftReady) -> None:
        if hosted.term_seen != hosted.group.term:
            hosted.term_seen = hosted.group.term
            self.rounds.changed()
        if ready.leadership_changed:
            if hosted.group.leading is None:
                self.rounds.lead_lost(hosted.number)
                self.transfers.abort(hosted.number)
            hosted.client.on_group(LeadChanged(ready.lead, ready.role, hosted.group.term))
        if ready.abandoned:
            hosted.client.restore(())
            hosted.reads.clear()
            self.rebuilds.end(hosted.number)
        if ready.leadership_changed:
            self.rebuilds.on_leader(hosted.number)
        self._write(hosted, ready)
        if ready.leadership_changed:
            # After the write, which takes a whole state: its sender may have left the view since.
            self.transfers.on_leader(hosted)
        for message in ready.messages:
            if message.kind is RaftKind.SNAPSHOT:
                self.transfers.send(hosted, message)
            else:
                self._send(hosted.number, message)
        for notice in ready.notices:
            hosted.client.on_group(notice)
        if ready.committed:
            self._apply(hosted, ready.committed)
        if ready.reads:
            hosted.reads += [(read.upto, read.context) for read in ready.reads]
        if hosted.reads:
            self._answer_reads(hosted)

    def _write(self, hosted: HostedGroup, ready: RaftReady) -> None:
        if ready.snapshot is not None:
            self.transfers.take_arrived(hosted, ready.snapshot).install()
            self.rebuilds.end(hosted.number)
        write = self.journal.write(hosted, ready)
        if write.done and not hosted.writing:
            self._release(hosted, write)
        else:
            hosted.writing.append(write)

    def _send(self, number: GroupNumber, message: RaftMessage) -> None:
        self._outgoing.setdefault(message.to, {}).setdefault(number, []).append(message)

    def _apply(self, hosted: HostedGroup, entries: Sequence[RaftEntry]) -> None:
        commands = [entry for entry in entries if entry.data]
        if commands:
            hosted.client.apply(commands)
        hosted.group.applied(entries)
        self.rebuilds.on_applied(hosted)
        self._dirty.add(hosted.number)
        hosted.bytes_since += sum(entry.size for entry in entries)
        metastore = hosted.number == METASTORE_GROUP
        _compact(hosted, METASTORE_LOG_BYTES if metastore else self._log_bytes, _kept_from(self, hosted))

    def _answer_reads(self, hosted: HostedGroup) -> None:
        applied = hosted.group.log.applied
        ready = [context for upto, context in hosted.reads if upto <= applied]
        hosted.reads = [each for each in hosted.reads if each[0] > applied]
        for context in ready:
            hosted.client.read_ready(context)

    # -- durable writes

    def _release_some(self) -> None:
        """multiraft/H-7."""
        durable = self.journal.durable
        for _ in range(min(len(durable), GROUPS_AT_ONCE)):
            self._release_done(durable.popleft())
        self._more()

    def on_checkpoint(self, notice: CheckpointEnded) -> None:
        hosted = self.journal.on_checkpoint(notice)
        if hosted is not None:
            self._release_done(hosted)

    def _release_done(self, hosted: HostedGroup) -> None:
        """Release writes in order: one that is durable waits for those before it."""
        if self.hosted.get(hosted.number) is not hosted:
            return
        while hosted.writing and hosted.writing[0].done:
            self._release(hosted, hosted.writing.popleft())

    def _release(self, hosted: HostedGroup, write: PendingWrite) -> None:
        """Send the messages that depended on it (multiraft/H-1)."""
        if write.written is not None:
            hosted.group.written(write.written)
        for message in write.after:
            if message.to == self.me:
                hosted.group.step(message)
            else:
                self._send(hosted.number, message)
        self._dirty.add(hosted.number)

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "groups not written": sum(len(hosted.writing) for hosted in self.hosted.values()),
            "reads of groups": sum(len(hosted.reads) for hosted in self.hosted.values())
            + self.rounds.leftovers,
            "states of groups on their way": self.transfers.leftovers,
            "replicas being rebuilt": self.rebuilds.running,
            "checkpoints of groups being collected": self.journal.collecting,
        }


def node_of(info: MemberInfo) -> NodeId:
    return info.node


def _kept_from(host: GroupHost, hosted: HostedGroup) -> int:
    """The entries after this index are needed for a checkpoint (multiraft/H-11), or by the receiver of a state."""
    collected = host.journal.collected_from(hosted.number)
    kept = hosted.group.log.applied if collected is None else collected
    leading = hosted.group.leading
    sent = leading.oldest_snapshot if leading is not None else None
    return min(kept, sent) if sent is not None and hosted.bytes_since < STATE_LOG_BYTES else kept


def _compact(hosted: HostedGroup, most: int, kept_from: int) -> None:
    """Remove the older half of a log that has grown long. `most`: bytes. `kept_from`: later entries stay.

    With 271 groups each kilobyte that a log keeps is a quarter of a megabyte. But if entry 18 goes while an active
    follower is at 17, because its acknowledgement is in flight, it needs the whole state instead of one entry.
    """
    log = hosted.group.log
    kept = log.applied - log.base
    if kept < 2 * LOG_ENTRIES and hosted.bytes_since < most:
        return
    end = min(log.applied - min(LOG_ENTRIES, kept // 2), kept_from)
    if end <= log.base and kept_from < log.applied:
        return
    needed = end > hosted.group.matched_by_active
    if needed and kept < 2 * LOG_ENTRIES and hosted.bytes_since < LOG_BYTES_MOST:
        return
    hosted.bytes_since = 0
    log.compact(max(log.base, end))

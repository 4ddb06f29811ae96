"""Replica of one partition on this member, as the client of its Raft group.

- raft_partition/Z-10: The leader notifies listeners of the entries of the log that are applied for the first time here,
  and only of maps that live in the zone. Example: a member comes back, leads, and applies again what its files hold.
  Listeners have had these events, and the map may have moved to the other engine since, with newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.model.ids import GroupNumber, place_of
from holdfast.core.model.operations import MOVING, EntryEvent, Op
from holdfast.core.model.zone_batches import ZoneRequests, ZoneWrites
from holdfast.core.multiraft.hosted_group import LeadChanged, ReplicaNotice
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import LeaderElected
from holdfast.core.raft_partition.leader_evictions import LeaderEvictions
from holdfast.core.raft_partition.leader_locks import LeaderLocks
from holdfast.core.raft_partition.partition_commands import decode_command
from holdfast.core.raft_partition.partition_snapshot import StagedState
from holdfast.core.raft_partition.proposals import STOPPED, Proposals, answer_proposed
from holdfast.core.raft_partition.read_barrier import ReadBarrier
from holdfast.core.raft_partition.state_capture import StateCapture
from holdfast.core.raft_partition.state_machine import Applied, StateMachine
from holdfast.core.raft_partition.zone_replicas import ZoneReplicas
from holdfast.core.store.replica import MapReplica


class ZonePartition:
    """A `GroupClient`."""

    def __init__(self, number: GroupNumber, partitions: Sequence[int], zone: ZoneReplicas) -> None:
        """`partitions`: client partitions of the group."""
        self.number = number
        self.partitions = tuple(partitions)
        self._zone = zone
        self._out = zone.out
        self.state = StateMachine(partitions, zone.settings, zone.shared.entries, zone.shared.cuts)
        self.term = 0
        """In which this member leads the group and serves requests; 0: it does not."""
        self.proposals = Proposals(number, zone)
        self.reads = ReadBarrier(number, zone, self.state, self.proposals)
        self.locks = LeaderLocks(number, zone, self.state, self.proposals, self.reads)
        self._evictions = LeaderEvictions(zone, self.state, self.proposals, self.locks)

    @property
    def leads(self) -> bool:
        return self.term > 0

    @property
    def waiting(self) -> int:
        return self.proposals.unanswered + self.reads.unanswered

    def look(self, partition: int, name: str, key: bytes) -> bytes | None:
        """The local value; return it to a client only when the leader is confirmed."""
        return self.state.look(partition, name, key, self._out.wall_ms())

    def must_log_use(self, held: MapReplica, key: bytes) -> bool:
        """Whether reading this entry is a use that has to be in the log (raft_partition/Z-9)."""
        return self.state.must_log_use(held, key, self._out.wall_ms())

    def now_ns(self) -> int:
        return self.state.now_ns(self._out.wall_ms())

    def flush(self) -> None:
        self.proposals.flush(self.term)
        self.reads.flush()

    # -- the group

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        for entry in entries:
            proposed = self.proposals.take(entry.index)
            answers = self._carry_out(entry)
            self.locks.on_applied()
            self._note_changed()
            if proposed is not None:
                answer_proposed(proposed, entry, answers)
        if self.term and self._zone.shares.on:
            for entry in entries:
                self._evictions.make_room(decode_command(entry.data))
        self._go_on()

    def _carry_out(self, entry: RaftEntry) -> list[Applied]:
        command = decode_command(entry.data)
        news = entry.index > self._zone.groups.hosted[self.number].known_to
        on_event = self._on_event if news and self.term and self._zone.sink.listening else None
        answers = self.state.apply(command, entry.index, entry.term, on_event)
        for name in self.state.take_expired():
            if news and self.term:
                self._zone.removed.expired.add(name, 1)
        at = 0
        for part in command.parts:
            if isinstance(part, ZoneWrites):
                at += len(part.writes)
            elif isinstance(part, ZoneRequests):
                for request in part.requests:
                    answer = answers[at]
                    if request.op is Op.PIN and isinstance(answer, list):
                        answers[at] = [*answer, *self._holders()]
                    elif request.op in MOVING:
                        self._zone.sink.on_marked(self.number)
                    at += 1
        return answers

    def _note_changed(self) -> None:
        """Only a leader has requests that wait for a collection."""
        if self.state.changed:
            changed = self.state.changed.take()
            if self.term:
                self._zone.changed.update(((self.number, *one), None) for one in changed)

    def _holders(self) -> list[bytes]:
        """Members with a pin at the last applied index, now or soon: this member first, then the other voters."""
        groups = self._zone.groups
        voters = sorted(groups.hosted[self.number].group.configuration.voters - {groups.me})
        nodes = [groups.me, *voters]
        return [member.encode() for node in nodes if (member := groups.member(node)) is not None]

    def _on_event(self, event: EntryEvent) -> None:
        sink = self._zone.sink
        if event.map in sink.listening and sink.zone_of(event.map) == place_of(self.number)[0]:
            self._zone.sink.hear(msgspec.structs.replace(event, term=self.term, group=self.group))

    @property
    def group(self) -> str:
        """Names the group and its generation: after a reset its terms and counters may repeat (raft/E-6)."""
        return f"{self.number}.{self._zone.groups.hosted[self.number].group.generation}"

    def read_ready(self, context: bytes) -> None:
        """Everything that the reads with this context must see is applied."""
        self.reads.on_confirmed(context)
        self._go_on()

    def _go_on(self) -> None:
        """Continue at the end of the step, because the group has room now."""
        if self.proposals.waiting or self.reads.waiting:
            self._zone.again.add(self)

    def on_group(self, notice: ReplicaNotice) -> None:
        if isinstance(notice, LeaderElected):
            self.locks.clear()
            self.proposals.on_elected()
            self.term = notice.term
            self._zone.led[self.number] = self.state
        elif isinstance(notice, LeadChanged) and notice[::2] != (self._zone.groups.me, self.term):
            self._lead_lost()
        self._zone.sink.on_replica(self.number, notice)

    def _lead_lost(self) -> None:
        self.term = 0
        self._zone.led.pop(self.number, None)
        self.locks.clear()
        self.reads.lose_asked()
        self.proposals.lose_waiting()
        self.reads.lose_waiting()

    def store_locks(self) -> bool:
        """Before the group gets another leader; returns whether all locks are stored (raft_partition/L-3)."""
        stored = self.locks.store()
        self._go_on()
        return stored

    def pieces(self) -> StateCapture:
        return self.state.pieces()

    def fill(self) -> ZoneFill:
        return ZoneFill(self)

    def restore(self, pieces: Sequence[bytes]) -> None:
        staged = self.state.staged()
        for piece in pieces:
            staged.add(piece)
        self.install(staged)

    def install(self, staged: StagedState) -> None:
        """The outcome of earlier proposals is unknown here."""
        self.state.install(staged)
        self._zone.sink.on_marked(self.number)
        self.proposals.lose_placed(STOPPED)

    def stop(self) -> None:
        self._lead_lost()
        self.proposals.lose_placed(STOPPED)

    def sweep(self) -> None:
        """Answer timed-out requests, repeat lost confirmations, remove expired entries."""
        if self.proposals.placed or self.reads.asked:
            now_ns = self._out.now_ns
            self.proposals.expire(now_ns)
            self.reads.expire(now_ns)
        if self.term and self.state.has_ended(self._out.wall_ms()):
            self.proposals.place(self._zone.command(sweep=True), self.term)
        if self.term and self._zone.shares.on:
            self._evictions.sweep()
            self._go_on()


class ZoneFill:
    """A `StateFill`."""

    def __init__(self, partition: ZonePartition) -> None:
        self._partition = partition
        self._staged = partition.state.staged()

    def add(self, piece: bytes) -> None:
        self._staged.add(piece)

    def install(self) -> None:
        self._partition.install(self._staged)

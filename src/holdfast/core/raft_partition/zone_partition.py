"""One partition's replica on this member, as the client of its Raft group.

The group hands it committed entries, confirmations of reads, snapshots and notices; it drives the state machine, the
proposals and the read barrier by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.model.ids import GroupNumber
from holdfast.core.model.operations import EntryEvent, Value
from holdfast.core.multiraft.group_host import LeadChanged, ReplicaNotice
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import LeaderElected
from holdfast.core.raft_partition.marked_copies import MarkedCopies
from holdfast.core.raft_partition.partition_commands import (
    ZoneCommand,
    ZoneMark,
    ZoneWrites,
    decode_command,
)
from holdfast.core.raft_partition.proposals import STOPPED, Proposals, answer_proposed
from holdfast.core.raft_partition.read_barrier import ReadBarrier
from holdfast.core.raft_partition.state_machine import StateMachine
from holdfast.core.raft_partition.zone_replicas import ZoneReplicas


class ZonePartition:
    """One partition's replica on this member. A `GroupClient`."""

    def __init__(self, number: GroupNumber, partition: int, zone: ZoneReplicas) -> None:
        self.number = number
        self.partition = partition
        self._zone = zone
        self._out = zone.out
        self.state = StateMachine(partition, zone.settings.replication.request_ids)
        self.term = 0
        """The term in which this member leads the group, and may be given requests; 0: it does not."""
        self.proposals = Proposals(number, zone)
        self.reads = ReadBarrier(number, zone, self.state)
        self.marks = MarkedCopies()

    @property
    def leads(self) -> bool:
        """Whether requests may be given to it."""
        return self.term > 0

    @property
    def waiting(self) -> int:
        """Requests that are not answered."""
        return self.proposals.unanswered + self.reads.unanswered

    def look(self, name: str, key: bytes) -> bytes | None:
        """The value of an entry as it is here, if it has not ended; to be answered when it is confirmed."""
        return self.state.look(name, key, self._out.wall_ms())

    def flush(self) -> None:
        """The step ends: what has come goes to the group."""
        self.proposals.flush(self.term)
        self.reads.flush()

    def mark(self) -> tuple[int, int] | None:
        """Put a mark into the log; answers its term and index, at which it may stay or not. None: this member does not
        lead.
        """
        index = self.proposals.place(ZoneCommand(self._out.wall_ms(), (ZoneMark(),)), self.term)
        return None if index is None else (self.term, index)

    # -- the group

    def apply(self, entries: Sequence[RaftEntry]) -> None:
        """These are committed."""
        for entry in entries:
            proposed = self.proposals.take(entry.index)
            answers = self._carry_out(entry)
            if proposed is not None:
                answer_proposed(proposed, entry, answers)
        self._go_on()

    def _carry_out(self, entry: RaftEntry) -> list[Value]:
        command, state = decode_command(entry.data), self.state
        state.time_ms = max(state.time_ms, command.time_ms)
        heard = self._hear if self.term and self._zone.sink.listening else None
        answers: list[Value] = []
        for part in command.parts:
            if isinstance(part, ZoneWrites):
                answers += [state.write(write, heard) for write in part.writes]
            elif isinstance(part, ZoneMark):
                self.marks.keep(entry.index, state.marked(entry.term, self._out.now_ns))
            else:
                answers += [state.carry_out(request, heard) for request in part.requests]
        if command.sweep:
            state.sweep(heard)
        return answers

    def _hear(self, event: EntryEvent, name: str) -> None:
        if name in self._zone.sink.listening:
            self._zone.sink.hear(event)

    def read_ready(self, context: bytes) -> None:
        """All that the reads of this question must see is applied."""
        self.reads.on_confirmed(context)
        self._go_on()

    def _go_on(self) -> None:
        """Something has come back from the group: what waits for that goes at the end of this step."""
        if self.proposals.waiting or self.reads.waiting:
            self._zone.again.add(self)

    def on_group(self, notice: ReplicaNotice) -> None:
        """Something has happened to the group."""
        if isinstance(notice, LeaderElected):
            self.term = notice.term
        elif isinstance(notice, LeadChanged) and notice[::2] != (self._zone.groups.me, self.term):
            self._lead_lost()
        self._zone.sink.on_replica(self.number, notice)

    def _lead_lost(self) -> None:
        self.term = 0
        self.reads.lose_asked()
        self.proposals.lose_waiting()
        self.reads.lose_waiting()

    def pieces(self) -> Iterable[bytes]:
        """The whole state."""
        return self.state.pieces()

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Hold this instead: what became of what was proposed before is not known."""
        self.state.restore(pieces)
        self.marks.clear()
        self.proposals.lose_placed(STOPPED)

    def stop(self) -> None:
        """The replica ends."""
        self._lead_lost()
        self.proposals.lose_placed(STOPPED)

    def sweep(self) -> None:
        """Once in a while: answer what has waited long enough, repeat lost questions, and end entries."""
        if self.proposals.placed or self.reads.asked or self.marks:
            now_ns = self._out.now_ns
            self.marks.expire(now_ns)
            self.proposals.expire(now_ns)
            self.reads.expire(now_ns)
        if self.term and self.state.maps and self.state.has_ended(self._out.wall_ms()):
            self.proposals.place(ZoneCommand(self._out.wall_ms(), sweep=True), self.term)

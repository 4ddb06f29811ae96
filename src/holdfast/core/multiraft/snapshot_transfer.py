"""Transfer of a group's state to replicas whose missing entries the leader's log no longer has.

- multiraft/H-4: A state is sent as of one index. The receiver's log continues after that index only when the whole
  state has arrived and is durable. All its pieces are from one leader in one term: two leaders may order them
  differently, so half of each may lack an entry.
- multiraft/H-10: A step reads, or takes, one part of a state, however large the state is. The leader reads the next
  pieces when they are sent, and the receiver adds them to a new state beside the one in use. If the state cannot be
  read to its end, or another leader sends one, the receiver begins again.

The parts carry about `STATE_BYTES` each, one at a time: the receiver responds with the number of pieces that it has,
and only the response to the newest part releases the next. Example: the leader has sent pieces 0-7, and begins again
with pieces 0-3. The response "8 taken" to its first attempt releases nothing; "4 taken" releases the pieces from 4 on.

- multiraft/H-8: All states together have about `IN_FLIGHT_BYTES` without a response, or fewer if
  `partitions.max_in_flight_bytes` says so; one part may always be in flight. The next parts wait for their turn, in
  order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.core.messages import GroupState, GroupStateTaken, GroupStateWanted
from holdfast.core.model.ids import MILLISECOND, GroupNumber, MemberId
from holdfast.core.multiraft.hosted_group import ArrivingState, HostedGroup, StateFill, StatePieces
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import NodeId
from holdfast.core.raft.raft_messages import RaftKind, RaftMessage, RaftSnapshot
from holdfast.errors import ProtocolError

STATE_BYTES = 256 << 10
"""Approximate size of one part."""
IN_FLIGHT_BYTES = 2 << 20
LOST_NS = 2_000 * MILLISECOND
"""A part without a response takes no room any more: its receiver may not want it."""

DROPPED_NS = 5 * LOST_NS
"""A state whose last part had no response for so long is not read any more. Raft has given it up by then, and sends the
present one if the receiver still needs it. To keep a state readable costs memory with each change."""

_TransferKey = tuple[GroupNumber, NodeId]


class _OutgoingState:
    """A state on its way to one node."""

    def __init__(self, index: int, snapshot: RaftMessage, pieces: StatePieces) -> None:
        self.index = index
        self.snapshot = snapshot
        self.sent = 0
        """Pieces."""
        self.in_flight_bytes = 0
        """Size of the last part; 0 after its response."""
        self.sent_ns = 0
        self._pieces = pieces
        self._next = next(self._pieces, None)

    @property
    def is_void(self) -> bool:
        return self._pieces.is_void and not self.is_complete

    def close(self) -> None:
        self._pieces.close()

    @property
    def is_complete(self) -> bool:
        return self._next is None

    def part(self, number: GroupNumber) -> GroupState:
        first, pieces, size = self.sent, [], 0
        while self._next is not None and size < STATE_BYTES:
            pieces.append(self._next)
            size += len(self._next)
            self._next = next(self._pieces, None)
        self.sent += len(pieces)
        self.in_flight_bytes = size
        return GroupState(number, self.snapshot, first, pieces, self._next is None)


class SnapshotTransfer:
    def __init__(self, me: NodeId, out: Outbox, hosted: Mapping[GroupNumber, HostedGroup]) -> None:
        """`hosted`: kept up to date by the caller."""
        self._me = me
        self._out = out
        self._hosted = hosted
        self._members: Mapping[NodeId, MemberId] = {}
        self._outgoing: dict[_TransferKey, _OutgoingState] = {}
        self._waiting: dict[_TransferKey, None] = {}
        self._most_bytes = IN_FLIGHT_BYTES

    def bound_flight(self, max_in_flight_bytes: int) -> None:
        """See multiraft/H-8."""
        self._most_bytes = min(IN_FLIGHT_BYTES, max_in_flight_bytes)

    def on_tick(self) -> None:
        oldest_ns = self._out.now_ns - DROPPED_NS
        for key, state in list(self._outgoing.items()):
            if key not in self._waiting and state.sent_ns < oldest_ns:
                self._drop(key)
        self.send_waiting()

    def send_waiting(self) -> None:
        """Send parts that wait, as long as there is room. Called at each tick, and after each response."""
        if not self._waiting:
            return
        now_ns = self._out.now_ns
        states = self._outgoing.values()
        in_flight = sum(one.in_flight_bytes for one in states if now_ns - one.sent_ns < LOST_NS)
        for key in list(self._waiting):
            if in_flight >= self._most_bytes:
                return
            del self._waiting[key]
            number, node = key
            state, member, hosted = self._outgoing[key], self._members.get(node), self._hosted.get(number)
            if hosted is None or hosted.group.leading is None:
                self._drop(key)
                continue
            if state.is_void:
                state = self._begin_again(hosted, node)
            if member is not None:
                self._out.send(member, state.part(number))
                state.sent_ns = now_ns
                in_flight += state.in_flight_bytes

    def has_waiting(self, number: GroupNumber) -> bool:
        """Whether a part of the group's state waits for its turn."""
        return any(waiting == number for waiting, _ in self._waiting)

    def _drop(self, key: _TransferKey) -> None:
        self._outgoing.pop(key).close()
        self._waiting.pop(key, None)

    def send(self, hosted: HostedGroup, message: RaftMessage) -> None:
        """The present state, to `message.to` (multiraft/H-4)."""
        assert message.snapshot is not None and message.snapshot.index == hosted.group.log.applied, (
            "the snapshot has the index of the last applied entry"
        )
        self._open(hosted, message, message.snapshot.index)
        self._waiting[hosted.number, message.to] = None
        self.send_waiting()

    def _open(self, hosted: HostedGroup, message: RaftMessage, index: int) -> _OutgoingState:
        key = (hosted.number, message.to)
        if key in self._outgoing:
            self._outgoing[key].close()
        state = self._outgoing[key] = _OutgoingState(index, message, hosted.client.pieces())
        return state

    def _begin_again(self, hosted: HostedGroup, node: NodeId) -> _OutgoingState:
        """The state that was sent cannot be read any more: send the present one."""
        message, leading = self._present(hosted, node), hosted.group.leading
        assert message.snapshot is not None and leading is not None
        leading.snapshot_moved(node, message.snapshot.index)
        return self._open(hosted, message, message.snapshot.index)

    def _present(self, hosted: HostedGroup, node: NodeId) -> RaftMessage:
        group, log = hosted.group, hosted.group.log
        at = log.applied
        return RaftMessage(
            kind=RaftKind.SNAPSHOT,
            to=node,
            sender=self._me,
            generation=group.generation,
            term=group.term,
            snapshot=RaftSnapshot(at, log.term(at), log.configuration_at(at)),
        )

    def on_wanted(self, sender: MemberId, message: GroupStateWanted) -> None:
        """Send the state to a follower that is rebuilt (multiraft/H-9)."""
        hosted = self._hosted.get(message.group)
        node = next((node for node, member in self._members.items() if member == sender), None)
        if hosted is None or node is None or hosted.halted:
            return
        leading = hosted.group.leading
        if leading is None or node not in leading.progress:
            return
        if (message.group, node) in self._waiting:
            # The next part of a state for it waits for its turn. A follower that requests its state every two seconds
            # would never get a second part when the states of many others are sent as well.
            return
        self.send(hosted, self._present(hosted, node))

    def receive(self, sender: MemberId, hosted: HostedGroup, message: GroupState) -> bool:
        """Take a part of a state. False: it is not the part that comes next, or malformed, and is ignored."""
        snapshot = message.snapshot.snapshot
        if snapshot is None or message.snapshot.to != self._me:
            return False
        arriving, lead_term = hosted.arriving, message.snapshot.term
        if message.first == 0 and (arriving is None or lead_term >= arriving.lead_term):
            fill = hosted.client.fill()
            arriving = ArrivingState(sender, lead_term, snapshot.index, snapshot.term, fill)
            hosted.arriving = arriving
        if arriving is None or not arriving.is_of(sender, lead_term, snapshot):
            return False
        if message.first != arriving.taken:
            return False
        try:
            for piece in message.pieces:
                arriving.fill.add(piece)
        except ProtocolError:
            hosted.arriving = None  # A malformed piece must not stop this member; the leader begins again.
            return False
        arriving.taken += len(message.pieces)
        self._out.send(sender, GroupStateTaken(message.group, snapshot.index, arriving.taken))
        return True

    def take_arrived(self, hosted: HostedGroup, snapshot: RaftSnapshot) -> StateFill:
        arriving, hosted.arriving = hosted.arriving, None
        assert arriving is not None and arriving.index == snapshot.index, (
            "the state arrives before it is installed"
        )
        return arriving.fill

    def on_leader(self, hosted: HostedGroup) -> None:
        """Drop a state that another member than the leader has begun to send: it sends no more of it."""
        lead, arriving = hosted.group.lead, hosted.arriving
        if arriving is not None and lead is not None and self._members.get(lead) != arriving.sender:
            hosted.arriving = None

    def on_state_taken(self, sender: MemberId, message: GroupStateTaken) -> None:
        hosted = self._hosted.get(message.group)
        for (number, node), state in list(self._outgoing.items()):
            if number == message.group and self._members.get(node) == sender and state.index == message.index:
                if hosted is None or hosted.group.leading is None:
                    self._drop((number, node))
                    continue
                hosted.group.leading.moved(node)
                if state.sent != message.taken or (number, node) in self._waiting:
                    continue
                if state.is_complete:
                    self._drop((number, node))
                else:
                    state.in_flight_bytes = 0
                    self._waiting[number, node] = None
        self.send_waiting()

    def on_view(self, members: Mapping[NodeId, MemberId], changed: Collection[NodeId]) -> None:
        """Nodes have left, joined, or moved to another member."""
        self._members = members
        for key in [key for key in self._outgoing if key[1] in changed]:
            self._drop(key)
        self.send_waiting()

    def abort(self, number: GroupNumber) -> None:
        """The group has no replica here any more."""
        for key in [key for key in self._outgoing if key[0] == number]:
            self._drop(key)
        self.send_waiting()

    @property
    def leftovers(self) -> int:
        return len(self._outgoing)

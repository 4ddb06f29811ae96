"""Feeds one member with events and carries out its effects: links, timers, callbacks. Both worlds use it.

Operator actions are events: `driver.handle(ActionRequested(Drain()))`. The methods here do what events
cannot: read bytes, keep a callback, or set the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import assert_never, cast

from holdfast.core.effects import (
    Announce,
    Append,
    BackpressureChanged,
    Checkpoint,
    CloseLink,
    ClusterChanged,
    Complete,
    Datagram,
    Effect,
    EndTurn,
    Note,
    Notify,
    OpenLink,
    ReadHistory,
    RunProcessor,
    Send,
    SetTimer,
    Stop,
)
from holdfast.core.events import (
    ActionRequested,
    AnswersUnread,
    ClientRequest,
    ClockSet,
    Event,
    FramesForwarded,
    Heard,
    MemberAction,
    Received,
    Started,
    StepEnded,
    TimerFired,
    TurnEnded,
    ZoneBatches,
)
from holdfast.core.member import Member
from holdfast.core.messages import Message, MessageBatch
from holdfast.core.model.forwarded_frames import ForwardedDone, ForwardedPart, OutgoingFrames
from holdfast.core.model.ids import MILLISECOND, Address, MemberId, Token
from holdfast.core.model.operations import Done, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.open_step import SHARING, SHARING_EVENTS
from holdfast.core.primary_backup.shared_steps import SharedSteps
from holdfast.core.raft_partition.map_homes import ZoneEntries
from holdfast.core.routing.router import HAS_LEFT, with_doubt
from holdfast.engine.callers import Callers
from holdfast.engine.entry_lane import EntryLane
from holdfast.engine.link import ACKNOWLEDGE_NS, RESEND_NS, Link, road_between
from holdfast.engine.ports import World, Writer
from holdfast.engine.recording import LifeRecorder
from holdfast.engine.unsent_messages import UnsentMessages
from holdfast.errors import Closing, InvariantBroken, ProtocolError
from holdfast.wire.codec import decode, encode

EARLY_BYTES_MAX = 16 * 1024 * 1024
"""Limit of packets kept for links that are not open yet; the sender repeats dropped ones."""
EARLY_TURN_BYTES = 1024 * 1024
TURN_MESSAGES = 200
"""Messages of members handled in one turn of the event loop. A link keeps up to 1,024 messages behind a
missing one; when that arrives, all are due at once.
"""
STOPPED = Outcome(Status.CLOSING, None, "this member has stopped")
NO_LEADER = Outcome(Status.MOVED, None, STOPPED.detail)
FRAMES_BYTES = 256 * 1024
"""An event gets no more frames for other members when it has this many, so that serving them takes a few ms."""
DELIVERIES = frozenset({Complete, Notify, Announce, ClusterChanged, BackpressureChanged, RunProcessor})
LINKS = "links"
HELD = "held updates"
HOLD_NS = 2 * MILLISECOND
"""How long updates stay in the lane when nothing waits for them: those of maps without backups whose journal is not
"sync". They become fewer and larger records, and one step instead of one for each turn.
"""


class _DriverSteps(SharedSteps):
    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

    def end(self, number: int) -> None:
        if number == self.number:
            self._driver.end_buffer()


class Driver:
    def __init__(self, member: Member, world: World) -> None:
        self.member = member
        self.world = world
        self.links: dict[MemberId, Link[Message]] = {}
        self._early: deque[tuple[int, MemberId, bytes]] = deque()
        self._early_bytes = 0
        self.journal: Writer | None = None
        self._timers: dict[str, int] = {}
        self._inbox: deque[Event] = deque()
        self._busy = False
        self._out = member.out
        self._lane = member.lane
        self._read: Callable[[bytes | memoryview], Message] = partial(
            decode,
            partition_count=member.settings.partitions.count,
            are_sound=member.lane.batches.are_sound,
        )
        self._answer_bytes = member.settings.limits.answer_bytes
        self._unread: set[MemberId] = set()
        self._unsent = UnsentMessages(self._out, self._transmit)
        self.lane: EntryLane = member.lane
        self._steps = member.lane.steps = _DriverSteps(self)
        self.recorded: LifeRecorder | None = None
        self.callers = Callers(self._put, self._share)
        self._turn_ends = False
        """Whether `StepEnded` is due at the end of this turn, because sessions have used the lane or sent requests,"""
        self._holds = False
        """or `HOLD_NS` after the first of the updates that are held, if no other step comes before."""
        self._end_due = self._ends_with_buffer = False
        """Whether `TurnEnded` is due, and at the end of a read buffer already."""
        self._shared = 0
        """So many messages and requests have left the step open."""
        self._gathers = False
        """Whether the world holds packets back until the end of the step."""
        self._rests = False
        self._batches: list[tuple[Token, ZoneBatch]] = []
        self._frames: FramesForwarded | None = None
        """In the inbox; the last one,"""
        self._frames_bytes = 0
        """and the bytes of its requests."""
        self.stopped = False

    def record(self, record: LifeRecorder) -> None:
        self.recorded = record
        self.lane = record.lane(self._lane, lambda: self._out.now_ns)

    # -- input from the world

    def start(self) -> None:
        self._set_clock()
        self.handle(Started())

    def handle(self, event: Event) -> None:
        if not self.stopped:
            self._inbox.append(event)
            self._run()

    def packet(self, sender: MemberId, packet: bytes | memoryview, *, more: bool = False) -> None:
        """Handle a packet, which counts only on the link between the present lives of both members. `more`: others
        have come in its read buffer, until `end_buffer`; its messages may share the end of a step with theirs.

        Raises ProtocolError if it is unreadable; nothing has changed then, and the sender may repeat it.
        """
        link = self.links.get(sender)
        if self.stopped:
            return
        if link is None or not link.carries(packet):
            self._keep(sender, bytes(packet))
            return
        self._receive(sender, link, packet, more=more)
        self._run(ends=not more)
        if link.owes_bytes:
            self._links_due()
        else:
            self._arm_links()

    def _receive(
        self, sender: MemberId, link: Link[Message], packet: bytes | memoryview, *, more: bool = False
    ) -> None:
        messages = link.receive(packet, self.world.now_ns(), self._read)
        if sender in self._unread:
            self._see_unread(sender)
        for message in messages:
            if type(message) is MessageBatch:
                # One by one, so that what has to be known before the next one can be handled in between.
                parts = message.messages
                last = len(parts) - 1
                self._inbox += [Received(sender, part, more or at < last) for at, part in enumerate(parts)]
            else:
                self._inbox.append(Received(sender, message, more and type(message) in SHARING))

    def _see_unread(self, member: MemberId) -> None:
        link = self.links.get(member)
        too_many = link is not None and link.unacknowledged_bytes > self._answer_bytes
        if too_many != (member in self._unread):
            if too_many:
                self._unread.add(member)
            else:
                self._unread.remove(member)
            self._inbox.appendleft(AnswersUnread(member, too_many))

    def _keep(self, sender: MemberId, packet: bytes) -> None:
        """Keep a packet for a link that may open soon: the sender may have installed the next view first.

        Example: member 1 installs view 8, in which 3 has joined, and sends 3 the first chunk of a migration,
        which arrives before view 8 does. The sender would repeat a dropped packet only after `RESEND_NS`.
        """
        now_ns = self.world.now_ns()
        while self._early and self._early[0][0] < now_ns - RESEND_NS:
            self._early_bytes -= len(self._early.popleft()[2])
            assert self._early_bytes >= 0, "each kept packet is counted once"
        if self._early_bytes + len(packet) <= EARLY_BYTES_MAX:
            self._early.append((now_ns, sender, packet))
            self._early_bytes += len(packet)
        assert self._early_bytes <= EARLY_BYTES_MAX, "the limit of kept bytes holds"
        assert self._early or not self._early_bytes, "without kept packets no bytes are counted"

    def _open(self, to: MemberId, life: int, address: Address) -> None:
        assert to != self.member.me, "a member has no link to itself"
        self._unsent.send_to(to)
        me = (self.member.me, self.member.picture.info.life)
        link = self.links[to] = Link[Message](road_between(me, (to, life)))
        if to in self._unread:
            self._see_unread(to)
        self.world.open(to, address)
        early, self._early = self._early, deque()
        self._early_bytes = 0
        mine: deque[bytes] = deque()
        for came_ns, sender, packet in early:
            if sender != to:
                self._early.append((came_ns, sender, packet))
                self._early_bytes += len(packet)
            elif link.carries(packet):
                mine.append(packet)
        assert self._early_bytes <= EARLY_BYTES_MAX, "packets that stay were kept before"
        self._take_early(to, link, mine)
        self._arm_links()

    def _take_early(self, to: MemberId, link: Link[Message], packets: deque[bytes]) -> None:
        """Handle packets that arrived before their link was open, some in each turn. The link keeps later
        packets meanwhile.
        """
        size = 0
        while packets and size < EARLY_TURN_BYTES:
            packet = packets.popleft()
            size += len(packet)
            try:
                self._receive(to, link, packet)
            except ProtocolError as broken:
                # Its connection, which would be closed for this, is not known any more.
                self.world.note(Note("packet dropped", {"sender": to, "reason": str(broken)}, "warning"))

        def go_on() -> None:
            if self.links.get(to) is link and not self.stopped:
                self._take_early(to, link, packets)
                self._run()
                self._arm_links()

        if packets:
            self.world.soon(go_on)

    def datagram_received(self, address: Address, data: bytes | memoryview) -> None:
        self.handle(Heard(address, self._read(data)))

    def reconnected(self, member: MemberId) -> None:
        link = self.links.get(member)
        if link is not None and not self.stopped:
            for packet in link.repeat(self.world.now_ns()):
                self.world.carry(member, packet)

    def execute(self, request: Request, done: Done, doubt: str = "") -> None:
        """`doubt`: see `ClientRequest`."""
        if self.stopped:
            done(with_doubt(HAS_LEFT if self.member.picture.has_left else STOPPED, doubt))
        else:
            self._share(ClientRequest(self.callers.expect(done), request, doubt, more=True))

    def zone_entries(self, name: str) -> ZoneEntries | None:
        return self.member.picture.copies.zone_entries(name)

    def zone_batch(self, batch: ZoneBatch, done: Callable[[ZoneBatchDone], None]) -> None:
        """Execute one read buffer's requests to a zone. All batches of a turn become one event, at its end or
        before the next step. `done` is called once, unless this member stops before.
        """
        if self.stopped:
            # The session executes these requests, which rejects them.
            done(ZoneBatchDone([], [(place, NO_LEADER) for place in range(len(batch.changes))], NO_LEADER))
            return
        if not self._batches:
            self.world.soon(self._run)
        self._batches.append((self.callers.expect(done), batch))

    def forward(self, part: ForwardedPart, done: Callable[[ForwardedDone], None]) -> None:
        """Forward one read buffer's requests for another member, with those of all other buffers of this turn, at its
        end or before the next step. `done` is called once, unless this member stops before.
        """
        if self.stopped:
            done(ForwardedDone(again=range(part.count)))
            return
        frames, inbox = self._frames, self._inbox
        if frames is None or not inbox or inbox[-1] is not frames or self._frames_bytes >= FRAMES_BYTES:
            frames = self._frames = FramesForwarded([])
            self._frames_bytes = 0
            inbox.append(frames)
            self.world.soon(self._run)
        frames.parts.append((self.callers.expect(done), part))
        self._frames_bytes += len(part.frames)

    def act(self, action: MemberAction, answered: Callable[[object], None]) -> None:
        """Called once, with the action's answer or a RequestError."""
        if self.stopped:
            answered(Closing("this member has stopped"))
        else:
            self._put(ActionRequested(action, self.callers.expect(answered)))

    def _put(self, event: Event) -> None:
        """Queue an event, and handle it unless a step is running, which will."""
        self._inbox.append(event)
        self._run()

    def _share(self, event: Event) -> None:
        """Handle a request of a session. Those of one turn share the end of a step."""
        self._inbox.append(event)
        if self._busy:
            return
        if not self._gathers:
            self._gathers = True
            self.world.hold()
        if not self._turn_ends:
            # First, so that the step ends before tasks continue that get their answers now.
            self._turn_ends = True
            self.world.soon(self._run)
        self._run(ends=False)

    def enter(self) -> None:
        """Set the time of the step. Sessions call this before they use the data lane."""
        self._out.now_ns = self.world.now_ns()

    def leave_lane(self) -> None:
        """A session has used the data lane. Its effects are carried out at the end of this turn, or before
        the next step, so that the writes of all sessions of this turn leave in one message to each backup.
        Updates that nothing waits for are held for longer (`HOLD_NS`).
        """
        lane, batches = self._lane, self._lane.batches
        if self._turn_ends:
            return
        if batches.unsent_batches or lane.listening or lane.awaited or self._out.effects:
            self._turn_ends = True
            self.world.soon(self._run)
        elif (batches.unsent or batches.unsent_puts) and not self._holds:
            self._holds = True
            self._timers[HELD] = self.world.now_ns() + HOLD_NS
            self._wake()

    def flush(self) -> None:
        """Carry out now what sessions have caused through the data lane."""
        if not self.stopped:
            self._run()

    def tick(self) -> None:
        if self.stopped:
            return
        self._set_clock()
        now_ns = self.world.now_ns()
        for name in [name for name, at in self._timers.items() if at <= now_ns]:
            del self._timers[name]
            if name == LINKS:
                self._links_due()
            elif name != HELD:
                self._inbox.append(TimerFired(TimerName(name)))
        self._run()
        self._wake()

    def _end_turn(self) -> None:
        """The end of the event loop's turn, requested with `EndTurn`, unless it came early."""
        if self._end_due and not self.stopped:
            self._end_due = self._ends_with_buffer = False
            self._put(TurnEnded())

    def end_buffer(self) -> None:
        """A read buffer of another member was handled: run what waits for no more than that."""
        if self.member.open_step.is_open:
            self._run()
        if self._ends_with_buffer:
            self._end_turn()

    def _set_clock(self) -> None:
        epoch_ms = self.world.wall_ms() - self.world.now_ns() // MILLISECOND
        if epoch_ms != self._out.epoch_ms:
            self._inbox.append(ClockSet(epoch_ms))

    # -- steps

    def _run(self, *, ends: bool = True) -> None:
        """Handle the inbox. A call from within a step leaves that to the outer call. `ends`: end an open step, too."""
        if self._busy:
            return
        self._busy = True
        try:
            if ends and self._is_open and not self._inbox and not self.stopped:
                self._end_with(StepEnded())
            if self._batches and not self.stopped:
                batches, self._batches = tuple(self._batches), []
                self._step(ZoneBatches(batches))
            received = 0
            while not self.stopped:
                if self._inbox and received < TURN_MESSAGES:
                    event = self._inbox.popleft()
                    received += type(event) is Received
                    self._step(event)
                elif self.member.open_step.is_open and (ends or self._inbox):
                    self._end_with(StepEnded())
                else:
                    if self._inbox and not self._rests:
                        self._rests = True
                        self.world.soon(self._go_on)
                    break
            if self.stopped:
                self._release()
        except ProtocolError as broken:
            # All bytes were decoded before. The callers of `packet` must not blame a peer for this.
            raise InvariantBroken(f"an event was handled as if it were bytes: {broken}") from broken
        finally:
            self._busy = False

    def _go_on(self) -> None:
        self._rests = False
        self._run()

    def _step(self, event: Event) -> None:
        """Handle an event. Effects of messages, requests and sessions before it leave first, unless it shares the end
        of their step.
        """
        more = isinstance(event, SHARING_EVENTS) and event.more
        if self._is_open:
            shares = more or (type(event) is Received and type(event.message) in SHARING)
            if not shares or self._shared == TURN_MESSAGES:
                self._end_with(StepEnded())
                if self.stopped:
                    return
        if more:
            self._shared += 1
            self._handle(event)
        else:
            self._end_with(event)

    @property
    def _is_open(self) -> bool:
        return self._turn_ends or self._holds or self.member.open_step.is_open

    def _end_with(self, event: Event) -> None:
        """Handle an event that leaves no step open."""
        # Before: a callback may use the data lane.
        self._turn_ends = self._holds = False
        self._timers.pop(HELD, None)
        self._shared = 0
        self._steps.number += 1
        self._handle(event)
        self._release()

    def _release(self) -> None:
        self._unsent.send_all()
        if self._gathers:
            self._gathers = False
            self.world.release()

    def _handle(self, event: Event) -> None:
        assert self._busy and not self.stopped, "one step at a time, and none after the end"
        lane = self.member.lane
        assert not lane.open_records and not lane.open_puts, "a read buffer ends before an event is handled"
        now_ns = self.world.now_ns()
        assert now_ns >= self._out.now_ns, "this member's time never goes back"
        if self.recorded is not None:
            self.recorded.step(event, now_ns)
        effects = self.member.handle(event, now_ns)
        if self.recorded is not None:
            self.recorded.stepped(effects)
        if len(effects) > 1:
            effects = self._in_order(effects)
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(effect.to, effect.message)  # type: ignore[union-attr]
            elif kind is Complete:
                self.callers.complete(effect.token, effect.answer)  # type: ignore[union-attr]
            else:
                self._deed(effect)

    def _in_order(self, effects: list[Effect]) -> list[Effect]:
        """Order effects: responses to local callers, then links, both in their order, then the rest in any
        order. No effect relies on another of its list; the simulator shuffles the rest to find protocols that
        do.
        """
        deliveries: list[Effect] = []
        links: list[Effect] = []
        rest: list[Effect] = []
        for effect in effects:
            kind = type(effect)
            if kind in DELIVERIES:
                deliveries.append(effect)
            elif kind is OpenLink or kind is CloseLink:
                links.append(effect)
            else:
                rest.append(effect)
        assert len(deliveries) + len(links) + len(rest) == len(effects), "each effect is carried out once"
        self.world.shuffle(cast("list[object]", rest))
        return deliveries + links + rest

    def _deed(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self._send(to, message)
            case Datagram(address, message):
                self.world.send_datagram(address, encode(message))
            case SetTimer(name, after_ns, jitter_ns):
                extra = self.world.jitter(jitter_ns) if jitter_ns else 0
                self._timers[name] = self.world.now_ns() + after_ns + extra
                self._wake()
            case OpenLink(to, life, address):
                self._open(to, life, address)
            case CloseLink(to):
                self._unsent.send_to(to)
                self.links.pop(to, None)
                if to in self._unread:
                    self._see_unread(to)
                self.world.close(to)
            case EndTurn(with_buffer):
                self._ends_with_buffer = self._ends_with_buffer or with_buffer
                if not self._end_due:
                    self._end_due = True
                    self.world.soon(self._end_turn)
            case Note():
                self.world.note(effect)
            case (
                Complete() | Notify() | Announce() | ClusterChanged() | BackpressureChanged() | RunProcessor()
            ):
                self.callers.deliver(effect)
            case Append() | Checkpoint() | ReadHistory():
                if self.journal is not None:
                    self.journal.carry_out(effect)
            case Stop(why):
                self.stopped = True
                if self.journal is not None:
                    self.journal.close()
                self.world.stopped(why)
            case _:
                assert_never(effect)

    def _send(self, to: MemberId, message: object) -> None:
        if to == self.member.me:
            self._inbox.append(Received(to, message))  # type: ignore[arg-type]
            return
        link = self.links.get(to)
        if link is not None:
            unsent_bytes = self._unsent.add(to, message)  # type: ignore[arg-type]
            if link.unacknowledged_bytes + unsent_bytes > self._answer_bytes:
                # The member learns now that too many answers are on their way (routing/R-8).
                self._unsent.send_to(to)
        # Otherwise it has left the view. Machines that wait for its response learn that from the view.

    def _transmit(self, to: MemberId, message: bytes) -> None:
        link = self.links[to]
        packet = link.send(message, self.world.now_ns())
        if link.unacknowledged_bytes > self._answer_bytes:
            self._see_unread(to)
        self.world.carry(to, packet)
        self._arm_links()

    # -- links and timers

    def _links_due(self) -> None:
        now_ns = self.world.now_ns()
        for member, link in self.links.items():
            for packet in link.due(now_ns):
                self.world.carry(member, packet)
        self._arm_links()

    def _arm_links(self) -> None:
        if LINKS not in self._timers and any(link.open for link in self.links.values()):
            self._timers[LINKS] = self.world.now_ns() + ACKNOWLEDGE_NS
            self._wake()

    def _wake(self) -> None:
        if self._timers:
            self.world.wake_at(min(self._timers.values()))


class DriverForwards:
    """Implements `server.frame_forwards.FrameForwards`."""

    def __init__(self, driver: Driver) -> None:
        forwarding = driver.member.serving.forwarding
        self.away: list[OutgoingFrames | None] = forwarding.away
        self.expected_bytes = forwarding.expected_bytes
        self.stays: Callable[[str], bool] = forwarding.stays
        self._driver = driver

    def forward(self, part: ForwardedPart, done: Callable[[ForwardedDone], None]) -> None:
        self._driver.forward(part, done)

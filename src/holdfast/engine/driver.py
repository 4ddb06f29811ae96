"""Feeds one member with events and carries out its effects: links, timers, callbacks. The same in both worlds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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
    Send,
    SetTimer,
    Stop,
)
from holdfast.core.events import (
    AnswersUnread,
    BaselineOrdered,
    Become,
    ChangeState,
    ClientRequest,
    ClockSet,
    Event,
    EvictionOrdered,
    EvictionWithoutMajorityOrdered,
    FlightBounded,
    Heard,
    LaneUsed,
    LeaveRequested,
    LevelOrdered,
    LossAccepted,
    LostReset,
    PeerSilent,
    Received,
    RefillRequested,
    SeedAbsent,
    SeedBehind,
    Started,
    TimerFired,
    TurnEnded,
    ZoneBatches,
)
from holdfast.core.member import Member
from holdfast.core.messages import Message
from holdfast.core.model.ids import MILLISECOND, Address, MemberId, Token
from holdfast.core.model.operations import Done, Outcome, Request, Status
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import ClusterState, Intent
from holdfast.core.model.zone_batches import ZoneBatch, ZoneBatchDone
from holdfast.core.raft_partition.leader_routing import ZoneEntries
from holdfast.core.routing.router import HAS_LEFT
from holdfast.engine.callers import Callers
from holdfast.engine.entry_lane import EntryLane
from holdfast.engine.link import ACKNOWLEDGE_NS, RESEND_NS, Link, road_between
from holdfast.engine.ports import World, Writer
from holdfast.engine.recording import LifeRecorder
from holdfast.errors import InvariantBroken, ProtocolError
from holdfast.wire.codec import decode, encode

EARLY_BYTES_MAX = 16 * 1024 * 1024
"""What may be kept of lives that this member has not been told of yet; above it packets are left to their link."""
EARLY_TURN_BYTES = 1024 * 1024
"""Of these so many are read in one turn of the world."""
TURN_MESSAGES = 200
"""Messages of members that are handled in one turn of the world. More come at once when one that others overtook
arrives, and frees them all: a link keeps up to 1,024 of these."""
STOPPED = Outcome(Status.CLOSING, None, "this member has stopped")
DELIVERIES = frozenset({Complete, Notify, Announce, ClusterChanged, BackpressureChanged})
"""What is for those who asked or listen here."""
LINKS = "links"
"""The driver's own timer, beside those of the member."""


class Driver:
    """One member in one world."""

    def __init__(self, member: Member, world: World) -> None:
        self.member = member
        self.world = world
        self.links: dict[MemberId, Link[Message]] = {}
        self._early: deque[tuple[int, MemberId, bytes]] = deque()
        """Packets that came on no road that is known here, with the time at which they came."""
        self._early_bytes = 0
        self.journal: Writer | None = None
        """Who writes down what the member wants to be written; None: nothing is kept."""
        self._timers: dict[str, int] = {}
        self._inbox: deque[Event] = deque()
        self._busy = False
        self._out = member.out
        self._lane = member.lane
        self._answer_bytes = member.settings.limits.answer_bytes
        self._unread: set[MemberId] = set()
        """Members that have not acknowledged more than that."""
        self.lane: EntryLane = member.lane
        """The data lane, for sessions."""
        self.recorded: LifeRecorder | None = None
        """Who writes this life down."""
        self.callers = Callers(self._put)
        """Who is told what the member answers."""
        self._turn_ends = False
        """Whether the end of this turn has been asked for."""
        self._rests = False
        """Whether what is left in the inbox waits for the next turn."""
        self._batches: list[tuple[Token, ZoneBatch]] = []
        """What sessions have wanted of the maps of zones in this turn."""
        self.stopped = False

    def record(self, record: LifeRecorder) -> None:
        """Write down this life from now on, before it has begun."""
        self.recorded = record
        self.lane = record.lane(self._lane, lambda: self._out.now_ns)

    # -- what the world tells

    def start(self) -> None:
        """Bring the member to life."""
        self._set_clock()
        self.handle(Started())

    def handle(self, event: Event) -> None:
        """Give the member an event."""
        if not self.stopped:
            self._inbox.append(event)
            self._run()

    def packet(self, sender: MemberId, packet: bytes | memoryview) -> None:
        """A packet came from a member; it counts only on the link between the present lives of both.

        Raises ProtocolError when it cannot be read, and then nothing has happened: who sends it may send it again.
        """
        link = self.links.get(sender)
        if self.stopped:
            return
        if link is None or not link.carries(packet):
            self._keep(sender, bytes(packet))
            return
        self._receive(sender, link, packet)
        self._run()
        if link.owes_bytes:
            self._links_due()
        else:
            self._arm_links()

    def _receive(self, sender: MemberId, link: Link[Message], packet: bytes | memoryview) -> None:
        messages = link.receive(packet, self.world.now_ns(), self._read)
        if sender in self._unread:
            self._see_unread(sender)
        for message in messages:
            self._inbox.append(Received(sender, message))

    def _read(self, payload: bytes | memoryview) -> Message:
        """The message in these bytes. Raises ProtocolError, and then nothing has happened."""
        return decode(payload, self.member.settings.partitions.count)

    def _see_unread(self, member: MemberId) -> None:
        """Tell the router, before anything else, whether a member has too many answers on their way to it."""
        link = self.links.get(member)
        too_many = link is not None and link.unacknowledged_bytes > self._answer_bytes
        if too_many != (member in self._unread):
            if too_many:
                self._unread.add(member)
            else:
                self._unread.remove(member)
            self._inbox.appendleft(AnswersUnread(member, too_many))

    def _keep(self, sender: MemberId, packet: bytes) -> None:
        """Keep a packet for a road that may be opened in a moment: the sender may have heard of the next view first.

        What is dropped here the other side repeats only after a while, in which a partition may stand still.
        """
        now_ns = self.world.now_ns()
        while self._early and self._early[0][0] < now_ns - RESEND_NS:
            self._early_bytes -= len(self._early.popleft()[2])
            assert self._early_bytes >= 0, "what is kept is counted once"
        if self._early_bytes + len(packet) <= EARLY_BYTES_MAX:
            self._early.append((now_ns, sender, packet))
            self._early_bytes += len(packet)
        assert self._early_bytes <= EARLY_BYTES_MAX, "no more is kept than may be"
        assert self._early or not self._early_bytes, "what is not kept any more is not counted"

    def _open(self, to: MemberId, life: int, address: Address) -> None:
        """Open a link, and take what has come on it already; what else came of this member is of no use any more."""
        assert to != self.member.me, "a member has no link to itself"
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
        assert self._early_bytes <= EARLY_BYTES_MAX, "what stays was kept before"
        self._take_early(to, link, mine)
        self._arm_links()

    def _take_early(self, to: MemberId, link: Link[Message], packets: deque[bytes]) -> None:
        """Take what came on a link before it was open, some in each turn. What comes meanwhile has later numbers, and
        the link keeps it until then.
        """
        size = 0
        while packets and size < EARLY_TURN_BYTES:
            packet = packets.popleft()
            size += len(packet)
            try:
                self._receive(to, link, packet)
            except ProtocolError as broken:
                # The connection on which it came is not known any more.
                self.world.note(Note("packet dropped", {"sender": to, "reason": str(broken)}, "warning"))

        def go_on() -> None:
            if self.links.get(to) is link and not self.stopped:
                self._take_early(to, link, packets)
                self._run()
                self._arm_links()

        if packets:
            self.world.soon(go_on)

    def whispered(self, address: Address, data: bytes | memoryview) -> None:
        """A message came without a link. Raises ProtocolError when it cannot be read."""
        self.handle(Heard(address, self._read(data)))

    def reconnected(self, member: MemberId) -> None:
        """The network has a new connection to a member: what was on the old one may be lost."""
        link = self.links.get(member)
        if link is not None and not self.stopped:
            for packet in link.repeat(self.world.now_ns()):
                self.world.carry(member, packet)

    def peer_silent(self, member: MemberId) -> None:
        """Nothing listens where this member was."""
        self.handle(PeerSilent(member))

    def leave(self) -> None:
        """The operator wants the member to leave."""
        self.handle(LeaveRequested())

    def become(self, wish: Intent) -> None:
        """The operator wants the member to be a lite one, or to own partitions."""
        self.handle(Become(wish))

    def change_state(self, state: ClusterState, *, ending: bool = False) -> None:
        """The operator wants the cluster in this state; `ending`: and then everybody to leave."""
        self.handle(ChangeState(state, ending))

    def accept_loss(self) -> None:
        """The operator does not want to wait for members, or parts of files, that are missing."""
        self.handle(LossAccepted())

    def bound_flight(self, max_in_flight_bytes: int) -> None:
        """The operator lets this member have so many bytes on their way to those whom it fills, and no more."""
        self.handle(FlightBounded(max_in_flight_bytes))

    def reset_lost(self, partitions: Iterable[int], maps: Iterable[str]) -> None:
        """The operator lets these maps use what there is of these partitions, which are lost."""
        self.handle(LostReset(tuple(partitions), tuple(maps)))

    def order_baseline(self, after: str, members: Iterable[str], adjust_ms: int) -> None:
        """The operator wants just these members to own data, if `after` is still the end of the history."""
        self.handle(BaselineOrdered(after, tuple(members), adjust_ms))

    def order_level(self, level: int) -> None:
        """The operator wants this feature level in force."""
        self.handle(LevelOrdered(level))

    def evict_without_majority(self, members: Iterable[MemberId]) -> None:
        """The operator evicts these members although the rest is no majority, and vouches that they have ended."""
        self.handle(EvictionWithoutMajorityOrdered(tuple(members)))

    def evict(self, members: Iterable[MemberId]) -> None:
        """The operator evicts these members, of which nothing is heard."""
        self.handle(EvictionOrdered(tuple(members)))

    def seed_absent(self, address: Address) -> None:
        """Nothing listens at this address of `cluster.seeds`."""
        self.handle(SeedAbsent(address))

    def seed_behind(self, address: Address, members: tuple[MemberId, ...]) -> None:
        """Just these members were found behind this one of `cluster.seeds`, which is a name."""
        self.handle(SeedBehind(address, members))

    def execute(self, request: Request, done: Done) -> None:
        """A session's request; `done` is called once."""
        if self.stopped:
            done(HAS_LEFT if self.member.picture.has_left else STOPPED)
        else:
            self._inbox.append(ClientRequest(self.callers.expect(done), request))
            if not self._busy:
                self._run()

    def zone_entries(self, name: str) -> ZoneEntries | None:
        """What sessions may use of the zone in which this map lives; None: it lives in none that is known here."""
        return self.member.picture.zone_entries(name)

    def zone_batch(self, batch: ZoneBatch, done: Callable[[ZoneBatchDone], None]) -> None:
        """What a session wants of the maps of a zone, of one read buffer: it is given to the member at the end of this
        turn of the world, or before the next step. `done` is called once, unless this member stops before.
        """
        if not self._batches:
            self.world.soon(self._run)
        self._batches.append((self.callers.expect(done), batch))

    def refill(self, partition: int, member: MemberId, told: Callable[[str], None]) -> None:
        """The operator wants a backup of a partition filled anew; `told` hears "", or why not."""
        if self.stopped:
            told("this member has stopped")
        else:
            self._put(RefillRequested(self.callers.expect(told), partition, member))

    def _put(self, event: Event) -> None:
        """Let the member handle this: now, or when it has done what it is at."""
        self._inbox.append(event)
        self._run()

    def enter(self) -> None:
        """A session is about to use the data lane: set the time of the step."""
        self._out.now_ns = self.world.now_ns()

    def leave_lane(self) -> None:
        """A session has used the data lane. What that caused is carried out at the end of this turn of the world, or
        before the next step: so the writes of all sessions that the world has woken together leave together.
        """
        lane, batches = self._lane, self._lane.batches
        if (
            batches.unsent or batches.unsent_batches or lane.listening or lane.awaited or self._out.effects
        ) and not self._turn_ends:
            self._turn_ends = True
            self.world.soon(self._run)

    def tick(self) -> None:
        """Fire the timers that are due, and say when the next is."""
        if self.stopped:
            return
        self._set_clock()
        now_ns = self.world.now_ns()
        for name in [name for name, at in self._timers.items() if at <= now_ns]:
            del self._timers[name]
            if name == LINKS:
                self._links_due()
            else:
                self._inbox.append(TimerFired(TimerName(name)))
        self._run()
        self._wake()

    def _end_turn(self) -> None:
        """The turn is over whose end the member wanted to hear of."""
        if not self.stopped:
            self._put(TurnEnded())

    def _set_clock(self) -> None:
        """Tell the member the time of day, again with each timer: somebody may have set the clock."""
        epoch_ms = self.world.wall_ms() - self.world.now_ns() // MILLISECOND
        if epoch_ms != self._out.epoch_ms:
            self._inbox.append(ClockSet(epoch_ms))

    # -- steps

    def _run(self) -> None:
        """Handle what is in the inbox. Re-entered from a callback, it leaves the work to the outer call."""
        if self._busy:
            return
        self._busy = True
        try:
            if self._turn_ends and not self.stopped:
                # What sessions have caused leaves before anything else happens.
                self._turn_ends = False
                self._step(LaneUsed())
            if self._batches and not self.stopped:
                batches, self._batches = tuple(self._batches), []
                self._step(ZoneBatches(batches))
            received = 0
            while self._inbox and not self.stopped:
                if received >= TURN_MESSAGES:
                    self._rest()
                    break
                event = self._inbox.popleft()
                received += type(event) is Received
                self._step(event)
        except ProtocolError as broken:
            # Bytes were read before: this is no peer's fault, and must not pass for one.
            raise InvariantBroken(f"an event was handled as if it were bytes: {broken}") from broken
        finally:
            self._busy = False

    def _rest(self) -> None:
        """Handle what is left in the inbox in the next turn of the world."""
        if not self._rests:
            self._rests = True
            self.world.soon(self._go_on)

    def _go_on(self) -> None:
        self._rests = False
        self._run()

    def _step(self, event: Event) -> None:
        assert self._busy and not self.stopped, "one step after the other, and none after the end"
        now_ns = self.world.now_ns()
        assert now_ns >= self._out.now_ns, "this member's time goes on"
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
        """Who asked here is answered first, in the order of the answers; links open and close as the member said; all
        else comes in any order (no effect relies on another of its list).
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
                self.links.pop(to, None)
                if to in self._unread:
                    self._see_unread(to)
                self.world.close(to)
            case EndTurn():
                self.world.soon(self._end_turn)
            case Note():
                self.world.note(effect)
            case Complete() | Notify() | Announce() | ClusterChanged() | BackpressureChanged():
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
        if link is None:
            # It has left the view: whoever waits for its answer learns that from the view.
            return
        packet = link.send(encode(message), self.world.now_ns())  # type: ignore[arg-type]
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
        """Look at the links soon, if anything is open on one and no look is due already."""
        if LINKS not in self._timers and any(link.open for link in self.links.values()):
            self._timers[LINKS] = self.world.now_ns() + ACKNOWLEDGE_NS
            self._wake()

    def _wake(self) -> None:
        if self._timers:
            self.world.wake_at(min(self._timers.values()))

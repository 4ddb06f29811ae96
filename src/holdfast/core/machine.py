"""The contract between the protocols and the world.

A protocol is a function of its past: `handle(event, now_ns) -> list[Effect]`. It knows no socket, file, clock,
thread or random number; it asks for deeds by returning effects, and the engine carries them out.

Rules
- No effect relies on another effect of the same list: the engine may reorder a list, and the simulator shuffles it.
- Messages sent to one peer in different steps arrive in the order of the steps, each once, while both live (the link).
- Time is integer nanoseconds, monotonic, of this member alone. No safety rule depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from holdfast.core.model.ids import MILLISECOND, Address, MemberId, PartitionId
from holdfast.core.model.levels import HIGHEST
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Room

if TYPE_CHECKING:
    from holdfast.core.messages import Message
    from holdfast.core.model.changes_since import Asked
    from holdfast.core.model.journal_entries import Entry, Snapshot
    from holdfast.core.model.metastore_questions import MetastoreQuestion
    from holdfast.core.model.notices import Notice
    from holdfast.core.model.operations import EntryEvent, Request
    from holdfast.core.model.partition_events import News
    from holdfast.core.model.records import Record
    from holdfast.core.model.transaction_orders import TransactionOrder
    from holdfast.core.model.views import ClusterState, Intent
    from holdfast.core.model.zone_batches import ZoneBatch
    from holdfast.core.model.zone_questions import ZoneOrder


Token = int
"""Names what the world outside has asked, or listens to: chosen by the engine, which knows whom to tell."""


# -- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Give `message` to the member `to`, once and in order after earlier steps, while both live."""

    to: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Datagram:
    """Give `message` to whoever listens at `address`, perhaps: it may be lost. For discovery and heartbeats."""

    address: Address
    message: Message


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Wake the machine called `name` after `after_ns` plus a random part of `jitter_ns`. A second one
    replaces the first.
    """

    name: TimerName
    after_ns: int
    jitter_ns: int = 0


@dataclass(frozen=True, slots=True)
class OpenLink:
    """From now on there is a link to this member (its life and address as in the view)."""

    to: MemberId
    life: int
    address: Address


@dataclass(frozen=True, slots=True)
class CloseLink:
    """The member left: drop the link and what was still to be sent."""

    to: MemberId


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Say `TurnEnded` when everything has been handed over that the world has at hand just now: what comes with it may
    leave together.
    """


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling: a log line, a step of the simulator's story, a row of the status."""

    kind: str
    fields: dict[str, object] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Stop:
    """This member has left the cluster and may end."""

    why: str


@dataclass(frozen=True, slots=True)
class Append:
    """Write these entries down, as one group of the journal. `Durable` tells when they, and all before, are durable;
    what is not urgent may wait for `persistence.sync_interval_ms`.
    """

    number: int
    entries: list[Entry]
    urgent: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Write this content out as a checkpoint; `CheckpointDone` tells when it is durable."""

    ticket: int
    snapshot: Snapshot
    after: int
    """What the appends up to this number say is in the content, and nothing of what later ones say (0: before all)."""


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read what the journal holds of a map in a partition: the records after the counter `after` up to `upto`."""

    ticket: int
    partition: PartitionId
    map: str
    after: int
    upto: int
    bytes_max: int = 0
    """The answer may end before `upto`, when it has about so many bytes; 0: it has all."""
    patient: bool = False
    """Whether questions that come later may be answered first."""


@dataclass(slots=True)  # one for each request: a frozen one takes three times as long to make
class Complete:
    """What was asked under this token is answered, and over. Each event that has a token says what answers it."""

    token: Token
    answer: object


@dataclass(frozen=True, slots=True)
class Notify:
    """A subscription is told something, in the order in which it happened; it goes on."""

    token: Token
    what: EntryEvent | int


@dataclass(frozen=True, slots=True)
class Announce:
    """Something has happened to a partition, or to a process of migrations: once, in order."""

    news: News


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """Members or rows are others than before."""


@dataclass(frozen=True, slots=True)
class BackpressureChanged:
    """Clients are to be read no more, or again: see `Backlog.crowded` and `Backlog.refusing`."""


Delivery = Complete | Notify | Announce | ClusterChanged | BackpressureChanged
"""What is for those who asked or listen here. The engine hands these over in their order."""

Effect = (
    Delivery
    | Send
    | Datagram
    | SetTimer
    | OpenLink
    | CloseLink
    | EndTurn
    | Note
    | Stop
    | Append
    | Checkpoint
    | ReadHistory
)

# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a member, over its link: once, in order."""

    sender: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that came without a link: from a stranger, or a heartbeat."""

    address: Address
    message: Message


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer `name` is due."""

    name: TimerName


@dataclass(frozen=True, slots=True)
class PeerSilent:
    """The network lost its connection to this member and cannot make a new one. A hint, never proof."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The operator wants this member to leave when its partitions are safe elsewhere."""


@dataclass(frozen=True, slots=True)
class Become:
    """The operator wants this member to be a lite one, or to own partitions."""

    wish: Intent


@dataclass(frozen=True, slots=True)
class ChangeState:
    """The operator wants the cluster in this state; `ending`: and then everybody to leave."""

    state: ClusterState
    ending: bool = False


@dataclass(frozen=True, slots=True)
class EvictionWithoutMajorityOrdered:
    """The operator evicts these members although the rest is no majority, and vouches that they have ended."""

    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class EvictionOrdered:
    """The operator evicts these members, which have ended: the majority removes them without a wait for suspicion."""

    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class LossAccepted:
    """The operator does not want to wait for members, or parts of files, that are missing."""


@dataclass(frozen=True, slots=True)
class FlightBounded:
    """The operator lets this member have so many bytes on their way to those whom it fills, and no more."""

    bytes: int


@dataclass(frozen=True, slots=True)
class LostReset:
    """The operator lets these maps use what there is of these partitions, which are lost."""

    partitions: tuple[int, ...]
    maps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BaselineOrdered:
    """The operator wants just these members to own data, if `after` is still the end of the history."""

    after: str
    members: tuple[str, ...]
    """By consistent id."""
    adjust_ms: int


@dataclass(frozen=True, slots=True)
class LevelOrdered:
    """The operator wants this feature level in force."""

    level: int


@dataclass(frozen=True, slots=True)
class Durable:
    """Every append up to this number is durable."""

    number: int
    reached: int = 0
    """The last block of the journal that is durable and tells of a partition; 0: not to be told to anybody."""


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """The checkpoint with this ticket is durable; or, when it is not `well`, there was no room for it."""

    ticket: int
    well: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """The journal has grown so much since the last checkpoints of these partitions that it should have new ones."""

    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """What `ReadHistory` asked for: (term, record), in the order of the counter, without gaps; None when the journal
    does not hold all of it, and then `since` says from which counter on it does (-1: nothing at all).
    """

    ticket: int
    records: list[tuple[int, Record]] | None
    since: int = -1


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Whether there is room for the journal to go on. Without, what is under way still fits."""

    full: bool


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """How much room there is left in this member's memory (`limits.memory_bytes`)."""

    room: Room


@dataclass(frozen=True, slots=True)
class Started:
    """The member comes to life: always the first event."""


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The wall clock showed this many milliseconds since 1970 when the member's monotonic time began, says the world
    now. Only for telling people when something was.
    """

    epoch_ms: int


@dataclass(frozen=True, slots=True)
class LaneUsed:
    """Sessions have used the data lane in this turn: what that caused is to leave."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over whose end the member wanted to hear of (`EndTurn`)."""


@dataclass(slots=True)  # one for each request: a frozen one takes three times as long to make
class ClientRequest:
    """A session of this member wants this done. Answered by an `Outcome`, once."""

    token: Token
    request: Request


@dataclass(frozen=True, slots=True)
class ZoneBatches:
    """What sessions want of the maps of zones, of all read buffers of this turn: each with the token under which it is
    answered by a `ZoneBatchDone`, once.
    """

    batches: tuple[tuple[Token, ZoneBatch], ...]


@dataclass(frozen=True, slots=True)
class RefillRequested:
    """An operator wants a backup of a partition that is served here filled anew. Answered by "", or why it is not."""

    token: Token
    partition: PartitionId
    member: MemberId


@dataclass(frozen=True, slots=True)
class CutRequested:
    """A client wants these maps kept as they are now. Answered by a `primary_backup.cuts.Taken`."""

    token: Token
    cut: bytes
    maps: tuple[str, ...]
    partitions: tuple[PartitionId, ...]
    lease_ms: int
    passive: bool = False
    """Nothing may be changed, so nobody but this member keeps it."""


@dataclass(frozen=True, slots=True)
class CutLeased:
    """A client goes on with a cut for so long, or not (0). Answered by how many maps in partitions are kept."""

    token: Token
    cut: bytes
    lease_ms: int


@dataclass(frozen=True, slots=True)
class ChangesAsked:
    """A reader of a change stream wants to know what has changed. Answered by a `ChangesSince`."""

    token: Token
    asked: Asked


@dataclass(frozen=True, slots=True)
class MetastoreAsked:
    """An operator asks the metastore something, or wants a key changed. Answered by a `MetastoreAnswer`."""

    token: Token
    question: MetastoreQuestion


@dataclass(frozen=True, slots=True)
class ZoneOrdered:
    """An operator wants something of a zone, or to know how it stands. Answered by a `ZoneAnswer`."""

    token: Token
    order: ZoneOrder


@dataclass(frozen=True, slots=True)
class TransactionAsked:
    """A session, or an operator, wants something of a transaction. Answered by a `TransactionAnswer`."""

    token: Token
    order: TransactionOrder


@dataclass(frozen=True, slots=True)
class ListenerAdded:
    """A session wants to hear of a map's entries: it is notified of each `EntryEvent`."""

    token: Token
    map: str
    key: bytes | None
    """None: of all keys."""
    local_only: bool
    invalidations: bool = False
    """Whether it feeds a near cache, and hears of `EventKind.INVALIDATED`, too."""


@dataclass(frozen=True, slots=True)
class CollectorAdded:
    """A client collects the acknowledgements of backups itself: it is notified of the correlation id of each."""

    token: Token
    client: bytes


@dataclass(frozen=True, slots=True)
class MapDestroyed:
    """A client destroys a map: who listens to it, here or elsewhere, hears no more, unless he feeds a near cache."""

    map: str


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A listener or collector wants to hear no more."""

    token: Token


@dataclass(frozen=True, slots=True)
class SeedAbsent:
    """Nothing listens at this address of `cluster.seeds`: it is in no cluster."""

    address: Address


@dataclass(frozen=True, slots=True)
class SeedBehind:
    """Each address of this seed, which is a name, was tried: these members were found there."""

    address: Address
    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class AnswersUnread:
    """Whether a member has not acknowledged more than `limits.answer_bytes` of what was sent to it."""

    member: MemberId
    too_many: bool


Event = (
    Started
    | ClockSet
    | LaneUsed
    | TurnEnded
    | ClientRequest
    | ZoneBatches
    | RefillRequested
    | CutRequested
    | CutLeased
    | ChangesAsked
    | MetastoreAsked
    | ZoneOrdered
    | TransactionAsked
    | ListenerAdded
    | CollectorAdded
    | MapDestroyed
    | SubscriptionEnded
    | SeedAbsent
    | SeedBehind
    | AnswersUnread
    | Received
    | Heard
    | TimerFired
    | PeerSilent
    | LeaveRequested
    | Become
    | ChangeState
    | EvictionWithoutMajorityOrdered
    | EvictionOrdered
    | LossAccepted
    | FlightBounded
    | LostReset
    | BaselineOrdered
    | LevelOrdered
    | Durable
    | CheckpointDone
    | CheckpointWanted
    | HistoryRead
    | DiskRoom
    | MemoryRoom
)


class Reply:
    """Answers what was asked under a token. A value that the machines keep where the caller has to be told later."""

    __slots__ = ("_out", "token")

    def __init__(self, out: Outbox, token: Token) -> None:
        self._out = out
        self.token = token

    def __call__(self, answer: object) -> None:
        """Answer it: to be done once."""
        self._out.complete(self.token, answer)


class Audience(Protocol):
    """Who hands what a machine tells to the others: the member."""

    def on_notice(self, notice: Notice) -> None:
        """Something has happened: hand it to all whom it concerns, now."""


class Outbox:
    """Where the machines of one member lay down their effects during a step, and tell each other what has happened; it
    also carries the time of the step.
    """

    __slots__ = ("_audience", "effects", "epoch_ms", "level", "now_ns")

    def __init__(self, audience: Audience | None = None) -> None:
        """`audience`: who hears notices; None: nobody, for a machine that is alone."""
        self._audience = audience
        self.effects: list[Effect] = []
        self.level = HIGHEST
        """The feature level of what is sent and written down: that of the view (`core.model.levels`)."""
        self.now_ns = 0
        self.epoch_ms = 0
        """What the wall clock showed when the member's monotonic time began, as the world last said: milliseconds since
        1970. Only for telling people when something was.
        """

    def does(self, level: int) -> bool:
        """Whether what came with this feature level is in force (membership/L-4)."""
        return self.level >= level

    def wall_ms(self) -> int:
        """Milliseconds since 1970 at the time of the step, as this member believes."""
        return self.epoch_ms + self.now_ns // MILLISECOND

    def send(self, to: MemberId, message: Message) -> None:
        """Lay down a message for a member."""
        self.effects.append(Send(to, message))

    def send_datagram(self, address: Address, message: Message) -> None:
        """Lay down a message that may be lost."""
        self.effects.append(Datagram(address, message))

    def timer(self, name: TimerName, after_ns: int, jitter_ns: int = 0) -> None:
        """Ask to be woken."""
        self.effects.append(SetTimer(name, after_ns, jitter_ns))

    def note(self, kind: str, level: str = "info", **fields: object) -> None:
        """Tell something."""
        self.effects.append(Note(kind, fields, level))

    def tell(self, notice: Notice) -> None:
        """Let the other machines of this member know, before this returns."""
        if self._audience is not None:
            self._audience.on_notice(notice)

    def complete(self, token: Token, answer: object) -> None:
        """Answer what was asked under this token."""
        self.effects.append(Complete(token, answer))

    def take(self) -> list[Effect]:
        """Hand over what has been laid down, and begin anew."""
        effects, self.effects = self.effects, []
        return effects

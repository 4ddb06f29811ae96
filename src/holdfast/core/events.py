"""Events: everything that can happen to a member, from outside.

`effects.py` has the other direction. Events with a `token` are requests: `Complete` with that token answers them, once.
Orders of operators are events, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.core.model.ids import Address, MemberId, PartitionId, Token
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import Room

if TYPE_CHECKING:
    from holdfast.core.messages import Message
    from holdfast.core.model.changes_since import Asked
    from holdfast.core.model.forwarded_frames import ForwardedPart
    from holdfast.core.model.operations import Request
    from holdfast.core.model.processors import ProcessorResult
    from holdfast.core.model.records import Record
    from holdfast.core.model.transaction_orders import TransactionOrder
    from holdfast.core.model.zone_batches import ZoneBatch


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a member over its link: once, in order."""

    sender: MemberId
    message: Message
    more: bool = False
    """Others of the same read buffer may follow: the step stays open until one of them has no `more`, or until
    `StepEnded`. Only for the kinds in `core.open_step.SHARING`.
    """


@dataclass(frozen=True, slots=True)
class Heard:
    """A message outside links: a heartbeat, or one from a process that is not in the view."""

    address: Address
    message: Message


@dataclass(frozen=True, slots=True)
class TimerFired:
    name: TimerName


@dataclass(frozen=True, slots=True)
class PeerSilent:
    """The connection to this member broke, and no new one can be made. A hint, never proof."""

    member: MemberId


class MemberAction(Protocol):
    """An action of an operator (`holdfast.actions`), as a member carries it out."""

    def apply(self, member: Any, reply: Any) -> None:
        """Begin to carry it out. `reply` answers the event, if it has a token."""

    def withdraw(self, member: Any) -> None:
        """The operator has cancelled it."""

    def audit_line(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ActionRequested:
    """Carry out an operator's action. With a token it is answered once: by its answer, or by a RequestError."""

    action: MemberAction
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class ActionWithdrawn:
    action: MemberAction


@dataclass(frozen=True, slots=True)
class FlightBounded:
    """Limit the bytes in flight to members that this one copies partitions to."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Durable:
    """Every append up to this number is durable."""

    number: int
    reached: int = 0
    """Last durable block of the journal that is about a partition; 0: not to be reported."""


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """A checkpoint is durable or, if not `well`, there was no room for it."""

    ticket: int
    well: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """The journal has grown so much that these partitions should have new checkpoints."""

    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """The response to `ReadHistory`: (term, record), by counter, without gaps; None if the journal lacks
    some. `since` is the counter from which on it has them (-1: none).
    """

    ticket: int
    records: list[tuple[int, Record]] | None
    since: int = -1


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """Whether the disk is too full for the journal to grow. Running operations still fit."""

    full: bool


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """Free memory of this member (`limits.memory_bytes`)."""

    room: Room


@dataclass(frozen=True, slots=True)
class Started:
    """The member begins: always the first event."""


@dataclass(frozen=True, slots=True)
class ClockSet:
    """Wall clock, in milliseconds since 1970, at the member's monotonic time 0, as measured now."""

    epoch_ms: int


@dataclass(frozen=True, slots=True)
class StepEnded:
    """No more of a read buffer follows, or sessions used the data lane in this turn: send what that has caused."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The event loop's turn ended (requested with `EndTurn`)."""


@dataclass(slots=True)  # one for each request: a frozen one takes three times as long to make
class ClientRequest:
    """A request of a session of this member. Answered by one `Outcome`."""

    token: Token
    request: Request
    doubt: str = ""
    """Why it may have been applied already, by another member; empty: it has not been."""
    more: bool = False
    """See `Received`; of the same turn of the event loop."""


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """The client of this request has gone: if it waits for a change, it waits no longer."""

    token: Token


@dataclass(frozen=True, slots=True)
class ProcessorEnded:
    """The result of an entry processor (`RunProcessor`)."""

    run: int
    result: ProcessorResult


@dataclass(frozen=True, slots=True)
class ZoneBatches:
    """Requests on maps of zones, of all buffers read in this turn. Each batch is answered by one `ZoneBatchDone`."""

    batches: tuple[tuple[Token, ZoneBatch], ...]


@dataclass(frozen=True, slots=True)
class FramesForwarded:
    """Requests for other members, of all buffers read in this turn. Each part is answered by one `ForwardedDone`."""

    parts: list[tuple[Token, ForwardedPart]]


@dataclass(frozen=True, slots=True)
class CutRequested:
    """Pin these maps as they are now. Answered by a `primary_backup.cuts.Taken`."""

    token: Token
    cut: bytes
    maps: tuple[str, ...]
    partitions: tuple[PartitionId, ...]
    lease_ms: int
    passive: bool = False
    """The cluster is passive: all writes are rejected, so no backup needs the cut."""


@dataclass(frozen=True, slots=True)
class CutLeased:
    """Extend the lease of a cut, or end it (0). Answered by the number of pinned maps, counted in each partition."""

    token: Token
    cut: bytes
    lease_ms: int


@dataclass(frozen=True, slots=True)
class ChangesAsked:
    """Read a change stream. Answered by a `ChangesSince`."""

    token: Token
    asked: Asked


@dataclass(frozen=True, slots=True)
class TransactionAsked:
    """An order about a transaction. Answered by a `TransactionAnswer`."""

    token: Token
    order: TransactionOrder
    more: bool = False
    """See `Received`; of the same turn of the event loop."""


@dataclass(frozen=True, slots=True)
class ListenerAdded:
    """Subscribe to the entries of a map: `Notify` with each `EntryEvent`."""

    token: Token
    map: str
    key: bytes | None
    """None: all keys."""
    local_only: bool
    invalidations: bool = False
    """It feeds a near cache, and gets `EventKind.INVALIDATED`, too."""


@dataclass(frozen=True, slots=True)
class ClientConnected:
    """A client has logged in, perhaps over one connection of several. `SubscriptionEnded`: the connection has ended."""

    token: Token
    client: bytes


@dataclass(frozen=True, slots=True)
class CollectorAdded:
    """A client collects the acknowledgements of backups: `Notify` with the correlation id of each."""

    token: Token
    client: bytes


@dataclass(frozen=True, slots=True)
class MapDestroyed:
    """A client destroys a map: its listeners end on all members, except those that feed near caches."""

    map: str


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    token: Token


@dataclass(frozen=True, slots=True)
class SeedAbsent:
    """No process listens at this address of `cluster.seeds`."""

    address: Address


@dataclass(frozen=True, slots=True)
class SeedBehind:
    """All addresses of this seed, a DNS name, were tried: these members were found there."""

    address: Address
    members: tuple[MemberId, ...]


@dataclass(frozen=True, slots=True)
class AnswersUnread:
    """Whether more than `limits.answer_bytes` sent to this member are not acknowledged."""

    member: MemberId
    too_many: bool


Event = (
    Started
    | ClockSet
    | StepEnded
    | TurnEnded
    | ClientRequest
    | RequestWithdrawn
    | ProcessorEnded
    | ZoneBatches
    | FramesForwarded
    | CutRequested
    | CutLeased
    | ChangesAsked
    | TransactionAsked
    | ListenerAdded
    | ClientConnected
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
    | ActionRequested
    | ActionWithdrawn
    | FlightBounded
    | Durable
    | CheckpointDone
    | CheckpointWanted
    | HistoryRead
    | DiskRoom
    | MemoryRoom
)

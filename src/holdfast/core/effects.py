"""Effects: everything that a member can ask of its world.

A protocol is a function of its past: `handle(event, now_ns) -> list[Effect]`. `events.py` has the other direction.

Rules
- No effect relies on another effect of the same list: the engine may reorder a list, and the simulator shuffles it.
- Messages sent to one peer in different steps arrive in the order of the steps, each once, while both members live.
- Time is integer nanoseconds, monotonic, of this member alone. No safety rule depends on it.

Example: a primary returns `[Send(backup, update), Append(7, [entry], urgent=True)]`. The update may leave before the
append is durable, and arrive there if this member crashes in between. So the client's answer is returned by a later
step, when the backup's acknowledgement and `Durable(7)` have come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.model.ids import Address, MemberId, PartitionId, Token
from holdfast.core.model.timer_name import TimerName

if TYPE_CHECKING:
    from holdfast.core.messages import Message
    from holdfast.core.model.journal_entries import Entry, Snapshot
    from holdfast.core.model.operations import EntryEvent, WrittenEntries
    from holdfast.core.model.partition_events import News
    from holdfast.core.model.processors import ProcessorRun


@dataclass(frozen=True, slots=True)
class Send:
    to: MemberId
    message: Message


@dataclass(frozen=True, slots=True)
class Datagram:
    address: Address
    message: Message


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Return `TimerFired(name)` after `after_ns` plus a random part of `jitter_ns`. Replaces the timer of that name."""

    name: TimerName
    after_ns: int
    jitter_ns: int = 0


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open a link to this member at this address. `life` counts its admissions, like an incarnation in SWIM: packets
    for an earlier life have no effect on a later one.
    """

    to: MemberId
    life: int
    address: Address


@dataclass(frozen=True, slots=True)
class CloseLink:
    to: MemberId


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Return `TurnEnded` when all input of this turn of the event loop was handled, so that the output of the
    whole turn can leave together.
    """

    with_buffer: bool = False
    """It need not wait for more than the end of a read buffer of another member."""


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log, the simulator's story and the status."""

    kind: str
    fields: dict[str, object] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Stop:
    """This member has left the cluster and may end."""

    why: str


@dataclass(frozen=True, slots=True)
class Append:
    """Write these entries as one group of the journal; `Durable` reports when they and all before are
    durable. A group that is not urgent may wait for `persistence.sync_interval_ms`.
    """

    number: int
    entries: list[Entry]
    urgent: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    ticket: int
    snapshot: Snapshot
    after: int
    """The snapshot contains all appends up to this number and none after it (0: before all)."""


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Read a map's records in one partition from the journal, with counters above `after` and up to `upto`."""

    ticket: int
    partition: PartitionId
    map: str
    after: int
    upto: int
    bytes_max: int = 0
    """The response may end before `upto` at about this size; 0: no limit."""
    patient: bool = False
    """All reads that are not patient come first."""


@dataclass(frozen=True, slots=True)
class RunProcessor:
    """Let an entry processor run; `ProcessorEnded` with this number brings its result, in a later step. It may never
    come: the member waits no longer than the time limit.
    """

    run: int
    asked: ProcessorRun


@dataclass(slots=True)  # one for each request: a frozen one takes three times as long to make
class Complete:
    """The final answer to the request with this token. Each event with a token says which type answers it."""

    token: Token
    answer: object


@dataclass(frozen=True, slots=True)
class Notify:
    """One event for a subscription, which continues. In the order in which the events happened."""

    token: Token
    what: EntryEvent | WrittenEntries | int
    """An event of a map, or several; or the correlation id of a client's request whose writes this member, as a backup,
    holds.
    """


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish news of a partition or of a process of migrations; each once, and in order."""

    news: News


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """The view or the partition table has changed."""


@dataclass(frozen=True, slots=True)
class BackpressureChanged:
    """Stop or resume reading from clients: see `Backlog.crowded` and `Backlog.refusing`."""


Delivery = Complete | Notify | Announce | ClusterChanged | BackpressureChanged | RunProcessor
"""For callers and listeners on this member, in this order."""

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

"""Supply of one partition to one member: its states, and what the source remembers of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum, unique
from typing import Final

from holdfast.core.model.ids import MemberId
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.migration import Migration
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import Demand
from holdfast.core.state_transfer.content import Content
from holdfast.core.state_transfer.delta_or_full import Choice
from holdfast.core.store.chunk import Chunk

SyncDone = Callable[[str], None]
Missed = list[tuple[int, Record]]


@unique
class SupplyPhase(StrEnum):
    QUEUED = "queued"
    """The limit of parallel supplies is reached."""
    OFFERED = "offered"
    """The empty chunk is sent; the receiver's base is unknown."""
    CHOOSING = "choosing"
    """Perhaps with the journal."""
    HELD_UP = "held up"
    """A chunk waits for room in flight (state_transfer/S-5)."""
    COPYING = "copying"
    """A chunk is in flight."""
    STORING = "storing locks"
    """The primary will change: its locks are stored, and writes continue (state_transfer/S-10)."""
    DRAINING = "draining"
    """The primary will change: no new writes, and earlier ones are waited for (state_transfer/S-2)."""
    CLOSING = "closing"
    """The last chunk is in flight."""
    ARRIVED = "arrived"
    """A migration waits for its assignment."""
    OVER = "over"


@unique
class SupplyStep(StrEnum):
    STARTED = "a supply before it has ended"
    ANSWERED = "the receiver has described its base"
    READY = "a chunk is ready"
    SENT = "there is room for the chunk"
    LOCKED = "all is copied, and many entries are locked"
    PAUSED = "all is copied, and writes have to finish"
    LAST = "nothing is left to copy or to wait for"
    HELD = "the receiver holds everything"
    ENDED = "a new assignment, a rejection or the end of a member"


_P, _S = SupplyPhase, SupplyStep
SUPPLY: Final[Lifecycle[SupplyPhase, SupplyStep]] = Lifecycle(
    "a supply",
    _P.QUEUED,
    {
        (_P.QUEUED, _S.STARTED): _P.OFFERED,
        (_P.OFFERED, _S.ANSWERED): _P.CHOOSING,
        (_P.CHOOSING, _S.READY): _P.HELD_UP,
        (_P.CHOOSING, _S.PAUSED): _P.DRAINING,
        (_P.CHOOSING, _S.LAST): _P.CLOSING,
        (_P.HELD_UP, _S.SENT): _P.COPYING,
        (_P.COPYING, _S.READY): _P.HELD_UP,
        (_P.COPYING, _S.PAUSED): _P.DRAINING,
        (_P.COPYING, _S.LAST): _P.CLOSING,
        (_P.CHOOSING, _S.LOCKED): _P.STORING,
        (_P.COPYING, _S.LOCKED): _P.STORING,
        (_P.STORING, _S.LOCKED): _P.STORING,
        (_P.STORING, _S.PAUSED): _P.DRAINING,
        (_P.STORING, _S.LAST): _P.CLOSING,
        (_P.DRAINING, _S.LAST): _P.CLOSING,
        (_P.CLOSING, _S.HELD): _P.ARRIVED,
        **{(phase, _S.ENDED): _P.OVER for phase in _P if phase is not _P.OVER},
    },
)
AWAITING = (_P.OFFERED, _P.COPYING, _P.CLOSING)
"""A chunk is in flight, so that an answer of the receiver has a meaning."""


class Supply:
    __slots__ = (
        "bytes",
        "choices",
        "compare",
        "content",
        "demand",
        "flight",
        "index",
        "master",
        "migration",
        "missed",
        "on_end",
        "partition",
        "paused_since_ns",
        "phase",
        "reading",
        "ready",
        "sequence",
        "ticket",
        "to",
        "version",
    )

    def __init__(self, partition: int, version: int, to: MemberId, index: int, ticket: int) -> None:
        self.partition = partition
        self.version = version
        self.to = to
        self.index = index
        """That the receiver will have; it gets the maps of such a replica."""
        self.ticket = ticket
        self.phase = SUPPLY.begins
        self.sequence = 0
        self.content: Content | None = None
        self.ready: Chunk | None = None
        """A chunk that waits for room in flight (state_transfer/S-5)."""
        self.flight = 0
        """Bytes of the unacknowledged chunk."""
        self.paused_since_ns: int | None = None
        """Since then the partition has accepted no writes (state_transfer/S-2)."""
        self.migration: Migration | None = None
        self.master: MemberId | None = None
        self.on_end: list[SyncDone] = []
        """Called with "" or the reason for a failure."""
        self.compare = False
        """The receiver's content may be wrong."""
        self.demand: Demand | None = None
        self.choices: dict[str, Choice] = {}
        self.missed: dict[str, Missed] = {}
        """Updates of maps whose full content is not sent."""
        self.reading = 0
        """Outstanding journal requests."""
        self.bytes = 0

    def step(self, step: SupplyStep) -> None:
        """Raises InvariantBroken if the step is not allowed."""
        self.phase = SUPPLY.after(self.phase, step)

    @property
    def is_repair(self) -> bool:
        """Whether a replica is repaired while the primary serves."""
        return bool(self.on_end)


def notify_end(supply: Supply, why: str) -> None:
    """`why`: empty if the receiver is filled."""
    callbacks, supply.on_end = supply.on_end, []
    for one in callbacks:
        one(why)
    assert not supply.on_end, "an ended supply has no callbacks left"


def stretch(records: Missed | None, after: int, upto: int) -> Missed | None:
    """The updates after `after` up to `upto`; None if the records do not have all of them."""
    wanted = [one for one in records or [] if after < one[1].counter <= upto]
    numbers = [record.counter for _, record in wanted]
    return wanted if numbers == list(range(after + 1, upto + 1)) else None

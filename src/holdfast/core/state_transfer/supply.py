"""One partition on its way to one member: the states that this goes through, and what the source remembers of it."""

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
    """How far a supply is."""

    QUEUED = "queued"
    """As many are under way as may be."""
    OFFERED = "offered"
    """The empty chunk was sent: what the receiver has to begin with is not known yet."""
    CHOOSING = "choosing"
    """What is to be sent is looked for, in the journal where memory does not hold it any more."""
    HELD_UP = "held up"
    """A chunk is ready, and waits for room on the way (state_transfer/S-5)."""
    COPYING = "copying"
    """A chunk is on its way."""
    DRAINING = "draining"
    """The primary will be another one: no write begins, and those before are waited for (state_transfer/S-2)."""
    CLOSING = "closing"
    """The last chunk is on its way."""
    ARRIVED = "arrived"
    """The receiver holds everything; a migration waits for its row."""
    OVER = "over"


@unique
class SupplyStep(StrEnum):
    """What brings a supply further."""

    STARTED = "its turn has come"
    ANSWERED = "the receiver says what it has"
    READY = "a chunk is ready"
    SENT = "there is room for the chunk"
    PAUSED = "all is copied, and writes are to be waited for"
    LAST = "nothing is left to copy or to wait for"
    HELD = "the receiver holds everything"
    ENDED = "a row, a refusal or the end of a member ends it"


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
        (_P.DRAINING, _S.LAST): _P.CLOSING,
        (_P.CLOSING, _S.HELD): _P.ARRIVED,
        **{(phase, _S.ENDED): _P.OVER for phase in _P if phase is not _P.OVER},
    },
)
AWAITING = (_P.OFFERED, _P.COPYING, _P.CLOSING)
"""A chunk is on its way, so that the receiver's answer means something."""


class Supply:
    """One partition on its way to one member."""

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
        "partition",
        "phase",
        "reading",
        "ready",
        "sequence",
        "ticket",
        "to",
        "told",
        "version",
    )

    def __init__(self, partition: int, version: int, to: MemberId, index: int, ticket: int) -> None:
        self.partition = partition
        self.version = version
        self.to = to
        self.index = index
        """The replica index that the receiver will have: it gets the maps that such a replica holds."""
        self.ticket = ticket
        self.phase = SUPPLY.begins
        self.sequence = 0
        self.content: Content | None = None
        self.ready: Chunk | None = None
        """A chunk that waits until it may go (state_transfer/S-5)."""
        self.flight = 0
        """Bytes of the chunk that is not yet acknowledged."""
        self.migration: Migration | None = None
        self.master: MemberId | None = None
        self.told: list[SyncDone] = []
        """Who wants to hear how it ends: "", or why the receiver was not filled."""
        self.compare = False
        """Whether the content that the receiver has is compared, too: it may be wrong."""
        self.demand: Demand | None = None
        """What the receiver has to begin with."""
        self.choices: dict[str, Choice] = {}
        self.missed: dict[str, Missed] = {}
        """Of the maps of which only updates, or some key ranges, are sent: these updates."""
        self.reading = 0
        """How many answers of the journal are outstanding."""
        self.bytes = 0

    def step(self, step: SupplyStep) -> None:
        """Go on to the next phase. Raises InvariantBroken when it has none by this step."""
        self.phase = SUPPLY.after(self.phase, step)

    @property
    def is_repair(self) -> bool:
        """Whether it mends a replica that the primary serves beside."""
        return bool(self.told)


def tell(supply: Supply, why: str) -> None:
    """Say how it has ended to those who want to hear it: "" when the receiver is filled."""
    told, supply.told = supply.told, []
    for one in told:
        one(why)
    assert not supply.told, "nobody asks about what has ended"


def stretch(records: Missed | None, after: int, upto: int) -> Missed | None:
    """What the journal says of the updates after `after` up to `upto`; None when it does not have all of them."""
    wanted = [one for one in records or [] if after < one[1].counter <= upto]
    numbers = [record.counter for _, record in wanted]
    return wanted if numbers == list(range(after + 1, upto + 1)) else None

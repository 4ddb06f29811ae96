"""One partition on its way to one member: what the source remembers of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration_step import Migration
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import Demand
from holdfast.core.store.map_state import Expiry
from holdfast.core.sync.choice import Choice
from holdfast.core.sync.content import Chunk, Content

SyncDone = Callable[[str], None]
Missed = list[tuple[int, Record]]


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
        "last_sent",
        "master",
        "migration",
        "missed",
        "partition",
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
        self.sequence = 0
        self.last_sent = False
        self.content: Content | None = None
        self.ready: Chunk | None = None
        """A chunk that waits until it may go (sync/S-5)."""
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

    @property
    def is_repair(self) -> bool:
        """Whether it mends a replica that the primary serves beside."""
        return bool(self.told)


def tell(supply: Supply, why: str) -> None:
    """Say how it has ended to those who want to hear it: "" when the receiver is filled."""
    told, supply.told = supply.told, []
    for one in told:
        one(why)


def stretch(records: Missed | None, after: int, upto: int) -> Missed | None:
    """What the journal says of the updates after `after` up to `upto`; None when it does not have all of them."""
    wanted = [one for one in records or [] if after < one[1].counter <= upto]
    numbers = [record.counter for _, record in wanted]
    return wanted if numbers == list(range(after + 1, upto + 1)) else None


def aged(record: Record, expiry: Expiry | None, now_ns: int) -> Record:
    """The record with what is left of its time to live, of the expiry that its entry has now."""
    if not record.ttl_ms or expiry is None or not expiry.ttl_ms:
        return record
    return msgspec.structs.replace(record, ttl_ms=expiry.remaining_ttl_ms(now_ns))

"""One life of a member, as far as its journal sees it."""

from __future__ import annotations

import itertools
import random
from typing import Self

from tests.engine.memory_disk import MemoryDisk, Platter

from holdfast.config.schema import PersistenceSettings
from holdfast.core.effects import Append, Checkpoint, ReadHistory
from holdfast.core.events import CheckpointWanted, Durable, Event, HistoryRead
from holdfast.core.journal.recovery import Recovered
from holdfast.core.model.journal_entries import Began, Entry, MapSnapshot, Snapshot, Wrote
from holdfast.core.model.records import Change, Record
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.engine.journal import Journal
from holdfast.errors import JournalBroken

UUIDS = itertools.count()
SMALL = PersistenceSettings(
    directory="x", segment_bytes=65_536, checkpoint_bytes=262_144, history_bytes=0, sync_interval_ms=50
)
TERM = 7
State = dict[str, tuple[dict[bytes, bytes], int, list[tuple[int, int]]]] | None
"""What is held of a partition, by map; None: nothing is known of it."""


def taken_of(copy: PartitionCopy) -> Snapshot | None:
    """What a checkpoint holds of a copy."""
    maps = [
        MapSnapshot(
            held.name,
            list(held.lineage),
            held.updates.encode(),
            list(held.state.entries),
            list(held.state.entries.values()),
        )
        for held in copy.maps.values()
        if held.updates.hwm
    ]
    return Snapshot(copy.partition, copy.epoch, maps) if maps else None


class Life:
    """One life of a member: its journal, and what its core would do with it."""

    def __init__(
        self,
        platter: Platter,
        chosen: PersistenceSettings = SMALL,
        draw: random.Random | None = None,
        name: str = "one",
    ) -> None:
        self.disk = MemoryDisk(platter, draw)
        self.events: list[Event] = []
        self.broken: list[JournalBroken] = []
        self.journal, self.recovered = Journal.open(
            self.disk,
            chosen,
            name=name,
            uuid=f"member-{next(UUIDS)}",
            new_id=lambda: "store-1",
            now_ns=1000,
            wall_ms=self.disk.wall_ms(),
        )
        self.journal.connect(self.hear, self.broken.append)
        self.copies = {
            p: copy for p, copy in self.recovered.copies.items() if p not in self.recovered.uncertain
        }
        self.number = 0
        self.durable = 0
        self.tickets = 0
        self.answers_wanted = True
        self.acting = False

    def hear(self, event: Event) -> None:
        assert not self.acting, "told while it acts"
        self.events.append(event)
        if isinstance(event, Durable):
            assert event.number > self.durable
            self.durable = event.number
        if isinstance(event, CheckpointWanted) and self.answers_wanted:
            for partition in event.partitions:
                self.checkpoint(partition)

    def append(self, *entries: Entry, urgent: bool = True) -> int:
        self.number += 1
        self.acting = True
        self.journal.carry_out(Append(self.number, list(entries), urgent))
        self.acting = False
        return self.number

    def begin(self, partition: int, epoch: int = 0) -> None:
        self.copies[partition] = PartitionCopy(partition, epoch)
        self.append(Began(partition, epoch), urgent=False)

    def put(
        self,
        partition: int,
        key: str,
        value: bytes,
        name: str = "m",
        *,
        term: int = TERM,
        urgent: bool = True,
    ) -> int:
        held = self.copies[partition].open(name)
        held.enter(term)
        record = Record(name, held.updates.lwm + 1, Change.SET, key.encode(), value)
        held.apply(record, 1000)
        return self.append(Wrote(partition, term, [record]), urgent=urgent)

    def checkpoint(self, partition: int) -> int | None:
        taken = taken_of(self.copies[partition]) if partition in self.copies else None
        if taken is None:
            if partition in self.copies:
                self.append(Began(partition, self.copies[partition].epoch), urgent=False)
            return None
        self.tickets += 1
        self.acting = True
        self.journal.carry_out(Checkpoint(self.tickets, taken, self.number))
        self.acting = False
        return self.tickets

    def history(
        self, partition: int, after: int, upto: int, name: str = "m", *, bytes_max: int = 0
    ) -> HistoryRead:
        self.tickets += 1
        self.journal.carry_out(ReadHistory(self.tickets, partition, name, after, upto, bytes_max))
        self.disk.until(
            lambda: any(isinstance(e, HistoryRead) and e.ticket == self.tickets for e in self.events)
        )
        return next(e for e in self.events if isinstance(e, HistoryRead) and e.ticket == self.tickets)

    def settle(self) -> Self:
        self.disk.run()
        return self

    def durably(self, number: int) -> None:
        self.disk.until(lambda: self.durable >= number)


def content(copy: PartitionCopy) -> dict[str, tuple[dict[bytes, bytes], int, list[tuple[int, int]]]]:
    return {
        held.name: (dict(held.state.entries), held.updates.hwm, list(held.lineage))
        for held in copy.maps.values()
        if held.updates.hwm
    }


def reopened(platter: Platter, **chosen: object) -> Recovered:
    return Life(platter, **chosen).recovered  # type: ignore[arg-type]

"""The filled side of one member, as its tests drive it."""

from __future__ import annotations

from tests.core.telling import Around

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import (
    Fill,
    FillEntries,
    FillPlan,
    Replicate,
    Section,
)
from holdfast.core.model import notices as n
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.sync_request import How
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.destination import Destination
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica

ME, OWNER, OTHER = MemberId("me"), MemberId("owner"), MemberId("other")
SETTINGS = Settings(partitions=PartitionSettings(count=1), maps={"deep": MapSettings(backups=2)})
JOURNALLED = Settings(
    partitions=PartitionSettings(count=1), maps={"default": MapSettings(backups=1, journal="sync")}
)


class Side:
    """The filled side of one member, with one partition."""

    def __init__(self, *row: MemberId, holds: bool = False, journal: bool = False) -> None:
        self.out = Outbox(self)
        self.last_chunks: list[n.LastChunkReceived] = []
        self.log = Log(self.out, on=journal)
        self.rows = [Assignment(5, row)]
        self.around = Around()
        self.copies = LocalReplicas(ME, JOURNALLED if journal else SETTINGS, self.out, self.rows, self.log)
        self.destination = Destination(
            ME,
            self.out,
            self.rows,
            self.copies,
            self.log,
            membership=self.around,  # type: ignore[arg-type]
            table_replication=self.around,  # type: ignore[arg-type]
        )
        if holds:
            self.copies.held[0] = PartitionCopy(0, 0)

    def on_notice(self, notice: n.Notice) -> None:
        match notice:
            case n.ReplicaWhole():
                self.destination.on_whole(notice)
            case n.CheckpointEnded():
                self.destination.on_checkpoint(notice)
            case n.LastChunkReceived():
                self.last_chunks.append(notice)

    def tell(self, message: Fill | Replicate, sender: MemberId = OWNER) -> None:
        if isinstance(message, Fill):
            self.destination.on_fill(sender, message)
        else:
            self.copies.on_replicate(sender, message)

    def answers(self) -> list[object]:
        return [effect.message for effect in self.out.take() if isinstance(effect, Send)]

    def filling(self, name: str = "m") -> MapReplica:
        return self.destination.staging[0].copy.maps[name]


def put(counter: int, value: bytes, *, key: bytes = b"key", name: str = "m") -> Record:
    return Record(name, counter, Change.SET, key, value)


def message(batch: int, *records: Record, version: int = 5) -> Replicate:
    return Replicate([batch], [Section(0, version, list(records))])


def chunk(
    sequence: int,
    counter: int = 0,
    *entries: tuple[bytes, bytes],
    last: bool = False,
    ticket: int = 1,
    version: int = 5,
    joining: bool = True,
) -> Fill:
    content = [FillEntries("m", counter, [key for key, _ in entries], [value for _, value in entries])]
    plans = [FillPlan("m", How.FULL, counter)] if sequence == 1 else []
    return Fill(
        0, version, ticket, sequence, last, 0, joining, 1, [] if sequence == 0 else content, plans=plans
    )

"""The supplying side of one member, as its tests drive it."""

from __future__ import annotations

from tests.core.telling import Around

from holdfast.config import MapSettings, PartitionSettings, ReplicationSettings, Settings
from holdfast.core.effects import Send, SetTimer
from holdfast.core.hosted_services import MigrationEvent
from holdfast.core.journal.log import Log
from holdfast.core.messages import (
    Fill,
    Filled,
    MigrationRequest,
)
from holdfast.core.model import notices as n
from holdfast.core.model.decisions import LockChanges
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.sync_request import Demand
from holdfast.core.model.transactions import KeyLock, lock_key
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.source import Source
from holdfast.core.store.key_locks import LOCKS_AT_ONCE
from holdfast.core.store.partition_copy import PartitionCopy

ME, OTHER, NEW = MemberId("me"), MemberId("other"), MemberId("new")
MASTER, OLD_MASTER = MemberId("master"), MemberId("old master")
VIEW = 3


class Told:
    """What a service hears of migrations."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, MigrationEvent]] = []

    def before(self, event: MigrationEvent) -> None:
        self.heard.append(("before", event))

    def commit(self, event: MigrationEvent) -> None:
        self.heard.append(("commit", event))

    def rollback(self, event: MigrationEvent) -> None:
        self.heard.append(("rollback", event))


class Side:
    """The supplying side of one member, primary of one partition without backups."""

    def __init__(
        self,
        *row: MemberId | None,
        settings: PartitionSettings | None = None,
        tail_bytes: int = 65_536,
        journal: bool = False,
        backups: int = 0,
    ) -> None:
        whole = Settings(
            partitions=settings or PartitionSettings(count=1),
            replication=ReplicationSettings(tail_bytes=tail_bytes),
            maps={"default": MapSettings(backups=backups, journal="sync" if journal else "off")},
        )
        self.settings = whole
        self.out = Outbox(self)
        self.near: list[int] = []
        """How many locks each slice has stored before the handover."""
        self.log = Log(self.out, on=journal)
        self.rows = [Assignment(5, row or (ME, None))]
        self.around = Around(master=MASTER, number=VIEW)
        self.around.active.update(range(whole.partitions.count))
        self.copies = LocalReplicas(ME, whole, self.out, self.rows, self.log)
        self.copies.held[0] = PartitionCopy(0, 0)
        self.lane = Lane(ME, whole, self.out, self.log)
        self.lane.attach(self.rows)
        self.lane.serving[0] = self.copies.held[0]
        self.source = Source(
            ME,
            whole,
            self.out,
            self.rows,
            self.copies,
            self.lane,
            membership=self.around,  # type: ignore[arg-type]
            table_replication=self.around,  # type: ignore[arg-type]
            activation=self.around,  # type: ignore[arg-type]
            journal=journal,
        )

    def on_notice(self, notice: n.Notice) -> None:
        match notice:
            case n.HandoverNear(partition, most):
                self.near.append(len(self.copies.held[partition].locks.take_unstored(most)))
            case n.HandoverBegan(partition):
                self.pause(partition)
            case n.HandoverEnded(partition):
                self.resume(partition)
            case n.PartitionDrained():
                self.source.on_drained(notice)

    def timers(self) -> set[str]:
        """Set since the last look, without the effects that came with them."""
        return {effect.name for effect in self.out.take() if isinstance(effect, SetTimer)}

    def pause(self, partition: int) -> None:
        self.lane.serving[partition] = None

    def resume(self, partition: int) -> None:
        self.lane.serving[partition] = self.copies.held[partition]
        self.lane.retarget(self.copies.held[partition])

    def sent(self) -> list[object]:
        return [effect.message for effect in self.out.take() if isinstance(effect, Send)]

    def fills(self) -> list[Fill]:
        return [message for message in self.sent() if isinstance(message, Fill)]

    def write(self, key: bytes, value: bytes = b"v") -> None:
        copy = self.lane.serving[0]
        assert copy is not None
        self.lane.set(copy, "m", key, value, 0, 0, 0)
        self.lane.close_batch(lambda known: None)
        self.lane.flush()

    def hold(self, fill: Fill, sender: MemberId = NEW, demand: Demand | None = None) -> None:
        self.source.on_filled(sender, Filled(0, fill.version, fill.ticket, fill.sequence, demand))


MOVE = Migration(0, ME, 0, -1, NEW, -1, 0)


def request(version: int = 5, view: int = VIEW, migration: Migration = MOVE) -> MigrationRequest:
    return MigrationRequest(view, migration, version)


def moving(side: Side, until: str) -> Fill:
    """Let a move of a partition with one entry come so far; answers the chunk that was sent last."""
    side.write(b"a")
    side.sent()
    side.source.on_request(MASTER, request())
    (fill,) = side.fills()
    for stage in ("first", "content", "last"):
        if stage == until:
            break
        side.hold(fill)
        (fill,) = side.fills()
    return fill


def locked(side: Side, count: int) -> None:
    """Locks of one transaction in the partition."""
    taken = [(lock_key("m", b"%d" % number), KeyLock(b"1" * 16, ME)) for number in range(count)]
    side.copies.held[0].locks.change(LockChanges(taken))


def near_its_end(side: Side) -> None:
    """A migration that has copied everything, with more locks than are stored at once."""
    side.lane.leading[0] = side.copies.held[0]
    fill = moving(side, "content")
    locked(side, 2 * LOCKS_AT_ONCE + 1)
    side.hold(fill)

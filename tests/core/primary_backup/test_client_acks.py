"""Clients that wait for backups themselves: when they may, and what each backup tells them."""

from __future__ import annotations

from tests.core.telling import Around, Told, came, gone

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Notify, Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Ack, Collecting, Replicate, Replicated
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.client_acks import ClientAcks
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy

ME, BEN, CAL = (MemberId(name) for name in ("me", "ben", "cal"))
CLIENT = b"client"
SETTINGS = Settings(partitions=PartitionSettings(count=3), maps={"default": MapSettings(backups=1)})


def sent(out: Outbox) -> list[tuple[MemberId, object]]:
    return [(effect.to, effect.message) for effect in out.take() if isinstance(effect, Send)]


class Primary:
    """The primary of three partitions; the last has another backup."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.lane = Lane(ME, SETTINGS, self.out, Log(self.out, on=False))
        self.rows = [Assignment(1, (ME, BEN)), Assignment(1, (ME, BEN)), Assignment(1, (ME, CAL))]
        self.lane.attach(self.rows)
        self.copies = [PartitionCopy(partition, 0) for partition in range(3)]
        self.lane.batches.ack_clients = self.ack_clients = ClientAcks(self.out, Around(ME, BEN, CAL))  # type: ignore[arg-type]
        self.told: list[tuple[bool, int]] = []

    def write(self, *partitions: int) -> None:
        for partition in partitions:
            self.lane.set(self.copies[partition], "m", b"k", b"v", 0, 0, 0)
        self.lane.close_batch_for(
            lambda known: self.told.append((known, self.lane.acks)), CLIENT, [100 + p for p in partitions]
        )

    def replicates(self) -> dict[MemberId, Replicate]:
        self.lane.flush()
        return {to: message for to, message in sent(self.out) if isinstance(message, Replicate)}


def test_a_client_that_all_backups_reach_is_answered_at_once_and_each_is_to_tell_it() -> None:
    primary = Primary()
    for backup in (BEN, CAL):
        primary.ack_clients.on_collecting(backup, Collecting([CLIENT], []))
    primary.write(0, 2)
    assert primary.told == [(True, 2)]
    messages = primary.replicates()
    assert messages[BEN].acks == [Ack(CLIENT, [100, 102], [0])]
    assert messages[CAL].acks == [Ack(CLIENT, [100, 102], [2])]
    assert primary.lane.unfinished(0), "it is sent again if it must be"
    for to, message in messages.items():
        held = [section.partition for section in message.sections]
        primary.lane.on_replicated(to, Replicated(message.batches, held))
    assert sum(primary.lane.leftovers.values()) == 0
    primary.write(1)
    assert primary.replicates()[BEN].acks == [Ack(CLIENT, [101], [1])]


def test_otherwise_the_owner_waits() -> None:
    primary = Primary()
    primary.ack_clients.on_collecting(BEN, Collecting([CLIENT], []))
    primary.write(0, 2)
    assert primary.told == []
    assert all(message.acks == [] for message in primary.replicates().values())
    primary.ack_clients.on_collecting(BEN, Collecting([], [CLIENT]))
    primary.write(0)
    assert primary.told == []
    primary.ack_clients.on_collecting(CAL, Collecting([CLIENT], []))
    primary.ack_clients.on_view(gone(CAL))
    primary.write(2)
    assert primary.told == []


def test_nobody_is_to_tell_of_what_goes_to_another_backup_by_now() -> None:
    primary = Primary()
    primary.ack_clients.on_collecting(BEN, Collecting([CLIENT], []))
    primary.write(0)
    primary.rows[0] = Assignment(2, (ME, CAL))
    primary.lane.retarget(primary.copies[0])
    assert all(message.acks == [] for message in primary.replicates().values())
    primary.write(1)
    assert primary.replicates()[BEN].acks == [Ack(CLIENT, [101], [1])]


def test_members_tell_each_other_who_has_registered() -> None:
    out = Outbox()
    ack_clients = ClientAcks(out, Around(ME, BEN))  # type: ignore[arg-type]
    ack_clients.add(1, CLIENT)
    ack_clients.add(2, CLIENT)
    assert sent(out) == [(ME, Collecting([CLIENT], [])), (BEN, Collecting([CLIENT], []))]
    ack_clients.notify([Ack(CLIENT, [7, 8], [0]), Ack(b"stranger", [9], [0])])
    assert out.take() == [Notify(1, 7), Notify(1, 8)], "over one connection"
    ack_clients.on_view(came(CAL))
    assert sent(out) == [(CAL, Collecting([CLIENT], []))]
    ack_clients.remove(1)
    assert sent(out) == []
    ack_clients.remove(2)
    ack_clients.remove(2)
    assert sent(out) == [(ME, Collecting([], [CLIENT])), (BEN, Collecting([], [CLIENT]))]


def test_a_backup_that_gets_only_a_part_of_it_tells_nothing() -> None:
    """Between the writes and their leaving one of the partitions got another backup: it alone would be too few."""
    backup = Backup()
    primary = backup.primary
    primary.write(0, 1)
    primary.rows[0] = Assignment(1, (ME, CAL))
    primary.lane.retarget(primary.copies[0])
    message = primary.replicates()[BEN]
    assert [section.partition for section in message.sections] == [1]
    backup.copies.on_replicate(BEN, message)
    assert backup.told == []


# -- the backup


class Backup:
    """A backup of three partitions, at version 1."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.rows = [Assignment(1, (BEN, ME))] * 3
        self.told: list[Ack] = []
        self.copies = LocalReplicas(
            ME, SETTINGS, self.out, self.rows, Log(self.out, on=False), ack_clients=Told(self.told.extend)
        )
        for partition in range(3):
            self.copies.held[partition] = PartitionCopy(partition, 0)
        self.primary = Primary()
        self.primary.rows[:] = [Assignment(1, (ME, BEN))] * 3
        self.primary.ack_clients.on_collecting(BEN, Collecting([CLIENT], []))

    def take(self, *partitions: int, newer: tuple[int, ...] = ()) -> None:
        """What a primary sends of a write to these partitions; of some of them the row is at a newer version there."""
        for partition in newer:
            self.primary.rows[partition] = Assignment(2, (ME, BEN))
        self.primary.write(*partitions)
        self.copies.on_replicate(BEN, self.primary.replicates()[BEN])


def test_a_backup_tells_when_it_holds_the_records() -> None:
    backup = Backup()
    backup.take(0, 1)
    assert backup.told == [Ack(CLIENT, [100, 101], [0, 1])]


def test_what_comes_too_early_is_told_when_it_is_taken() -> None:
    backup = Backup()
    backup.take(0, 1, newer=(1,))
    assert backup.told == []
    backup.rows[1] = Assignment(2, (BEN, ME))
    backup.copies.retry(1)
    assert backup.told == [Ack(CLIENT, [100, 101], [1])]


def test_what_is_not_taken_is_not_told() -> None:
    backup = Backup()
    backup.rows[0] = Assignment(5, (CAL, ME))
    backup.take(0)
    backup.take(1, 2, newer=(1, 2))
    assert backup.told == []


def test_members_are_told_of_a_client_with_its_first_connection_and_its_last() -> None:
    out = Outbox()
    ack_clients = ClientAcks(out, Around(BEN, CAL))  # type: ignore[arg-type]
    ack_clients.add(1, CLIENT)
    assert sent(out) == [(one, Collecting([CLIENT], [])) for one in (BEN, CAL)]
    ack_clients.add(2, CLIENT)
    assert sent(out) == []
    ack_clients.notify([Ack(CLIENT, [7, 8], [0]), Ack(b"nobody", [9], [0])])
    assert out.take() == [Notify(1, 7), Notify(1, 8)], "over one connection"
    ack_clients.remove(1)
    ack_clients.remove(1)
    assert sent(out) == []
    ack_clients.notify([Ack(CLIENT, [9], [0])])
    assert out.take() == [Notify(2, 9)]
    ack_clients.remove(2)
    assert sent(out) == [(one, Collecting([], [CLIENT])) for one in (BEN, CAL)]
    ack_clients.notify([Ack(CLIENT, [10], [0])])
    assert out.take() == []
    ack_clients.on_view(came(BEN))
    assert sent(out) == [], "there is nobody to tell of"
    ack_clients.add(3, CLIENT)
    assert len(sent(out)) == 2, "it is new again"

"""Batches of the data lane: what leaves together, who waits for whom, and what a change of the row does to them."""

from __future__ import annotations

import pytest

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.machine import MemberId, Outbox, Send
from holdfast.core.messages import Replicate, Replicated
from holdfast.core.placement.table import Row
from holdfast.core.replication.lane import Lane
from holdfast.core.rules import Rules
from holdfast.core.store.partition import PartitionCopy

ME, BEN, CAL, DAN = (MemberId(name) for name in ("me", "ben", "cal", "dan"))
PARTITIONS = 4


class Primary:
    """A lane that is the primary of every partition: even ones are backed up by Ben, odd ones by Cal."""

    def __init__(self, *, without: frozenset[str] = frozenset()) -> None:
        self.out = Outbox()
        settings = Settings(
            partitions=PartitionSettings(count=PARTITIONS), maps={"default": MapSettings(backups=1)}
        )
        self.lane = Lane(ME, settings, self.out, Rules(without), Log(self.out, on=False))
        self.rows = [Row(1, (ME, CAL if partition % 2 else BEN)) for partition in range(PARTITIONS)]
        self.copies = [PartitionCopy(partition, 0) for partition in range(PARTITIONS)]
        self.lane.attach(self.rows)
        self.lane.serving = list(self.copies)
        self.told: dict[str, bool] = {}

    def write(self, name: str, *partitions: int) -> None:
        """The buffer `name`: one write to each partition."""
        for partition in partitions:
            self.lane.set(self.copies[partition], "m", name.encode(), b"value", 0, 0, 0)
        self.lane.seal(lambda known: self.told.__setitem__(name, known))

    def sent(self) -> dict[MemberId, list[Replicate]]:
        """What leaves when the turn is over."""
        self.lane.flush()
        found: dict[MemberId, list[Replicate]] = {}
        for effect in self.out.take():
            assert isinstance(effect, Send)
            assert isinstance(effect.message, Replicate)
            found.setdefault(effect.to, []).append(effect.message)
        return found

    def acknowledge(self, sender: MemberId, message: Replicate) -> None:
        """The backup has taken all of it."""
        held = [section.partition for section in message.sections]
        self.lane.on_replicated(sender, Replicated(message.batches, held))

    def row(self, partition: int, *replicas: MemberId) -> None:
        """A new row, of which this member is still the primary."""
        self.rows[partition] = Row(self.rows[partition].version + 1, replicas)
        self.lane.retarget(self.copies[partition])


@pytest.fixture
def primary() -> Primary:
    return Primary()


def test_buffers_of_one_turn_leave_as_one_message_for_each_backup(primary: Primary) -> None:
    primary.write("a", 0)
    primary.write("b", 0, 2)
    primary.write("c", 1)
    sent = primary.sent()
    assert {to: len(messages) for to, messages in sent.items()} == {BEN: 1, CAL: 1}
    records = {section.partition: section.records for section in sent[BEN][0].sections}
    assert [record.key for record in records[0]] == [b"a", b"b"]
    assert [record.counter for record in records[0]] == [1, 2]
    assert [record.key for record in records[2]] == [b"b"]
    assert primary.told == {}
    assert primary.sent() == {}


def test_a_buffer_waits_for_its_own_backups_only(primary: Primary) -> None:
    primary.write("even", 0)
    primary.write("odd", 1)
    primary.write("both", 2, 3)
    sent = primary.sent()
    primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told == {"even": True}
    primary.acknowledge(CAL, sent[CAL][0])
    assert primary.told == {"even": True, "odd": True, "both": True}
    assert primary.lane.waiting == 0


def test_a_part_of_the_acknowledgement_is_not_enough(primary: Primary) -> None:
    primary.write("a", 0)
    primary.write("b", 2)
    message = primary.sent()[BEN][0]
    primary.lane.on_replicated(BEN, Replicated(message.batches, [0]))
    assert primary.told == {}
    primary.lane.on_replicated(BEN, Replicated(message.batches, [2]))
    assert primary.told == {"a": True, "b": True}


def test_nothing_waits_without_backups(primary: Primary) -> None:
    primary.row(0, ME)
    primary.write("a", 0)
    assert primary.told == {"a": True}
    assert primary.sent() == {}


def test_what_was_sealed_and_not_sent_is_unknown_when_the_partition_leaves(primary: Primary) -> None:
    primary.write("a", 0)
    assert primary.lane.unfinished(0)
    primary.rows[0] = Row(2, (DAN, BEN))
    primary.lane.abandon(0)
    assert primary.told == {"a": False}
    # The batch is over: a buffer that is sealed in the same turn must not join it.
    primary.write("b", 2)
    primary.acknowledge(BEN, primary.sent()[BEN][-1])
    assert primary.told == {"a": False, "b": True}


def test_what_was_sealed_and_not_sent_goes_to_the_new_backup(primary: Primary) -> None:
    primary.write("a", 0)
    primary.row(0, ME, DAN)
    primary.write("b", 2)
    sent = primary.sent()
    assert [record.key for record in sent[DAN][0].sections[0].records] == [b"a"]
    for message in sent[BEN]:
        primary.acknowledge(BEN, message)
    assert primary.told == {"b": True}
    primary.acknowledge(DAN, sent[DAN][0])
    assert primary.told == {"a": True, "b": True}


def test_without_the_rule_nobody_is_waited_for() -> None:
    primary = Primary(without=frozenset({"all-ack"}))
    primary.write("a", 0)
    assert primary.told == {"a": True}
    assert list(primary.sent()) == [BEN]


def test_what_a_missing_backup_will_want_is_remembered() -> None:
    """Ben is gone: nobody is sent anything, and nobody waited for. A map without backups remembers nothing."""
    primary = Primary()
    primary.write("a", 0)
    primary.row(0, ME)
    primary.write("b", 0)
    sent = primary.sent()
    assert primary.told == {"a": True, "b": True}
    assert sent == {}
    tail = primary.copies[0].maps["m"].tail
    assert tail is not None
    assert [record.key for _, record in tail.since(0)] == [b"a", b"b"]
    alone = Primary()
    alone.rows[0] = Row(1, (ME,))
    alone.write("a", 0)
    alone.sent()
    assert alone.copies[0].maps["m"].tail is None

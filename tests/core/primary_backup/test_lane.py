"""Batches of the data lane: what leaves together, who waits for whom, and what a change of the row does to them."""

from __future__ import annotations

from typing import Literal

import pytest

from holdfast.config import LimitSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Append, Send, SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Replicated
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.notices import BacklogChanged, Notice
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup import packed_puts_cy
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.request_ids import id_of
from holdfast_lab.sim.ablations.switching import ablated

ME, BEN, CAL, DAN = (MemberId(name) for name in ("me", "ben", "cal", "dan"))
PARTITIONS = 4
CHANGES_BYTES = 4096
"""Of each partition of the map c, which has a change stream."""


JournalMode = Literal["off", "sync", "lazy"]


class Primary:
    """A lane that is the primary of every partition: even ones are backed up by Ben, odd ones by Cal."""

    def __init__(
        self,
        *,
        limits: LimitSettings | None = None,
        async_backups: int = 0,
        puts: PackedPuts = packed_puts_cy,
        journal: JournalMode = "off",
    ) -> None:
        self.out = Outbox()
        settings = Settings(
            partitions=PartitionSettings(count=PARTITIONS),
            maps={
                "default": MapSettings(backups=1, async_backups=async_backups, journal=journal),
                "c": MapSettings(backups=1, journal=journal, changes_bytes=CHANGES_BYTES),
            },
            limits=limits or LimitSettings(),
        )
        self.log = Log(self.out, on=journal != "off")
        self.appended: list[Append] = []
        """What is to be written down."""
        self.lane = Lane(ME, settings, self.out, self.log, puts=puts)
        self.rows = [Assignment(1, (ME, CAL if partition % 2 else BEN)) for partition in range(PARTITIONS)]
        self.copies = [PartitionCopy(partition, 0) for partition in range(PARTITIONS)]
        self.lane.attach(self.rows)
        self.lane.serving = list(self.copies)
        self.told: dict[str, bool] = {}
        self.why: dict[str, str] = {}
        self.timers: list[str] = []

    def write(self, name: str, *partitions: int) -> None:
        """The buffer `name`: one write to each partition."""
        for partition in partitions:
            self.lane.set(self.copies[partition], "m", name.encode(), b"value", 0, 0, 0)
        self.lane.close_batch(lambda known: self.tell(name, known))

    def tell(self, name: str, known: bool) -> None:
        self.told[name] = known
        self.why[name] = "" if known else self.lane.unknown_because

    def pass_time(self, seconds: float) -> None:
        """Look whose backups are late, as the timer does."""
        self.out.now_ns += round(seconds * SECOND)
        self.lane.on_timer()

    def sent(self) -> dict[MemberId, list[Replicate]]:
        """What leaves when the turn is over."""
        self.lane.flush()
        self.log.flush()
        found: dict[MemberId, list[Replicate]] = {}
        for effect in self.out.take():
            if isinstance(effect, Append):
                self.appended.append(effect)
                continue
            if isinstance(effect, SetTimer):
                self.timers.append(effect.name)
                continue
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
        self.rows[partition] = Assignment(self.rows[partition].version + 1, replicas)
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
    records = {section.partition: section.all_records() for section in sent[BEN][0].sections}
    assert [record.key for record in records[0]] == [b"a", b"b"]
    assert [record.counter for record in records[0]] == [1, 2]
    assert [record.key for record in records[2]] == [b"b"]
    assert primary.told == {}
    assert primary.sent() == {}


def test_what_left_is_remembered_also_what_is_not_packed(primary: Primary) -> None:
    """A backup that has missed it can be sent just that."""
    primary.write("a", 0)
    primary.lane.remove(primary.copies[0], "m", b"a")
    primary.write("b", 0)
    primary.sent()
    tail = primary.copies[0].maps["m"].tail
    assert tail is not None
    assert [(record.counter, record.key) for _, record in tail.since(0)] == [(1, b"a"), (2, b"a"), (3, b"b")]


@pytest.mark.rule("primary_backup/P-1")
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


@pytest.mark.rule("primary_backup/P-1")
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


@pytest.mark.rule("primary_backup/P-3")
def test_what_was_sealed_and_not_sent_is_unknown_when_the_partition_leaves(primary: Primary) -> None:
    primary.write("a", 0)
    assert primary.lane.unfinished(0)
    primary.rows[0] = Assignment(2, (DAN, BEN))
    primary.lane.abandon(0)
    assert primary.told == {"a": False}
    # The batch is over: a buffer that is sealed in the same turn must not join it.
    primary.write("b", 2)
    primary.acknowledge(BEN, primary.sent()[BEN][-1])
    assert primary.told == {"a": False, "b": True}


@pytest.mark.rule("primary_backup/P-2")
def test_what_was_sealed_and_not_sent_goes_to_the_new_backup(primary: Primary) -> None:
    primary.write("a", 0)
    primary.row(0, ME, DAN)
    primary.write("b", 2)
    sent = primary.sent()
    assert [record.key for record in sent[DAN][0].sections[0].all_records()] == [b"a"]
    for message in sent[BEN]:
        primary.acknowledge(BEN, message)
    assert primary.told == {"b": True}
    primary.acknowledge(DAN, sent[DAN][0])
    assert primary.told == {"a": True, "b": True}


@ablated("all-ack")
def test_without_the_rule_nobody_is_waited_for() -> None:
    primary = Primary()
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
    alone.rows[0] = Assignment(1, (ME,))
    alone.write("a", 0)
    alone.sent()
    assert alone.copies[0].maps["m"].tail is None


# -- time that passes (primary_backup/P-5)


@pytest.mark.rule("primary_backup/P-5")
def test_what_no_backup_acknowledges_in_time_is_unknown_and_who_is_missing_is_said(primary: Primary) -> None:
    primary.write("a", 0, 1)
    sent = primary.sent()
    assert primary.timers == ["backups"]
    primary.acknowledge(CAL, sent[CAL][0])
    primary.pass_time(4.9)
    assert primary.told == {}
    primary.pass_time(0.2)
    assert primary.told == {"a": False}
    assert primary.why["a"] == "not acknowledged within 5 s: backup ben (partitions [0])"


@pytest.mark.rule("primary_backup/P-5")
def test_a_batch_whose_callers_were_told_is_still_sent_again_and_ends(primary: Primary) -> None:
    primary.write("a", 0)
    primary.sent()
    primary.pass_time(6)
    assert primary.lane.unfinished(0)
    primary.row(0, ME, DAN)
    sent = primary.sent()
    assert [record.key for record in sent[DAN][0].sections[0].all_records()] == [b"a"]
    primary.acknowledge(DAN, sent[DAN][0])
    assert not primary.lane.unfinished(0)
    assert primary.told == {"a": False}
    assert sum(primary.lane.leftovers.values()) == primary.lane.backlog.bytes == 0


def test_the_timer_runs_while_somebody_waits_and_no_longer(primary: Primary) -> None:
    primary.write("a", 0)
    sent = primary.sent()
    primary.pass_time(1)
    primary.sent()
    assert primary.timers == ["backups", "backups"]
    primary.acknowledge(BEN, sent[BEN][0])
    primary.pass_time(1)
    primary.sent()
    assert primary.timers == ["backups", "backups"]


def test_a_primary_that_loses_one_partition_goes_on_waiting_for_the_others(primary: Primary) -> None:
    primary.write("a", 0, 2)
    primary.sent()
    primary.lane.abandon(0)
    assert primary.told == {"a": False}
    assert not primary.lane.unfinished(0)
    assert primary.lane.unfinished(2)
    primary.row(2, ME, DAN)
    (message,) = primary.sent()[DAN]
    assert [section.partition for section in message.sections] == [2]
    primary.acknowledge(DAN, message)
    assert sum(primary.lane.leftovers.values()) == primary.lane.backlog.bytes == 0


# -- a request that comes again


def request_of(primary: Primary, name: str, partition: int) -> bytes:
    """A write with an id."""
    lane, copy = primary.lane, primary.copies[partition]
    before = lane.opened
    lane.set(copy, "m", name.encode(), b"value", 0, 0, 0)
    lane.remember(copy, b"id of " + name.encode(), None, before)
    lane.close_batch(lambda known: primary.tell(name, known))
    return b"id of " + name.encode()


def test_the_mark_of_a_request_travels_with_its_last_record(primary: Primary) -> None:
    primary.lane.set(primary.copies[0], "m", b"before", b"value", 0, 0, 0)
    request_id = request_of(primary, "a", 0)
    records = primary.sent()[BEN][0].sections[0].all_records()
    assert [id_of(record.request) for record in records] == [b"", request_id]
    assert primary.copies[0].requests.knows(request_id)


def test_who_asks_again_waits_for_the_same_backups(primary: Primary) -> None:
    request_id = request_of(primary, "a", 0)
    primary.write("later", 0)
    sent = primary.sent()
    primary.lane.when_held(0, request_id, lambda known: primary.tell("again", known))
    assert primary.told == {}
    primary.pass_time(6)
    assert primary.told == {"a": False, "later": False, "again": False}
    primary.lane.when_held(0, request_id, lambda known: primary.tell("third", known))
    primary.pass_time(1)
    assert "third" not in primary.told
    primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told["third"] is True
    primary.lane.when_held(0, request_id, lambda known: primary.tell("fourth", known))
    assert primary.told["fourth"] is True


# -- what is kept has a limit

SMALL = LimitSettings(backlog_bytes=65_536, async_backlog_bytes=65_536)


@pytest.mark.rule("primary_backup/K-1", "primary_backup/K-2")
def test_too_much_for_backups_stops_reading_and_then_refuses_until_half_is_gone() -> None:
    primary = Primary(limits=SMALL)
    changes: list[tuple[bool, bool]] = []
    backlog = primary.lane.backlog

    class Audience:
        def on_notice(self, notice: Notice) -> None:
            assert notice == BacklogChanged()
            changes.append((backlog.crowded, backlog.refusing))

    primary.out._audience = Audience()
    sent = []
    while not backlog.crowded:
        primary.write("a", 0)
        sent += primary.sent()[BEN]
    assert changes == [(True, False)]
    primary.pass_time(6)
    assert changes[1:] == [(True, True)]
    for message in sent:
        primary.acknowledge(BEN, message)
    assert changes[2:] == [(False, False)]
    assert backlog.bytes == 0


@pytest.mark.rule("primary_backup/K-2", "primary_backup/P-6")
def test_twice_too_much_is_refused_at_once() -> None:
    primary = Primary(limits=SMALL)
    while not primary.lane.backlog.refusing:
        primary.write("a", 0)
    assert 2 * 65_536 < primary.lane.backlog.bytes < 2 * 65_536 + 1000


@pytest.mark.rule("primary_backup/K-3")
def test_an_async_backup_that_is_far_behind_is_waited_for_but_not_for_ever() -> None:
    primary = Primary(limits=SMALL, async_backups=1)
    for partition in range(PARTITIONS):
        primary.row(partition, ME, BEN, CAL)
    sent = []
    while CAL not in primary.lane.backlog.slow:
        primary.write("a", 0)
        messages = primary.sent()
        primary.acknowledge(BEN, messages[BEN][0])
        sent.append(messages[CAL][0])
        assert primary.told.pop("a") is True
    primary.write("b", 0)
    messages = primary.sent()
    primary.acknowledge(BEN, messages[BEN][0])
    assert primary.told == {}
    primary.pass_time(6)
    assert primary.told == {"b": True}, "nobody was promised that an async backup holds it"
    for message in (*sent, messages[CAL][0]):
        primary.acknowledge(CAL, message)
    assert not primary.lane.backlog.slow
    assert sum(primary.lane.leftovers.values()) == primary.lane.backlog.bytes == 0
    primary.write("c", 0)
    primary.acknowledge(BEN, primary.sent()[BEN][0])
    assert primary.told["c"] is True


def test_who_is_a_slow_async_backup_of_one_partition_is_waited_for_as_the_sync_one_of_another() -> None:
    primary = Primary(limits=SMALL, async_backups=1)
    primary.row(0, ME, BEN, CAL)
    primary.row(1, ME, CAL, BEN)
    while CAL not in primary.lane.backlog.slow:
        primary.write("a", 0)
        primary.acknowledge(BEN, primary.sent()[BEN][0])
    primary.write("b", 0, 1)
    messages = primary.sent()
    primary.acknowledge(BEN, messages[BEN][0])
    primary.pass_time(6)
    assert primary.told["b"] is False, "Cal has promised to hold partition 1, and is not known to"
    assert "cal" in primary.why["b"]
    primary.write("c", 0, 1)
    messages = primary.sent()
    primary.acknowledge(BEN, messages[BEN][0])
    (section,) = (section for section in messages[CAL][0].sections if section.partition == 1)
    primary.lane.on_replicated(CAL, Replicated(messages[CAL][0].batches, [section.partition]))
    assert "c" not in primary.told
    primary.pass_time(6)
    assert primary.told["c"] is True


# -- answers that have changed nothing (primary_backup/P-7)


def rest(primary: Primary, name: str, partition: int, of: str = "m") -> None:
    """The buffer `name`: a remove that finds nothing."""
    assert primary.lane.remove(primary.copies[partition], of, b"nothing") is None
    primary.lane.close_batch(lambda known: primary.tell(name, known))


@pytest.mark.rule("primary_backup/P-7")
@pytest.mark.parametrize("of", ["m", "never written"])
def test_who_found_nothing_waits_until_the_backup_has_confirmed(primary: Primary, of: str) -> None:
    primary.write("write", 0)
    primary.acknowledge(BEN, primary.sent()[BEN][0])
    rest(primary, "rest", 0, of)
    assert "rest" not in primary.told
    (asked,) = primary.sent()[BEN]
    assert [(section.partition, section.version, section.all_records()) for section in asked.sections] == [
        (0, 1, [])
    ]
    primary.acknowledge(BEN, asked)
    assert primary.told["rest"] is True
    assert sum(primary.lane.leftovers.values()) == primary.lane.backlog.bytes == 0


def test_many_of_one_buffer_are_one_question(primary: Primary) -> None:
    for partition in (0, 2, 0, 2):
        primary.lane.remove(primary.copies[partition], "m", b"nothing")
    primary.lane.close_batch(lambda known: primary.tell("rest", known))
    rest(primary, "also", 0)
    messages = primary.sent()
    assert list(messages) == [BEN]
    (asked,) = messages[BEN]
    assert len(asked.batches) == 1
    assert sorted(section.partition for section in asked.sections) == [0, 2]
    primary.acknowledge(BEN, asked)
    assert primary.told == {"rest": True, "also": True}


def test_it_waits_for_what_it_has_seen_too(primary: Primary) -> None:
    primary.write("write", 0)
    written = primary.sent()[BEN][0]
    rest(primary, "rest", 0)
    primary.write("later", 0)
    asked = primary.sent()[BEN][0]
    primary.acknowledge(BEN, asked)
    assert primary.told == {"later": True}, "it may have seen the write, which is not acknowledged"
    primary.acknowledge(BEN, written)
    assert primary.told == {"write": True, "later": True, "rest": True}


def test_a_write_of_the_same_buffer_does_not_answer_for_another_partition(primary: Primary) -> None:
    primary.lane.set(primary.copies[0], "m", b"key", b"value", 0, 0, 0)
    assert primary.lane.remove(primary.copies[1], "m", b"nothing") is None
    primary.lane.close_batch(lambda known: primary.tell("both", known))
    messages = primary.sent()
    primary.acknowledge(BEN, messages[BEN][0])
    assert primary.told == {}
    primary.acknowledge(CAL, messages[CAL][0])
    assert primary.told == {"both": True}


def test_the_backups_of_a_new_row_are_asked_again(primary: Primary) -> None:
    rest(primary, "rest", 0)
    primary.sent()
    primary.row(0, ME, DAN)
    asked = primary.sent()
    assert list(asked) == [DAN]
    assert [(section.version, section.all_records()) for section in asked[DAN][0].sections] == [(2, [])]
    assert primary.told == {}
    primary.acknowledge(DAN, asked[DAN][0])
    assert primary.told == {"rest": True}


def test_who_is_not_primary_any_more_does_not_answer(primary: Primary) -> None:
    rest(primary, "rest", 0)
    primary.sent()
    rest(primary, "other", 1)
    primary.sent()
    primary.lane.abandon(0)
    assert primary.told == {"rest": False}
    primary.lane.abandon(1)
    assert sum(primary.lane.leftovers.values()) == 0


def test_a_backup_that_does_not_confirm_in_time_is_named(primary: Primary) -> None:
    rest(primary, "rest", 0)
    primary.sent()
    primary.pass_time(6)
    assert primary.told == {"rest": False}
    assert BEN in primary.why["rest"]


def test_answers_that_rest_on_a_write_do_not_put_off_its_callers(primary: Primary) -> None:
    primary.write("write", 0)
    primary.sent()
    for second in range(6):
        rest(primary, f"rest {second}", 0)
        primary.sent()
        primary.pass_time(1)
    assert primary.told["write"] is False


def test_what_waits_in_vain_is_not_kept(primary: Primary) -> None:
    primary.write("write", 0)
    first = primary.sent()[BEN][0]
    for number in range(50):
        rest(primary, f"rest {number}", 0)
        primary.sent()
    assert primary.lane.waiting == 51
    primary.pass_time(6)
    assert all(known is False for known in primary.told.values())
    assert len(primary.told) == 51
    assert primary.lane.waiting == 1, "only what is still to be delivered"
    primary.acknowledge(BEN, first)
    assert sum(primary.lane.leftovers.values()) == primary.lane.backlog.bytes == 0


def test_answers_that_rest_on_each_other_are_linked_in_a_row(primary: Primary) -> None:
    """However many wait, one more has to look at what came since the last of them only."""
    for number in range(30):
        primary.write(f"write {number}", 0)
        primary.sent()
    for number in range(20):
        rest(primary, f"rest {number}", 0)
        primary.sent()
    waiting = primary.lane.batches._waiting
    assert [len(batch.links) for batch in waiting.values() if batch.pending_reads] == [30, *[1] * 19]
    for number in range(1, 51):
        primary.lane.on_replicated(BEN, Replicated([number], [0]))
        if number == 29:
            assert not any(name.startswith("rest") for name in primary.told)
    assert len(primary.told) == 50
    assert all(primary.told.values())
    assert sum(primary.lane.leftovers.values()) == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_row_of_any_length_is_told_at_once(primary: Primary, known: bool) -> None:
    """Each waits for the one before: who tells the first must not go as deep as the row is long."""
    primary.write("write", 0)
    primary.sent()
    for number in range(3000):
        rest(primary, f"rest {number}", 0)
        primary.sent()
    if known:
        primary.lane.on_replicated(BEN, Replicated(list(range(2, 3002)), [0]))
        assert not primary.told
        primary.lane.on_replicated(BEN, Replicated([1], [0]))
    else:
        primary.pass_time(6)
    assert set(primary.told.values()) == {known}
    assert len(primary.told) == 3001


def test_it_waits_for_what_was_written_in_the_same_turn(primary: Primary) -> None:
    rest(primary, "before", 0)
    primary.write("write", 0)
    rest(primary, "after", 0)
    asked = primary.sent()[BEN][0]
    rests, write = asked.batches
    primary.lane.on_replicated(BEN, Replicated([rests], [0]))
    assert "after" not in primary.told
    primary.lane.on_replicated(BEN, Replicated([write], [0]))
    assert primary.told == {"before": True, "write": True, "after": True}


def test_resting_answers_count_in_the_backlog() -> None:
    primary = Primary(limits=SMALL)
    number = 0
    while not primary.lane.backlog.crowded:
        rest(primary, f"rest {number}", 0)
        primary.sent()
        number += 1
        assert number < 1000


def test_without_backups_there_is_nobody_to_ask(primary: Primary) -> None:
    primary.row(0, ME)
    rest(primary, "rest", 0)
    assert primary.told == {"rest": True}

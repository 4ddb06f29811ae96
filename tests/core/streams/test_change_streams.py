"""How far the changes of a map have gone: who has to hold an update before it is told of."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.primary_backup.test_unsent_puts import Packed, put
from tests.server.local_copies import LiveCopies, LocalCopies

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Append, ReadHistory, Send
from holdfast.core.events import HistoryRead
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Replicated
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import EventKind
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.streams.change_streams import (
    AHEAD_NS,
    READS_MAX,
    Asked,
    ChangesSince,
    ChangeStreams,
    Reach,
)

ME, BEN, CAL = (MemberId(name) for name in ("me", "ben", "cal"))
TERM = 3
NAME = "m"


class Primary:
    """The primary of one partition, in office, with a sync backup (Ben) and an async one (Cal)."""

    def __init__(
        self,
        *,
        journal: bool = False,
        changes_bytes: int = 100_000,
        packed: bool = False,
        **more: MapSettings,
    ) -> None:
        """`packed`: it stores as compiled code does. `more`: settings of other maps."""
        self.packed = packed
        self.out = Outbox()
        self.out.epoch_ms = 1000
        chosen = MapSettings(
            backups=1, async_backups=1, changes_bytes=changes_bytes, journal="sync" if journal else "off"
        )
        settings = Settings(partitions=PartitionSettings(count=1), maps={"default": chosen, **more})
        log = Log(self.out, on=journal)
        self.log = log
        self.lane = Lane(ME, settings, self.out, log)
        rows = [Assignment(TERM, (ME, BEN, CAL))]
        self.lane.attach(rows)
        copies = self.copies = LocalReplicas(ME, settings, self.out, rows, log)
        self.copy = copies.held[0] = PartitionCopy(0, 0, entries=Packed if packed else dict)
        self.copy.term = TERM
        self.lane.serving[0] = self.lane.leading[0] = self.copy
        self.lane.retarget(self.copy)
        found = LiveCopies(lambda: LocalCopies(copies.held, self.lane.leading, 0))
        self.changes = ChangeStreams(settings, self.out, self.lane, journal=journal)
        self.changes.attach(found)

    def write(self, key: str, value: str = "v", name: str = NAME) -> None:
        if self.packed:
            put(self.lane, self.copy, name, key.encode(), value.encode())
        else:
            self.lane.set(self.copy, name, key.encode(), value.encode(), 0, 0, 0)

    def head(self) -> int:
        found, moved = self.changes.heads(NAME, [0])
        assert not moved
        return found[0].counter

    def sent(self) -> dict[MemberId, Replicate]:
        self.lane.flush()
        self.log.flush()
        effects = self.out.take()
        self.appended = [effect.number for effect in effects if isinstance(effect, Append)]
        return {effect.to: effect.message for effect in effects if isinstance(effect, Send)}  # type: ignore[misc]

    def acknowledge(self, member: MemberId, message: Replicate) -> None:
        self.lane.on_replicated(member, Replicated(message.batches, [0]))

    def ask(
        self, after: int, upto: int, *, after_term: int = TERM, upto_term: int = TERM, **more: int
    ) -> ChangesSince:
        found: list[ChangesSince] = []
        self.changes.ask(
            Asked(NAME, 0, after, after_term if after else 0, upto, upto_term, **more), found.append
        )
        (told,) = found
        return told


def counters(told: ChangesSince) -> list[int]:
    return [record.counter for _, record in told.records]


@pytest.mark.rule("streams/G-1")
@pytest.mark.parametrize("packed", [False, True])
def test_an_update_is_told_when_its_sync_backup_holds_it_and_async_ones_are_not_waited_for(
    *, packed: bool
) -> None:
    primary = Primary(packed=packed)
    assert primary.changes.heads(NAME, [0]) == ({0: Reach(0, 0, 0, [])}, [])
    primary.write("a")
    assert primary.head() == 0, "of the open buffer"
    primary.lane.close_batch(lambda known: None)
    assert primary.head() == 0, "not sent"
    first = primary.sent()
    assert primary.head() == 0, "sent"
    primary.write("b")
    primary.lane.close_batch(lambda known: None)
    second = primary.sent()
    primary.acknowledge(CAL, first[CAL])
    assert primary.head() == 0
    primary.acknowledge(BEN, second[BEN])
    assert primary.head() == 0, "what comes before it is not acknowledged"
    primary.acknowledge(BEN, first[BEN])
    assert primary.changes.heads(NAME, [0])[0][0] == Reach(2, TERM, 0, [(TERM, 0)])
    assert primary.lane.unfinished(0), "the second of the async backup"


@pytest.mark.rule("streams/G-1")
@pytest.mark.parametrize("journal", [False, True])
def test_packed_updates_are_told_with_former_values(*, journal: bool) -> None:
    """In the tail, to backups and in the journal they are what `Lane.set` makes."""
    said = []
    for packed in (False, True):
        primary = Primary(packed=packed, journal=journal)
        primary.out.now_ns = 5 * MILLISECOND
        for key, value in (("first", "v"), ("a", "v"), ("a", "w"), ("b", "")):
            primary.write(key, value)
        primary.lane.close_batch(lambda known: None)
        primary.write("a", "open")
        sent = primary.sent()
        primary.acknowledge(BEN, sent[BEN])
        primary.log.on_durable(1)
        said.append((sent[BEN].sections, primary.head(), primary.ask(0, primary.head()).records))
    assert said[0] == said[1]
    assert [record.old for _, record in said[1][2]] == [None, None, b"v", None]


@pytest.mark.rule("map_moves/V-4")
@pytest.mark.parametrize("packed", [False, True])
def test_a_copy_is_settled_when_all_its_updates_are_safe(*, packed: bool) -> None:
    primary = Primary(packed=packed)
    assert primary.changes.is_settled(NAME, primary.copy), "without the map"
    settled = []
    for step in ("open", "closed", "sent", "acknowledged"):
        if step == "open":
            primary.write("a")
        elif step == "closed":
            primary.lane.close_batch(lambda known: None)
        elif step == "sent":
            sent = primary.sent()
        else:
            primary.acknowledge(BEN, sent[BEN])
        settled.append(primary.changes.is_settled(NAME, primary.copy))
    assert settled == [False, False, False, True]


def test_an_older_batch_may_hold_a_newer_update() -> None:
    primary = Primary(
        one=MapSettings(backups=1), two=MapSettings(backups=2), m=MapSettings(changes_bytes=9999)
    )
    for names in (["one"], [NAME, "two"], [NAME]):
        # The third buffer joins the batch of the first one: they wait for the same members.
        for name in names:
            primary.write("k", name=name)
        primary.lane.close_batch(lambda known: None)
    primary.sent()
    updates = [
        [record.counter for held, record in batch.records[0] if held.name == NAME]
        for batch in primary.lane.batches_of(0)
    ]
    assert updates == [[2], [1]]
    assert primary.head() == 0, "nobody has acknowledged anything"


def test_a_slow_async_backup_that_writers_wait_for_out_of_courtesy_is_not_waited_for_here() -> None:
    primary = Primary()
    primary.lane.backlog.slow.add(CAL)
    told: list[bool] = []
    primary.write("a")
    primary.lane.close_batch(told.append)
    primary.acknowledge(BEN, primary.sent()[BEN])
    assert told == []
    assert primary.head() == 1


@pytest.mark.rule("streams/G-1")
def test_what_is_on_no_disk_yet_is_not_told() -> None:
    primary = Primary(journal=True)
    primary.write("a")
    primary.lane.close_batch(lambda known: None)
    sent = primary.sent()
    primary.acknowledge(BEN, sent[BEN])
    assert primary.head() == 0
    primary.log.on_durable(primary.appended[-1])
    assert primary.head() == 1


def test_a_partition_that_is_not_served_here_has_no_head() -> None:
    primary = Primary()
    primary.lane.leading[0] = None
    assert primary.changes.heads(NAME, [0]) == ({}, [0])


def written(primary: Primary, *keys: str) -> None:
    for key in keys:
        primary.write(key, f"v{key}")
    primary.lane.close_batch(lambda known: None)
    primary.acknowledge(BEN, primary.sent()[BEN])


def test_changes_carry_old_values_and_times_and_nothing_that_changes_no_entry() -> None:
    primary = Primary()
    primary.out.now_ns = 5 * MILLISECOND
    written(primary, "a", "a")
    held = primary.copy.maps[NAME]
    primary.lane.log(primary.copy, held, Change.EXPIRY, b"a", ttl_ms=5)
    primary.lane.take_out(primary.copy, held, b"a", EventKind.REMOVED)
    written(primary, "b")
    told = primary.ask(0, 5)
    assert (told.upto, told.term, told.why) == (5, TERM, "")
    assert [(r.counter, r.change, r.key, r.value, r.old, r.time_ms) for _, r in told.records] == [
        (1, Change.SET, b"a", b"va", None, 1005),
        (2, Change.SET, b"a", b"va", b"va", 1005),
        (4, Change.REMOVE, b"a", b"", b"va", 1005),
        (5, Change.SET, b"b", b"vb", None, 1005),
    ]
    assert primary.ask(2, 3) == ChangesSince(3, [], "", TERM)
    assert counters(primary.ask(1, 4)) == [2, 4]
    assert counters(primary.ask(0, 5, bytes_max=1)) == [1]


def test_what_has_ended_is_no_old_value() -> None:
    primary = Primary()
    primary.lane.set(primary.copy, NAME, b"a", b"1", 5, 0, 0)
    primary.out.now_ns = 6 * MILLISECOND
    written(primary, "a")
    assert [(r.change, r.value, r.old) for _, r in primary.ask(0, 3).records] == [
        (Change.SET, b"1", None),
        (Change.REMOVE, b"", b"1"),
        (Change.SET, b"va", None),
    ]


def test_a_map_without_a_stream_carries_neither() -> None:
    primary = Primary(changes_bytes=0)
    written(primary, "a", "a")
    assert not primary.changes.streams(NAME)
    tail = primary.copy.maps[NAME].tail
    assert tail is not None
    assert {(record.old, record.time_ms) for _, record in tail.since(0)} == {(None, 0)}
    record = Record(NAME, 1, Change.SET, b"k", b"v")
    plain = msgspec.msgpack.encode(record)
    before = msgspec.msgpack.encode(msgspec.structs.astuple(record)[:-2])
    assert len(plain) == len(before) + 2, "on the wire and in the journal"
    assert msgspec.msgpack.decode(before, type=Record) == record


def test_without_the_term_of_the_last_only_the_primary_tells_and_only_what_is_safe() -> None:
    primary = Primary()
    written(primary, "a", "b")
    primary.write("c")
    primary.lane.close_batch(lambda known: None)
    primary.sent()
    assert counters(primary.ask(0, 3, upto_term=0)) == [1, 2]
    primary.lane.leading[0] = None
    assert "not the primary" in primary.ask(0, 2, upto_term=0).why
    assert counters(primary.ask(0, 2)) == [1, 2]


def test_a_primary_tells_what_is_safe_only_also_when_more_is_named() -> None:
    primary = Primary()
    primary.write("a")
    primary.lane.close_batch(lambda known: None)
    first = primary.sent()
    assert primary.ask(0, 1) == ChangesSince(0), "no reason: it may come yet"
    primary.acknowledge(BEN, first[BEN])
    primary.write("b")
    primary.lane.close_batch(lambda known: None)
    primary.sent()
    told = primary.ask(0, 2)
    assert (counters(told), told.upto) == ([1], 1)
    assert primary.ask(1, 2) == ChangesSince(1)
    primary.lane.leading[0] = None
    assert counters(primary.ask(0, 2)) == [1, 2], (
        "others cannot know: who names an update has been told of it"
    )


@pytest.mark.rule("streams/G-3")
def test_another_history_is_refused_by_name() -> None:
    primary = Primary()
    written(primary, "a", "b")
    assert "update 1 of term 2 is not of the history" in primary.ask(1, 2, after_term=2).why
    assert "update 2 of term 4 is not held here" in primary.ask(1, 2, upto_term=4).why
    assert "update 9 of term 3 is not held here" in primary.ask(1, 9).why
    del primary.copy.maps[NAME]
    assert "nothing of this map" in primary.ask(1, 2).why


@pytest.mark.rule("streams/G-4")
def test_updates_from_before_the_map_had_a_stream_are_not_told() -> None:
    primary = Primary()
    held = primary.lane.open(primary.copy, NAME)
    records = [
        Record(NAME, 1, Change.SET, b"k", b"v"),
        Record(NAME, 2, Change.CLEAR),
        Record(NAME, 3, Change.SET, b"k", b"v", old=None, time_ms=7),
    ]
    for record in records:
        held.apply(record, 0)
    held.keep(TERM, records, held.changes)
    for after in (0, 1):
        assert "older than the map's change stream" in primary.ask(after, 3).why
    assert counters(primary.ask(2, 3)) == [3]


@pytest.mark.rule("streams/G-4")
def test_the_journal_is_asked_for_what_memory_has_forgotten() -> None:
    primary = Primary(journal=True)
    written(primary, "a", "b")
    primary.log.on_durable(primary.appended[-1])
    held = primary.copy.maps[NAME]
    tail = held.tail
    assert tail is not None
    records = tail.since(0)
    held.tail = None
    found: list[ChangesSince] = []

    def read(after: int) -> ReadHistory:
        primary.changes.ask(Asked(NAME, 0, after, TERM if after else 0, 2, TERM), found.append)
        (effect,) = primary.out.take()
        assert isinstance(effect, ReadHistory)
        assert (effect.after, effect.upto) == (after, 2)
        assert effect.ticket < 0, "not one of a migration"
        return effect

    primary.changes.on_history(HistoryRead(read(0).ticket, records))
    assert counters(found.pop()) == [1, 2]
    primary.changes.on_history(HistoryRead(read(0).ticket, records[:1]))
    assert (counters(found[0]), found.pop().upto) == ([1], 1)
    primary.changes.on_history(HistoryRead(read(0).ticket, None, 1))
    assert found.pop() == ChangesSince(0, [], "changes are remembered here from update 2 on")
    for wrong in ([(TERM + 1, records[0][1])], records[1:]):
        primary.changes.on_history(HistoryRead(read(0).ticket, wrong))
        assert found.pop().why == "the journal tells another history"
    assert set(primary.changes.leftovers.values()) == {0}


def test_what_was_read_and_did_not_fit_into_the_answer_is_told_without_reading_again() -> None:
    primary = Primary(journal=True)
    written(primary, "a", "b", "c", "d")
    primary.log.on_durable(primary.appended[-1])
    held = primary.copy.maps[NAME]
    tail = held.tail
    assert tail is not None
    records = tail.since(0)
    held.tail = None
    found: list[ChangesSince] = []

    def ask(after: int, after_term: int = TERM) -> None:
        asked = Asked(NAME, 0, after, after_term if after else 0, 4, TERM, bytes_max=1)
        primary.changes.ask(asked, found.append)

    def asked_of_the_journal() -> list[int]:
        return [effect.ticket for effect in primary.out.take() if isinstance(effect, ReadHistory)]

    ask(0)
    (ticket,) = asked_of_the_journal()
    primary.changes.on_history(HistoryRead(ticket, records))
    ask(1)
    ask(2)
    assert [counters(told) for told in found] == [[1], [2], [3]]
    assert asked_of_the_journal() == []
    ask(1)
    assert len(asked_of_the_journal()) == 1, "it is at another place than the last question"
    ask(3)
    assert len(asked_of_the_journal()) == 1


class Forgetful(Primary):
    """A primary of which the journal alone remembers four updates."""

    def __init__(self) -> None:
        super().__init__(journal=True)
        written(self, "a", "b", "c", "d")
        self.log.on_durable(self.appended[-1])
        held = self.copy.maps[NAME]
        assert held.tail is not None
        self.records = held.tail.since(0)
        held.tail = None
        self.told: list[ChangesSince] = []

    def begin(self, after: int, upto: int = 4, bytes_max: int = 1, partition: int = 0) -> list[ReadHistory]:
        """What is looked for in the journal at once."""
        asked = Asked(NAME, partition, after, TERM if after else 0, upto, TERM, bytes_max=bytes_max)
        self.changes.ask(asked, self.told.append)
        return [effect for effect in self.out.take() if isinstance(effect, ReadHistory)]

    def read_ahead(self) -> None:
        """One update is told, and three are kept."""
        (read,) = self.begin(0)
        self.changes.on_history(HistoryRead(read.ticket, self.records))
        assert counters(self.told.pop()) == [1]


def test_what_was_read_ahead_is_not_told_beyond_what_is_asked_for() -> None:
    primary = Forgetful()
    primary.read_ahead()
    (read,) = primary.begin(1, upto=2, bytes_max=1 << 20)
    assert (read.after, read.upto, primary.told) == (1, 2, [])


def test_what_was_read_ahead_is_not_told_of_another_history() -> None:
    primary = Forgetful()
    primary.read_ahead()
    # Another primary has taken office after the second update, and this copy was filled by it.
    primary.copy.maps[NAME].lineage = [(TERM, 0), (TERM + 2, 2)]
    primary.changes.ask(Asked(NAME, 0, 1, TERM, 4, TERM + 2), primary.told.append)
    assert primary.told == []
    assert [effect.after for effect in primary.out.take() if isinstance(effect, ReadHistory)] == [1]


def test_what_was_read_ahead_is_forgotten_after_a_while_and_when_the_copy_goes() -> None:
    primary = Forgetful()
    primary.read_ahead()
    primary.out.now_ns += AHEAD_NS - 1
    primary.changes.sweep()
    assert primary.changes.ahead_bytes > 3 * 160
    primary.out.now_ns += 1
    primary.changes.sweep()
    assert primary.changes.ahead_bytes == 0
    assert len(primary.begin(1)) == 1
    primary = Forgetful()
    primary.read_ahead()
    primary.copies.held[0] = PartitionCopy(0, 0)
    primary.changes.sweep()
    assert primary.changes.ahead_bytes == 0, "of another copy"


def test_few_readers_at_once_have_the_journal_looked_through_and_migrations_need_not_wait_for_them() -> None:
    primary = Forgetful()
    reads = [read for _ in range(READS_MAX) for read in primary.begin(0)]
    assert len(reads) == READS_MAX
    assert all(read.patient for read in reads)
    assert primary.begin(0) == []
    assert primary.told == [ChangesSince(0)], "no reason: it may be asked for again"
    primary.changes.on_history(HistoryRead(reads[0].ticket, primary.records))
    assert len(primary.begin(0)) == 1

"""What a primary waits for and sends when writes come packed, as records, or both, in buffers that wait or not."""

from __future__ import annotations

import random

import pytest
from tests.core.primary_backup.test_lane import BEN, CAL, DAN, ME, PARTITIONS, SMALL, rest
from tests.core.primary_backup.test_lane_waits import Everybody, Office
from tests.core.primary_backup.test_unsent_puts import Packed, put

from holdfast.config import MapSettings, Settings
from holdfast.core.journal.log import Log
from holdfast.core.messages import Ack, Replicate, Replicated, Section
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.journal_entries import Wrote, WrotePuts
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.notices import Notice, PartitionDrained
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Puts, Record, pack_puts
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.primary_backup.lane import Lane, NoEvents
from holdfast.core.store.partition_copy import PartitionCopy

TERM = 7
"""Of every partition: no number of a partition."""
TTL_MS = 1000
ALONE = MapSettings(backups=0)


class Packing(Office):
    """A primary whose maps take packed puts. Maps named `lazy` and `sync` have no backups, and a journal."""

    def __init__(self, **options: object) -> None:
        maps = {
            "lazy": MapSettings(backups=0, journal="lazy"),
            "sync": MapSettings(backups=0, journal="sync"),
            "alone": ALONE,
            "deep": MapSettings(backups=2),
            "stream": MapSettings(backups=1, changes_bytes=10_000),
        }
        super().__init__(**{"journal": True, **maps, **options})  # type: ignore[arg-type]
        self.copies = [PartitionCopy(partition, 0, entries=Packed) for partition in range(PARTITIONS)]
        for partition, copy in enumerate(self.copies):
            copy.term = self.lane.targets.terms[partition] = TERM
        self.lane.serving = list(self.copies)

    def put(self, partition: int, key: bytes, name: str = "m", value: bytes = b"v") -> None:
        """A packed put."""
        self.lane.open(self.copies[partition], name)
        put(self.lane, self.copies[partition], name, key, value)

    def record(self, partition: int, key: bytes, name: str = "m", value: bytes = b"v") -> None:
        """A put that cannot be packed, because it expires."""
        self.lane.set(self.copies[partition], name, key, value, TTL_MS, 0, 0)

    def plain(self, partition: int, key: bytes, name: str = "m", value: bytes = b"v") -> None:
        """A put that comes as a record, and may be packed when it leaves."""
        self.lane.set(self.copies[partition], name, key, value, 0, 0, 0)

    def end(self, name: str) -> None:
        """End the read buffer, as a session does."""
        if self.lane.settle():
            self.tell(name, known=True)
        else:
            self.close_batch(name)

    def end_buffer(self, name: str) -> None:
        """End the read buffer, as the poll of many connections does."""
        ended = self.lane.end_buffer()
        if isinstance(ended, AckBatch):
            ended.callbacks.append(lambda known: self.tell(name, known=known))
        elif ended:
            self.tell(name, known=True)
        else:
            self.close_batch(name)

    def counters(self, partition: int, name: str = "m") -> list[int]:
        """Of the updates in the tail of a map."""
        tail = self.copies[partition].maps[name].tail
        assert tail is not None
        return [record.counter for _, record in tail.since(tail.start)]


@pytest.fixture
def primary() -> Packing:
    return Packing()


def expiring(counter: int, key: bytes, name: str = "m") -> Record:
    return Record(name, counter, Change.SET, key, b"v", TTL_MS)


def keys(messages: list[Replicate]) -> list[bytes]:
    return [
        record.key for message in messages for section in message.sections for record in section.all_records()
    ]


def test_replicated_maps_in_tables_take_packed_puts_and_no_others(primary: Packing) -> None:
    copy = primary.copies[3]
    held = primary.lane.open(copy, "m")
    assert held.unsent is not None
    assert held.unsent.partition == 3
    assert primary.lane.open(copy, "m").unsent is held.unsent
    assert primary.lane.open(copy, "alone").unsent is None, "nothing is sent"
    office = Office()
    assert office.lane.open(office.copies[3], "m").unsent is None, "its entries are in a dictionary"


# -- buffers that wait for nobody


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["alone", "lazy"])
def test_a_buffer_that_waits_for_nobody_ends_at_once(primary: Packing, name: str, *, packed: bool) -> None:
    (primary.put if packed else primary.record)(0, b"k", name)
    assert primary.lane.settle()
    assert primary.lane.waiting == 0
    assert primary.sent() == {}
    written = [entry for append in primary.appended for entry in append.entries]
    puts, record = pack_puts("lazy", 0, [b"k"], [b"v"]), expiring(1, b"k", "lazy")
    if name == "alone":
        assert written == []
    else:
        assert written == [WrotePuts(0, TERM, puts) if packed else Wrote(0, TERM, [record])]
        assert not primary.appended[0].urgent
    assert primary.left == 0


NAMES = ["m", "m", "m", "alone", "lazy", "sync", "deep", "stream"]


@pytest.mark.parametrize("seed", range(60))
def test_buffers_end_alike_for_sessions_and_for_the_poll(seed: int) -> None:
    draw = random.Random(seed)
    pair = (Packing(), Packing())
    for turn in range(6):
        for number in range(draw.randrange(1, 6)):
            buffer = f"{turn}.{number}"
            for _ in range(draw.choice([0, 1, 1, 2, 5])):
                name, partition = draw.choice(NAMES), draw.randrange(PARTITIONS)
                key, kind = draw.choice([b"k", b"l"]), draw.choice(["put"] * 6 + ["record", "rest"])
                for one in pair:
                    if kind == "rest":
                        one.lane.rest_on(one.copies[partition], name)
                    else:
                        (one.put if kind == "put" else one.record)(partition, key, name)
            pair[0].end(buffer)
            pair[1].end_buffer(buffer)
        sent, sent_too = pair[0].sent(), pair[1].sent()
        assert sent == sent_too
        assert pair[0].appended == pair[1].appended
        assert pair[0].told == pair[1].told
        assert pair[0].lane.backlog.bytes == pair[1].lane.backlog.bytes
        assert pair[0].left == pair[1].left
        members = [member for member in sent if draw.random() < 0.8]
        for one in pair:
            for member in members:
                for message in sent[member]:
                    one.acknowledge(member, message)
            if turn % 2:
                one.log.on_durable(len(one.appended))
        assert pair[0].told == pair[1].told
    assert pair[0].told


@pytest.mark.rule("primary_backup/K-1")
def test_buffers_of_the_poll_crowd_the_backlog() -> None:
    one = Packing(limits=SMALL)
    while (backlog := one.lane.backlog).bytes <= backlog.most:
        assert not backlog.crowded
        one.put(0, b"k", value=b"v" * 1000)
        one.end_buffer("fill")
    assert backlog.crowded


@pytest.mark.rule("primary_backup/K-3")
def test_a_buffer_of_the_poll_makes_an_async_backup_slow_and_then_waits_for_it() -> None:
    one = Packing(limits=SMALL, a=MapSettings(backups=0, async_backups=1))
    one.row(0, ME, CAL)
    for _ in range(100):
        one.put(0, b"k", "a", b"v" * 1000)
        one.end_buffer("fill")
        messages = one.sent()[CAL]
        if CAL in one.lane.backlog.slow:
            break
        assert one.told.pop("fill") is True
    assert CAL in one.lane.backlog.slow
    one.told.clear()
    one.put(0, b"k", "a")
    one.end_buffer("write")
    messages = one.sent()[CAL]
    assert one.told == {}
    for message in messages:
        one.acknowledge(CAL, message)
    assert one.told == {"write": True}


@pytest.mark.parametrize("poll", [True, False])
def test_a_buffer_that_joins_a_batch_waits_for_the_disk_with_it(*, poll: bool) -> None:
    """Their maps have async backups alone, so the batch waits for no member."""
    synced, written = (MapSettings(backups=0, async_backups=1, journal=way) for way in ("sync", "lazy"))
    one = Packing(synced=synced, written=written)
    one.row(0, ME, CAL)
    for name in ("synced", "written"):
        one.put(0, b"k", name)
        one.end_buffer(name) if poll else one.close_batch(name)
    assert [message.batches for message in one.sent()[CAL]] == [[1]]
    assert one.told == {}
    one.log.on_durable(len(one.appended))
    assert one.told == {"synced": True, "written": True}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("name", "waits_for"), [("m", "ben"), ("sync", "disk")])
def test_a_buffer_with_one_write_that_waits_does_not_end(
    primary: Packing, name: str, waits_for: str, *, packed: bool
) -> None:
    write = primary.put if packed else primary.record
    write(0, b"k", "lazy")
    write(0, b"k", name)
    assert not primary.lane.settle()
    primary.close_batch("a")
    sent = primary.sent()
    assert primary.told == {}
    assert primary.appended[0].urgent is (waits_for == "disk")
    if waits_for == "disk":
        primary.log.on_durable(1)
    else:
        primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told == {"a": True}
    assert primary.left == 0


def test_a_member_joins_a_partition_in_a_turn_with_settled_updates(primary: Packing) -> None:
    """Update 1 waits for nobody. Then Ben joins, before the turn ends: it must get update 1 before update 2."""
    for partition in (0, 2):
        primary.row(partition, ME)
        primary.record(partition, b"expires")
        primary.put(partition, b"settled")
    primary.end("first")
    assert primary.told == {"first": True}
    primary.row(0, ME, BEN)
    primary.put(0, b"later")
    primary.end("second")
    messages = primary.sent()[BEN]
    assert keys(messages[:1]) == [b"expires", b"settled"]
    assert list(dict.fromkeys(keys(messages))) == [b"expires", b"settled", b"later"]
    assert {section.partition for message in messages for section in message.sections} == {0}
    for message in messages:
        primary.acknowledge(BEN, message)
    assert primary.told == {"first": True, "second": True}
    assert (primary.left, primary.counters(0), primary.counters(2)) == (0, [1, 2, 3], [1, 2])


def test_settled_updates_are_sent_for_their_own_partition(primary: Packing) -> None:
    """Two partitions get a backup in the turn, and the first of them then gets another one."""
    for partition in (0, 2):
        primary.row(partition, ME)
        primary.record(partition, b"%d" % partition)
    primary.end("a")
    for partition, backup in ((0, BEN), (2, BEN), (0, DAN)):
        primary.row(partition, ME, backup)
    sections = [
        section
        for messages in primary.sent().values()
        for message in messages
        for section in message.sections
    ]
    assert {section.partition for section in sections} == {0, 2}
    for section in sections:
        assert {record.key for record in section.all_records()} == {b"%d" % section.partition}


def test_settled_updates_of_an_earlier_turn_are_not_resent(primary: Packing) -> None:
    primary.put(0, b"settled", "lazy")
    primary.end("first")
    primary.sent()
    primary.put(0, b"k")
    primary.end("second")
    primary.row(0, ME, DAN)
    assert len(primary.lane.batches_of(0)) == 1


# -- buffers that wait


def test_packed_puts_are_acknowledged_like_records(primary: Packing) -> None:
    primary.put(0, b"key", value=b"value")
    primary.end("a")
    assert primary.lane.leftovers["records not sent"] == 1 + 1 + 1, "puts, and a batch that may be joined"
    assert primary.lane.backlog.bytes == RECORD_BYTES + 8
    (message,) = primary.sent()[BEN]
    assert message.sections == [Section(0, 1, [], TERM, [pack_puts("m", 0, [b"key"], [b"value"])])]
    assert primary.told == {}
    primary.acknowledge(BEN, message)
    assert (primary.told, primary.left) == ({"a": True}, 0)


def test_the_backlog_counts_keys_values_and_former_values(primary: Packing) -> None:
    primary.record(0, b"key", value=b"value")
    primary.end("a")
    assert primary.lane.backlog.bytes == RECORD_BYTES + 8
    primary.plain(2, b"k", "stream", b"first")
    primary.plain(2, b"k", "stream", b"second")
    primary.end("b")
    assert primary.lane.backlog.bytes == 3 * RECORD_BYTES + 8 + (1 + 5) + (1 + 6 + 5)


def test_the_backlog_counts_puts_that_a_record_of_their_buffer_has_taken_along(primary: Packing) -> None:
    primary.put(0, b"key", value=b"value")
    primary.put(0, b"k", value=b"v")
    primary.lane.remove(primary.copies[0], "m", b"k")
    primary.end("a")
    assert primary.lane.backlog.bytes == 3 * RECORD_BYTES + 8 + 2 + 1
    assert keys(primary.sent()[BEN]) == [b"key", b"k", b"k"]


def test_a_buffer_waits_for_the_backups_of_its_records_and_its_puts(primary: Packing) -> None:
    primary.record(0, b"k")
    primary.put(1, b"k")
    primary.end("a")
    sent = primary.sent()
    primary.acknowledge(CAL, sent[CAL][0])
    assert primary.told == {}
    primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told == {"a": True}


def test_a_buffer_with_a_write_and_a_read_waits_for_both(primary: Packing) -> None:
    """The read is confirmed first."""
    primary.record(0, b"k")
    primary.find_nothing(1)
    primary.end("both")
    sent = primary.sent()
    primary.acknowledge(CAL, sent[CAL][0])
    assert primary.told == {}
    primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told == {"both": True}


def test_a_buffer_that_reads_after_packed_puts_waits_for_both(primary: Packing) -> None:
    primary.put(0, b"k")
    primary.find_nothing(1)
    primary.end("both")
    sent = primary.sent()
    primary.acknowledge(CAL, sent[CAL][0])
    assert primary.told == {}
    primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told == {"both": True}


@pytest.mark.parametrize("names", [["m", "deep"], ["deep", "m"], ["m", "m", "deep"], ["m", "deep", "m"]])
def test_a_batch_waits_for_the_backups_of_each_of_its_maps(primary: Packing, names: list[str]) -> None:
    primary.row(0, ME, BEN, CAL)
    for name in names:
        primary.record(0, b"k", name)
    primary.end("a")
    sent = primary.sent()
    primary.acknowledge(BEN, sent[BEN][0])
    assert primary.told == {}
    primary.acknowledge(CAL, sent[CAL][0])
    assert primary.told == {"a": True}


def test_records_join_a_batch_that_has_only_packed_puts_so_far(primary: Packing) -> None:
    primary.put(0, b"packed")
    primary.end("a")
    primary.record(0, b"record", "n")
    primary.end("b")
    (message,) = primary.sent()[BEN]
    assert message.batches == [1]
    assert message.sections == [
        Section(0, 1, [expiring(1, b"record", "n")], TERM, [pack_puts("m", 0, [b"packed"], [b"v"])])
    ]
    primary.acknowledge(BEN, message)
    assert primary.told == {"a": True, "b": True}


@pytest.mark.rule("primary_backup/P-2")
def test_all_records_of_a_batch_go_to_a_new_backup(primary: Packing) -> None:
    primary.record(0, b"first")
    primary.record(0, b"second")
    primary.end("a")
    primary.sent()
    primary.row(0, ME, DAN)
    assert keys(primary.sent()[DAN]) == [b"first", b"second"]


@pytest.mark.rule("primary_backup/P-2")
def test_packed_puts_that_have_not_left_go_to_a_new_backup(primary: Packing) -> None:
    primary.put(0, b"k")
    primary.end("a")
    primary.row(0, ME, DAN)
    sent = primary.sent()
    assert (list(sent), keys(sent[DAN][:1])) == ([DAN], [b"k"])
    for message in sent[DAN]:
        primary.acknowledge(DAN, message)
    assert (primary.told, primary.left) == ({"a": True}, 0)


def test_a_client_that_collects_acknowledgements_is_answered_at_once_for_packed_puts(
    primary: Packing,
) -> None:
    primary.lane.batches.ack_clients = Everybody()  # type: ignore[assignment]
    counts: list[int] = []
    primary.put(0, b"k")
    primary.put(1, b"k")
    primary.lane.close_batch_for(lambda known: counts.append(primary.lane.acks), b"client", [8, 9])
    sent = primary.sent()
    assert counts == [2]
    assert sent[BEN][0].acks == [Ack(b"client", [8, 9], [0])]
    assert sent[CAL][0].acks == [Ack(b"client", [8, 9], [1])]


@pytest.mark.rule("primary_backup/P-2")
def test_a_new_backup_gets_the_rest_of_a_time_to_live(primary: Packing) -> None:
    """Written at 10 ms with 1 s to live, and sent again at 310 ms."""
    primary.out.now_ns = 10 * MILLISECOND
    primary.record(0, b"k")
    primary.end("a")
    primary.sent()
    primary.out.now_ns = 310 * MILLISECOND
    primary.row(0, ME, DAN)
    (section,) = primary.sent()[DAN][0].sections
    assert [record.ttl_ms for record in section.records] == [TTL_MS - 300]


@pytest.mark.rule("primary_backup/P-2")
def test_updates_of_several_batches_are_sent_again_in_order(primary: Packing) -> None:
    """Buffers 1 and 3 wait for Ben, and buffer 2 for Cal too: batch 1 has updates 1 and 3, and batch 2 has update 2."""
    for others in ((), (1,), ()):
        primary.record(0, b"k")
        for partition in others:
            primary.record(partition, b"k")
        primary.end("a")
    primary.row(0, ME, DAN)
    (section,) = primary.sent()[DAN][0].sections
    assert [record.counter for record in section.records] == [1, 2, 3]


# -- what leaves at the end of a turn


def test_maps_of_a_partition_share_a_section_packed_or_not(primary: Packing) -> None:
    """Puts of p and q as records that are packed when they leave, and records of m and n that cannot be packed."""
    for name in ("p", "m", "q", "n"):
        (primary.plain if name in "pq" else primary.record)(0, b"k", name)
    primary.end("a")
    (message,) = primary.sent()[BEN]
    puts = [pack_puts(name, 0, [b"k"], [b"v"]) for name in "pq"]
    assert message.sections == [Section(0, 1, [expiring(1, b"k", name) for name in "mn"], TERM, puts)]


def test_the_sections_of_two_backups_are_their_own(primary: Packing) -> None:
    """Map n is backed up by Ben alone, so what it adds must not reach Cal."""
    primary.row(0, ME, BEN, CAL)
    primary.record(0, b"k", "deep")
    primary.record(0, b"k", "n")
    primary.end("a")
    sent = primary.sent()
    deep = expiring(1, b"k", "deep")
    assert sent[BEN][0].sections[0].records == [deep, expiring(1, b"k", "n")]
    assert sent[CAL][0].sections[0].records == [deep]


def test_updates_of_a_change_stream_are_sent_as_records(primary: Packing) -> None:
    primary.plain(0, b"k", "stream")
    primary.end("a")
    (section,) = primary.sent()[BEN][0].sections
    assert (len(section.records), section.puts) == (1, [])


@pytest.mark.parametrize("packed", [True, False])
def test_a_member_of_an_older_level_gets_records(primary: Packing, *, packed: bool) -> None:
    """membership/L-4"""
    primary.out.level = LOWEST
    for name in ("m", "lazy"):
        (primary.put if packed else primary.plain)(0, b"k", name)
    primary.end("a")
    (section,) = primary.sent()[BEN][0].sections
    assert ([record.key for record in section.records], section.puts) == ([b"k"], [])
    (entry,) = primary.appended[0].entries
    assert entry == Wrote(0, TERM, [Record("lazy", 1, Change.SET, b"k", b"v")])


def test_several_parts_of_one_map_are_packed_again(primary: Packing) -> None:
    """A put, one that came as a record, and a put of the next buffer, in the order of the counter."""
    primary.put(0, b"a")
    primary.plain(0, b"b")
    primary.end("first")
    primary.put(0, b"c")
    primary.end("second")
    (message,) = primary.sent()[BEN]
    assert message.sections == [
        Section(0, 1, [], TERM, [pack_puts("m", 0, [b"a", b"b", b"c"], [b"v", b"v", b"v"])])
    ]
    assert primary.counters(0) == [1, 2, 3]


@pytest.mark.rule("store/U-1")
def test_a_record_takes_along_the_puts_of_an_earlier_buffer(primary: Packing) -> None:
    primary.put(0, b"put")
    primary.end("first")
    primary.record(0, b"record")
    primary.end("second")
    (message,) = primary.sent()[BEN]
    assert keys([message]) == [b"put", b"record"]
    primary.acknowledge(BEN, message)
    assert (primary.told, primary.left) == ({"first": True, "second": True}, 0)


def test_puts_of_a_buffer_in_work_leave_with_a_later_turn(primary: Packing) -> None:
    primary.put(0, b"ended")
    primary.end("a")
    primary.put(0, b"open")
    first = primary.sent()
    assert keys(first[BEN]) == [b"ended"]
    primary.end("b")
    second = primary.sent()
    assert keys(second[BEN]) == [b"open"]
    primary.acknowledge(BEN, first[BEN][0])
    assert primary.told == {"a": True}
    primary.acknowledge(BEN, second[BEN][0])
    assert (primary.told, primary.left) == ({"a": True, "b": True}, 0)


def test_records_are_written_with_partition_and_term(primary: Packing) -> None:
    for partition in (2, 3):
        for name in ("lazy", "sync"):
            primary.record(partition, b"k", name)
    primary.end("a")
    primary.sent()
    (append,) = primary.appended
    assert append.urgent
    assert append.entries == [
        Wrote(partition, TERM, [expiring(1, b"k", "lazy"), expiring(1, b"k", "sync")]) for partition in (2, 3)
    ]


# -- what is reported meanwhile


def test_reads_of_one_turn_share_a_barrier_though_a_batch_ends_in_between(primary: Packing) -> None:
    primary.record(2, b"k")
    primary.end("write")
    (written,) = primary.sent()[BEN]
    rest(primary, "first", 0)
    primary.acknowledge(BEN, written)
    rest(primary, "second", 0)
    (asked,) = primary.sent()[BEN]
    assert asked.batches == [2]
    primary.acknowledge(BEN, asked)
    assert primary.told == dict.fromkeys(("write", "first", "second"), True)


def test_a_partition_is_drained_when_its_last_batch_ends_during_a_migration(primary: Packing) -> None:
    notices: list[Notice] = []

    class Audience:
        def on_notice(self, notice: Notice) -> None:
            notices.append(notice)

    primary.out._audience = Audience()
    messages = []
    for partition in (0, 0, 2):
        primary.record(partition, b"k")
        primary.end("a")
        messages += primary.sent()[BEN]
    primary.lane.joining[0] = (DAN, 0)
    seen = []
    for message in messages:
        primary.acknowledge(BEN, message)
        seen.append(len(notices))
    assert (notices, seen) == ([PartitionDrained(0)], [0, 1, 1]), "no migration of partition 2 waits for that"


def test_a_repeated_request_is_not_looked_for_in_packed_puts(primary: Packing) -> None:
    primary.put(0, b"k")
    primary.end("a")
    primary.sent()
    primary.lane.when_held(0, b"request", lambda known: primary.tell("again", known))
    assert primary.told == {"again": True}


def test_only_operations_with_callers_that_wait_are_shown(primary: Packing) -> None:
    """The callers of the first batch have got an unknown outcome; the batch still waits for its backup."""
    primary.record(0, b"k")
    primary.end("first")
    primary.sent()
    primary.pass_time(6)
    assert primary.told == {"first": False}
    primary.record(2, b"k")
    primary.end("second")
    shown = list(primary.lane.batches.open_since(primary.out.now_ns, {}))
    assert [(operation.places, operation.since_ns) for operation in shown] == [({"m": {2}}, 6 * SECOND)]


def test_an_acknowledgement_of_one_partition_says_nothing_of_another_in_the_batch(primary: Packing) -> None:
    primary.rows[2] = Assignment(1, (ME, BEN))
    primary.put(0, b"k")
    primary.put(2, b"k")
    primary.end("a")
    (message,) = primary.sent()[BEN]
    for partition in (0, 2):
        assert primary.told == {}
        primary.lane.on_replicated(BEN, Replicated(message.batches, [partition]))
    assert primary.told == {"a": True}
    assert all(isinstance(puts, Puts) for section in message.sections for puts in section.puts)


def test_the_lane_reports_the_events_of_compiled_code_to_its_listeners() -> None:
    events = NoEvents()
    assert Lane(ME, Settings(), Outbox(), Log(Outbox(), on=False), events).report == events.hear_written

"""Each step of packed puts by itself: from the end of a read buffer through the messages to the backup."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import pack

import pytest
from tests.core.primary_backup.test_lane import BEN, CAL, DAN, ME
from tests.core.primary_backup.test_unsent_puts import WAYS, Packed

from holdfast.core.messages import Section
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import (
    NO_FORMER,
    NOTE,
    Change,
    Changes,
    JournalMode,
    Puts,
    Record,
    pack_puts,
)
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.primary_backup.ack_batch import AckBatch
from holdfast.core.primary_backup.backlog import RECORD_BYTES
from holdfast.core.primary_backup.packed_puts_cy import PackedPuts, Sections
from holdfast.core.store.map_state import FOLD_AT
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, UnsentPuts, map_replica
from holdfast.core.store.tail import Tail

TAIL_BYTES = 1_000_000
NOW_NS = 7
Pair = tuple[bytes, bytes]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> PackedPuts:
    packed_puts: PackedPuts = request.param
    return packed_puts


def replica(
    name: str = "m",
    partition: int = 0,
    *,
    targets: tuple[str, ...] = (),
    sync: tuple[str, ...] = (),
    journal: JournalMode = "off",
    changes: int = 0,
) -> MapReplica:
    held = map_replica(name)
    held.unsent = UnsentPuts(partition)
    held.targets, held.sync = targets, frozenset(sync)
    held.journal, held.changes = journal, changes
    return held


def unsent_of(held: MapReplica) -> UnsentPuts:
    assert held.unsent is not None
    return held.unsent


def store(held: MapReplica, *pairs: Pair) -> None:
    """Store entries in the open read buffer, as compiled code does."""
    unsent = unsent_of(held)
    for key, value in pairs:
        held.updates.next()
        unsent.sizes += pack("<2I", len(key), len(value))
        unsent.data += key + value
        if held.changes:
            unsent.notes += NOTE.pack(Change.SET, NO_FORMER, 9, 0, 0)
    unsent.opened = True


def counts(held: MapReplica) -> tuple[bool, int, int]:
    unsent = unsent_of(held)
    return unsent.opened, unsent.closed, unsent.closed_bytes


# -- the end of a read buffer


def test_a_batch_counts_the_bytes_of_its_own_buffer(way: PackedPuts) -> None:
    first, second = replica("m", 0), replica("n", 1)
    store(first, (b"key", b"value"))
    store(second, (b"k", b""))
    assert way.close(AckBatch(1, 0), [first, second], {}, [], set()) == 2 * RECORD_BYTES + 8 + 1
    assert counts(first) == (False, 1, 8)
    store(first, (b"a", b"bc"), (b"d", b"e"))
    assert way.close(AckBatch(2, 0), [first], {}, [], set()) == 2 * RECORD_BYTES + 5
    assert counts(first) == (False, 3, 13)
    assert counts(second) == (False, 1, 1)


def test_puts_of_one_buffer_are_for_the_same_members_or_are_not(way: PackedPuts) -> None:
    one, equal = replica(targets=(BEN, CAL)), replica("n", 1, targets=(BEN, CAL))
    assert way.targets_of([one]) == (BEN, CAL)
    assert way.targets_of([one, equal, one]) == (BEN, CAL)
    assert way.targets_of([one, replica("n", 1, targets=(CAL, BEN))]) is None
    assert way.targets_of([one, replica("n", 1)]) is None
    assert way.targets_of([replica(), replica(journal="lazy")]) == ()
    for synced in (replica(journal="sync"), replica(targets=(BEN, CAL), journal="sync")):
        assert way.targets_of([synced]) is None, "this disk has to have it first"
        assert way.targets_of([one, synced]) is None


def test_an_open_batch_is_found_by_partition_and_number(way: PackedPuts) -> None:
    one, other = AckBatch(1, 0), AckBatch(2, 0)
    open_batches: dict[int, dict[int, AckBatch]] = {}
    for batch, partition in ((one, 0), (other, 0), (other, 3)):
        held = replica(partition=partition)
        store(held, (b"k", b"v"))
        way.close(batch, [held], open_batches, [], set())
    assert open_batches == {0: {1: one, 2: other}, 3: {2: other}}


def test_every_batch_of_the_turn_gets_the_puts_once(way: PackedPuts) -> None:
    """Batch 1 has two buffers and batch 2 has one, all with puts of the same replica, which leaves once."""
    held, unsent = replica(targets=(BEN,), sync=(BEN,)), list[MapReplica]()
    one, other = AckBatch(1, 0), AckBatch(2, 0)
    for batch in (one, one, other):
        store(held, (b"k", b"v"))
        way.close(batch, [held], {}, unsent, set())
    assert unsent == [held]
    lay_out(way, unsent)
    ((in_one, puts),) = one.records[0]
    assert (in_one, puts.count if isinstance(puts, Puts) else 0) == (held, 3)
    assert other.records[0] == one.records[0]
    assert unsent_of(held).parts == []


def test_two_maps_of_a_partition_share_a_part_of_the_batch(way: PackedPuts) -> None:
    maps = [replica("m", targets=(BEN,), sync=(BEN,)), replica("n", targets=(CAL,), sync=(CAL,))]
    batch, unsent = AckBatch(1, 0), list[MapReplica]()
    for held in maps:
        store(held, (b"k", b"v"))
    way.close(batch, maps, {}, unsent, set())
    assert unsent == maps
    assert batch.need == {BEN: {0}, CAL: {0}}
    lay_out(way, unsent)
    assert [held for held, _ in batch.records[0]] == maps


def test_a_map_of_an_earlier_batch_joins_a_batch_that_has_the_partition_already(way: PackedPuts) -> None:
    """Batch 1 has a put in m. Batch 2 begins with n, of the same partition, and has another put in m."""
    first, second = replica("m"), replica("n")
    one, other, unsent = AckBatch(1, 0), AckBatch(2, 0), list[MapReplica]()
    store(first, (b"k", b"v"))
    way.close(one, [first], {}, unsent, set())
    for held in (second, first):
        store(held, (b"k", b"v"))
    way.close(other, [second, first], {}, unsent, set())
    lay_out(way, unsent)
    assert [held for held, _ in one.records[0]] == [first]
    assert [held for held, _ in other.records[0]] == [first, second]


def test_a_second_buffer_of_a_batch_may_write_to_further_maps(way: PackedPuts) -> None:
    first, second = replica("m", targets=(BEN,), sync=(BEN,)), replica("n", targets=(CAL,), sync=(CAL,))
    batch, unsent = AckBatch(1, 0), list[MapReplica]()
    store(first, (b"k", b"v"))
    way.close(batch, [first], {}, unsent, set())
    for held in (first, second):
        store(held, (b"k", b"v"))
    way.close(batch, [first, second], {}, unsent, set())
    assert (unsent, batch.need) == ([first, second], {BEN: {0}, CAL: {0}})


def test_a_replica_whose_puts_have_left_already_is_waited_for_and_not_sent_again(way: PackedPuts) -> None:
    """A record of the same buffer has taken them along (store/U-1)."""
    held, unsent = replica(targets=(BEN,), sync=(BEN,)), list[MapReplica]()
    store(held, (b"k", b"v"))
    unsent_of(held).take(held, held.updates.hwm)
    batch = AckBatch(1, 0)
    assert way.close(batch, [held], {}, unsent, set()) == 0
    assert (unsent, unsent_of(held).parts, batch.need) == ([], [], {BEN: {0}})


def test_a_batch_waits_for_each_backup_according_to_its_kind(way: PackedPuts) -> None:
    """Ben is a sync backup, Cal an async one, and Dan an async one that is slow (primary_backup/K-3)."""
    batch = AckBatch(1, 0)
    for partition in (0, 2):
        held = replica(partition=partition, targets=(BEN, CAL, DAN), sync=(BEN,))
        store(held, (b"k", b"v"))
        way.close(batch, [held], {}, [], {DAN})
    both = {0, 2}
    assert (batch.need, batch.late, batch.slow_async) == ({BEN: both}, {CAL: both}, {DAN: both})


@pytest.mark.rule("primary_backup/P-4")
@pytest.mark.parametrize(("journal", "waits"), [("off", False), ("lazy", False), ("sync", True)])
def test_a_batch_waits_for_the_disk_if_a_map_is_journalled_synchronously(
    way: PackedPuts, journal: JournalMode, *, waits: bool
) -> None:
    batch, held = AckBatch(1, 0), replica(journal=journal)
    store(held, (b"k", b"v"))
    way.close(batch, [held], {}, [], set())
    assert batch.on_disk is not waits


def test_a_buffer_without_a_batch_leaves_its_puts_for_the_end_of_the_turn(way: PackedPuts) -> None:
    held, empty, unsent = replica(), replica("empty"), list[MapReplica]()
    store(held, (b"k", b"v"))
    store(empty)
    way.settle([held, empty], unsent)
    store(held, (b"key", b"value"))
    way.settle([held], unsent)
    assert unsent == [held]
    assert (counts(held), counts(empty)) == ((False, 2, 10), (False, 0, 0))


# -- the end of a turn


class Turn:
    """What leaves at the end of a turn."""

    def __init__(self) -> None:
        self.left: list[MapReplica] = []
        self.to: dict[str, Sections] = {}
        self.stored: list[tuple[int, int, Puts]] = []


ROWS = [Assignment(10 + partition, (ME, BEN)) for partition in range(4)]
TERMS = [5, 6, 7, 8]


def lay_out(way: PackedPuts, puts: list[MapReplica], tail_bytes: int = TAIL_BYTES) -> Turn:
    turn = Turn()
    turn.left = way.lay_out(puts, ROWS, TERMS, tail_bytes, turn.to, turn.stored)
    return turn


def ended(way: PackedPuts, *held: MapReplica) -> list[MapReplica]:
    """End the read buffer with the puts of these replicas."""
    unsent: list[MapReplica] = []
    way.settle(list(held), unsent)
    return unsent


def test_each_backup_gets_a_section_for_each_partition_with_all_its_maps(way: PackedPuts) -> None:
    maps = [
        replica("m", 0, targets=(BEN, CAL)),
        replica("n", 0, targets=(BEN,)),
        replica("m", 2, targets=(BEN,)),
    ]
    maps[0].updates = UpdateCounter(3)
    for held in maps:
        store(held, (b"k", held.name.encode()))
    turn = lay_out(way, ended(way, *maps))
    first, second = pack_puts("m", 3, [b"k"], [b"m"]), pack_puts("n", 0, [b"k"], [b"n"])
    third = pack_puts("m", 0, [b"k"], [b"m"])
    assert turn.to == {
        BEN: {0: Section(0, 10, [], 5, [first, second]), 2: Section(2, 12, [], 7, [third])},
        CAL: {0: Section(0, 10, [], 5, [first])},
    }
    assert (turn.left, turn.stored) == ([], [])
    assert [counts(held) for held in maps] == [(False, 0, 0)] * 3
    assert [unsent_of(held).count for held in maps] == [0, 0, 0]


def test_the_puts_of_a_later_turn_begin_where_the_former_ended(way: PackedPuts) -> None:
    held = replica(targets=(BEN,))
    for start in (0, 2):
        store(held, (b"a", b"1"), (b"b", b"2"))
        turn = lay_out(way, ended(way, held))
        assert turn.to[BEN][0].puts == [pack_puts("m", start, [b"a", b"b"], [b"1", b"2"])]


@pytest.mark.rule("store/U-2")
def test_puts_of_an_open_buffer_stay(way: PackedPuts) -> None:
    held, begun = replica(targets=(BEN,)), replica("begun")
    store(held, (b"k", b"v"))
    ended(way, held)
    store(held, (b"l", b"w"))
    unsent_of(begun).opened = True
    turn = lay_out(way, [held, begun])
    assert (turn.left, turn.to) == ([held, begun], {})
    assert (counts(held), unsent_of(held).count) == ((True, 1, 2), 2)


def test_a_replica_without_puts_is_dropped(way: PackedPuts) -> None:
    held = replica(targets=(BEN,))
    store(held, (b"k", b"v"))
    turn = lay_out(way, [replica(targets=(CAL,), journal="lazy"), *ended(way, held)])
    assert (turn.left, list(turn.to), turn.stored) == ([], [BEN], [])


@pytest.mark.parametrize(
    ("targets", "journal", "stays"), [((), "off", False), ((BEN,), "off", True), ((), "lazy", True)]
)
def test_updates_of_a_change_stream_leave_as_records_where_anything_leaves(
    way: PackedPuts, targets: tuple[str, ...], journal: JournalMode, *, stays: bool
) -> None:
    held = replica(targets=targets, journal=journal, changes=10_000)
    store(held, (b"k", b"v"))
    turn = lay_out(way, ended(way, held))
    assert turn.left == ([held] if stays else [])
    assert (turn.to, turn.stored) == ({}, [])
    assert bool(unsent_of(held).notes) is stays
    if not stays:
        assert held.tail is not None
        assert held.tail.since(0) == [(5, Record("m", 1, Change.SET, b"k", b"v", time_ms=9))]


@pytest.mark.parametrize("journal", ["off", "lazy", "sync"])
def test_puts_of_a_journalled_map_are_written_with_partition_and_term(
    way: PackedPuts, journal: JournalMode
) -> None:
    held = replica(partition=3, journal=journal)
    store(held, (b"k", b"v"))
    turn = lay_out(way, ended(way, held))
    assert turn.stored == ([] if journal == "off" else [(3, 8, pack_puts("m", 0, [b"k"], [b"v"]))])


@pytest.mark.parametrize(
    ("changes", "tail_bytes", "limit"), [(0, 0, None), (0, 700, 700), (900, 700, 900), (900, 0, 900)]
)
def test_the_tail_keeps_as_much_as_backups_or_the_change_stream_need(
    way: PackedPuts, changes: int, tail_bytes: int, limit: int | None
) -> None:
    held = replica(changes=changes)
    store(held, (b"k", b"v"))
    lay_out(way, ended(way, held), tail_bytes)
    assert (held.tail.limit if held.tail is not None else None) == limit


class Observer:
    """Notes the keys of each notification."""

    def __init__(self) -> None:
        self.seen: list[set[bytes]] = []

    def absorb(self, touched: dict[bytes, bytes | None], entries: object) -> None:
        self.seen.append(set(touched))

    def complete(self, entries: object) -> bool:
        return True


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_primary_notifies_observers_of_many_changes(way: PackedPuts, earlier: int) -> None:
    """Not before `FOLD_AT` keys have changed: until then the former values are kept."""
    held, observer = replica(), Observer()
    held.state.observe(observer)  # type: ignore[arg-type]
    keys = [b"%d" % number for number in range(FOLD_AT)]

    def change(*changed: bytes) -> None:
        assert held.state.touched is not None
        held.state.touched.update(dict.fromkeys(changed))
        store(held, (b"k", b"v"))
        lay_out(way, ended(way, held))

    change(*keys[: FOLD_AT - earlier])
    assert observer.seen == ([] if earlier else [set(keys)])
    if earlier:
        change(*keys[-earlier:])
        assert observer.seen == [set(keys)]


def test_a_tail_that_is_not_needed_any_more_does_not_grow(way: PackedPuts) -> None:
    """The change stream of the map was switched off."""
    held = replica(changes=10_000)
    store(held, (b"k", b"v"))
    lay_out(way, ended(way, held), tail_bytes=0)
    held.changes = 0
    store(held, (b"k", b"v"))
    lay_out(way, ended(way, held), tail_bytes=0)
    assert held.tail is not None
    assert (held.tail.end, held.counter) == (1, 2)


def test_packed_puts_after_a_record_belong_to_the_map(way: PackedPuts) -> None:
    held = replica()
    record = Record("m", held.updates.next(), Change.REMOVE, b"k")
    held.keep(TERMS[0], [record], TAIL_BYTES)
    store(held, (b"k", b"v"))
    lay_out(way, ended(way, held))
    assert held.tail is not None
    assert [(one.map, one.counter) for _, one in held.tail.since(0)] == [("m", 1), ("m", 2)]


def test_puts_of_a_new_term_are_of_that_term(way: PackedPuts) -> None:
    """The number of the term is also the counter at which the former one began."""
    held = replica()
    held.updates = UpdateCounter(3)
    for term in (2, 3):
        store(held, (b"k", b"v"))
        way.lay_out(ended(way, held), ROWS, [term], TAIL_BYTES, {}, [])
    assert held.tail is not None
    assert held.tail.terms == [(2, 3), (3, 4)]


FIELDS = (
    "end",
    "limit",
    "run_bytes",
    "run_data",
    "run_most",
    "run_notes",
    "run_sizes",
    "size",
    "start",
    "terms",
)


def content(tail: Tail | None) -> list[object]:
    """All of a tail, without joining anything."""
    assert tail is not None
    return [list(tail._pieces), *(getattr(tail, name) for name in FIELDS)]


@pytest.mark.rule("store/H-1", "store/H-2")
@pytest.mark.parametrize("limit", [40, 400, 4000, TAIL_BYTES])
@pytest.mark.parametrize("seed", range(5))
def test_a_tail_of_packed_puts_is_what_the_tail_itself_would_make(
    way: PackedPuts, seed: int, limit: int
) -> None:
    """With new terms, gaps, records in between, and updates with and without a change stream."""
    draw = random.Random(f"{seed}/{limit}")
    held, expected = replica(), Tail(limit)
    terms = [1]
    for turn in range(120):
        match draw.randrange(20):
            case 0:
                terms[0] += 1
            case 1:
                held.updates = UpdateCounter(held.updates.lwm + 3)
            case 2:
                held.changes = 0 if held.changes else limit
            case 3:
                record = Record("m", held.updates.next(), Change.REMOVE, b"k")
                held.keep(terms[0], [record], limit)
                expected.add(terms[0], [record])
            case _:
                pass
        store(held, *[(b"%d" % turn, bytes(draw.randrange(30))) for _ in range(draw.randint(1, 3))])
        expected.add_puts(terms[0], unsent_of(held).pending(held, held.updates.hwm))
        assert way.lay_out(ended(way, held), ROWS, terms, limit, {}, []) == []
        assert content(held.tail) == content(expected)


# -- at the backup


def backup(*, table: bool = False) -> PartitionCopy:
    """Holds updates 1 to 3 of the maps m and n, of term 5."""
    copy = PartitionCopy(0, 0, entries=Packed) if table else PartitionCopy(0, 0)
    for name in ("m", "n"):
        held = copy.open(name)
        held.enter(5)
        held.updates = UpdateCounter(3)
    return copy


def section(*puts: Puts, records: Sequence[Record] = (), version: int = 10, term: int = 5) -> Section:
    return Section(0, version, list(records), term, list(puts))


def take(
    way: PackedPuts,
    copy: PartitionCopy,
    *sections: Section,
    sender: MemberId = BEN,
    row: Assignment = Assignment(10, (BEN, ME)),  # noqa: B008 -- frozen
    filling: Sequence[int] = (),
    tail_bytes: int = TAIL_BYTES,
) -> tuple[list[Section], list[Section]]:
    return way.take(list(sections), sender, ME, [row], filling, {0: copy}, NOW_NS, tail_bytes)


NEXT = pack_puts("m", 3, [b"k", b"l"], [b"v", b"w"])


@pytest.mark.parametrize("table", [False, True])
def test_a_backup_applies_the_next_updates_of_a_map(way: PackedPuts, *, table: bool) -> None:
    copy = backup(table=table)
    usual = section(NEXT)
    assert take(way, copy, usual) == ([usual], [])
    held = copy.maps["m"]
    assert held.state.entries == {b"k": b"v", b"l": b"w"}
    assert (held.updates.lwm, held.updates.hwm, held.lineage) == (5, 5, [(5, 0)])
    assert held.tail is not None
    assert (held.tail.limit, held.tail.start) == (TAIL_BYTES, 3)
    assert held.tail.since(3) == [(5, record) for record in NEXT.records()]


OTHERS = [
    pytest.param(section(), {}, id="no puts"),
    pytest.param(section(NEXT, pack_puts("n", 3, [b"k"], [b"v"])), {}, id="two maps"),
    pytest.param(section(NEXT, records=[Record("n", 4, Change.REMOVE, b"k")]), {}, id="records"),
    pytest.param(section(NEXT, version=9), {}, id="older version"),
    pytest.param(section(NEXT, version=11), {}, id="newer version"),
    pytest.param(section(NEXT), {"row": Assignment(10, ())}, id="no replicas"),
    pytest.param(section(NEXT), {"row": Assignment(10, (CAL, ME))}, id="another primary"),
    pytest.param(section(NEXT), {"row": Assignment(10, (CAL, BEN, ME))}, id="sender is a backup"),
    pytest.param(section(NEXT), {"row": Assignment(10, (BEN, CAL))}, id="no replica here"),
    pytest.param(section(NEXT), {"filling": (1, 0)}, id="being filled"),
    pytest.param(section(pack_puts("new", 0, [b"k"], [b"v"])), {}, id="unknown map"),
    pytest.param(section(pack_puts("m", 2, [b"k"], [b"v"])), {}, id="held already"),
    pytest.param(section(pack_puts("m", 4, [b"k"], [b"v"])), {}, id="gap"),
]


@pytest.mark.rule("primary_backup/B-1", "primary_backup/B-2")
@pytest.mark.parametrize(("other", "options"), OTHERS)
def test_a_backup_leaves_every_other_section_untouched(
    way: PackedPuts, other: Section, options: dict[str, object]
) -> None:
    """In a message with a usual section before and after it, where these can be."""
    copy = backup()
    assert take(way, copy, other, **options) == ([], [other])  # type: ignore[arg-type]
    assert [(held.updates.lwm, held.state.entries, held.tail) for held in copy.maps.values()] == [
        (3, {}, None)
    ] * 2


def test_sections_are_sorted_in_their_order(way: PackedPuts) -> None:
    usual = [section(pack_puts("m", start, [b"k"], [b"v"])) for start in (3, 4)]
    others = [section(pack_puts("m", start, [b"k"], [b"v"])) for start in (9, 2)]
    mixed = [others[0], usual[0], others[1], usual[1]]
    assert take(way, backup(), *mixed) == (usual, others)


def test_a_partition_without_a_copy_here_is_left_alone(way: PackedPuts) -> None:
    usual = section(NEXT)
    found = way.take([usual], BEN, ME, [Assignment(10, (BEN, ME))], (), {}, NOW_NS, TAIL_BYTES)
    assert found == ([], [usual])


@pytest.mark.rule("primary_backup/B-2")
def test_a_copy_with_a_later_update_from_its_disk_is_left_alone(way: PackedPuts) -> None:
    copy = backup()
    copy.maps["m"].updates.update(8)
    for start in (3, 9):
        usual = section(pack_puts("m", start, [b"k"], [b"v"]))
        assert take(way, copy, usual) == ([], [usual])


@pytest.mark.parametrize(
    ("term", "lineage"), [(5, [(5, 0)]), (4, [(5, 0)]), (6, [(5, 0), (6, 3)])], ids=["same", "older", "newer"]
)
def test_updates_of_a_newer_term_begin_it(way: PackedPuts, term: int, lineage: list[tuple[int, int]]) -> None:
    copy = backup()
    take(way, copy, section(NEXT, term=term))
    assert copy.maps["m"].lineage == lineage


def test_a_newer_term_may_be_lower_than_the_counter_at_which_the_former_one_began(way: PackedPuts) -> None:
    copy = PartitionCopy(0, 0)
    held = copy.open("m")
    held.updates = UpdateCounter(9)
    held.enter(5)
    held.updates = UpdateCounter(10)
    take(way, copy, section(pack_puts("m", 10, [b"k"], [b"v"]), term=7))
    assert held.lineage == [(5, 9), (7, 10)]


def test_the_first_updates_of_a_map_begin_its_lineage(way: PackedPuts) -> None:
    copy = PartitionCopy(0, 0)
    copy.open("m")
    take(way, copy, section(pack_puts("m", 0, [b"k"], [b"v"]), term=6))
    assert copy.maps["m"].lineage == [(6, 0)]


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("earlier", [0, 1])
def test_a_backup_notifies_observers_of_many_changes(way: PackedPuts, earlier: int, *, table: bool) -> None:
    """Not before `FOLD_AT` keys have changed: until then the former values are kept."""
    copy = backup(table=table)
    observer = Observer()
    copy.maps["m"].state.observe(observer)  # type: ignore[arg-type]
    keys = [b"%d" % number for number in range(FOLD_AT)]
    first = FOLD_AT - earlier
    take(way, copy, section(pack_puts("m", 3, keys[:first], [b"v"] * first)))
    assert observer.seen == ([] if earlier else [set(keys)])
    if earlier:
        take(way, copy, section(pack_puts("m", 3 + first, keys[first:], [b"v"])))
        assert observer.seen == [set(keys)]


@pytest.mark.parametrize(
    ("changes", "tail_bytes", "limit"), [(0, 0, None), (0, 700, 700), (900, 700, 900), (900, 0, 900)]
)
def test_the_tail_of_a_backup_is_as_long_as_that_of_its_primary(
    way: PackedPuts, changes: int, tail_bytes: int, limit: int | None
) -> None:
    copy = backup()
    held = copy.maps["m"]
    held.changes = changes
    take(way, copy, section(NEXT), tail_bytes=tail_bytes)
    assert (held.tail.limit if held.tail is not None else None) == limit
    assert held.counter == 5


def test_puts_are_not_changed_by_the_next_turn(way: PackedPuts) -> None:
    held = replica(targets=(BEN,), changes=0)
    store(held, (b"k", b"v"))
    sent = lay_out(way, ended(way, held)).to[BEN][0].puts
    store(held, (b"l", b"w"))
    lay_out(way, ended(way, held))
    assert sent == [pack_puts("m", 0, [b"k"], [b"v"])]
    assert not isinstance(sent[0], Changes)

"""What a restart is not sure of, and why; and what of the journal is void."""

from __future__ import annotations

import pytest

from holdfast.core.journal.recovery import Recovered, RecoveredGroup, Recovery
from holdfast.core.model.ids import GROUPS_FROM, MILLISECOND, MemberId
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    GroupWrote,
    MapSnapshot,
    Meta,
    Seen,
    Snapshot,
    TableAssignments,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, pack_puts
from holdfast.core.model.update_counter import GAPS_MAX, UpdateCounter
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.store.request_ids import mark_of

BEGINNING = "what it held before its records in the journal is missing"


def put(counter: int, key: bytes = b"k", name: str = "m", **more: object) -> Record:
    return Record(name, counter, Change.SET, key, b"v", **more)  # type: ignore[arg-type]


def snapshot(partition: int = 0, counter: int = 1, **more: object) -> Snapshot:
    one = MapSnapshot("m", [(4, 0)], UpdateCounter(counter).encode(), [b"old"], [b"v"])
    return Snapshot(partition, 0, [one], **more)  # type: ignore[arg-type]


class Reading(Recovery):
    """A recovery that answers what it has found."""

    def __init__(self) -> None:
        super().__init__(0, 0)

    def found(self) -> Recovered:
        recovered = Recovered("s", 1, "")
        self.finish(recovered)
        return recovered

    def keys(self, partition: int = 0) -> list[bytes]:
        copy = self.found().copies.get(partition)
        return sorted(key for held in copy.maps.values() for key in held.state.entries) if copy else []


# -- checkpoints that cannot be had


@pytest.mark.parametrize("order", [(5, 3), (3, 5)])
def test_of_checkpoints_that_cannot_be_had_the_newest_is_told(order: tuple[int, int]) -> None:
    reading = Reading()
    for lsn in order:
        reading.missing(0, lsn, f"of {lsn}")
    reading.missing(1, 0, "another")
    assert reading.found().uncertain == {0: "of 5", 1: "another"}
    reading.missing(0, 5, "of 5, again")
    assert reading.found().uncertain[0] == "of 5, again"


@pytest.mark.rule("journal/R-4")
def test_a_copy_of_an_older_checkpoint_is_uncertain() -> None:
    reading = Reading()
    reading.base(snapshot(), 2, "old file")
    reading.missing(0, 5, "damaged")
    found = reading.found()
    assert (reading.keys(), found.uncertain, found.whole) == ([b"old"], {0: "damaged"}, True)


@pytest.mark.parametrize(("lsn", "doubted"), [(5, True), (6, True), (7, False)])
@pytest.mark.parametrize("how", [[Began(0, 0)], [Dropped(0)], []])
def test_a_partition_that_begins_anew_later_is_certain(how: list[Entry], lsn: int, *, doubted: bool) -> None:
    """`lsn`: where it begins; the checkpoint was of the blocks up to 6."""
    reading = Reading()
    reading.missing(0, 6, "damaged")
    if how:
        reading.block(lsn, how)
    else:
        reading.void(0, lsn)
    assert reading.found().uncertain == ({0: "damaged"} if doubted else {})
    reading = Reading()
    if how:
        reading.block(lsn, how)
    else:
        reading.void(0, lsn)
    reading.missing(0, 6, "damaged")
    assert reading.found().uncertain == ({0: "damaged"} if doubted else {})


def test_records_without_a_beginning_are_told_until_the_partition_begins() -> None:
    reading = Reading()
    reading.block(1, [Wrote(0, 4, [put(1)]), Wrote(1, 4, [put(1)]), Wrote(2, 4, [put(1)])])
    reading.block(2, [Began(1, 0), Dropped(2)])
    reading.block(3, [Wrote(0, 4, [put(2)])])
    assert reading.found().uncertain == {0: BEGINNING}
    reading.void(0, 3)
    assert reading.found().uncertain == {}
    assert reading.found().copies.keys() == {1}


def test_all_reasons_are_told() -> None:
    reading = Reading()
    reading.base(snapshot(), 2, "file")
    reading.missing(0, 5, "damaged")
    reading.block(3, [Wrote(0, 4, [put(7), put(3, name="n")])])
    reading.lost(9, "a hole")
    reading.lost(12, "another hole")
    assert reading.found().uncertain[0] == (
        "damaged; a hole; map 'm': updates 2 to 6 are missing; map 'n': updates 1 to 2 are missing"
    )


# -- what counts of the journal beside a checkpoint


def test_what_the_checkpoint_holds_is_not_taken_again_from_its_blocks() -> None:
    reading = Reading()
    reading.base(snapshot(), 3, "file")
    reading.block(2, [Began(0, 9), Wrote(0, 4, [put(2, b"two")])])
    reading.block(3, [Dropped(0), Dropped(0, "m"), Began(0, 9), Wrote(0, 4, [put(2, b"three")])])
    assert (reading.keys(), reading.found().copies[0].epoch) == ([b"old"], 0)
    reading.block(4, [Wrote(0, 4, [put(2, b"four")])])
    assert reading.keys() == [b"four", b"old"]
    reading.block(5, [Began(0, 9), Wrote(0, 5, [put(1, b"five")])])
    assert (reading.keys(), reading.found().copies[0].epoch) == ([b"five"], 9)
    assert reading.found().uncertain == {}


def test_a_map_that_is_dropped_may_begin_again() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0), Wrote(0, 4, [put(1, b"a"), put(3, b"c"), put(1, b"n", "n")])])
    assert reading.found().uncertain == {0: "map 'm': updates 2 to 2 are missing"}
    reading.block(2, [Wrote(0, 4, [put(2, b"b")])])
    assert reading.keys() == [b"a", b"n"], "what is stopped stays as it was"
    reading.block(3, [Dropped(0, "m"), Dropped(7, "m")])
    assert (reading.keys(), reading.found().uncertain) == ([b"n"], {})
    reading.block(4, [Wrote(0, 4, [put(1, b"again")])])
    assert reading.keys() == [b"again", b"n"]


def test_a_copy_that_has_ended_keeps_what_it_had() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0), Wrote(0, 4, [put(1, b"a")])])
    reading.lost(3, "a hole")
    reading.block(3, [Dropped(0, "m"), Wrote(0, 4, [put(2, b"b")])])
    assert (reading.keys(), reading.found().uncertain) == ([b"a"], {0: "a hole"})
    reading.block(4, [Dropped(0)])
    assert reading.found().copies == {}
    assert reading.found().uncertain == {}
    assert not reading.found().whole


@pytest.mark.parametrize(("until", "ends"), [(5, False), (6, False), (7, True)])
def test_lost_blocks_count_from_the_end_of_the_checkpoint_on(until: int, *, ends: bool) -> None:
    reading = Reading()
    reading.base(snapshot(), 5, "file")
    reading.lost(until, "a hole")
    assert reading.found().uncertain == ({0: "a hole"} if ends else {})
    assert not reading.found().whole


def test_lost_blocks_are_not_lost_twice() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0)])
    reading.lost(5, "damaged")
    reading.lost(4, "damaged")
    reading.block(5, [Began(1, 0)])
    assert reading.found().uncertain == {0: "damaged"}


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([Checkpointed(0, 6, "file"), Checkpointed(1, 9, "other"), Checkpointed(7, 9, "")], ""),
        ([Checkpointed(0, 6, "file"), Checkpointed(7, 9, "is gone")], ""),
        ([Checkpointed(0, 5, "file"), Checkpointed(1, 9, "other")], "blocks before 7"),
        ([Checkpointed(0, 6, "elsewhere"), Checkpointed(1, 9, "other")], "blocks before 7"),
        ([Checkpointed(0, 6, ""), Checkpointed(1, 9, "other")], "blocks before 7"),
        ([Checkpointed(1, 9, "other")], "blocks before 7"),
        ([Checkpointed(0, 6, "file")], ""),
    ],
)
def test_a_journal_may_begin_where_every_checkpoint_holds_all_that_was_before(
    entries: list[Entry], why: str
) -> None:
    reading = Reading()
    reading.base(snapshot(0), 3, "file")
    reading.base(snapshot(1), 8, "other")
    reading.block(7, entries)
    found = reading.found()
    assert found.whole is (why == "")
    assert found.uncertain.keys() == ({0} if why else set())
    assert why in found.uncertain.get(0, "")


def test_a_journal_that_begins_late_and_says_nothing_has_lost_what_was_before() -> None:
    reading = Reading()
    reading.block(7, [])
    assert reading.found().whole, "nothing is held that could miss it"
    reading.block(9, [])
    assert not reading.found().whole


def test_a_checkpoint_is_never_older_than_it_was() -> None:
    reading = Reading()
    reading.base(snapshot(), 5, "file")
    reading.block(1, [Checkpointed(0, 2, "file")])
    reading.block(2, [])
    reading.block(3, [Wrote(0, 4, [put(2, b"two")])])
    assert reading.keys() == [b"old"]


# -- rows, views, whose files


def test_the_newest_row_and_the_newest_view_count_whatever_their_order() -> None:
    a, b = Assignment(5, (MemberId("a"),)), Assignment(5, (MemberId("a"),), 1)
    reading = Reading()
    reading.block(1, [TableAssignments([(0, a), (1, a)]), Seen(View(7, "id", []))])
    reading.block(2, [TableAssignments([(0, Assignment(4)), (1, b)]), Seen(View(6, "id", []))])
    found = reading.found()
    assert found.rows == {0: a, 1: b}
    assert found.view == View(7, "id", [])
    reading.block(3, [Seen(View(7, "other", []))])
    assert reading.found().view == View(7, "other", [])


def test_whose_files_members_had_is_known_from_views_and_else_from_the_first_entry() -> None:
    def member(name: str, store: str) -> MemberInfo:
        return MemberInfo(MemberId(name), 1, "host", 1, "host", 2, name, store=store)

    reading = Reading()
    reading.block(1, [Meta("s", 1, "id", {MemberId("a"): "first", MemberId("c"): "c"})])
    reading.block(2, [Seen(View(1, "id", [member("a", "newer"), member("b", "")]))])
    reading.block(3, [Meta("s", 1, "", {MemberId("a"): "later", MemberId("b"): "b"})])
    found = reading.found()
    assert found.stores == {"a": "newer", "b": "b", "c": "c"}
    assert found.cluster_id == "id"
    reading.block(4, [Meta("s", 1, "next", {})])
    assert reading.found().cluster_id == "next"
    known = Recovered("s", 1, "known")
    known.whole = False
    reading.finish(known)
    assert (known.cluster_id, known.whole) == ("known", False)


# -- records


def test_updates_of_services_are_kept_and_requests_are_known() -> None:
    reading = Reading()
    first, second, third = (mark_of(name, None) for name in (b"1", b"2", b"3"))
    reading.base(snapshot(requests=b""), 0, "file")
    reading.block(
        1,
        [
            Wrote(
                0,
                4,
                [
                    Record("__service:s", 1, Change.CALL, b"", b"update", request=first),
                    put(2, request=second),
                    put(7, request=third),
                ],
            )
        ],
    )
    copy = reading.found().copies[0]
    assert [copy.requests.knows(name) for name in (b"1", b"2", b"3")] == [True, True, True]
    assert copy.maps["m"].counter == 2
    assert "__service:s" not in copy.maps
    assert copy.services["__service:s"].counter == 1
    assert list(copy.services["__service:s"].state.share.supply()) == [b"update"]
    kept = snapshot(1, requests=copy.requests.encode())
    reading.base(kept, 0, "file")
    assert reading.found().copies[1].requests.knows(b"2")


def test_what_is_held_already_may_be_of_a_term_that_nobody_knows_any_more() -> None:
    one = MapSnapshot("m", [(4, 3)], UpdateCounter(5).encode(), [], [])
    reading = Reading()
    reading.base(Snapshot(0, 0, [one]), 0, "file")
    reading.block(1, [Wrote(0, 2, [put(3)])])
    assert reading.found().uncertain == {}
    reading.block(2, [Wrote(0, 2, [put(4)])])
    assert reading.found().uncertain == {0: "map 'm': update 4 is of term 4, and of term 2"}


def test_a_lower_term_does_not_follow_and_an_equal_one_does() -> None:
    reading = Reading()
    reading.base(snapshot(), 0, "file")
    reading.block(1, [Wrote(0, 4, [put(2, b"two")]), Wrote(0, 5, [put(3, b"three")])])
    assert (reading.keys(), reading.found().uncertain) == ([b"old", b"three", b"two"], {})
    assert reading.found().copies[0].maps["m"].lineage == [(4, 0), (5, 2)]
    reading.block(2, [Wrote(0, 4, [put(4, b"four")])])
    assert reading.found().uncertain == {0: "map 'm': update 4 of term 4 comes after term 5"}


def test_columns_of_a_checkpoint_give_each_entry_what_is_its_own() -> None:
    one = MapSnapshot(
        "m",
        [(4, 0)],
        UpdateCounter(3).encode(),
        [b"a", b"b", b"c"],
        [b"1", b"2", b"3"],
        [1000, 0, 0],
        [0, 700, 0],
        [0, 77, 0],
    )
    recovery = Recovery(5000 * MILLISECOND, 20_000)
    recovery.base(Snapshot(0, 0, [one], wall_ms=19_900), 0, "file")
    found = Recovered("s", 1, "")
    recovery.finish(found)
    held = found.copies[0].maps["m"]
    assert held.state.entries == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert held.state.hashes == {b"b": 77}
    assert held.state.expiries.keys() == {b"a", b"b"}
    assert held.state.expiries[b"a"].deadline_ns() == (5000 - 100 + 1000) * MILLISECOND
    assert held.state.expiries[b"b"].deadline_ns() == (5000 + 700) * MILLISECOND


@pytest.mark.parametrize(("ttls", "idles"), [([1000, 0], []), ([], [1000, 0])])
def test_either_column_alone_will_do(ttls: list[int], idles: list[int]) -> None:
    one = MapSnapshot("m", [(4, 0)], UpdateCounter(2).encode(), [b"a", b"b"], [b"1", b"2"], ttls, idles)
    recovery = Reading()
    recovery.base(Snapshot(0, 0, [one]), 0, "file")
    expiries = recovery.found().copies[0].maps["m"].state.expiries
    assert {key: expiry.deadline_ns() for key, expiry in expiries.items()} == {b"a": 1000 * MILLISECOND}


def test_records_with_times_and_hashes_are_stored_with_them() -> None:
    recovery = Recovery(0, 10_000)
    records = [
        put(1, b"a"),
        put(2, b"b", key_hash=5),
        put(3, b"c", max_idle_ms=50),
        put(4, b"d", ttl_ms=1000),
        put(5, b"e"),
        Record("m", 6, Change.REMOVE, b"a", b""),
    ]
    recovery.block(1, [Began(0, 0), Wrote(0, 4, records, 9_900)])
    found = Recovered("s", 1, "")
    recovery.finish(found)
    held = found.copies[0].maps["m"]
    assert sorted(held.state.entries) == [b"b", b"c", b"d", b"e"]
    assert held.state.hashes == {b"b": 5}
    assert held.state.expiries[b"d"].deadline_ns() == 900 * MILLISECOND
    assert held.state.expiries[b"c"].accessed_ns == 0
    assert held.counter == 6


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_an_entry_that_was_set_without_an_end_after_one_with_an_end_does_not_end(blocks: int) -> None:
    """However its records lie in blocks: it would be gone after the restart, a while later."""
    records = [put(1), put(2, b"a", ttl_ms=1000), put(3, b"a"), put(4, b"b")]
    size = len(records) // blocks
    reading = Reading()
    reading.block(1, [Began(0, 0)])
    for number in range(blocks):
        reading.block(2 + number, [Wrote(0, 4, records[number * size : (number + 1) * size])])
    held = reading.found().copies[0].maps["m"]
    assert (held.state.expiries, sorted(held.state.entries), held.counter) == ({}, [b"a", b"b", b"k"], 4)


def test_nothing_follows_a_hole_in_a_block_either() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0), Wrote(0, 4, [put(1, b"a")])])
    reading.block(2, [Wrote(0, 4, [put(2, b"b"), put(4, b"after the hole"), put(3, b"late")])])
    assert reading.keys() == [b"a", b"b"]


@pytest.mark.parametrize("before", [[], [put(7)]])
def test_a_gap_of_a_checkpoint_that_is_filled_is_none_any_more(before: list[Record]) -> None:
    counter = UpdateCounter(3)
    counter.update(4)
    one = MapSnapshot("m", [(4, 0)], counter.encode(), [], [])
    reading = Reading()
    reading.base(Snapshot(0, 0, [one]), 0, "file")
    reading.block(1, [Wrote(0, 4, [*before, put(4)])])
    updates = reading.found().copies[0].maps["m"].updates
    assert (updates.lwm, updates.gaps()) == (5, [(5, 1)] if before else [])
    assert updates.hwm == (7 if before else 5)


def test_terms_are_compared_with_terms() -> None:
    """What began at the number 4 is not of term 4."""
    one = MapSnapshot("m", [(7, 4)], UpdateCounter(5).encode(), [], [])
    reading = Reading()
    reading.base(Snapshot(0, 0, [one]), 0, "file")
    reading.block(1, [Wrote(0, 4, [put(6)])])
    assert reading.found().uncertain == {0: "map 'm': update 6 of term 4 comes after term 7"}
    assert reading.keys() == []


def test_records_with_more_gaps_than_may_be_are_not_believed() -> None:
    counter = UpdateCounter(1)
    for number in range(GAPS_MAX):
        counter.update(2 * number + 2)
    one = MapSnapshot("m", [(4, 0)], counter.encode(), [], [])
    reading = Reading()
    reading.base(Snapshot(0, 0, [one]), 0, "file")
    reading.block(1, [Wrote(0, 4, [put(3 * GAPS_MAX), put(2, b"late")])])
    assert reading.found().uncertain == {0: f"map 'm': more than {GAPS_MAX} gaps after 1"}
    assert reading.keys() == []


def test_who_has_found_nothing_wrong_says_so() -> None:
    found = Reading().found()
    assert (found.whole, found.behind, found.damage, found.uncertain) == (True, False, [], {})


# -- maps that begin again, and packed stores


def begin(counter: int, name: str = "m") -> Record:
    return Record(name, counter, Change.BEGIN, b"")


def test_a_map_that_was_forgotten_begins_again_with_nothing() -> None:
    reading = Reading()
    reading.base(snapshot(counter=3), 0, "file")
    reading.block(1, [Wrote(0, 5, [begin(9), put(10, b"new")])])
    held = reading.found().copies[0].maps["m"]
    assert (reading.keys(), held.lineage, held.counter) == ([b"new"], [(5, 8)], 10)
    assert reading.found().uncertain == {}
    reading.block(2, [Wrote(0, 5, [begin(9)])])
    assert reading.keys() == [b"new"], "it has begun already"


def test_a_map_that_begins_again_after_a_hole_lacks_nothing() -> None:
    reading = Reading()
    reading.base(snapshot(), 0, "file")
    reading.block(1, [Wrote(0, 4, [put(7)])])
    assert "updates 2 to 6 are missing" in reading.found().uncertain[0]
    reading.block(2, [Wrote(0, 5, [begin(8), put(9, b"new")])])
    assert (reading.keys(), reading.found().uncertain) == ([b"new"], {})


@pytest.mark.rule("journal/R-2")
def test_the_beginning_that_a_map_had_already_fills_no_hole() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0), Wrote(0, 5, [begin(1), put(2, b"two"), put(7, b"seven")])])
    assert "updates 3 to 6 are missing" in reading.found().uncertain[0]
    reading.block(2, [Wrote(0, 5, [begin(1)])])
    assert "updates 3 to 6 are missing" in reading.found().uncertain[0]
    assert reading.keys() == [b"two"]


def test_packed_stores_of_an_older_term_do_not_follow() -> None:
    reading = Reading()
    reading.base(snapshot(), 0, "file")
    reading.block(1, [Wrote(0, 5, [put(2, b"two")])])
    reading.block(2, [WrotePuts(0, 4, pack_puts("m", 2, [b"three"], [b"v"]))])
    assert reading.keys() == [b"old", b"two"]
    assert "update 3 of term 4 comes after term 5" in reading.found().uncertain[0]
    reading.block(3, [WrotePuts(0, 5, pack_puts("m", 2, [b"three"], [b"v"]))])
    assert reading.keys() == [b"old", b"two"], "nothing follows a hole"


def call(counter: int, data: bytes, request: bytes = b"") -> Record:
    return Record("__service:s", counter, Change.CALL, b"", data, request=request)


def test_a_hole_ends_a_service_too() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0), Wrote(0, 4, [call(1, b"one"), call(2, b"two")])])
    assert reading.found().uncertain == {}
    reading.block(2, [Wrote(0, 4, [call(5, b"five")])])
    reading.block(3, [Wrote(0, 4, [call(3, b"three")])])
    found = reading.found()
    assert "updates 3 to 4 are missing" in found.uncertain[0]
    service = found.copies[0].services["__service:s"]
    assert list(service.state.share.supply()) == [b"one", b"two"]


def test_a_service_that_is_dropped_is_not_held() -> None:
    reading = Reading()
    reading.block(1, [Began(0, 0), Wrote(0, 4, [call(1, b"one")])])
    reading.block(2, [Dropped(0, "other")])
    assert "__service:s" in reading.found().copies[0].services
    reading.block(3, [Dropped(0, "__service:s")])
    assert reading.found().copies[0].services == {}


# -- replicas of Raft groups

GROUP = GROUPS_FROM


def checkpoint(*pieces: bytes) -> Snapshot:
    return Snapshot(GROUP, 0, [MapSnapshot("", [], b"", [], list(pieces))])


def write(data: bytes) -> GroupWrote:
    return GroupWrote(GROUP, data)


def test_a_group_is_its_checkpoint_and_what_was_written_later() -> None:
    reading = Reading()
    reading.base(checkpoint(b"state", b"log"), 4, "file")
    for lsn in (3, 4, 5, 6):
        reading.block(lsn, [write(b"%d" % lsn)])
    found = reading.found()
    assert found.groups == {GROUP: RecoveredGroup([b"state", b"log"], [b"5", b"6"])}
    assert (found.copies, found.uncertain) == ({}, {})


def test_a_group_may_begin_in_the_journal() -> None:
    reading = Reading()
    reading.block(1, [Began(GROUP, 0), write(b"one")])
    reading.block(2, [write(b"two")])
    assert reading.found().groups == {GROUP: RecoveredGroup([], [b"one", b"two"])}
    reading.block(3, [Began(GROUP, 0), write(b"three")])
    assert reading.found().groups == {GROUP: RecoveredGroup([], [b"three"])}
    reading = Reading()
    reading.base(checkpoint(b"state"), 1, "file")
    reading.block(1, [Began(GROUP, 0)])
    assert reading.found().groups == {GROUP: RecoveredGroup([b"state"])}, "the checkpoint is newer"
    assert reading.found().copies == {}


def test_a_group_that_was_dropped_after_its_checkpoint_is_not_held() -> None:
    for lsn, held in ((4, True), (5, False)):
        reading = Reading()
        reading.base(checkpoint(b"state"), 4, "file")
        reading.block(lsn, [Dropped(GROUP)])
        assert (GROUP in reading.found().groups) is held


@pytest.mark.rule("journal/R-3")
def test_a_group_that_lost_blocks_is_in_doubt_and_takes_no_later_ones() -> None:
    for until, ends in ((5, False), (6, True)):
        reading = Reading()
        reading.base(checkpoint(b"state"), 4, "file")
        reading.block(4, [])
        reading.lost(until, "damaged")
        reading.block(until, [write(b"later")])
        (group,) = reading.found().groups.values()
        assert group.doubt.startswith("damaged") is ends
        assert group.writes == ([] if ends else [b"later"])


@pytest.mark.rule("journal/R-4")
def test_a_group_of_an_older_checkpoint_is_in_doubt_until_it_begins_again() -> None:
    reading = Reading()
    reading.base(checkpoint(b"state"), 4, "file")
    reading.missing(GROUP, 9, "unreadable")
    reading.block(4, [])
    reading.lost(7, "damaged")
    found = reading.found()
    assert found.groups[GROUP].doubt == "unreadable; damaged"
    assert found.uncertain == {}
    reading = Reading()
    reading.base(checkpoint(b"state"), 4, "file")
    reading.missing(GROUP, 5, "unreadable")
    reading.block(5, [])
    reading.block(6, [Began(GROUP, 0)])
    assert reading.found().groups == {GROUP: RecoveredGroup()}, "everything earlier is void"


def test_a_group_without_any_checkpoint_or_beginning_is_in_doubt() -> None:
    reading = Reading()
    reading.missing(GROUP, 5, "unreadable")
    reading.block(1, [write(b"one"), GroupWrote(GROUP + 1, b"one")])
    found = reading.found()
    assert found.groups == {
        GROUP: RecoveredGroup(doubt="unreadable"),
        GROUP + 1: RecoveredGroup(doubt=BEGINNING),
    }
    assert (found.uncertain, found.copies) == ({}, {})


def test_a_journal_may_begin_late_if_the_checkpoints_of_groups_hold_all_that_was_before() -> None:
    for first, whole in ((5, True), (6, False)):
        reading = Reading()
        reading.base(checkpoint(b"state"), 4, "file")
        reading.block(first, [write(b"later")])
        assert reading.found().whole is whole
    for file, whole in (("file", True), ("another", False)):
        reading = Reading()
        reading.base(checkpoint(b"state"), 4, "file")
        reading.block(9, [Checkpointed(GROUP, 8, file), write(b"later")])
        assert reading.found().whole is whole

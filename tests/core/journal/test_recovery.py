from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.journal.recovery import Recovered, Recovery
from holdfast.core.journal.snapshot import snapshot_of
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    MapSnapshot,
    Meta,
    Seen,
    Snapshot,
    TableAssignments,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record, as_puts
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.model.views import View
from holdfast.core.outbox import Outbox
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import map_replica
from holdfast_lab.sim.ablations.switching import ablated


def put(counter: int, key: bytes = b"k", value: bytes = b"v", name: str = "m") -> Record:
    return Record(name, counter, Change.SET, key, value)


def recovered(
    *blocks: tuple[int, list[Entry]],
    base: tuple[Snapshot, int] | None = None,
    lost: tuple[int, int] = (0, 0),
    now_ns: int = 0,
    wall_ms: int = 0,
) -> Recovered:
    """lost: before the first block from `lost[0]` on, the blocks up to `lost[1]` are lost."""
    recovery = Recovery(now_ns, wall_ms)
    if base is not None:
        recovery.base(base[0], base[1], "file")
    for lsn, entries in blocks:
        if lost[1] == lsn:
            recovery.lost(lost[1], "damaged")
        recovery.block(lsn, entries)
    found = Recovered("s", 1, "")
    recovery.finish(found)
    return found


def snapshot(counter: UpdateCounter, lineage: list[tuple[int, int]], **entries: bytes) -> Snapshot:
    keys = [key.encode() for key in entries]
    return Snapshot(0, 4, [MapSnapshot("m", lineage, counter.encode(), keys, list(entries.values()))])


@pytest.mark.rule("journal/R-1")
def test_records_are_applied_in_the_order_of_the_journal() -> None:
    found = recovered(
        (1, [Meta("s", 1, "c"), Began(0, 4), Wrote(0, 7, [put(1, b"a", b"1"), put(2, b"b", b"2")])]),
        (
            2,
            [Wrote(0, 7, [Record("m", 3, Change.REMOVE, b"a"), put(4, b"b", b"3"), put(1, b"x", b"y", "n")])],
        ),
        (3, [Wrote(0, 9, [put(5, b"c", b"4")])]),
    )
    copy = found.copies[0]
    assert copy.epoch == 4
    assert copy.maps["m"].state.entries == {b"b": b"3", b"c": b"4"}
    assert copy.maps["m"].lineage == [(7, 0), (9, 4)]
    assert copy.maps["m"].updates == UpdateCounter(5)
    assert copy.maps["m"].updates.hwm == 5
    assert copy.maps["m"].journal == "off"
    assert copy.maps["n"].counter == 1
    assert found.uncertain == {}
    assert found.whole
    assert found.cluster_id == "c"


def test_a_checkpoint_is_where_a_partition_begins() -> None:
    base = snapshot(UpdateCounter(5), [(7, 0)], a=b"1")
    old: list[Entry] = [Wrote(0, 6, [put(90)]), Dropped(0), Wrote(0, 7, [put(5, b"z")])]
    found = recovered((10, old), (11, [Wrote(0, 7, [put(6, b"b", b"2")])]), base=(base, 10))
    assert found.copies[0].maps["m"].state.entries == {b"a": b"1", b"b": b"2"}
    assert found.uncertain == {}


@pytest.mark.rule("journal/R-2")
def test_what_is_held_already_changes_nothing() -> None:
    base = snapshot(UpdateCounter(5), [(7, 0)], a=b"1")
    found = recovered((11, [Wrote(0, 7, [put(4, b"a", b"old"), put(5, b"a", b"old")])]), base=(base, 10))
    assert found.copies[0].maps["m"].state.entries == {b"a": b"1"}
    assert found.uncertain == {}


def test_another_update_under_the_same_number_is_noticed() -> None:
    base = snapshot(UpdateCounter(5), [(7, 0)], a=b"1")
    found = recovered((11, [Wrote(0, 8, [put(5, b"a", b"other")])]), base=(base, 10))
    assert found.copies[0].maps["m"].state.entries == {b"a": b"1"}
    assert "of term 7, and of term 8" in found.uncertain[0]


@pytest.mark.rule("journal/R-2")
def test_a_hole_ends_its_map_and_no_other() -> None:
    found = recovered(
        (1, [Began(0, 0), Wrote(0, 7, [put(1), put(3, b"lost"), put(4, b"lost"), put(1, b"n", b"n", "n")])]),
        (2, [Wrote(0, 7, [put(2, b"late"), put(2, b"n", b"2", "n")])]),
    )
    assert found.copies[0].maps["m"].state.entries == {b"k": b"v"}
    assert found.copies[0].maps["n"].state.entries == {b"n": b"2"}
    assert found.uncertain == {0: "map 'm': updates 2 to 2 are missing"}


@pytest.mark.rule("journal/R-2")
def test_a_lower_term_does_not_follow() -> None:
    found = recovered((1, [Began(0, 0), Wrote(0, 7, [put(1)]), Wrote(0, 6, [put(2, b"bad")])]))
    assert found.copies[0].maps["m"].state.entries == {b"k": b"v"}
    assert "term 6 comes after term 7" in found.uncertain[0]


def test_gaps_of_a_checkpoint_may_be_filled_in_any_order() -> None:
    counter = UpdateCounter(3)
    counter.update(5)
    base = snapshot(counter, [(7, 0)], a=b"1")
    found = recovered(
        (11, [Wrote(0, 7, [put(8, b"x"), put(4, b"y")])]),
        (12, [Wrote(0, 7, [put(7, b"w"), put(5, b"z"), put(9, b"v")])]),
        base=(base, 10),
    )
    held = found.copies[0].maps["m"]
    assert held.updates == UpdateCounter(9)
    assert held.state.entries.keys() == {b"a", b"x", b"y", b"z", b"w", b"v"}
    assert found.uncertain == {}


def test_times_to_live_go_on_from_now() -> None:
    base = Snapshot(
        0,
        0,
        [
            MapSnapshot(
                "m", [(7, 0)], UpdateCounter(2).encode(), [b"a", b"b"], [b"1", b"2"], [50, 0], [0, 0], [0, 9]
            )
        ],
    )
    now_ns = 1_000 * MILLISECOND
    more = Record("m", 3, Change.SET, b"c", b"3", 70, 0, 0)
    plain = put(4, b"a", b"4")
    found = recovered((1, [Wrote(0, 7, [more])]), base=(base, 0), now_ns=now_ns)
    held = found.copies[0].maps["m"]
    assert held.state.expiries[b"a"].deadline_ns() == now_ns + 50 * MILLISECOND
    assert held.state.expiries[b"c"].deadline_ns() == now_ns + 70 * MILLISECOND
    assert held.state.hashes == {b"b": 9}
    assert held.state.due(now_ns + 60 * MILLISECOND, 9) == [b"a"]
    found = recovered((1, [Wrote(0, 7, [more, plain])]), base=(base, 0), now_ns=now_ns)
    assert b"a" not in found.copies[0].maps["m"].state.expiries


@pytest.mark.rule("journal/R-3")
def test_lost_blocks_end_the_copies_that_need_them() -> None:
    whole = Snapshot(1, 0, [MapSnapshot("m", [(7, 0)], UpdateCounter(9).encode(), [b"a"], [b"1"])])
    recovery = Recovery(0, 0)
    recovery.base(whole, 6, "p1")
    recovery.block(4, [Began(0, 0), Began(2, 0), Wrote(0, 7, [put(1)]), Wrote(2, 7, [put(1)])])
    recovery.lost(7, "damaged")
    recovery.block(
        7, [Wrote(0, 7, [put(2, b"after")]), Wrote(1, 7, [put(10, b"b", b"2")]), Wrote(3, 7, [put(1)])]
    )
    recovery.block(8, [Began(2, 1), Wrote(2, 8, [put(1, b"new")])])
    found = Recovered("s", 1, "")
    recovery.finish(found)
    assert found.copies[0].maps["m"].state.entries == {b"k": b"v"}
    assert found.copies[1].maps["m"].state.entries == {b"a": b"1", b"b": b"2"}
    assert found.copies[2].maps["m"].state.entries == {b"new": b"v"}
    assert set(found.uncertain) == {0, 3}
    assert found.uncertain[0] == "damaged"
    assert not found.whole


@ablated("damage-ends")
def test_without_that_rule_a_copy_that_misses_something_counts_as_whole() -> None:
    recovery = Recovery(0, 0)
    recovery.block(4, [Began(0, 0), Wrote(0, 7, [put(1)])])
    recovery.lost(7, "damaged")
    recovery.block(7, [Wrote(0, 7, [put(1, name="n")])])
    found = Recovered("s", 1, "")
    recovery.finish(found)
    assert found.uncertain == {}
    assert found.copies[0].maps.keys() == {"m", "n"}, "of two moments, with what was between them missing"


def test_blocks_that_are_left_out_are_lost() -> None:
    found = recovered((1, [Began(0, 0)]), (3, [Wrote(0, 7, [put(1)])]))
    assert "missing" in found.uncertain[0]
    assert found.copies[0].maps == {}


def test_a_journal_may_begin_late_when_its_first_block_says_that_nothing_is_missing() -> None:
    base = snapshot(UpdateCounter(5), [(7, 0)], a=b"1")
    assert recovered((30, []), base=(base, 10)).uncertain.keys() == {0}
    told: list[Entry] = [Checkpointed(0, 29, "file"), Wrote(0, 7, [put(6, b"b")])]
    found = recovered((30, told), base=(base, 10))
    assert found.uncertain == {}
    assert found.copies[0].maps["m"].counter == 6
    assert recovered((30, [Checkpointed(0, 29, "another")]), base=(base, 10)).uncertain.keys() == {0}


def test_what_is_dropped_is_not_held() -> None:
    wrote = Wrote(0, 7, [put(1), put(1, b"n", b"n", "n")])
    assert recovered((1, [Began(0, 0), wrote, Dropped(0)])).copies == {}
    assert set(recovered((1, [Began(0, 0), wrote, Dropped(0, "n")])).copies[0].maps) == {"m"}
    found = recovered((1, [Began(0, 0), wrote, Dropped(0), Wrote(0, 7, [put(2)])]))
    assert found.uncertain.keys() == {0}


def test_the_newest_rows_and_view_count() -> None:
    rows = [Assignment(version, (MemberId("a"),)) for version in range(4)]
    views = [View(number, "c", []) for number in range(3)]
    found = recovered(
        (1, [TableAssignments([(0, rows[1]), (1, rows[1])]), Seen(views[1])]),
        (2, [TableAssignments([(0, rows[3])]), Seen(views[2])]),
    )
    assert found.rows == {0: rows[3], 1: rows[1]}
    assert found.view == views[2]


actions = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "set", "remove", "clear", "expiry", "term"]),
        st.integers(0, 5),
        st.sampled_from([0, 0, 40]),
    ),
    max_size=60,
)


@given(actions=actions, cut=st.integers(0, 60), group=st.integers(1, 7))
def test_a_restart_holds_what_the_copy_held(
    actions: list[tuple[str, int, int]], cut: int, group: int
) -> None:
    """Whatever was done, from a checkpoint at any moment, in blocks of any size."""
    live = map_replica("m")
    copy = PartitionCopy(0, 4)
    copy.maps["m"] = live
    term, records = 7, []
    base = None
    for index, (what, key, ttl_ms) in enumerate(actions):
        if index == cut and live.counter:
            taken = MapSnapshot(
                "m",
                list(live.lineage),
                live.updates.encode(),
                list(live.state.entries),
                list(live.state.entries.values()),
                [
                    live.state.expiries[k].ttl_ms if k in live.state.expiries else 0
                    for k in live.state.entries
                ],
                [0] * len(live.state.entries),
            )
            base, records = Snapshot(0, 4, [taken]), []
        if what == "term":
            term += 1
            continue
        change = {"set": Change.SET, "remove": Change.REMOVE, "clear": Change.CLEAR, "expiry": Change.EXPIRY}[
            what
        ]
        record = Record("m", live.updates.next(), change, b"%d" % key, b"%d" % index, ttl_ms)
        live.updates = UpdateCounter(live.counter - 1)
        live.enter(term)
        live.apply(record, 0)
        records.append(Wrote(0, term, [record]))
    blocks: list[tuple[int, list[Entry]]] = [
        (11 + at // group, list(records[at : at + group])) for at in range(0, len(records), group)
    ]
    if base is None:
        blocks.insert(0, (10, [Began(0, 4)]))
    found = recovered(*blocks, base=(base, 10) if base else None)
    assert found.uncertain == {}
    if not live.counter:
        return
    held = found.copies[0].maps["m"]
    assert held.state.entries == live.state.entries
    assert held.updates == live.updates
    assert held.proven_lineage() == live.proven_lineage()
    assert {k: e.deadline_ns() for k, e in held.state.expiries.items()} == {
        k: e.deadline_ns() for k, e in live.state.expiries.items()
    }


# -- times to live

NOON = 1_700_000_000_000
"""A moment, in milliseconds since 1970."""


def ending(counter: int, key: bytes, ttl_ms: int, max_idle_ms: int = 0) -> Record:
    return Record("m", counter, Change.SET, key, b"v", ttl_ms, max_idle_ms)


def left(found: Recovered, key: bytes, now_ns: int) -> int:
    """What is left of an entry's time, in ms."""
    return (found.copies[0].maps["m"].state.expiries[key].deadline_ns() - now_ns) // MILLISECOND


@pytest.mark.rule("journal/R-6")
def test_a_time_to_live_goes_on_from_when_it_was_written_down() -> None:
    blocks: tuple[int, list[Entry]] = (
        1,
        [
            Began(0, 4),
            Wrote(0, 7, [ending(1, b"a", 4000), put(2, b"b")], NOON),
            Wrote(0, 7, [Record("m", 3, Change.EXPIRY, b"b", b"", 9000)], NOON + 1000),
        ],
    )
    # A member that has just been switched on: what was written is from before its time began.
    for now_ns in (5 * MILLISECOND, 10**15):
        for away_ms in (0, 1500, 3999, 4000, 50_000):
            found = recovered(blocks, now_ns=now_ns, wall_ms=NOON + 1000 + away_ms)
            held = found.copies[0].maps["m"]
            assert left(found, b"a", now_ns) == 3000 - away_ms
            assert held.state.expired(b"a", now_ns) == (away_ms >= 3000)
            assert left(found, b"b", now_ns) == 9000 - away_ms
            assert (b"a" in held.state.due(now_ns, 9)) == (away_ms >= 3000)


def test_any_number_of_restarts_lengthens_nothing() -> None:
    blocks: tuple[int, list[Entry]] = (1, [Began(0, 4), Wrote(0, 7, [ending(1, b"a", 4000)], NOON)])
    found = recovered(blocks, wall_ms=NOON + 1000)
    for restart in range(1, 4):
        out = Outbox()
        out.now_ns, out.epoch_ms = 0, NOON + 1000 * restart
        found.copies[0].maps["m"].journal = "sync"
        taken = snapshot_of(found.copies[0], out)
        assert taken is not None
        found = recovered(base=(taken, 1), wall_ms=NOON + 1000 * restart + 1000)
        assert left(found, b"a", 0) == 4000 - 1000 * (restart + 1)


@pytest.mark.rule("journal/R-6")
def test_a_calendar_that_was_set_back_lets_a_time_begin_again_at_most() -> None:
    blocks: tuple[int, list[Entry]] = (1, [Began(0, 4), Wrote(0, 7, [ending(1, b"a", 4000)], NOON)])
    assert left(recovered(blocks, wall_ms=NOON - 10**9), b"a", 0) == 4000
    of_an_older_holdfast: tuple[int, list[Entry]] = (1, [Began(0, 4), Wrote(0, 7, [ending(1, b"a", 4000)])])
    assert left(recovered(of_an_older_holdfast, wall_ms=NOON), b"a", 0) == 4000


@pytest.mark.rule("journal/R-6")
def test_how_long_an_entry_was_not_used_begins_again() -> None:
    record = ending(1, b"a", 9000, 4000)
    blocks: tuple[int, list[Entry]] = (1, [Began(0, 4), Wrote(0, 7, [record], NOON)])
    assert left(recovered(blocks, wall_ms=NOON + 3000), b"a", 0) == 4000
    assert left(recovered(blocks, wall_ms=NOON + 7000), b"a", 0) == 2000


@pytest.mark.parametrize("seed", range(60))
def test_packed_stores_are_recovered_as_their_records_are(seed: int) -> None:
    """The same journal twice, in one of them with the stores packed: with terms that change, holes, updates said
    again, and other changes in between.
    """
    draw = random.Random(seed)
    plain, packed = Recovery(0, 0), Recovery(0, 0)
    begins: list[Entry] = [Began(0, 0)]
    plain.block(1, begins)
    packed.block(1, begins)
    counter, term, lsn = 0, 3, 1
    for _ in range(30):
        lsn += 1 + (draw.random() < 0.01)
        term += draw.random() < 0.1
        counter += draw.choice([0] * 12 + [1, -2])
        records = []
        for _ in range(draw.choice([1, 1, 3, 9])):
            counter += 1
            change = Change.REMOVE if draw.random() < 0.05 else Change.SET
            ttl_ms = 1000 if change is Change.SET and draw.random() < 0.02 else 0
            value = b"%d" % counter if change is Change.SET else b""
            records.append(Record("m", max(1, counter), change, b"%d" % draw.randrange(9), value, ttl_ms))
        counters = [record.counter for record in records]
        follow = counters == list(range(counters[0], counters[0] + len(counters))) and counters[0] > 0
        puts = as_puts(records) if follow else None
        plain.block(lsn, [Wrote(0, term, records, 1000)])
        packed.block(
            lsn, [WrotePuts(0, term, puts, 1000) if puts is not None else Wrote(0, term, records, 1000)]
        )
    found = []
    for one in (plain, packed):
        recovered = Recovered("s", 1, "")
        one.finish(recovered)
        copy = recovered.copies[0]
        found.append(
            (
                recovered.uncertain,
                [
                    (
                        name,
                        held.updates.encode(),
                        held.lineage,
                        held.state.entries,
                        sorted(held.state.expiries),
                    )
                    for name, held in copy.maps.items()
                ],
            )
        )
    assert found[0] == found[1]

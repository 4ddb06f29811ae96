"""Cuts: a pin holds what the map held, whatever comes after; who is asked, who is waited for, and when it is over."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Replicate, Replicated, Section
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.cuts import CUTS_MAX, ENDED_MAX, LOOKED_AT_MAX, Cuts, Pin, Taken
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.store.map_state import FOLD_AT
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import MapReplica, map_replica
from holdfast_lab.sim.ablations.switching import ablated

ME, BEN, CAL = MemberId("me"), MemberId("ben"), MemberId("cal")
CUT, OTHER = b"c" * 16, b"d" * 16
LEASE_MS = 1000
SETTINGS = Settings(
    partitions=PartitionSettings(count=2),
    maps={"deep": MapSettings(backups=2), "async": MapSettings(backups=0, async_backups=1)},
)


# -- what a pin holds


@pytest.mark.rule("primary_backup/C-2")
@given(seed=st.integers(0, 2**32), digests=st.booleans())
def test_pins_hold_what_the_map_held_whatever_comes_after(seed: int, digests: bool) -> None:
    dice = random.Random(seed)
    held = map_replica("m")
    keys = [b"k%d" % number for number in range(12)]
    pins: list[tuple[Pin, dict[bytes, bytes]]] = []
    copies: list[MapReplica] = []
    for turn in range(dice.randrange(1, 120)):
        key = dice.choice(keys)
        what = dice.choices(
            ["set", "drop", "wipe", "expiry", "pin", "release", "fold", "digests", "none", "base"],
            [50, 20, 2, 5, 8, 3, 3, 3, 2, 2],
        )[0]
        if what == "set":
            held.state.store(key, b"%d" % turn, dice.choice([0, 0, 50]), 0, 0, turn)
        elif what == "drop":
            held.state.drop(key)
        elif what == "wipe":
            held.state.wipe()
        elif what == "expiry" and key in held.state.entries:
            held.state.schedule(key, 100, 0, turn)
        elif what == "pin":
            pins.append((Pin(0, held, turn), dict(held.state.entries)))
        elif what == "release" and pins:
            pins.pop(dice.randrange(len(pins)))[0].release()
        elif what == "fold":
            held.state.fold()
        elif what == "digests" and digests:
            assert held.state.digests() == _same_entries(held).state.digests()
        elif what == "none" and digests:
            held.state.not_compared()
        elif what == "base":
            copy = map_replica("m")
            copy.start_from(held)
            copies.append(copy)
        for pin, content in pins:
            if dice.random() < 0.2:
                assert pin.content() == content
                assert pin.get(key) == content.get(key)
            assert pin.entries == len(content)
    for pin, content in pins:
        assert {key: value for key in keys if (value := pin.get(key)) is not None} == content
        assert pin.content() == content
        pin.release()
    if not digests:
        assert held.state.touched is None, "nothing is noted when nobody wants to know"
    held.state.not_compared()
    assert held.state.observers == ()
    assert not any(copy.state.observers or copy.state.touched is not None for copy in copies), (
        "nobody observes a copy of a copy"
    )


def _same_entries(held: MapReplica) -> MapReplica:
    other = map_replica("m")
    other.state.entries = dict(held.state.entries)
    return other


def test_times_to_live_are_those_of_the_cut() -> None:
    held = map_replica("m")
    held.state.store(b"a", b"1", 5000, 0, 77, 0)
    held.state.store(b"b", b"1", 0, 0, 0, 0)
    pin = Pin(0, held, 2000 * MILLISECOND)
    held.state.store(b"a", b"2", 0, 0, 0, 0)
    held.state.store(b"b", b"2", 9000, 0, 0, 0)
    held.state.drop(b"a")
    assert pin.expiries[b"a"].remaining_ttl_ms(pin.taken_ns) == 3000
    assert pin.expiries.keys() == {b"a"}
    assert pin.hashes == {b"a": 77}
    assert pin.content() == {b"a": b"1", b"b": b"1"}


# -- the primary


class Primary:
    """The lane of this member, primary of partition 0 with Ben and Cal as backups."""

    def __init__(self, maps: tuple[str, ...] = ("m",)) -> None:
        self.out = Outbox()
        log = Log(self.out, on=False)
        self.rows = [Assignment(1, (ME, BEN, CAL)), Assignment(1, (BEN, ME))]
        self.lane = Lane(ME, SETTINGS, self.out, log)
        self.lane.attach(self.rows)
        copies = LocalReplicas(ME, SETTINGS, self.out, self.rows, log, lane=self.lane)
        self.cuts = copies.cuts
        self.copy = copies.held[0] = PartitionCopy(0, 0)
        self.copy.term = 1
        self.lane.serving[0] = self.lane.leading[0] = self.copy
        self.lane.retarget(self.copy)
        for name in maps:
            self.write(b"a", b"1", name)
        self.acknowledge(BEN, CAL)
        self.answers: list[Taken] = []

    def write(self, key: bytes, value: bytes, name: str = "m", ttl_ms: int = 0) -> None:
        self.lane.set(self.copy, name, key, value, ttl_ms, 0, 0)
        self.lane.close_batch(lambda known: None)

    def take(self, *maps: str, cut: bytes = CUT, passive: bool = False) -> None:
        self.cuts.take(cut, maps or ("m",), [0], LEASE_MS, self.answers.append, passive=passive)

    def messages(self) -> list[tuple[MemberId, Replicate]]:
        self.lane.flush()
        sent = [effect for effect in self.out.take() if isinstance(effect, Send)]
        return [(one.to, one.message) for one in sent if isinstance(one.message, Replicate)]

    def acknowledge(self, *members: MemberId) -> list[tuple[MemberId, Replicate]]:
        found = self.messages()
        for to, message in found:
            if to in members:
                partitions = [section.partition for section in message.sections]
                self.lane.on_replicated(to, Replicated(message.batches, partitions))
        return found

    def row(self, *replicas: MemberId) -> None:
        self.rows[0] = Assignment(self.rows[0].version + 1, replicas)
        self.lane.retarget(self.copy)


@pytest.mark.rule("primary_backup/C-3")
def test_a_cut_is_a_record_that_all_sync_backups_must_hold() -> None:
    primary = Primary()
    primary.take()
    sent = primary.messages()
    assert primary.answers == []
    (record,) = [record for to, message in sent if to == BEN for record in message.sections[0].all_records()]
    assert (record.change, record.key, record.counter, record.ttl_ms) == (Change.PIN, CUT, 2, LEASE_MS)
    primary.write(b"a", b"2")
    primary.lane.on_replicated(BEN, Replicated(sent[0][1].batches, [0]))
    (taken,) = primary.answers
    (pin,) = taken.pins
    assert taken.known
    assert not taken.moved
    assert (pin.counter, pin.term, pin.entries, pin.holders) == (2, 1, 1, (ME, BEN))
    assert primary.copy.maps["m"].counter == 3
    assert pin.content() == {b"a": b"1"}


@ablated("cut-kept")
def test_without_that_rule_it_is_answered_before_they_do() -> None:
    primary = Primary()
    primary.take()
    assert [taken.known for taken in primary.answers] == [True]
    assert len(primary.messages()) == 1, "nobody has even been told"


def test_all_maps_of_a_partition_are_cut_at_once_and_what_was_never_written_is_told() -> None:
    primary = Primary(maps=("m", "deep"))
    primary.cuts.take(CUT, ("m", "deep", "never"), [0, 1], LEASE_MS, primary.answers.append)
    primary.acknowledge(BEN)
    assert primary.answers == [], "the deep map waits for Cal, too"
    primary.lane.on_replicated(CAL, Replicated(list(range(10)), [0]))
    (taken,) = primary.answers
    assert [(pin.map, pin.holders) for pin in taken.pins] == [("m", (ME, BEN)), ("deep", (ME, BEN, CAL))]
    assert taken.unwritten == [(0, "never")]
    assert taken.moved == [1], "that one is Ben's"


def test_async_backups_are_not_waited_for_and_not_named() -> None:
    primary = Primary(maps=("async",))
    primary.take("async")
    (taken,) = primary.answers
    assert taken.pins[0].holders == (ME,)


@pytest.mark.rule("primary_backup/C-4")
def test_what_has_ended_is_not_in_the_cut() -> None:
    primary = Primary()
    primary.write(b"over", b"x", ttl_ms=10)
    primary.acknowledge(BEN, CAL)
    primary.out.now_ns = 10 * MILLISECOND
    primary.take()
    sent = primary.acknowledge(BEN)
    changes = [
        record.change for to, message in sent if to == BEN for record in message.sections[0].all_records()
    ]
    assert changes == [Change.REMOVE, Change.PIN]
    assert primary.answers[0].pins[0].content() == {b"a": b"1"}


def test_asked_again_a_cut_that_was_told_stays_as_it_was() -> None:
    primary = Primary()
    primary.take()
    primary.acknowledge(BEN)
    primary.write(b"a", b"2")
    primary.take()
    assert [taken.pins[0].counter for taken in primary.answers] == [2, 2]
    assert primary.answers[1].pins[0].content() == {b"a": b"1"}
    assert len(primary.cuts) == primary.cuts.pins == 1


def test_asked_again_a_cut_that_was_not_told_is_taken_anew() -> None:
    primary = Primary()
    primary.take()
    first = primary.messages()
    primary.write(b"a", b"2")
    primary.take()
    primary.acknowledge(BEN)
    primary.lane.on_replicated(BEN, Replicated(first[0][1].batches, [0]))
    late = next(taken for taken in primary.answers if taken.moved)
    made = next(taken for taken in primary.answers if taken.pins)
    assert late.moved == [0], "the first answer, which comes late, names nobody"
    assert made.pins[0].counter == 4
    assert made.pins[0].content() == {b"a": b"2"}
    assert primary.cuts.pins == 1


@pytest.mark.rule("primary_backup/C-3")
def test_a_row_that_has_changed_meanwhile_makes_it_void() -> None:
    primary = Primary()
    primary.take()
    first = primary.messages()
    primary.row(ME, CAL)
    primary.acknowledge(CAL)
    primary.lane.on_replicated(CAL, Replicated(first[0][1].batches, [0]))
    (taken,) = primary.answers
    assert (taken.pins, taken.moved, taken.known) == ([], [0], True)
    primary.take()
    primary.acknowledge(CAL)
    assert primary.answers[1].pins[0].holders == (ME, CAL)


def test_a_lost_office_makes_it_unknown() -> None:
    primary = Primary()
    primary.take()
    primary.messages()
    primary.lane.serving[0] = primary.lane.leading[0] = None
    primary.lane.abandon(0)
    (taken,) = primary.answers
    assert not taken.known
    assert "lost the partition" in taken.why
    primary.take()
    assert primary.answers[1].moved == [0]


def test_while_nothing_may_be_written_only_this_member_keeps_it() -> None:
    primary = Primary()
    primary.write(b"over", b"x", ttl_ms=10)
    primary.acknowledge(BEN, CAL)
    primary.out.now_ns = 10 * MILLISECOND
    primary.lane.serving[0] = None
    primary.take(passive=True)
    assert primary.messages() == []
    (pin,) = primary.answers[0].pins
    assert (pin.holders, pin.counter, pin.entries) == ((ME,), 2, 1)
    assert pin.content() == {b"a": b"1"}
    assert b"over" in primary.copy.maps["m"].state.entries
    primary.take()
    assert primary.answers[1].moved == [0], "one that would have to be written is not taken"


# -- the backup


def backup() -> tuple[LocalReplicas, Cuts, Outbox]:
    out = Outbox()
    rows = [Assignment(1, (BEN, ME)), Assignment(1, (BEN, ME))]
    copies = LocalReplicas(ME, SETTINGS, out, rows, Log(out, on=False))
    copies.held[0] = PartitionCopy(0, 0)
    return copies, copies.cuts, out


def told(copies: LocalReplicas, *records: Record) -> None:
    copies.on_replicate(BEN, Replicate([1], [Section(0, 1, list(records), 1)]))


@pytest.mark.rule("primary_backup/C-1")
def test_a_backup_keeps_it_in_the_turn_of_the_record() -> None:
    copies, cuts, _ = backup()
    pin = Record("m", 2, Change.PIN, CUT, ttl_ms=LEASE_MS)
    told(copies, Record("m", 3, Change.SET, b"a", b"2"))
    told(copies, pin)
    assert cuts.find(CUT, 0, "m") is None, "the first update is missing"
    told(copies, Record("m", 1, Change.SET, b"a", b"1"))
    told(copies, pin)
    found = cuts.find(CUT, 0, "m")
    assert found is not None
    assert (found.counter, found.term, found.content()) == (2, 1, {b"a": b"1"})
    held = copies.held[0].maps["m"]
    assert (held.counter, held.state.entries) == (3, {b"a": b"2"})


@pytest.mark.rule("primary_backup/C-5")
@pytest.mark.parametrize("how", ["cleared", "dropped", "replaced", "many"])
def test_it_stays_right_whatever_becomes_of_the_copy(how: str) -> None:
    copies, cuts, _ = backup()
    told(copies, Record("m", 1, Change.SET, b"a", b"1"), Record("m", 2, Change.PIN, CUT, ttl_ms=LEASE_MS))
    if how == "cleared":
        told(copies, Record("m", 3, Change.CLEAR), Record("m", 4, Change.SET, b"b", b"2"))
    elif how == "dropped":
        del copies.held[0]
    elif how == "replaced":
        copies.replace(0, PartitionCopy(0, 0))
        told(copies, Record("m", 1, Change.SET, b"b", b"2"))
    else:
        many = range(3, 3 + 3 * FOLD_AT)
        told(copies, *(Record("m", at, Change.SET, b"k%d" % (at % 400), b"v") for at in many))
        told(copies, Record("m", many.stop, Change.REMOVE, b"a"))
    found = cuts.find(CUT, 0, "m")
    assert found is not None
    assert found.content() == {b"a": b"1"}


def test_a_backup_that_was_filled_past_it_says_that_it_does_not_keep_it() -> None:
    copies, cuts, out = backup()
    filled = PartitionCopy(0, 0)
    filled.open("m").updates = UpdateCounter(3)
    copies.replace(0, filled)
    told(copies, Record("m", 2, Change.PIN, CUT, ttl_ms=LEASE_MS), Record("m", 4, Change.PIN, OTHER))
    (sent,) = [effect.message for effect in out.take() if isinstance(effect, Send)]
    assert sent == Replicated([1], [0], [(0, "m", CUT, 2)])
    assert cuts.pins == 1
    told(copies, Record("m", 4, Change.PIN, OTHER))
    assert [effect.message for effect in out.take()] == [Replicated([1], [0])]  # type: ignore[union-attr]


@pytest.mark.rule("primary_backup/C-3")
@pytest.mark.parametrize(("sender", "void"), [(BEN, True), (CAL, False)])
def test_a_holder_that_does_not_keep_it_makes_it_void(sender: MemberId, void: bool) -> None:
    primary = Primary()
    primary.take()
    sent = primary.messages()
    primary.cuts.not_kept(sender, [(0, "m", CUT, 2), (1, "m", CUT, 2), (0, "m", OTHER, 2)])
    primary.lane.on_replicated(BEN, Replicated(sent[0][1].batches, [0]))
    assert primary.answers[0].moved == ([0] if void else [])
    primary.take()
    primary.acknowledge(BEN)
    assert [pin.counter for pin in primary.answers[1].pins] == [3 if void else 2]


# -- leases


@pytest.mark.rule("primary_backup/C-5")
def test_the_lease_ends_and_what_was_kept_is_free() -> None:
    primary = Primary()
    held = primary.copy.maps["m"]
    primary.take()
    primary.take(cut=OTHER)
    primary.acknowledge(BEN)
    assert primary.cuts.pins == 2
    now_ms = 0
    for _ in range(5):
        now_ms += LEASE_MS - 1
        primary.out.now_ns = now_ms * MILLISECOND
        primary.cuts.sweep()
        assert primary.cuts.find(CUT, 0, "m") is not None, "it is read, and so renewed"
    assert not primary.cuts.keeps(OTHER)
    assert primary.cuts.hold(CUT, 5 * LEASE_MS) == 1
    primary.out.now_ns += (5 * LEASE_MS - 1) * MILLISECOND
    primary.cuts.sweep()
    assert primary.cuts.keeps(CUT)
    primary.out.now_ns += MILLISECOND
    primary.cuts.sweep()
    assert (len(primary.cuts), primary.cuts.pins, held.state.observers, held.state.touched) == (
        0,
        0,
        (),
        None,
    )
    assert primary.cuts.hold(CUT, LEASE_MS) == 0


def test_a_cut_can_be_ended() -> None:
    primary = Primary()
    primary.take()
    assert primary.cuts.hold(CUT, 0) == 1
    assert primary.copy.maps["m"].state.observers == ()
    primary.acknowledge(BEN)
    assert primary.answers[0].moved == [0], "it was ended before it was known"


def test_a_member_begins_so_many_cuts_and_keeps_those_of_others() -> None:
    primary = Primary()
    for number in range(CUTS_MAX):
        assert not primary.cuts.full
        primary.take(cut=number.to_bytes(16, "big"))
    assert primary.cuts.full
    primary.cuts.keep(OTHER, 1, map_replica("m"), LEASE_MS)
    assert len(primary.cuts) == CUTS_MAX + 1
    assert primary.cuts.begun(bytes(16)) == {"m"}
    assert primary.cuts.begun(OTHER) is None, "that one was begun elsewhere"


def test_cuts_that_others_have_begun_shut_nobody_out() -> None:
    primary = Primary()
    for number in range(CUTS_MAX + 1):
        primary.cuts.keep(number.to_bytes(16, "big"), 1, map_replica("m"), LEASE_MS)
    assert not primary.cuts.full
    for number in range(CUTS_MAX):
        primary.take(cut=number.to_bytes(16, "big"))
    assert primary.cuts.full, "one of them is asked for here, too, and counts"


# -- all maps of a partition at one moment


def contents(taken: Taken) -> dict[str, dict[bytes, bytes]]:
    return {pin.map: pin.content() for pin in taken.pins}


@pytest.mark.rule("primary_backup/C-6")
def test_asked_again_no_map_is_of_another_moment_than_the_others() -> None:
    primary = Primary()
    primary.take("m", "new")
    primary.acknowledge(BEN)
    primary.write(b"a", b"2")
    primary.write(b"x", b"1", "new")
    primary.acknowledge(BEN)
    primary.take("m", "new")
    primary.acknowledge(BEN)
    first, again = primary.answers
    assert contents(first) == contents(again) == {"m": {b"a": b"1"}}
    assert first.unwritten == again.unwritten == [(0, "new")], "it came into being after the cut"


def test_maps_that_came_into_being_before_a_cut_was_told_are_in_it() -> None:
    primary = Primary()
    primary.take("m", "new")
    primary.messages()
    primary.write(b"a", b"2")
    primary.write(b"x", b"1", "new")
    primary.take("m", "new")
    primary.acknowledge(BEN)
    primary.lane.on_replicated(BEN, Replicated(list(range(10)), [0]))
    made = next(taken for taken in primary.answers if taken.pins)
    assert contents(made) == {"m": {b"a": b"2"}, "new": {b"x": b"1"}}
    late = next(taken for taken in primary.answers if taken is not made)
    assert (late.moved, late.unwritten) == ([0], []), "nothing of the first one counts"


@pytest.mark.rule("primary_backup/C-6")
@pytest.mark.parametrize("refused", ["m", "other"])
def test_what_is_void_is_void_for_all_maps_of_the_partition(refused: str) -> None:
    primary = Primary(maps=("m", "other"))
    primary.take("m", "other")
    sent = primary.messages()
    primary.cuts.not_kept(BEN, [(0, refused, CUT, 2)])
    primary.lane.on_replicated(BEN, Replicated(sent[0][1].batches, [0]))
    assert (primary.answers[0].pins, primary.answers[0].moved) == ([], [0])
    for name in ("m", "other"):
        primary.write(b"a", b"2", name)
    primary.take("m", "other")
    primary.acknowledge(BEN)
    assert contents(primary.answers[1]) == {"m": {b"a": b"2"}, "other": {b"a": b"2"}}
    assert primary.cuts.pins == 2


def test_one_map_that_another_primary_has_cut_anew_makes_all_anew() -> None:
    primary = Primary(maps=("m", "other"))
    primary.take("m", "other")
    primary.acknowledge(BEN)
    for name in ("m", "other"):
        primary.write(b"a", b"2", name)
    primary.acknowledge(BEN)
    primary.cuts.keep(CUT, 0, primary.copy.maps["m"], LEASE_MS)
    primary.take("m", "other")
    primary.acknowledge(BEN)
    assert contents(primary.answers[1]) == {"m": {b"a": b"2"}, "other": {b"a": b"2"}}


# -- one question is little work


def two_partitions() -> Primary:
    """Partition 1 is served here, too."""
    primary = Primary()
    primary.rows[1] = Assignment(1, (ME, BEN))
    copy = PartitionCopy(1, 0)
    copy.term = 1
    primary.lane.serving[1] = primary.lane.leading[1] = copy
    primary.lane.retarget(copy)
    primary.lane.set(copy, "m", b"b", b"1", 0, 0, 0)
    primary.lane.close_batch(lambda known: None)
    primary.acknowledge(BEN)
    return primary


@pytest.mark.rule("primary_backup/C-7")
def test_what_has_ended_is_removed_over_several_questions() -> None:
    primary = two_partitions()
    for number in range(ENDED_MAX + 10):
        primary.write(b"over%d" % number, b"x", ttl_ms=10)
    primary.acknowledge(BEN, CAL)
    primary.out.now_ns = 10 * MILLISECOND
    primary.cuts.take(CUT, ["m"], [0, 1], LEASE_MS, primary.answers.append)
    sent = primary.acknowledge(BEN)
    (first,) = primary.answers
    assert (first.pins, first.unwritten, first.moved, first.left) == ([], [], [], [0, 1])
    removed = [
        record.change for to, message in sent if to == BEN for record in message.sections[0].all_records()
    ]
    assert removed == [Change.REMOVE] * ENDED_MAX
    primary.cuts.take(CUT, ["m"], first.left, LEASE_MS, primary.answers.append)
    primary.acknowledge(BEN)
    again = primary.answers[1]
    assert again.left == []
    assert [pin.content() for pin in again.pins] == [{b"a": b"1"}, {b"b": b"1"}]


def test_all_maps_and_partitions_of_a_question_share_what_may_be_removed() -> None:
    primary = Primary(maps=("m", "other"))
    for name in ("m", "other"):
        for number in range(ENDED_MAX - 300):
            primary.write(b"over%d" % number, b"x", name, ttl_ms=10)
    primary.acknowledge(BEN, CAL)
    primary.out.now_ns = 10 * MILLISECOND
    primary.take("m", "other")
    sent = primary.acknowledge(BEN)
    assert (primary.answers[0].pins, primary.answers[0].left) == ([], [0])
    assert sum(len(message.sections[0].all_records()) for to, message in sent if to == BEN) == ENDED_MAX
    primary.take("m", "other")
    primary.acknowledge(BEN)
    assert contents(primary.answers[1]) == {"m": {b"a": b"1"}, "other": {b"a": b"1"}}


@pytest.mark.rule("primary_backup/C-7")
def test_partitions_with_many_times_to_live_are_left_for_the_next_question() -> None:
    primary = two_partitions()
    for partition in (0, 1):
        copy = primary.lane.serving[partition]
        assert copy is not None
        for number in range(LOOKED_AT_MAX // 2 + 1):
            copy.maps["m"].state.store(b"k%d" % number, b"x", 10_000, 0, 0, 0)
    primary.cuts.take(CUT, ["m"], [0, 1], LEASE_MS, primary.answers.append)
    primary.acknowledge(BEN)
    (first,) = primary.answers
    assert ([pin.partition for pin in first.pins], first.left) == ([0], [1])
    primary.cuts.take(CUT, ["m"], [0, 1], LEASE_MS, primary.answers.append)
    primary.acknowledge(BEN)
    assert ([pin.partition for pin in primary.answers[1].pins], primary.answers[1].left) == ([0, 1], [])
    assert primary.answers[1].pins[0] is first.pins[0]

"""Replicas of a zone controller's member: which begin, join, run, stop and are destroyed, and those in doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.zones.controller_bench import (
    PART,
    PENDING,
    THREE,
    Bench,
    configured,
    create_zone,
    doubted,
    leading,
    look,
    made,
    put_invoke,
)
from tests.core.zones.test_transitions import at

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_state import CaughtUp
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.replica_duties import LOOKS_AT_ONCE, START_MS, STARTS_AT_ONCE
from holdfast.core.zones.work_queue import ANSWER_MS
from holdfast.core.zones.zone_commands import created, creation_keys
from holdfast.core.zones.zone_keys import (
    encoded,
    part_key,
)
from holdfast.core.zones.zone_ports import Part

# -- replicas of this member


def test_a_member_begins_with_what_it_has_and_what_it_should_have() -> None:
    bench = Bench()
    bench.topology("ABC")
    settings = ZoneSettings("z", partitions=2, replicas=3, quorum=2)
    bench.metastore.invoke(created(bench.metastore.read(creation_keys(settings)), settings, 1)[1])
    bench.set_keys(1, stable=at("AB", "C"))
    bench.here = {
        (1, 5): LocalCopy(False, configured("A")),
        (7, 0): LocalCopy(False, configured("A")),
        (8, 0): LocalCopy(True, configured("A")),
    }
    bench.controller.begin(5)
    assert bench.takes() == [
        ("found", (1, 0), configured("ABC")),
        ("found", (1, 1), configured("AB", "C")),
        ("destroy", (1, 5)),
        ("join", (7, 0)),
    ], "of zone 7 nothing is known here yet: it may be newer than what this member has heard of"


def test_a_member_that_knows_nothing_of_zones_keeps_what_it_has() -> None:
    bench = Bench()
    bench.here = {(1, 0): LocalCopy(False, configured("A"))}
    bench.controller.begin(5)
    assert bench.takes() == [("join", (1, 0))]
    bench = made(THREE, "AB")
    key = part_key(5, 0, "stable")
    bench.metastore.invoke(put_invoke(bench, key, encoded(at("A"))))
    assert look(bench) == [], "the number of the zone is not known yet"
    assert (5, 0) not in bench.controller.replicas._unsettled


def test_a_replica_of_a_dropped_zone_is_destroyed() -> None:
    bench = leading(THREE, "AB")
    bench.drop()
    assert look(bench) == [("destroy", PART)]
    assert bench.here == {}


def test_a_replica_joins_runs_stops_and_is_destroyed() -> None:
    bench = made(THREE, "BC", me="A")
    assert bench.here == {}
    bench.set_keys(pending=(at("ABC", ts=4),))
    assert look(bench) == [("join", PART)]
    bench.here[PART] = LocalCopy(False, Configuration())
    bench.tick()
    assert bench.takes() == [("join", PART)], "it was to run, and does not"
    bench.tick()
    assert bench.takes() == []
    bench.set_keys(pending=(at("B", force=True, ts=4),))
    assert look(bench) == [("halt", PART)]
    bench.tick()
    assert bench.takes() == []
    bench.notice(CaughtUp(1))
    assert PART in bench.controller.leading._reports
    bench.set_keys(pending=(), stable=at("B", ts=5))
    assert look(bench) == [("destroy", PART)]
    assert PART not in bench.controller.leading._reports


def test_a_replica_that_is_to_go_goes_when_its_group_has_followed() -> None:
    """Without any change of a key: its own configuration tells that the group has moved on."""
    bench = made(THREE, "ABC")
    bench.set_keys(stable=at("BC", ts=5))
    bench.here[PART] = LocalCopy(True, configured("ABC", token=10_000))
    assert look(bench) == []
    bench.tick()
    assert bench.takes() == []
    bench.here[PART] = LocalCopy(True, configured("BC", token=10_000))
    bench.tick()
    assert bench.takes() == [("destroy", PART)]
    bench.tick()
    assert bench.takes() == []


def test_a_replica_that_runs_undisturbed_is_not_looked_at_again() -> None:
    bench = made(THREE, "ABC")
    bench.set_keys(stable=at("ABC", ts=5))
    look(bench)
    assert bench.controller.replicas._unsettled == {}
    bench.set_keys(pending=(at("ABD", ts=6),))
    look(bench)
    assert bench.controller.replicas._unsettled == {PART: None}
    bench.set_keys(pending=())
    look(bench)
    assert bench.controller.replicas._unsettled == {}
    bench.here[PART] = LocalCopy(False, configured("ABC"))
    bench.set_keys(stable=at("ABC", ts=7))
    assert look(bench) == [("join", PART)]
    assert bench.controller.replicas._unsettled == {PART: None}
    bench.tick()
    assert bench.controller.replicas._unsettled == {}
    bench.set_keys(stable=at("BC", ts=8))
    bench.here[PART] = LocalCopy(True, configured("ABC", token=10_000))
    look(bench)
    assert bench.controller.replicas._unsettled == {PART: None}


@pytest.mark.rule("zones/A-23")
def test_a_replica_of_an_older_generation_begins_anew_where_it_is_named() -> None:
    bench = made(THREE, "ABC")
    bench.set_keys(stable=at("ABC", ts=5), generation=9)
    assert look(bench) == [("destroy", PART)]
    bench.tick()
    assert bench.takes() == [("join", PART)]
    bench.here[PART] = LocalCopy(True, configured("ABC", token=9), 9)
    bench.tick()
    assert (bench.takes(), bench.controller.replicas._unsettled) == ([], {})


@pytest.mark.rule("zones/A-15")
def test_the_node_of_a_forced_head_resets_its_group_until_that_is_done() -> None:
    bench = made(THREE, "ABC")
    bench.set_keys(pending=(at("A", force=True, ts=4), at("AB", ts=4)))
    token = bench.revision(PENDING)
    assert look(bench) == [("reset", PART, "A", token)]
    bench.tick()
    assert bench.takes() == [("reset", PART, "A", token)], "again and again"
    bench.here[PART] = LocalCopy(False, configured("ABC"))
    bench.tick()
    assert bench.takes() == [("join", PART), ("reset", PART, "A", token)]
    del bench.here[PART]
    bench.tick()
    assert bench.takes() == [("join", PART), ("reset", PART, "A", token)]
    bench.doubted.add(PART)
    bench.tick()
    assert bench.takes() == [("destroy", PART), ("join", PART), ("reset", PART, "A", token)]
    bench.here[PART] = LocalCopy(True, configured("A", token=token), token)
    bench.tick()
    assert bench.takes() == []


# -- only so many groups begin at a time


def begins(partitions: int = 40, now_ms: int = 50_000) -> Bench:
    """A member of a new zone, on which no group gets a leader by itself."""
    bench = Bench(leads=False)
    bench.topology("ABC")
    create_zone(bench, ZoneSettings("z", partitions=partitions, replicas=3))
    bench.leaderless = {(1, partition) for partition in range(partitions)}
    bench.now = now_ms
    bench.controller.begin(now_ms)
    return bench


def founded(bench: Bench) -> list[int]:
    return [call[1][1] for call in bench.takes() if call[0] == "found"]  # type: ignore[index]


@pytest.mark.rule("zones/A-26")
def test_the_next_groups_begin_when_others_have_a_leader() -> None:
    bench = begins()
    assert founded(bench) == list(range(STARTS_AT_ONCE))
    bench.tick()
    assert founded(bench) == []
    bench.leaderless -= {(1, 3), (1, 5)}
    bench.tick()
    assert founded(bench) == [32, 33]
    bench.leaderless.clear()
    bench.tick()
    assert founded(bench) == list(range(34, 40))


@pytest.mark.rule("zones/A-26")
def test_a_group_without_a_leader_holds_others_up_for_so_long_and_no_longer() -> None:
    bench = begins()
    assert founded(bench) == list(range(STARTS_AT_ONCE))
    bench.tick(START_MS - 1)
    assert founded(bench) == []
    bench.tick(1)
    assert founded(bench) == list(range(STARTS_AT_ONCE, 40))


@pytest.mark.rule("zones/A-26")
def test_a_group_that_is_gone_again_gives_its_place_to_the_next() -> None:
    bench = begins()
    assert founded(bench) == list(range(STARTS_AT_ONCE))
    bench.tell()
    assert founded(bench) == []
    bench.set_keys(7, stable=at("BC", ts=9))
    assert look(bench) == [("destroy", (1, 7))]
    bench.tick()
    assert founded(bench) == [32]


# -- only so many replicas are looked at in one step


@pytest.mark.rule("zones/A-27")
def test_replicas_are_looked_at_some_at_a_time_whatever_the_occasion() -> None:
    """A zone of 100 partitions is found, ticked, and dropped. A tick looks at no more than one step."""
    bench = Bench(leads=False)
    bench.topology("ABC")
    create_zone(bench, ZoneSettings("z", partitions=100, replicas=3))
    assert LOOKS_AT_ONCE <= 32
    looked: list[Part] = []
    look_local = bench.controller.replicas._look_local

    def noted(part: Part) -> None:
        looked.append(part)
        look_local(part)

    bench.controller.replicas._look_local = noted  # type: ignore[method-assign]
    every = [(1, partition) for partition in range(100)]

    def in_steps(occasion: Callable[[], object]) -> None:
        """It is begun at once, and gone on with in steps of their own, until every replica had its turn."""
        occasion()
        steps = [len(looked)]
        while bench.controller.has_more:
            bench.controller.go_on(bench.now)
            steps.append(len(looked) - sum(steps))
        assert steps == [32, 32, 32, 4]
        assert looked == every
        looked.clear()

    in_steps(lambda: bench.controller.begin(bench.now))
    bench.controller.replicas._unsettled = dict.fromkeys(every)
    for tick in range(1, 5):
        bench.controller.on_tick(bench.now)
        assert (len(looked), bench.controller.has_more) == (32 * tick, False)
    assert sorted({*looked}) == every, "all in turn"
    looked.clear()
    bench.seen = len(bench.metastore.batches)
    bench.drop()
    in_steps(lambda: bench.controller.on_changes(bench.now, bench.metastore.batches[bench.seen][2]))
    assert bench.here == {}


@pytest.mark.rule("zones/A-27")
def test_who_waits_for_a_look_comes_before_those_that_are_new() -> None:
    bench = begins(partitions=50)
    bench.go_on()
    bench.controller.replicas.look_at((1, partition) for partition in range(40))
    assert list(bench.controller.replicas._to_look) == [(1, partition) for partition in range(32, 40)]
    bench.controller.replicas.look_at([(1, 3), (1, 35)])
    assert not bench.controller.has_more, "35 has waited already, and 3 has come"


# -- replicas in doubt


@pytest.mark.rule("zones/A-22")
def test_a_replica_in_doubt_is_reported_then_taken_out_and_then_begins_anew() -> None:
    bench = doubted(switch_reduce=at("B"))
    assert bench.waits() == ["1/0"]
    bench.settle()
    assert bench.keys().switch_reduce == at("AB"), "beside who is in doubt already"
    assert bench.takes() == []
    bench.settle()
    assert bench.here, "the group has to be without it first"
    bench.set_keys(pending=(at("BC", ts=6),))
    bench.tell()
    bench.settle()
    assert bench.here
    bench.set_keys(pending=(at("ABC", ts=6),), stable=at("BC", ts=6), switch_reduce=None)
    bench.tell()
    bench.settle()
    assert bench.takes() == [("destroy", PART), ("join", PART)]
    assert bench.doubted == set()
    bench.tick()
    bench.settle()
    assert (bench.takes(), bench.controller.queue.steps) == ([], {})
    bench.doubted.add(PART)
    bench.set_keys(stable=at("ABC", ts=9), pending=())
    bench.tell()
    bench.settle()
    assert bench.keys().switch_reduce == at("A"), "damaged once more, it is reported once more"
    assert bench.takes() == []


def test_a_replica_in_doubt_that_nobody_names_is_destroyed_at_once() -> None:
    bench = doubted(me_named=False, pending=(at("BD", ts=6),))
    bench.settle()
    assert bench.takes() == [("destroy", PART)]
    assert bench.keys().switch_reduce is None
    named = doubted(me_named=False, pending=(at("BD", ts=6), at("AB", ts=6)))
    named.settle()
    assert named.keys().switch_reduce == at("A")


def test_a_replica_that_is_not_in_doubt_any_more_is_left_alone() -> None:
    bench = doubted()
    bench.doubted.clear()
    bench.settle()
    assert (bench.takes(), bench.keys().switch_reduce) == ([], None)
    bench.tick(10 * ANSWER_MS)
    assert (bench.asked, bench.controller.queue.steps) == ({}, {})


def test_a_report_that_lost_a_race_is_repeated() -> None:
    bench = doubted()
    (ticket,) = bench.asked
    bench.answer(ticket)
    assert bench.waits() == ["invoke"]
    bench.set_keys(switch_reduce=at("C"))
    bench.settle()
    assert bench.keys().switch_reduce == at("AC")


def test_without_stable_assignments_nothing_is_reported() -> None:
    bench = doubted()
    bench.asked.clear()
    bench = made(THREE, "ABC", leads=False)
    bench.here[PART] = LocalCopy(True, Configuration())
    bench.doubted.add(PART)
    bench.set_keys(stable=None, pending=(at("ABC", ts=6),))
    bench.tell()
    bench.takes()
    bench.settle()
    assert bench.keys().switch_reduce is None
    assert bench.takes() == []


def test_replicas_in_doubt_are_taken_out_by_the_trigger() -> None:
    bench = made(THREE, "ABC")
    bench.set_keys(switch_reduce=at("C"))
    revision = bench.revision(part_key(1, 0, "reduce"))
    bench.tell()
    bench.settle()
    keys = bench.keys()
    assert (keys.pending, keys.trigger) == ((at("AB", ts=revision),), revision)
    all_in_doubt = made(THREE, "ABC")
    all_in_doubt.set_keys(switch_reduce=at("ABC"))
    all_in_doubt.tell()
    all_in_doubt.settle()
    assert all_in_doubt.keys().pending == (), "an operator has to decide"

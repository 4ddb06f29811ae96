"""Resets by a zone controller: what it asks members, what it gives up, and when it asks for one by itself."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.zones.controller_bench import (
    PATIENT,
    THREE,
    WATCHED,
    Bench,
    look_again,
    lost,
    made,
    recovery,
    states,
    touch,
    wait,
    watched,
)
from tests.core.zones.test_transitions import at

from holdfast.core.zones.data_nodes import NodesTimer
from holdfast.core.zones.descriptors import NEVER, ZoneDescriptor, ZoneSettings
from holdfast.core.zones.rendezvous import preference
from holdfast.core.zones.transitions import Consistency, LocalReplica, LocalState
from holdfast.core.zones.work_queue import ANSWER_MS, RETRY_MS
from holdfast.core.zones.zone_keys import (
    TOPOLOGY_KEY,
    part_key,
    zone_key,
)
from holdfast.core.zones.zone_resets import RecoveryRequest

# -- resets


@pytest.mark.rule("zones/A-21")
def test_a_reset_asks_all_members_for_their_replicas_and_goes_by_the_longest_log() -> None:
    bench = lost()
    asked = bench.revision(zone_key(1, "recovery"))
    bench.settle()
    assert bench.questions == [("A", 1), ("D", 1)]
    assert bench.keys().pending == ()
    bench.knows(**states(A=5))
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().pending == (), "D has not said anything yet"
    bench.knows(D={})
    bench.tick(RETRY_MS)
    bench.settle()
    keys = bench.keys()
    assert keys.pending == (at("A", force=True, ts=asked),)
    assert keys.planned == at("AD", from_reset=True, ts=asked)
    assert (keys.trigger, bench.questions) == (asked, [("A", 1), ("D", 1)])


def test_a_reset_does_not_wait_for_members_that_are_silent() -> None:
    bench = lost()
    bench.settle()
    bench.knows(**states(A=5))
    waited = 0
    while not bench.keys().pending:
        bench.tick(RETRY_MS)
        waited += RETRY_MS
        bench.settle()
    assert waited == ANSWER_MS
    assert bench.questions == [("A", 1), ("D", 1)]


def test_a_zone_that_is_altered_while_members_are_asked_is_reset_all_the_same() -> None:
    bench = lost()
    bench.settle()
    bench.knows(**states(A=5))
    bench.alter(scale_up_s=1)
    bench.write(up=NodesTimer(0, NEVER, ("X",)))
    bench.remove(zone_key(1, "up"))
    bench.tell()
    bench.settle()
    bench.knows(D={})
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().pending != ()
    assert bench.questions == [("A", 1), ("D", 1)]


def test_old_answers_of_members_are_asked_for_again() -> None:
    bench = lost()
    bench.settle()
    bench.knows(**states(A=5))
    bench.now += 2 * ANSWER_MS + 1
    bench.tick(0)
    bench.settle()
    assert bench.questions == 2 * [("A", 1), ("D", 1)]
    assert bench.keys().pending == ()
    bench.knows(**states(D=0))
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().pending == (), "what A said the first time is too old"
    bench.knows(**states(A=5))
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().pending != ()


def test_answers_of_members_are_good_for_so_long_and_no_longer() -> None:
    bench = lost()
    bench.settle()
    bench.knows(**states(A=5))
    bench.tick(2 * ANSWER_MS)
    bench.settle()
    assert bench.questions == [("A", 1), ("D", 1)]
    assert bench.keys().pending != ()


def test_answers_that_nobody_has_asked_for_are_not_kept() -> None:
    bench = made(THREE, "ABC")
    bench.knows(**states(A=5, B=6, C=7))
    assert bench.controller.resets._states == {}


def test_a_reset_is_for_the_partitions_that_it_names() -> None:
    two = ZoneSettings("z", partitions=2, replicas=3, scale_down_s=NEVER)
    for partitions, hit in (((), [0, 1]), ((1,), [1]), ((0,), [0]), ((0, 1), [0, 1])):
        bench = lost(two, partitions=partitions)
        bench.settle()
        answers = {0: LocalReplica(LocalState.HEALTHY, 5), 1: LocalReplica(LocalState.HEALTHY, 6)}
        bench.knows(A=answers, D={})
        bench.tick(RETRY_MS)
        bench.settle()
        assert [part for part in range(2) if bench.keys(part).pending] == hit


def test_a_reset_is_carried_out_once() -> None:
    bench = lost(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), alive="A")
    bench.settle()
    bench.knows(**states(A=5))
    bench.tick(RETRY_MS)
    bench.settle()
    keys = bench.keys()
    assert keys.pending
    bench.leads = False
    bench.tick()
    bench.leads = True
    bench.tick(10 * ANSWER_MS)
    bench.settle()
    assert bench.keys() == keys
    assert len(bench.questions) == 1


def test_a_reset_forgets_who_was_in_doubt() -> None:
    bench = made(THREE, "ABC", leads=False)
    bench.set_keys(switch_reduce=at("B"), switch_append=at("C"), pending=(at("AC", ts=3),))
    bench.topology("AD")
    bench.tell()
    bench.leads = True
    bench.write(recovery=RecoveryRequest(manual=True))
    bench.tell()
    bench.settle()
    bench.knows(**states(A=5, D=0))
    bench.tick(RETRY_MS)
    bench.settle()
    keys = bench.keys()
    assert keys.pending[0].force
    assert (keys.switch_reduce, keys.switch_append) == (None, None)


def test_an_operators_reset_takes_members_that_pass_the_filter_in_the_placements_order() -> None:
    bench = lost(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), alive="ADEFGH")
    bench.settle()
    bench.knows(**{name: {} for name in "DEFGH"}, **states(A=5))
    bench.tick(RETRY_MS)
    bench.settle()
    planned = bench.keys().planned
    assert planned is not None
    order = [one for one in preference("ADEFGHBC", 0, None) if one in "DEFGH"]
    assert planned.nodes == {"A", *order[:2]}


def test_an_automatic_reset_gives_way_to_a_newer_move_and_not_to_an_older_one() -> None:
    for newer in (False, True):
        bench = made(PATIENT, "ABC", leads=False)
        if not newer:
            bench.set_keys(pending=(at("AD", ts=3),))
        bench.topology("AD")
        bench.write(recovery=RecoveryRequest(manual=False))
        if newer:
            bench.set_keys(pending=(at("AD", ts=3),))
        bench.tell()
        bench.leads = True
        bench.tick()
        bench.settle()
        bench.knows(**states(A=5, D=0))
        bench.tick(RETRY_MS)
        bench.settle()
        forced = any(one.force for one in bench.keys().pending)
        assert forced is not newer


def test_what_a_reset_has_overtaken_is_made_up_for_when_it_is_done() -> None:
    bench = lost(PATIENT, manual=False, alive="A")
    asked = bench.revision(zone_key(1, "recovery"))
    bench.settle()
    bench.knows(**states(A=5))
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().pending == (at("A", force=True, ts=asked),)
    assert (bench.keys().trigger, bench.keys().planned) == (asked, None)
    keys = bench.keys()
    look_again(bench)
    assert bench.keys() == keys, "not while it is being carried out"
    bench.set_keys(pending=(), stable=at("A", ts=asked), generation=asked)
    bench.tell()
    bench.settle()
    trigger = bench.keys().trigger
    assert trigger is not None
    assert trigger > asked, "the members are looked at once more"
    look_again(bench)
    assert bench.keys().trigger == trigger, "once"


def test_a_reset_that_nothing_comes_of_holds_no_event_up() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=2, scale_down_s=NEVER), "ABC")
    bench.alter(replicas=3)
    bench.write(recovery=RecoveryRequest(manual=True))
    bench.tell()
    bench.settle()
    bench.knows(**states(A=5, B=5, C=5))
    bench.tick(RETRY_MS)
    bench.settle()
    assert [one.force for one in bench.keys().pending] == [False]
    assert bench.keys().pending[0].nodes == set("ABC")


def test_a_reset_is_one_invoke() -> None:
    bench = lost(PATIENT)
    bench.settle()
    bench.alter(replicas=4)
    bench.settle()
    bench.knows(**states(A=5, D=0))
    bench.tick(RETRY_MS)
    for ticket in list(bench.asked):
        bench.answer(ticket)
    assert len(bench.asked) == 1


def test_a_request_that_was_taken_back_is_none() -> None:
    bench = made(THREE, "ABC")
    bench.leads = False
    bench.write(recovery=RecoveryRequest(manual=True))
    bench.remove(zone_key(1, "recovery"))
    bench.tell()
    look_again(bench)
    assert (bench.questions, bench.keys().pending) == ([], ())


def test_a_reset_with_nobody_known_changes_nothing() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), "ABC")
    bench.remove(TOPOLOGY_KEY)
    bench.write(recovery=RecoveryRequest(manual=True))
    bench.tell()
    bench.settle()
    bench.tick(RETRY_MS)
    bench.settle()
    assert (bench.questions, bench.keys().pending) == ([], ())


def test_an_operator_gets_a_group_for_a_partition_without_assignments() -> None:
    bench = made(ZoneSettings("z", partitions=1, replicas=3, scale_down_s=NEVER), "ABC")
    bench.leads = False
    bench.set_keys(stable=None)
    bench.write(recovery=RecoveryRequest(manual=True))
    bench.tell()
    bench.leads = True
    touch(bench, zone_key(1, "recovery"))
    bench.settle()
    bench.knows(A={}, B={}, C={})
    bench.tick(RETRY_MS)
    bench.settle()
    keys = bench.keys()
    assert keys.pending[0].force
    assert keys.planned is not None
    assert keys.planned.nodes == set("ABC")


@pytest.mark.parametrize("survivor", "ABCD")
def test_roles_after_a_reset_go_by_the_placement_also_of_a_node_that_the_filter_leaves_out(
    survivor: str,
) -> None:
    kinds = {name: {"kind": "ssd"} for name in "ABCDEFG"}
    bench = Bench()
    bench.topology("ABCD", **kinds)
    bench.create(ZoneSettings("z", partitions=1, replicas=4, scale_down_s=NEVER), "ABCD")
    bench.leads = False
    bench.alter(filter={})
    here = {**kinds, survivor: {"kind": "disk"}}
    names = "".join(sorted({survivor, *"EFG"}))
    bench.topology(names, **here)
    settings = msgspec.structs.replace(
        ZoneSettings("z", partitions=1, replicas=4, scale_down_s=NEVER), filter={"kind": ("ssd",)}
    )
    bench.write(descriptor=ZoneDescriptor(1, settings), recovery=RecoveryRequest(manual=True))
    bench.tell()
    bench.leads = True
    touch(bench, zone_key(1, "recovery"))
    bench.settle()
    bench.knows(E={}, F={}, G={}, **states(**{survivor: 5}))
    bench.tick(RETRY_MS)
    bench.settle()
    planned = bench.keys().planned
    assert planned is not None
    order = [one for one in preference("ABCDEFG", 0, None) if one in names]
    assert (set(planned.peers), set(planned.learners)) == (set(order[:3]), set(order[3:]))


# -- quorums of zones of high availability


def test_a_quorum_that_is_away_for_too_long_is_given_up() -> None:
    bench = watched()
    bench.topology("A")
    bench.tell()
    bench.settle()
    wait(bench, 100)
    wait(bench, 6_999)
    assert recovery(bench) is None
    wait(bench, 1)
    assert recovery(bench) == RecoveryRequest(manual=False)
    first = bench.revision(zone_key(1, "recovery"))
    wait(bench, 7_000 + ANSWER_MS - 1)
    assert bench.revision(zone_key(1, "recovery")) == first, "one request at a time"
    wait(bench, 1)
    assert bench.revision(zone_key(1, "recovery")) > first


def test_a_quorum_that_is_back_in_time_is_not_given_up() -> None:
    bench = watched()
    for names in ("A", "AB", "A"):
        bench.topology(names)
        bench.tell()
        bench.settle()
        wait(bench, 6_000)
    assert recovery(bench) is None
    wait(bench, 7_000)
    assert recovery(bench) is not None


@pytest.mark.parametrize(
    ("settings", "names", "gone", "given_up"),
    [
        ({}, "ABC", "AB", False),
        ({}, "ABC", "A", True),
        ({}, "ABC", "", True),
        ({"reset_after_s": NEVER}, "ABC", "A", False),
        ({"consistency": Consistency.STRONG}, "ABC", "A", False),
        ({"replicas": 5, "quorum": 2}, "ABCDE", "ABC", False),
        ({"replicas": 5, "quorum": 3}, "ABCDE", "ABC", False),
        ({"replicas": 5, "quorum": 3}, "ABCDE", "AB", True),
        # With fewer voters than the quorum all of them are needed.
        ({"replicas": 3}, "A", "A", False),
        ({"replicas": 3}, "A", "B", True),
        ({"replicas": 5, "quorum": 3}, "AB", "AB", False),
    ],
)
def test_when_a_quorum_is_away(settings: dict[str, object], names: str, gone: str, given_up: bool) -> None:
    bench = watched(msgspec.structs.replace(WATCHED, **settings), names)
    bench.topology(gone)
    bench.tell()
    bench.settle()
    wait(bench, 100)
    wait(bench, 7_000)
    assert (recovery(bench) is not None) is given_up


def test_a_partition_that_is_being_reset_is_not_short() -> None:
    bench = watched()
    bench.leads = False
    for partition in range(2):
        bench.set_keys(partition, pending=(at("A", force=True, ts=3),))
    bench.topology("A")
    bench.tell()
    bench.leads = True
    wait(bench, 100)
    wait(bench, 7_000)
    assert recovery(bench) is None
    bench.leads = False
    bench.set_keys(1, pending=(at("AB", ts=3),))
    bench.tell()
    bench.leads = True
    wait(bench, 100)
    wait(bench, 7_000)
    assert recovery(bench) is not None


def test_one_partition_is_enough() -> None:
    for partition in range(2):
        bench = watched()
        bench.leads = False
        bench.set_keys(partition, stable=at("CDE", ts=3))
        bench.topology("AB")
        bench.tell()
        bench.leads = True
        wait(bench, 100)
        wait(bench, 7_000)
        assert recovery(bench) is not None
    other = watched()
    other.leads = False
    other.remove(part_key(1, 1, "stable"))
    other.topology("AB")
    other.tell()
    other.leads = True
    other.tick(100)
    other.tick(7_000)
    assert recovery(other) is None, "without assignments there is nothing to give up"


def test_only_the_leader_of_the_metastore_asks_for_resets() -> None:
    bench = watched()
    bench.leads = False
    bench.topology("A")
    bench.tell()
    wait(bench, 100)
    wait(bench, 20_000)
    assert recovery(bench) is None


def test_a_request_for_a_reset_is_not_written_when_members_have_come_back() -> None:
    bench = watched()
    bench.topology("A")
    bench.tell()
    bench.settle()
    bench.tick(100)
    bench.settle()
    bench.tick(7_000)
    asked = [what for what in bench.asked.values() if not isinstance(what, list)]
    assert len(asked) == 1
    bench.topology("ABC")
    bench.settle()
    assert recovery(bench) is None


def test_a_request_for_a_reset_overwrites_no_operators_request() -> None:
    bench = watched()
    bench.topology("A")
    bench.tell()
    bench.settle()
    bench.tick(100)
    bench.tick(7_000)
    bench.write(recovery=RecoveryRequest(manual=True, partitions=(1,)))
    for ticket, what in list(bench.asked.items()):
        if not isinstance(what, list):
            bench.answer(ticket)
    assert recovery(bench) == RecoveryRequest(manual=True, partitions=(1,))


def test_a_zone_of_high_availability_waits_where_nothing_is_known_of_the_cluster() -> None:
    bench = watched()
    bench.remove(TOPOLOGY_KEY)
    bench.tell()
    wait(bench, 100)
    wait(bench, 7_000)
    assert recovery(bench) is not None, "nobody is here, as far as is known"


def test_a_request_cannot_be_changed_and_unknown_fields_are_refused() -> None:
    """A newer version may want something else of a reset: nothing is guessed."""
    request = RecoveryRequest(manual=True)
    for field in request.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(request, field, getattr(request, field))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"manual": True, "newer": 1}, RecoveryRequest)

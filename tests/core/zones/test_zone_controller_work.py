"""Work of a zone controller: what is asked and asked again, how much at a time, and what fails."""

from __future__ import annotations

import pytest
from tests.core.zones.controller_bench import (
    HA,
    PART,
    PENDING,
    THREE,
    Bench,
    changed,
    configured,
    create_zone,
    group_of,
    leading,
    made,
    moving,
    put_invoke,
    stable_keys,
    touch,
)
from tests.core.zones.test_transitions import at

from holdfast.core.metastore.invoke import Absent, AllOf, Branch, Compare, If, Invoked
from holdfast.core.raft.raft_state import CaughtUp, ChangeApplied, ChangeFailed, LeaderElected
from holdfast.core.zones import leader_duties
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import TargetLock
from holdfast.core.zones.data_nodes import NodesTimer
from holdfast.core.zones.descriptors import NEVER, ZoneSettings
from holdfast.core.zones.rendezvous import EvenLayout
from holdfast.core.zones.work_queue import (
    ANSWER_MS,
    ANSWERS_AT_ONCE,
    REPORT_AFTER,
    RETRY_MOST_MS,
    RETRY_MS,
    WORKS_AT_ONCE,
    WorkKind,
)
from holdfast.core.zones.zone_commands import created, creation_keys
from holdfast.core.zones.zone_keys import (
    IDS_KEY,
    PLACES_KEY,
    TOPOLOGY_KEY,
    encoded,
    part_key,
    part_keys,
    zone_key,
)
from holdfast.core.zones.zone_resets import RecoveryRequest


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four groups change their peers at a time."""
    monkeypatch.setattr(leader_duties, "CHANGES_AT_ONCE", 4)


# -- members come, and a group follows


def test_a_member_that_comes_is_a_data_node_then_a_target_then_a_replica() -> None:
    bench = leading()
    bench.topology("ABC")
    bench.tell()
    assert bench.waits() == ["1", "1/0"], "data nodes, and the partition"
    bench.round()
    assert bench.waits() == ["invoke"], "the data nodes; for the partition nothing has changed yet"
    bench.round()
    assert bench.data_nodes().latest == set("ABC")
    bench.settle()
    keys = bench.keys()
    token = bench.revision(PENDING)
    assert keys.pending == (at("ABC", ts=bench.revision(zone_key(1, "history"))),)
    assert keys.trigger == keys.pending[0].ts
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)]
    bench.notice(CaughtUp(token))
    bench.settle()
    assert bench.keys().lock == TargetLock(token, 3)
    assert bench.takes() == [("agree", PART, 3, token)]
    bench.here[PART] = LocalCopy(True, configured("ABC", token=token))
    bench.notice(ChangeApplied(configured("ABC", token=token), 3, 77))
    bench.settle()
    after = bench.keys()
    assert (after.pending, after.lock, after.generation, after.chain) == ((), None, 0, ())
    assert after.stable == at("ABC", ts=keys.pending[0].ts)
    assert bench.takes() == []
    assert bench.settle() == 0


def test_members_that_do_not_lead_the_metastore_change_no_zone() -> None:
    bench = made(leads=False)
    bench.topology("ABC")
    bench.tell()
    bench.tick()
    bench.alter(replicas=2)
    bench.set_keys(stable=at("AB", ts=1))
    bench.tell()
    assert bench.asked == {}


@pytest.mark.rule("zones/A-18")
def test_who_is_elected_looks_at_everything_once() -> None:
    bench = made(ZoneSettings("z", partitions=3, scale_down_s=0), "AB", leads=False)
    bench.topology("ABC")
    bench.tell()
    bench.leads = True
    bench.tick()
    assert bench.waits() == ["1", "1/0", "1/1", "1/2"]
    bench.settle()
    assert bench.data_nodes().latest == set("ABC")
    bench.tick()
    assert bench.asked == {}
    bench.leads = False
    bench.tick()
    bench.leads = True
    bench.tick()
    assert bench.waits() == ["1", "1/0", "1/1", "1/2"], "and when it is elected again"


def test_who_leads_no_more_drops_what_it_was_about_to_do() -> None:
    bench = made()
    bench.topology("ABC")
    bench.leads = False
    bench.tell()
    bench.leads = True
    bench.topology("ABCD")
    bench.tell()
    first = dict(bench.asked)
    bench.leads = False
    bench.tick(5 * ANSWER_MS)
    assert bench.asked == first, "nothing is asked again"
    bench.settle()
    assert bench.asked == {}


@pytest.mark.parametrize(
    ("field", "works"),
    [
        ("descriptor", ["1", "1/0", "1/1"]),
        ("up", ["1", "1/0", "1/1"]),
        ("down", ["1", "1/0", "1/1"]),
        ("history", ["1/0", "1/1"]),
        ("layout", ["1/0", "1/1"]),
        ("recovery", ["1/0", "1/1"]),
    ],
)
def test_fields_of_a_zone_wake_what_goes_by_them(field: str, works: list[str]) -> None:
    bench = made(ZoneSettings("z", partitions=2), "AB")
    key = zone_key(1, field)
    value = bench.get(key).value
    values = {
        "up": NodesTimer(0, NEVER, ("C",)),
        "down": NodesTimer(0, NEVER, ("A",)),
        "layout": EvenLayout(("A",), 1, (("A",), ("A",))),
        "recovery": RecoveryRequest(manual=False),
    }
    if field in values:
        bench.write(**{field: values[field]})
    else:
        assert value is not None
        bench.metastore.invoke(put_invoke(bench, key, value))
    bench.tell()
    assert bench.waits() == works


@pytest.mark.parametrize(
    ("field", "leads", "group", "works"),
    [
        ("stable", True, False, ["1/1"]),
        ("switch_reduce", True, False, ["1/1"]),
        ("pending", True, False, []),
        ("planned", True, False, []),
        ("lock", True, False, []),
        ("stable", False, True, []),
        ("pending", False, True, ["1/1"]),
        ("planned", False, True, ["1/1"]),
        ("switch_reduce", False, True, ["1/1"]),
        ("trigger", True, True, []),
        ("lock", False, True, []),
        ("switch_reduce", True, True, ["1/1", "1/1"]),
    ],
)
def test_fields_of_a_partition_wake_what_goes_by_them(
    field: str, leads: bool, group: bool, works: list[str]
) -> None:
    bench = made(ZoneSettings("z", partitions=3, replicas=2), "AB", leads=leads)
    if group:
        bench.terms[1, 1] = 3
    values = {
        "stable": at("B"),
        "switch_reduce": at("C"),
        "pending": (at("AC"),),
        "planned": at("AC"),
        "lock": TargetLock(1, 1),
        "trigger": 5,
    }
    bench.set_keys(1, **{field: values[field]})
    bench.tell()
    assert bench.waits() == works


def test_a_change_of_the_topology_wakes_every_zone() -> None:
    bench = made(ZoneSettings("z", partitions=1), "AB")
    other = ZoneSettings("y", partitions=1)
    bench.metastore.invoke(created(bench.metastore.read(creation_keys(other)), other, bench.now)[1])
    bench.tell()
    bench.settle()
    bench.topology("ABC")
    bench.tell()
    assert bench.waits() == ["1", "2", "1/0", "2/0"]


def test_what_is_read_for_data_nodes_and_for_a_partition() -> None:
    bench = made(ZoneSettings("z", partitions=1), "AB")
    bench.topology("ABC")
    bench.tell()
    zone = [
        TOPOLOGY_KEY,
        *(zone_key(1, f) for f in ("descriptor", "history", "up", "down", "layout", "recovery")),
    ]
    assert list(bench.asked.values()) == [[*zone, PLACES_KEY], [*zone, *part_keys(1, 0)]]


def test_a_member_that_leads_when_it_begins_looks_at_everything() -> None:
    bench = Bench()
    bench.topology("AB")
    create_zone(bench, ZoneSettings("z", partitions=2))
    bench.controller.begin(bench.now)
    assert bench.asked == {}
    bench.tick()
    assert bench.waits() == ["1", "1/0", "1/1"]


def test_keys_that_are_no_topology_wake_no_zone() -> None:
    bench = made(ZoneSettings("z", partitions=1), "AB")
    touch(bench, IDS_KEY)
    assert bench.asked == {}


def test_what_is_left_of_a_zone_without_a_descriptor_is_no_zone() -> None:
    bench = made(ZoneSettings("z", partitions=1), "AB")
    bench.metastore.invoke(put_invoke(bench, zone_key(9, "up"), encoded(NodesTimer(0, 1, ("A",)))))
    bench.tell()
    assert bench.waits() == ["9"], "it is looked at once, and there are no partitions"
    bench.settle()
    bench.topology("ABC")
    bench.tell()
    assert bench.waits() == ["1", "1/0"]
    bench.settle()
    bench.leads = False
    bench.tick()
    bench.leads = True
    bench.tick()
    assert bench.waits() == ["1", "1/0"]


def test_a_dropped_zone_leaves_nothing_behind() -> None:
    """Zones come and go for years."""
    bench = leading(ZoneSettings("z", partitions=1, replicas=3, consistency=HA, reset_after_s=NEVER), "ABC")
    bench.topology("A")
    bench.tell()
    bench.settle()
    bench.tick()
    bench.write(recovery=RecoveryRequest(manual=True))
    bench.tell()
    bench.settle()
    bench.knows(A={})
    controller = bench.controller
    assert controller.resets._states and controller.resets._asked and controller.resets._short_since
    bench.drop()
    del bench.terms[PART]
    bench.tell()
    bench.settle()
    bench.tick()
    bench.settle()
    queue, resets, duties = controller.queue, controller.resets, controller.leading
    left = (
        queue.steps, queue.woken, queue.of_ticket, duties._reports, controller.replicas._unsettled,
        resets._states, resets._asked, resets._short_since, duties._changing, duties._queued,
    )  # fmt: skip
    assert [bool(one) for one in left] == [False] * len(left)


def test_a_dropped_zone_takes_nothing_of_others_away() -> None:
    bench = made(ZoneSettings("z", partitions=1), "AB")
    create_zone(bench, ZoneSettings("y", partitions=1))
    bench.tell()
    bench.settle()
    bench.doubted.add(PART)
    bench.here = {PART: LocalCopy(True, configured("")), (1, 5): LocalCopy(True, configured("A"))}
    for part in ((1, 5), (1, 6), (2, 6)):
        bench.notice(CaughtUp(1), part)
    bench.here[2, 7] = LocalCopy(True, configured("A"))
    bench.notice(CaughtUp(1), (2, 7))
    bench.leads = False
    touch(bench, *stable_keys(0))
    doubt = (WorkKind.DOUBT, *PART)
    assert doubt in bench.controller.queue.steps
    bench.leads = True
    other = zone_key(2, "descriptor")
    touch(bench, other)
    before = bench.waits()
    assert "2" in before
    assert (WorkKind.TRIGGER, 2, 0) in bench.controller.queue.steps
    destroy = bench.destroy
    bench.destroy = lambda part: None  # type: ignore[method-assign]
    bench.drop()
    bench.tell()
    bench.destroy = destroy  # type: ignore[method-assign]
    kinds = {(work[0], work[1]) for work in bench.controller.queue.steps}
    assert kinds == {(WorkKind.DOUBT, 1), (WorkKind.DATA_NODES, 2), (WorkKind.TRIGGER, 2)}
    assert sorted(bench.controller.leading._reports) == [(1, 5), (2, 6), (2, 7)]


def test_a_question_is_asked_again_by_the_time_at_which_it_was_asked() -> None:
    bench = made(ZoneSettings("z", partitions=1), "AB")
    bench.now += 50_000
    touch(bench, *stable_keys(0))
    asked = dict(bench.asked)
    bench.tick(ANSWER_MS - 1)
    assert bench.asked == asked
    bench.now += 50_000
    other = leading(THREE, "AB")
    other.now += 50_000
    other.notice(LeaderElected(3))
    asked = dict(other.asked)
    assert len(asked) == 1
    other.tick(ANSWER_MS - 1)
    assert other.asked == asked


def test_what_changes_while_a_question_is_open_is_looked_at_once_more_and_once() -> None:
    bench = made(ZoneSettings("z", partitions=3), "AB")
    touch(bench, *stable_keys(0))
    first = dict(bench.asked)
    touch(bench, *stable_keys(0, 1, 0))
    assert bench.waits() == ["1/0", "1/1"]
    assert first.items() <= bench.asked.items(), "the same question"
    bench.answer(min(first))
    assert bench.waits() == ["1/1", "1/0"]
    assert bench.settle() == 2


def test_late_questions_make_room_for_what_has_to_wait() -> None:
    bench = made(ZoneSettings("z", partitions=3 * WORKS_AT_ONCE), "AB")
    touch(bench, *stable_keys(*range(1, 2 * WORKS_AT_ONCE + 1)))
    late = bench.waits()
    assert len(bench.asked) == ANSWERS_AT_ONCE == 2
    touch(bench, *stable_keys(0))
    assert bench.waits() == late
    bench.tick(ANSWER_MS)
    assert len(bench.asked) == 2 * ANSWERS_AT_ONCE, "as many again as are late"
    assert bench.waits()[len(late) :] == [f"1/{partition}" for partition in range(2 * WORKS_AT_ONCE)]


@pytest.mark.parametrize("kind", ["data nodes", "trigger", "group", "doubt"])
def test_a_race_that_was_lost_is_read_again_at_once(kind: str) -> None:
    """Although this member has not heard yet of what has changed."""
    bench = leading(THREE, "AB")
    if kind in ("data nodes", "trigger"):
        bench.alter(replicas=1) if kind == "trigger" else bench.topology("ABC")
        bench.tell()
        read = next(iter(bench.asked)) if kind == "data nodes" else list(bench.asked)[-1]
        for ticket in list(bench.asked):
            if ticket == read:
                bench.answer(ticket)
        invoke = max(bench.asked)
    else:
        bench.leads = False
        if kind == "doubt":
            bench.doubted.add(PART)
        bench.set_keys(pending=(at("ABC", ts=4),), switch_reduce=at("B") if kind == "group" else None)
        bench.tell()
        if kind == "doubt":
            del bench.terms[PART]
        for ticket in list(bench.asked):
            bench.answer(ticket)
        (invoke,) = bench.asked
    assert not isinstance(bench.asked[invoke], list)
    bench.asked.pop(invoke)
    before = set(bench.asked)
    bench.controller.on_invoked(invoke, Invoked(0, 99))
    (again,) = bench.asked.keys() - before
    assert isinstance(bench.asked[again], list)


@pytest.mark.rule("zones/A-17")
def test_an_answer_to_a_question_of_an_earlier_term_has_no_effect() -> None:
    bench, token = moving()
    (old,) = bench.asked
    bench.terms[PART] = 5
    bench.notice(LeaderElected(5))
    (new,) = set(bench.asked) - {old}
    bench.answer(old)
    assert (set(bench.asked), bench.takes()) == ({new}, [])
    bench.settle()
    assert bench.takes() == [("change", PART, 5, "ABC", "", token)]


def test_a_leader_that_is_elected_again_has_no_failures() -> None:
    bench, token = moving()
    bench.settle()
    for _ in range(REPORT_AFTER):
        bench.notice(ChangeFailed(token, "x"))
    assert len(bench.controller.queue.troubles) == 1
    bench.terms[PART] = 4
    bench.notice(LeaderElected(4))
    assert (bench.controller.queue.troubles, bench.waits()) == ([], ["1/0"])


def test_failures_of_a_group_that_another_member_leads_are_forgotten_in_time() -> None:
    bench, token = moving()
    bench.settle()
    for _ in range(REPORT_AFTER):
        bench.notice(ChangeFailed(token, "x"))
    del bench.terms[PART]
    bench.tick(2 * RETRY_MOST_MS)
    assert (bench.controller.queue.troubles, bench.asked) == ([], {})


def test_a_group_with_another_leader_gives_its_place_to_the_next_at_once(four: None) -> None:
    bench = made(ZoneSettings("z", partitions=8, replicas=3), "AB")
    group_of(bench, 5)
    bench.settle()
    bench.terms[1, 0] = 5
    bench.notice(LeaderElected(5), (1, 0))
    assert bench.waits() == ["1/4", "1/0"] or bench.waits() == ["1/0", "1/4"]


def test_a_group_whose_change_has_failed_gives_its_place_to_the_next_at_once(four: None) -> None:
    bench = made(ZoneSettings("z", partitions=8, replicas=3), "AB")
    group_of(bench, 5)
    bench.settle()
    bench.notice(ChangeFailed(bench.revision(part_key(1, 0, "pending")), "x"), (1, 0))
    assert bench.waits() == ["1/4"]


@pytest.mark.parametrize("kind", [CaughtUp(1), ChangeFailed(1, "x"), LeaderElected(3)])
def test_members_that_lead_no_group_ask_nothing_for_it(kind: object) -> None:
    bench = made(THREE, "AB", leads=False)
    bench.notice(kind)  # type: ignore[arg-type]
    bench.set_keys(pending=(at("ABC", ts=4),))
    bench.tell()
    bench.tick(10 * RETRY_MOST_MS)
    assert bench.asked == {}


# -- failures


@pytest.mark.rule("zones/A-19")
def test_failures_are_repeated_ever_more_slowly_and_somebody_is_told() -> None:
    bench, token = moving()
    bench.settle()
    waits = []
    for attempt in range(1, 22):
        bench.takes()
        bench.notice(ChangeFailed(token, f"failure {attempt}"))
        assert bench.asked == {}
        assert bench.controller.queue.troubles == (
            [(1, 0, attempt, f"failure {attempt}")] if attempt >= REPORT_AFTER else []
        )
        wait = bench.jitters[-1]
        waits.append(wait)
        bench.tick(wait - 1)
        assert bench.asked == {}, "not earlier, whatever else happens"
        bench.tick(1)
        bench.settle()
        assert bench.takes() == [("change", PART, 3, "ABC", "", token)]
    assert waits == [200, 400, 800, 1600, 3200, 6400] + 15 * [10_000]
    assert bench.failures == [(PART, 10, "failure 10"), (PART, 20, "failure 20")]
    bench.set_keys(pending=(at("ABD", ts=9),))
    bench.tell()
    assert bench.controller.queue.troubles == []
    bench.settle()
    bench.notice(ChangeFailed(bench.revision(PENDING), "another"))
    assert bench.jitters[-1] == 200, "another target begins anew"


def test_a_failure_without_a_lock_needs_no_write() -> None:
    bench, token = moving()
    bench.settle()
    bench.takes()
    bench.notice(ChangeFailed(token, "x"))
    bench.tick(RETRY_MS)
    (ticket,) = bench.asked
    bench.answer(ticket)
    assert (bench.asked, bench.takes()) == ({}, [("change", PART, 3, "ABC", "", token)])


def test_jitter_is_added_to_a_wait() -> None:
    bench, token = moving()
    bench.settle()
    bench.jitter_ms = 50
    bench.notice(ChangeFailed(token, "x"))
    bench.tick(RETRY_MS + 49)
    assert bench.asked == {}
    bench.tick(1)
    assert bench.waits() == ["1/0"]


def test_a_success_ends_the_failures() -> None:
    bench, token = moving()
    bench.settle()
    for _ in range(REPORT_AFTER):
        bench.notice(ChangeFailed(token, "x"))
    assert len(bench.controller.queue.troubles) == 1
    bench.notice(ChangeApplied(configured("ABC", token=token), 3, 50))
    assert bench.controller.queue.troubles == []
    assert bench.waits() == ["1/0"], "and it is told at once"


def test_a_failure_of_who_leads_no_more_counts_for_nothing() -> None:
    bench, token = moving()
    bench.settle()
    bench.takes()
    del bench.terms[PART]
    for _ in range(REPORT_AFTER):
        bench.notice(ChangeFailed(token, "x"))
    assert (bench.failures, bench.controller.queue.troubles, bench.asked) == ([], [], {})
    assert PART not in bench.controller.leading._changing


def test_another_term_begins_without_what_the_one_before_has_told() -> None:
    bench, token = moving()
    bench.settle()
    bench.notice(ChangeFailed(token, "x"))
    bench.notice(ChangeApplied(configured("ABC", token=token), 3, 50))
    bench.terms[PART] = 4
    bench.notice(LeaderElected(4))
    bench.settle()
    assert bench.keys().pending == (at("ABC", ts=4),), "the new leader has told nothing yet"
    assert bench.controller.queue.troubles == []


# -- only so much at a time


@pytest.mark.rule("zones/A-24")
def test_only_so_many_answers_are_waited_for_and_in_order() -> None:
    count = 3 * WORKS_AT_ONCE
    bench = made(ZoneSettings("z", partitions=count, replicas=2, scale_down_s=0), "AB")
    bench.alter(replicas=1)
    bench.tell()
    first = ["1", *(f"1/{partition}" for partition in range(WORKS_AT_ONCE))]
    assert bench.waits() == first
    assert len(bench.asked) == ANSWERS_AT_ONCE
    bench.answer(min(bench.asked))
    assert bench.waits() == [*first[1:], *(f"1/{one}" for one in range(WORKS_AT_ONCE, 2 * WORKS_AT_ONCE))]
    bench.tick(ANSWER_MS - 101)
    assert len(bench.asked) == ANSWERS_AT_ONCE
    bench.settle()
    assert all(bench.keys(partition).pending for partition in range(count))


@pytest.mark.rule("zones/A-31")
def test_partitions_share_reads_and_revisions() -> None:
    count = 2 * WORKS_AT_ONCE + 3
    bench = made(ZoneSettings("z", partitions=count, replicas=2, scale_down_s=0), "AB")
    bench.alter(replicas=1)
    before = bench.metastore.revision
    bench.settle()
    assert bench.metastore.revision == before + 3
    written = {bench.revision(part_key(1, partition, "pending")) for partition in range(count)}
    assert written == {before + 1, before + 2, before + 3}


@pytest.mark.rule("zones/A-31")
def test_a_partition_that_changes_again_and_again_holds_up_no_other() -> None:
    """The shared invoke fails, and the next ones are of one partition each."""
    bench = made(ZoneSettings("z", partitions=4, replicas=2, scale_down_s=0), "AB")
    bench.alter(replicas=1)
    bench.tell()
    first = True
    for _ in range(20):
        for ticket in list(bench.asked):
            what = bench.asked[ticket]
            if not isinstance(what, list) and (first or PART_1 in _guarded(what)):
                bench.set_keys(1, lock=TargetLock(bench.metastore.revision, 1))
                first = False
            bench.answer(ticket)
    assert [bool(bench.keys(partition).pending) for partition in range(4)] == [True, False, True, True]
    bench.settle()
    assert bench.keys(1).pending
    assert [step.alone for step in bench.controller.queue.steps.values()] == [False] * 5


PART_1 = part_key(1, 1, "pending")


def _guarded(branch: Branch) -> set[bytes]:
    """The keys of which an invoke demands that they are unchanged."""
    assert isinstance(branch, If) and isinstance(branch.condition, AllOf)
    return {one.key for one in branch.condition.conditions if isinstance(one, Absent | Compare)}


@pytest.mark.rule("zones/A-17")
def test_an_answer_that_is_late_is_asked_for_again_and_then_has_no_effect() -> None:
    bench = made(ZoneSettings("z", partitions=30, replicas=2, scale_down_s=0), "AB")
    bench.jitter_ms = 40
    bench.alter(replicas=1)
    bench.tell()
    assert set(bench.jitters) == {ANSWER_MS}
    late = dict(bench.asked)
    bench.tick(ANSWER_MS + 39)
    assert bench.asked == late
    bench.tick(1)
    again = {ticket: what for ticket, what in bench.asked.items() if ticket not in late}
    assert list(again.values()) == list(late.values()), "the same, although no further one may be asked"
    for ticket, what in late.items():
        assert isinstance(what, list)
        del bench.asked[ticket]
        bench.controller.on_read(ticket, [bench.get(key) for key in what], bench.metastore.revision)
    assert bench.asked == again
    bench.settle()
    assert all(bench.keys(partition).pending for partition in range(30))


@pytest.mark.rule("zones/A-17")
def test_a_late_answer_to_an_invoke_has_no_effect() -> None:
    bench, token = moving()
    bench.settle()
    bench.notice(CaughtUp(token))
    (ticket,) = bench.asked
    bench.answer(ticket)
    (lock,) = bench.asked
    bench.tick(ANSWER_MS)
    bench.takes()
    bench.controller.on_invoked(lock, Invoked(1, 99))
    assert bench.takes() == []
    for unknown in (0, 999):
        bench.controller.on_read(unknown, [], 1)
        bench.controller.on_invoked(unknown, Invoked(1, 1))
    del bench.asked[lock]
    assert bench.waits() == ["1/0"]


@pytest.mark.rule("zones/A-24")
def test_only_so_many_groups_change_their_peers_and_the_next_ones_follow_in_order(four: None) -> None:
    bench = made(ZoneSettings("z", partitions=8, replicas=3), "AB")
    group_of(bench, 8)
    bench.settle()
    assert changed(bench) == [0, 1, 2, 3]
    bench.tick()
    assert bench.asked == {}
    for done, following in ((2, 4), (0, 5)):
        token = bench.revision(part_key(1, done, "pending"))
        bench.here[1, done] = LocalCopy(True, configured("ABC", token=token))
        bench.notice(ChangeApplied(configured("ABC", token=token), 3, 9), (1, done))
        bench.settle()
        assert changed(bench) == [following]
    bench.notice(ChangeFailed(bench.revision(part_key(1, 1, "pending")), "x"), (1, 1))
    bench.settle()
    assert changed(bench) == [6], "the one that failed waits for its turn"
    bench.terms[1, 3] = 5
    bench.tick(50)
    bench.settle()
    assert changed(bench) == [7], "in another term another change begins"
    del bench.terms[1, 4]
    bench.tick(RETRY_MS)
    bench.settle()
    assert changed(bench) == [1]


@pytest.mark.rule("zones/A-24")
def test_a_group_whose_turn_it_is_and_that_needs_none_gives_it_to_the_next(four: None) -> None:
    bench = made(ZoneSettings("z", partitions=8, replicas=3), "AB")
    group_of(bench, 6)
    bench.settle()
    assert changed(bench) == [0, 1, 2, 3]
    del bench.terms[1, 4]
    bench.notice(ChangeFailed(bench.revision(part_key(1, 0, "pending")), "x"), (1, 0))
    bench.settle()
    bench.tick()
    bench.settle()
    assert changed(bench) == [5]


def test_a_group_that_changes_already_may_be_told_of_another_target(four: None) -> None:
    bench = made(ZoneSettings("z", partitions=8, replicas=3), "AB")
    group_of(bench, 5)
    bench.settle()
    assert changed(bench) == [0, 1, 2, 3]
    bench.set_keys(3, pending=(at("ABD", ts=5),))
    bench.settle()
    assert changed(bench) == [3]
    bench.set_keys(4, pending=(at("ABD", ts=5),))
    bench.settle()
    assert changed(bench) == []

"""Groups that a zone controller leads: changes of peers, locks, cancellations and completions."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.zones.controller_bench import (
    CANCEL,
    PART,
    PENDING,
    THREE,
    configured,
    distinct,
    group_of,
    leading,
    made,
    moving,
)
from tests.core.zones.test_transitions import at

from holdfast.core.raft.raft_state import CaughtUp, ChangeApplied, ChangeFailed, LeaderElected
from holdfast.core.raft.reconfiguration import ChangeAnswer
from holdfast.core.zones import leader_duties
from holdfast.core.zones.adjusting import LocalCopy
from holdfast.core.zones.assignments import ChainLink, TargetLock
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast.core.zones.rendezvous import placed
from holdfast.core.zones.work_queue import RETRY_MOST_MS, RETRY_MS, WorkKind
from holdfast.core.zones.zone_keys import (
    zone_key,
)

# -- groups


@pytest.mark.rule("zones/A-16")
def test_a_leader_that_is_elected_brings_the_group_to_the_head_of_pending() -> None:
    bench, token = moving()
    bench.settle()
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)]
    bench.terms[PART] = 5
    bench.notice(LeaderElected(5))
    bench.settle()
    assert bench.takes() == [("change", PART, 5, "ABC", "", token)]
    bench.tick(RETRY_MOST_MS - 1)
    assert bench.asked == {}
    bench.tick(1)
    assert bench.waits() == ["1/0"], "the notice may have been lost"


def test_roles_are_asked_for_as_they_are_wanted() -> None:
    bench, token = moving(pending=(at("AC", "B"), at("AD")))
    bench.settle()
    assert bench.takes() == [("change", PART, 3, "AC", "B", token)]


@pytest.mark.parametrize("left", ["term", "copy", "zone"])
def test_a_leader_without_a_group_or_a_zone_does_nothing(left: str) -> None:
    bench, _ = moving()
    assert bench.waits() == ["1/0"]
    if left == "term":
        del bench.terms[PART]
    elif left == "copy":
        del bench.here[PART]
    else:
        bench.remove(zone_key(1, "descriptor"))
    (ticket,) = bench.asked
    bench.answer(ticket)
    assert (bench.asked, bench.takes()) == ({}, [])
    assert (WorkKind.GROUP, *PART) not in bench.controller.queue.steps
    bench.tick(10 * RETRY_MOST_MS)
    assert (bench.asked, [one for one in bench.takes() if one[0] == "change"]) == ({}, [])


@pytest.mark.rule("zones/A-23")
def test_a_leader_of_an_older_generation_does_nothing() -> None:
    for mine in (8, 9, 10):
        bench, token = moving()
        bench.settle()
        bench.takes()
        bench.here[PART] = LocalCopy(True, configured("AB", token=9), 9)
        bench.set_keys(generation=9)
        bench.tell()
        bench.notice(LeaderElected(3))
        bench.here[PART] = LocalCopy(True, configured("AB", token=9), mine)
        bench.settle()
        assert bench.takes() == ([("change", PART, 3, "ABC", "", token)] if mine >= 9 else [])
        assert ((WorkKind.GROUP, *PART) in bench.controller.queue.steps) is (mine >= 9)


@pytest.mark.parametrize(
    ("answer", "again_ms", "frees"),
    [
        (ChangeAnswer.STARTED, RETRY_MOST_MS, False),
        (ChangeAnswer.REPLACED, RETRY_MOST_MS, False),
        (ChangeAnswer.BUSY, RETRY_MS, True),
        (ChangeAnswer.DONE, None, True),
        (ChangeAnswer.STALE, None, True),
        (ChangeAnswer.OLD_TERM, None, True),
    ],
)
def test_answers_of_a_group(answer: ChangeAnswer, again_ms: int | None, frees: bool) -> None:
    bench, token = moving()
    bench.answers[PART] = answer
    bench.jitter_ms = 7
    bench.settle()
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)]
    assert (PART not in bench.controller.leading._changing) is frees
    if again_ms is None:
        bench.tick(10 * RETRY_MOST_MS)
        assert bench.asked == {}
    else:
        assert bench.jitters[-1] == again_ms
        bench.tick(again_ms + 6)
        assert bench.asked == {}
        bench.tick(1)
        assert bench.waits() == ["1/0"]


def test_a_group_that_refuses_is_led_by_another_member() -> None:
    bench, _ = moving()
    bench.refusing = True
    bench.settle()
    assert len(bench.takes()) == 1
    assert PART not in bench.controller.leading._changing
    bench.tick(10 * RETRY_MOST_MS)
    assert bench.asked == {}


def test_a_group_that_is_where_it_is_to_be_is_asked_to_say_so() -> None:
    """The leader before has changed the peers, and died before it told the metastore."""
    bench, token = moving()
    bench.here[PART] = LocalCopy(True, configured("ABC", token=token))
    bench.answers[PART] = ChangeAnswer.DONE
    bench.settle()
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)]
    bench.notice(ChangeApplied(configured("ABC", token=token), 2, 40))
    bench.settle()
    assert bench.keys().stable == at("ABC", ts=4)
    assert bench.keys().pending == ()


def test_a_change_is_cancelled_for_what_is_planned() -> None:
    bench, token = moving(CANCEL, planned=at("ABD", ts=6))
    bench.settle()
    assert distinct(bench) == [
        ("cancel", PART, 3, token),
        ("change", PART, 3, "ABD", "", bench.revision(PENDING)),
    ]
    keys = bench.keys()
    assert (keys.pending, keys.planned) == ((at("ABD", ts=6),), None)


def test_a_change_that_is_joined_already_is_not_cancelled() -> None:
    bench, token = moving(CANCEL, planned=at("ABD", ts=6))
    bench.cancels = False
    bench.settle()
    assert bench.takes() == [("cancel", PART, 3, token), ("change", PART, 3, "ABC", "", token)]
    assert bench.keys().planned == at("ABD", ts=6)


def test_a_zone_that_replaces_its_targets_cancels_nothing() -> None:
    bench, token = moving(planned=at("ABD", ts=6))
    bench.settle()
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)]


def test_a_cancellation_that_is_refused_is_led_by_another_member() -> None:
    bench, token = moving(CANCEL, planned=at("ABD", ts=6))
    bench.refusing = True
    bench.settle()
    assert bench.takes() == [("cancel", PART, 3, token)]


def test_a_cancelled_change_gives_its_place_to_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_duties, "CHANGES_AT_ONCE", 4)
    bench = made(msgspec.structs.replace(CANCEL, partitions=8), "AB")
    group_of(bench, 5)
    bench.settle()
    bench.set_keys(0, planned=at("ABD", ts=6))
    bench.tell()
    assert bench.waits() == ["1/0"]
    bench.answer(min(bench.asked))
    assert bench.waits() == ["invoke", "1/4"]


# -- locks


@pytest.mark.rule("zones/A-12")
def test_a_target_that_was_replaced_is_not_joined() -> None:
    bench, token = moving()
    bench.settle()
    bench.takes()
    bench.notice(CaughtUp(token - 1))
    bench.settle()
    assert bench.keys().lock is None
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)], "it goes on with the present one"
    bench.notice(CaughtUp(token))
    (ticket,) = bench.asked
    bench.answer(ticket)
    bench.set_keys(pending=(at("ABD", ts=5),))
    bench.settle()
    assert bench.keys().lock is None, "the target was replaced while the lock was being written"
    assert ("agree", PART, 3, token) not in bench.takes()


def test_new_voters_that_are_gone_again_are_waited_for_again() -> None:
    bench, token = moving()
    bench.settle()
    bench.takes()
    bench.agrees = False
    bench.notice(CaughtUp(token))
    bench.settle()
    assert bench.takes() == [("agree", PART, 3, token), ("change", PART, 3, "ABC", "", token)]
    bench.agrees = True
    bench.notice(CaughtUp(token))
    bench.settle()
    assert bench.takes() == [("agree", PART, 3, token)]


def test_a_leader_that_was_deposed_while_it_locked_joins_nobody() -> None:
    bench, token = moving()
    bench.settle()
    bench.takes()
    bench.notice(CaughtUp(token))
    (ticket,) = bench.asked
    bench.answer(ticket)
    assert bench.waits() == ["invoke"]
    del bench.terms[PART]
    bench.settle()
    assert bench.takes() == []


@pytest.mark.rule("zones/A-13")
def test_a_change_that_failed_frees_its_target_and_is_tried_again() -> None:
    bench, token = moving()
    bench.settle()
    bench.notice(CaughtUp(token))
    bench.settle()
    bench.takes()
    assert bench.keys().lock == TargetLock(token, 3)
    bench.notice(ChangeFailed(token, "C does not answer"))
    bench.settle()
    assert bench.keys().lock == TargetLock(token, 3), "in time, not at once"
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().lock is None
    assert bench.takes() == [("change", PART, 3, "ABC", "", token)]


@pytest.mark.rule("zones/A-13")
def test_a_leader_that_is_elected_takes_no_lock_away() -> None:
    bench, token = moving()
    bench.set_keys(lock=TargetLock(token, 2))
    bench.settle()
    assert bench.keys().lock == TargetLock(token, 2)
    assert distinct(bench) == [("change", PART, 3, "ABC", "", token)]


@pytest.mark.rule("zones/A-13")
def test_a_late_failure_does_not_take_a_later_leaders_lock() -> None:
    bench, token = moving()
    bench.settle()
    bench.set_keys(lock=TargetLock(token, 4))
    bench.notice(ChangeFailed(token, "late"))
    bench.tick(RETRY_MS)
    bench.settle()
    assert bench.keys().lock == TargetLock(token, 4)


# -- completions


@pytest.mark.rule("zones/A-20")
def test_a_completion_of_another_target_is_dropped() -> None:
    bench, token = moving()
    bench.settle()
    bench.takes()
    for configuration in (configured("ABC", token=token - 1), configured("ABD", token=token)):
        bench.notice(ChangeApplied(configuration, 3, 50))
        bench.settle()
        assert bench.keys().pending == (at("ABC", ts=4),)
        assert bench.takes() == [("change", PART, 3, "ABC", "", token)]
    assert bench.settle() == 0


def test_a_completion_says_where_in_the_log_it_is_and_the_next_target_follows() -> None:
    chain = (ChainLink(at("AB")),)
    bench, token = moving(planned=at("ABD", ts=6), chain=chain, lock=TargetLock(1, 3))
    bench.settle()
    bench.takes()
    bench.here[PART] = LocalCopy(True, configured("ABC", token=token))
    bench.notice(ChangeApplied(configured("ABC", token=token), 2, 50))
    bench.settle()
    keys = bench.keys()
    assert keys.chain == (ChainLink(at("ABC", ts=4), 2, 50),)
    assert (keys.pending, keys.planned, keys.lock) == ((at("ABD", ts=6),), None, None)
    assert distinct(bench) == [("change", PART, 3, "ABD", "", bench.revision(PENDING))]


def test_a_completed_reset_begins_a_generation() -> None:
    pending = (at("A", force=True, ts=4), at("AC", ts=4))
    bench, token = moving(pending=pending, generation=2)
    bench.here[PART] = LocalCopy(True, configured("A", token=token), token)
    bench.settle()
    bench.takes()
    bench.notice(ChangeApplied(configured("A", token=token), 9, 50))
    bench.settle()
    assert bench.keys().generation == token
    assert bench.keys().pending == (at("AC", ts=4),)


def test_a_forced_head_is_not_asked_for_before_the_reset_is_done() -> None:
    bench, token = moving(pending=(at("A", force=True, ts=4),))
    bench.here[PART] = LocalCopy(True, configured("A", token=token - 1))
    bench.settle()
    assert [one for one in bench.takes() if one[0] == "change"] == []
    bench.here[PART] = LocalCopy(True, configured("A", token=token))
    bench.notice(LeaderElected(3))
    bench.settle()
    assert ("change", PART, 3, "A", "", token) in bench.takes()


def test_a_reset_that_left_others_in_the_group_is_not_completed_by_asking() -> None:
    bench, token = moving(pending=(at("A", force=True, ts=4),))
    bench.settle()
    bench.takes()
    bench.here[PART] = LocalCopy(True, configured("AB", token=token), token)
    bench.notice(LeaderElected(3))
    bench.settle()
    assert [one for one in bench.takes() if one[0] == "change"] == []


def test_a_completion_that_lost_a_race_is_told_again() -> None:
    bench, token = moving()
    bench.settle()
    bench.here[PART] = LocalCopy(True, configured("ABC", token=token))
    bench.notice(ChangeApplied(configured("ABC", token=token), 3, 50))
    (ticket,) = bench.asked
    bench.answer(ticket)
    assert bench.waits() == ["invoke"]
    bench.set_keys(planned=at("ABD", ts=6))
    bench.settle()
    keys = bench.keys()
    assert (keys.stable, keys.pending) == (at("ABC", ts=4), (at("ABD", ts=6),))


def test_a_group_that_says_what_it_always_was_changes_nothing() -> None:
    """Its first configuration has token 0, and nothing was ever pending."""
    bench = leading(THREE, "AB")
    before = bench.keys()
    bench.notice(ChangeApplied(configured("AB"), 3, 1))
    bench.settle()
    assert (bench.keys(), bench.takes()) == (before, [])


def test_a_replica_comes_back_by_the_placement_of_its_own_partition() -> None:
    settings = ZoneSettings("z", partitions=2, replicas=2, scale_down_s=0)
    names = "ABCDEFG"
    first, other = (placed(names, partition, settings).nodes for partition in range(2))
    (back, *_), (stays, *_) = sorted(first - other), sorted(first)
    bench = made(settings, names)
    stays = next(node for node in sorted(first) if node != back)
    bench.leads = False
    bench.here[PART] = LocalCopy(True, configured(stays))
    bench.terms[PART] = 3
    bench.set_keys(
        pending=(at(stays, ts=4),), switch_reduce=at(back), stable=at("".join(sorted(first)), ts=1)
    )
    token = bench.revision(PENDING)
    bench.tell()
    bench.settle()
    bench.here[PART] = LocalCopy(True, configured(stays, token=token))
    bench.notice(ChangeApplied(configured(stays, token=token), 3, 50))
    bench.settle()
    assert [one.nodes for one in bench.keys().pending] == [first]


def test_replicas_that_were_reduced_come_back_if_the_placement_wants_them() -> None:
    bench, token = moving(pending=(at("B", ts=4),), switch_reduce=at("A"))
    bench.here[PART] = LocalCopy(True, configured("B", token=token))
    bench.notice(ChangeApplied(configured("B", token=token), 3, 50))
    bench.settle()
    keys = bench.keys()
    assert (keys.stable, keys.pending, keys.switch_reduce) == (at("B", ts=4), (at("AB", ts=4),), None)


def test_a_target_that_names_a_replica_in_doubt_is_adjusted_first() -> None:
    bench, _ = moving(switch_reduce=at("B"))
    bench.settle()
    assert bench.keys().pending == (at("AC", ts=4),)
    token = bench.revision(PENDING)
    assert distinct(bench) == [("change", PART, 3, "AC", "", token)]

"""A target that changes while its group moves: replaced under a lock, or given up; and what members and leaders do."""

from __future__ import annotations

import pytest
from tests.core.zones.test_transitions import applied, at, shown, wants_reset

from holdfast.core.raft.configuration import Configuration
from holdfast.core.zones.adjusting import (
    LeaderDuty,
    LocalCopy,
    ReplicaDuty,
    cancelled,
    change_failed,
    leader_duty,
    replica_duty,
    try_catch_up_finish,
)
from holdfast.core.zones.assignments import PartitionKeys, TargetLock
from holdfast.core.zones.transitions import Result, Transition, update_pending


def triggered(keys: PartitionKeys, peers: str, ts: int) -> Transition:
    return update_pending(
        keys, calculated=at(peers), known_stable=keys.stable, event_ts=ts, assignments_ts=ts, replaces=True
    )


def finish(
    keys: PartitionKeys, token: int = 7, revision: int = 7, term: int = 2
) -> tuple[bool, PartitionKeys]:
    return try_catch_up_finish(keys, token=token, pending_revision=revision, term=term)


MOVING = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), trigger=1)


@pytest.mark.rule("zones/A-12")
def test_a_target_is_replaced_until_it_is_locked_and_then_what_is_new_waits() -> None:
    """Scenario 56, without the group."""
    result, keys = triggered(MOVING, "ABD", 2)
    assert (result, shown(keys)) == (Result.PENDING_KEY_UPDATED, "S=AB P=ABD N=- T=2")
    assert finish(keys, token=6) == (False, keys), "it is not the target any more"
    may, locked = finish(keys)
    assert may
    assert locked.lock == TargetLock(7, 2)
    result, keys = triggered(locked, "ABE", 3)
    assert (result, shown(keys)) == (Result.PLANNED_KEY_UPDATED, "S=AB P=ABD N=ABE T=3")
    result, keys = applied(keys, "ABD")
    assert (result, shown(keys), keys.lock) == (
        Result.SCHEDULE_PENDING_REBALANCE,
        "S=ABD P=ABE N=- T=3",
        None,
    )


def test_the_target_goes_back_to_where_the_group_is() -> None:
    """It is written, not removed: a change is under way that has to be told."""
    planned = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), planned=at("ABE"), trigger=1)
    result, keys = triggered(planned, "AB", 2)
    assert (result, shown(keys)) == (Result.PENDING_KEY_UPDATED, "S=AB P=AB N=- T=2")
    result, keys = applied(keys, "AB")
    assert (result, shown(keys)) == (Result.FINISH_REBALANCE, "S=AB P=- N=- T=2")
    assert triggered(planned, "ABC", 2)[0] is Result.PLANNED_KEY_REMOVED_EQUALS_PENDING


def test_a_reset_is_not_replaced() -> None:
    for pending in ((at("A", force=True),), (at("AB", from_reset=True),), (at("A"), at("AB"))):
        result, _ = triggered(PartitionKeys(stable=at("ABC"), pending=pending), "CD", 2)
        assert result is Result.PLANNED_KEY_UPDATED


@pytest.mark.rule("zones/A-13")
def test_a_lock_is_taken_over_by_later_leaders_and_never_by_earlier_ones() -> None:
    """Scenario 58, without the group."""
    locked = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), lock=TargetLock(7, 2))
    assert finish(locked, term=3) == (True, PartitionKeys(at("AB"), (at("ABC"),), lock=TargetLock(7, 3)))
    assert finish(locked, term=1) == (False, locked)
    assert change_failed(locked, term=1) == locked
    assert change_failed(locked, term=2).lock is None
    assert change_failed(MOVING, term=2) == MOVING
    assert finish(PartitionKeys(stable=at("AB"))) == (False, PartitionKeys(stable=at("AB")))
    _, reset = wants_reset(locked, "C")
    assert reset.lock is None or reset == locked


def test_what_waits_takes_the_place_of_what_was_given_up_once() -> None:
    """Scenario 57, without the group."""
    keys = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), planned=at("ABD"))
    after = cancelled(keys, token=7, pending_revision=7)
    assert shown(after) == "S=AB P=ABD N=- T=None"
    assert cancelled(after, token=7, pending_revision=9) == after, "repeated"
    assert cancelled(keys, token=6, pending_revision=7) == keys
    forced = PartitionKeys(stable=at("AB"), pending=(at("A", force=True),), planned=at("AD", from_reset=True))
    assert cancelled(forced, token=7, pending_revision=7) == forced


def has(voters: str, learners: str = "", token: int = 0, old: str = "") -> Configuration:
    return Configuration(frozenset(voters), frozenset(old), frozenset(learners), token=token)


@pytest.mark.rule("zones/A-16")
def test_a_leader_that_was_elected_goes_on_or_brings_to_an_end() -> None:
    def duty(keys: PartitionKeys, configuration: Configuration, *, cancels: bool = False) -> LeaderDuty:
        return leader_duty(keys, configuration, pending_revision=7, cancels=cancels)

    assert duty(PartitionKeys(stable=at("AB")), has("AB")) is LeaderDuty.NOTHING
    assert duty(MOVING, has("AB")) is LeaderDuty.CHANGE_PEERS
    assert duty(MOVING, has("ABC", token=7)) is LeaderDuty.TELL_APPLIED
    assert duty(MOVING, has("ABC", token=7, old="AB")) is LeaderDuty.CHANGE_PEERS, "joint is not there yet"
    waits = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), planned=at("ABD"))
    assert duty(waits, has("AB"), cancels=True) is LeaderDuty.CANCEL
    assert duty(waits, has("ABC", token=7, old="AB"), cancels=True) is LeaderDuty.CHANGE_PEERS
    assert duty(waits, has("AB")) is LeaderDuty.CHANGE_PEERS
    forced = PartitionKeys(stable=at("AB"), pending=(at("A", force=True),))
    assert duty(forced, has("AB")) is LeaderDuty.NOTHING, "no majority is asked"


def test_who_has_a_replica_and_how_it_begins() -> None:
    def duty(keys: PartitionKeys, me: str, copy: LocalCopy | None = None) -> ReplicaDuty:
        return replica_duty(me, keys, copy, stable_revision=5, pending_revision=7)

    running = LocalCopy(True, has("AB"))
    assert duty(MOVING, "A") is ReplicaDuty.FOUND
    assert duty(MOVING, "A", running) is ReplicaDuty.RUN
    assert duty(MOVING, "C") is ReplicaDuty.JOIN, "it could elect itself otherwise"
    assert duty(MOVING, "D") is ReplicaDuty.NONE
    moved = PartitionKeys(stable=at("AB", ts=3))
    assert duty(moved, "A") is ReplicaDuty.JOIN, "the others have moved since the beginning"


@pytest.mark.rule("zones/A-14")
def test_a_replica_is_destroyed_when_nobody_names_it_and_never_earlier() -> None:
    def duty(keys: PartitionKeys, me: str, copy: LocalCopy) -> ReplicaDuty:
        return replica_duty(me, keys, copy, stable_revision=9, pending_revision=7)

    keys = PartitionKeys(stable=at("ABD", ts=3))
    assert duty(keys, "C", LocalCopy(True, has("ABC", token=7))) is ReplicaDuty.DESTROY
    assert duty(keys, "C", LocalCopy(False, has("ABC", token=7))) is ReplicaDuty.DESTROY, "after a restart"
    assert duty(keys, "C", LocalCopy(True, Configuration())) is ReplicaDuty.DESTROY, "it never belonged to it"
    assert duty(keys, "C", LocalCopy(True, has("ABC", token=12))) is ReplicaDuty.RUN, "its group may need it"
    assert duty(PartitionKeys(), "C", LocalCopy(True, has("ABC", token=12))) is ReplicaDuty.DESTROY, "dropped"
    moving = PartitionKeys(stable=at("ABD", ts=3), pending=(at("ABE"),))
    assert duty(moving, "C", LocalCopy(True, Configuration())) is ReplicaDuty.RUN, "it may be wanted again"
    assert duty(moving, "C", LocalCopy(False, Configuration())) is ReplicaDuty.STOP


@pytest.mark.rule("zones/A-15")
def test_where_a_head_is_forced_only_who_is_in_it_runs() -> None:
    keys = PartitionKeys(stable=at("ABC"), pending=(at("A", force=True),), planned=at("AD", from_reset=True))

    def duty(me: str, copy: LocalCopy | None) -> ReplicaDuty:
        return replica_duty(me, keys, copy, stable_revision=5, pending_revision=7)

    old = LocalCopy(True, has("ABC"))
    assert duty("A", old) is ReplicaDuty.RESET
    assert duty("A", LocalCopy(True, has("A", token=7), 7)) is ReplicaDuty.RUN
    assert duty("A", LocalCopy(False, has("A", token=7), 7)) is ReplicaDuty.RESET, "after each start"
    assert duty("A", None) is ReplicaDuty.RESET
    assert duty("B", old) is ReplicaDuty.STOP
    assert duty("D", None) is ReplicaDuty.NONE
    assert duty("E", LocalCopy(True, has("ABE"))) is ReplicaDuty.STOP

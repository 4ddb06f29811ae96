"""Case by case: locks, cancellations, replicas in doubt, and the duties of leaders and members."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.zones.test_adjusting import has
from tests.core.zones.test_transitions import at

from holdfast.core.raft.configuration import Configuration
from holdfast.core.zones.adjusting import (
    LeaderDuty,
    LocalCopy,
    ReplicaDuty,
    assignments_of,
    cancellable,
    cancelled,
    change_failed,
    leader_duty,
    replica_duty,
    try_catch_up_finish,
    without_doubted,
)
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock

# -- the nouns


def test_assignments_are_compared_by_role_and_flags_and_not_by_order_or_time() -> None:
    one = at("AB", "C", ts=1)
    for other, same_nodes, same in (
        (at("BA", "C", ts=9), True, True),
        (at("AB", "C", force=True), True, False),
        (at("AB", "C", from_reset=True), True, False),
        (at("AB"), False, False),
        (at("ABC"), False, False),
        (at("AC", "B"), False, False),
    ):
        assert (one.same_nodes(other), one.same(other)) == (same_nodes, same), other
    forced = at("A", force=True)
    assert forced.same(at("A", force=True, ts=3))
    assert not forced.same(at("A", from_reset=True))


def test_sets_of_replicas_keep_their_roles_flags_and_time() -> None:
    one = at("ABC", "DE", force=True, ts=4)
    assert one.nodes == set("ABCDE")
    assert one.restricted("AEX") == at("A", "E", force=True, ts=4)
    assert one.restricted("") == at("", "", force=True, ts=4)
    assert at("CA", "D").with_(at("DB", "AE")) == at("ABC", "DE"), "D stays a learner, A a peer"
    assert one.plain(9) == at("ABC", "DE", ts=9)
    assert at("CA", "FD").plain(1) == at("AC", "DF", ts=1)


def test_what_is_usual_is_left_out_of_the_metastore() -> None:
    assert msgspec.json.encode(Assignments()) == b"{}"
    assert msgspec.json.encode(PartitionKeys()) == b"{}"
    first = ChainLink(at("A"))
    assert (first.term, first.index) == (-1, -1), "before the group had any configuration"


# -- locks


@pytest.mark.rule("zones/A-13")
@given(
    held=st.one_of(st.none(), st.builds(TargetLock, st.integers(1, 3), st.integers(1, 3))),
    token=st.integers(1, 3),
    revision=st.integers(1, 3),
    term=st.integers(1, 3),
)
def test_a_lock_is_refused_only_to_late_leaders_and_late_changes(
    held: TargetLock | None, token: int, revision: int, term: int
) -> None:
    keys = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), lock=held)
    may, after = try_catch_up_finish(keys, token=token, pending_revision=revision, term=term)
    later_leader = held is not None and held == TargetLock(revision, held.term) and held.term > term
    assert may is (token == revision and not later_leader)
    assert after == (msgspec.structs.replace(keys, lock=TargetLock(revision, term)) if may else keys)
    freed = change_failed(keys, term=term)
    assert (freed.lock is None) is (held is None or held.term <= term)
    assert msgspec.structs.replace(freed, lock=held) == keys


def test_a_lock_of_a_target_that_was_replaced_binds_nobody() -> None:
    """The target of revision 6 was locked in term 9; that of revision 7 is another one."""
    keys = PartitionKeys(stable=at("AB"), pending=(at("ABC"),), lock=TargetLock(6, 9))
    assert try_catch_up_finish(keys, token=7, pending_revision=7, term=2)[0]


# -- cancellations


@pytest.mark.parametrize(
    ("pending", "planned", "can"),
    [
        ((), None, False),
        ((), at("AD"), False),
        ((at("AB"),), None, False),
        ((at("AB"),), at("AD"), True),
        ((at("AB", from_reset=True),), at("AD"), True),
        ((at("A", force=True),), at("AD"), False),
    ],
)
def test_a_change_is_cancelled_when_something_else_is_planned(
    pending: tuple[Assignments, ...], planned: Assignments | None, can: bool
) -> None:
    keys = PartitionKeys(
        stable=at("A"), pending=pending, planned=planned, lock=TargetLock(7, 1), switch_append=at("B")
    )
    assert cancellable(keys) is can
    after = cancelled(keys, token=7, pending_revision=7)
    expected = PartitionKeys(stable=at("A"), pending=(planned,)) if can and planned is not None else keys
    assert after == expected
    assert cancelled(keys, token=7, pending_revision=8) == keys
    duty = leader_duty(keys, has("A", token=6), pending_revision=7, cancels=True)
    assert (duty is LeaderDuty.CANCEL) is can
    for token in (7, 8):
        duty = leader_duty(keys, has("AZ", token=token), pending_revision=7, cancels=True)
        assert duty is not LeaderDuty.CANCEL, "the group has joined the target already"


# -- replicas in doubt


@pytest.mark.rule("zones/A-22")
@pytest.mark.parametrize(
    ("reduce", "pending", "members", "locked", "expected"),
    [
        # Nothing is in doubt, nothing moves, or the way is prescribed: nothing to do.
        ("", (at("ABC"),), "AB", False, None),
        ("C", (), "ABC", False, None),
        ("C", (at("ABC"), at("AB")), "AB", False, None),
        ("B", (at("ABC", force=True),), "AB", False, None),
        # C is a target and not in the group yet: it begins with nothing, and is in doubt no more.
        ("C", (at("ABC"),), "AB", False, ("", "ABC")),
        ("CD", (at("ABC"),), "ABD", False, ("D", "ABC")),
        ("C", (at("ABC"),), "AB", True, ("", "ABC")),
        # C is in the group, and would never catch up: the target is without it, unless it is locked.
        ("C", (at("ABCD"),), "ABC", False, ("C", "ABD")),
        ("C", (at("ABCD"),), "ABC", True, None),
        # Both: first the one that begins with nothing.
        ("CD", (at("ABCD"),), "ABC", False, ("C", "ABCD")),
        # Who is in doubt is no target.
        ("C", (at("ABD"),), "ABC", False, None),
        # Nobody would be left.
        ("AB", (at("AB"),), "AB", False, None),
    ],
)
def test_a_target_that_names_replicas_in_doubt(
    reduce: str,
    pending: tuple[Assignments, ...],
    members: str,
    locked: bool,
    expected: tuple[str, str] | None,
) -> None:
    keys = PartitionKeys(
        stable=at("AB"),
        pending=pending,
        switch_reduce=at(reduce) if reduce else None,
        lock=TargetLock(7, 1) if locked else None,
    )
    after = without_doubted(keys, has(members))
    if expected is None:
        assert after == keys
    else:
        left, target = expected
        changes = {"switch_reduce": at(left) if left else None, "pending": (at(target),)}
        assert after == msgspec.structs.replace(keys, **changes)


# -- what leaders do


@pytest.mark.rule("zones/A-16")
def test_a_group_is_compared_by_roles_with_the_head_of_pending() -> None:
    keys = PartitionKeys(stable=at("AB"), pending=(at("AC", "B"), at("AD")))
    assert leader_duty(keys, has("CA", "B"), pending_revision=7, cancels=False) is LeaderDuty.TELL_APPLIED
    assert leader_duty(keys, has("AB", "C"), pending_revision=7, cancels=False) is LeaderDuty.CHANGE_PEERS
    assert assignments_of(has("BA", "DC")) == at("AB", "CD")
    forced = PartitionKeys(stable=at("AB"), pending=(at("A", force=True),))
    assert leader_duty(forced, has("A"), pending_revision=7, cancels=False) is LeaderDuty.TELL_APPLIED


# -- what members do

STABLE = at("AB", ts=3)


def duty(me: str, keys: PartitionKeys, copy: LocalCopy | None) -> ReplicaDuty:
    return replica_duty(me, keys, copy, stable_revision=9, pending_revision=12)


def test_a_copy_is_of_generation_0_until_it_takes_part_in_a_reset() -> None:
    assert LocalCopy(True, Configuration()).generation == 0


@pytest.mark.rule("zones/A-23")
@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        (None, ReplicaDuty.JOIN),
        # It holds what the reset has given up.
        (LocalCopy(True, has("AB", token=3)), ReplicaDuty.DESTROY),
        (LocalCopy(True, has("AB", token=3), 6), ReplicaDuty.DESTROY),
        (LocalCopy(False, has("AB", token=30), 6), ReplicaDuty.DESTROY),
        # It has begun with nothing, and knows of no configuration yet.
        (LocalCopy(True, Configuration()), ReplicaDuty.RUN),
        (LocalCopy(True, has("AB", token=7), 7), ReplicaDuty.RUN),
        (LocalCopy(True, has("AB", token=8), 8), ReplicaDuty.RUN),
    ],
)
def test_replicas_of_an_older_generation_are_given_up(copy: LocalCopy | None, expected: ReplicaDuty) -> None:
    for stable in (STABLE, at("AB")):
        assert duty("A", PartitionKeys(stable=stable, generation=7), copy) is expected


@pytest.mark.rule("zones/A-14")
@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        (None, ReplicaDuty.NONE),
        (LocalCopy(True, has("ABC", token=8)), ReplicaDuty.DESTROY),
        # Its configuration is as new as the stable assignments: they are about to follow.
        (LocalCopy(True, has("ABC", token=9)), ReplicaDuty.RUN),
        (LocalCopy(True, has("ABC", token=10)), ReplicaDuty.RUN),
        # It is not even in the configuration that it knows.
        (LocalCopy(True, has("AB", token=10)), ReplicaDuty.DESTROY),
        (LocalCopy(True, has("AB", "C", token=10)), ReplicaDuty.RUN),
        (LocalCopy(True, has("AB", token=10, old="AC")), ReplicaDuty.RUN),
    ],
)
def test_a_replica_that_no_assignments_name(copy: LocalCopy | None, expected: ReplicaDuty) -> None:
    assert duty("C", PartitionKeys(stable=STABLE), copy) is expected


def test_before_the_first_assignments_nobody_has_a_replica() -> None:
    assert duty("A", PartitionKeys(), None) is ReplicaDuty.NONE
    assert duty("A", PartitionKeys(), LocalCopy(True, has("A", token=20))) is ReplicaDuty.DESTROY
    moving = PartitionKeys(pending=(at("A"),))
    assert duty("A", moving, None) is ReplicaDuty.JOIN, "only stable assignments begin a group"
    assert duty("A", PartitionKeys(stable=at("AB")), None) is ReplicaDuty.FOUND
    assert duty("A", PartitionKeys(stable=at("B", "A")), None) is ReplicaDuty.FOUND, "learners, too"
    assert duty("A", PartitionKeys(stable=at("B"), pending=(at("AB"),)), None) is ReplicaDuty.JOIN
    assert duty("A", PartitionKeys(stable=at("B"), pending=(at("B"), at("AB"))), None) is ReplicaDuty.NONE


@pytest.mark.rule("zones/A-15")
@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        (None, ReplicaDuty.RESET),
        (LocalCopy(True, has("AB", token=3)), ReplicaDuty.RESET),
        (LocalCopy(True, has("A", token=11), 11), ReplicaDuty.RESET),
        (LocalCopy(True, has("A", token=12), 12), ReplicaDuty.RUN),
        (LocalCopy(False, has("A", token=12), 12), ReplicaDuty.RESET),
        # It was sent what is newer than the reset, or takes part in a later generation.
        (LocalCopy(True, has("A", token=13), 3), ReplicaDuty.RUN),
        (LocalCopy(True, has("A", token=3), 12), ReplicaDuty.RUN),
    ],
)
def test_the_node_of_a_forced_head_resets_its_group_until_that_is_done(
    copy: LocalCopy | None, expected: ReplicaDuty
) -> None:
    keys = PartitionKeys(stable=STABLE, pending=(at("A", force=True),), generation=20)
    assert duty("A", keys, copy) is expected
    outside = ReplicaDuty.NONE if copy is None else ReplicaDuty.STOP
    assert duty("B", keys, copy) is outside
    assert duty("C", keys, copy) is outside

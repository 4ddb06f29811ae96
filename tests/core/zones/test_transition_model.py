"""Transitions of a partition's assignments: against a model of the design document, and case by case."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.zones.assignments_model import PartitionModel, replicas
from tests.core.zones.test_transitions import applied, at, shown, wants_reset

from holdfast.core.zones.adjusting import cancelled, change_failed, try_catch_up_finish
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock
from holdfast.core.zones.transitions import (
    Consistency,
    LocalReplica,
    LocalState,
    NoVoters,
    Result,
    Transition,
    configuration_applied,
    reduce_changed,
    update_pending,
)

HA = Consistency.HIGH_AVAILABILITY
NODES = "ABCD"


def triggered(
    keys: PartitionKeys,
    peers: str,
    learners: str = "",
    *,
    ts: int = 9,
    known: Assignments | None = None,
    **more: object,
) -> Transition:
    return update_pending(
        keys,
        calculated=at(peers, learners),
        known_stable=known if known is not None else keys.stable,
        event_ts=ts,
        assignments_ts=ts + 100,
        **more,  # type: ignore[arg-type]
    )


# -- against the model

targets = st.builds(
    lambda peers, learners: at("".join(sorted(peers)), "".join(sorted(learners - peers))),
    st.sets(st.sampled_from(NODES), min_size=1),
    st.sets(st.sampled_from(NODES), max_size=2),
)
events = st.one_of(
    st.tuples(st.just("trigger"), targets, st.integers(0, 9)),
    st.tuples(st.sampled_from(["applied", "late", "caught up", "failed", "cancel"]), targets, st.just(0)),
)


@pytest.mark.rule("zones/A-1", "zones/A-2", "zones/A-3", "zones/A-4", "zones/A-12")
@pytest.mark.parametrize("replaces", [False, True], ids=["cancel", "replace"])
@given(steps=st.lists(events, max_size=25))
def test_assignments_move_as_the_model_does(
    replaces: bool, steps: list[tuple[str, Assignments, int]]
) -> None:
    keys = PartitionKeys(stable=at("AB"))
    model = PartitionModel(replicas(at("AB")), replaces)
    now = 0
    for kind, target, later in steps:
        if kind == "trigger":
            now = now + later - 2  # Some events are not newer than the one before.
            model.on_trigger(replicas(target), now)
            _, keys = update_pending(
                keys,
                calculated=target,
                known_stable=keys.stable,
                event_ts=now,
                assignments_ts=now,
                replaces=replaces,
            )
        elif kind == "caught up":
            may, keys = try_catch_up_finish(keys, token=5, pending_revision=5, term=1)
            assert may is model.on_caught_up()
        elif kind == "failed":
            model.on_change_failed()
            keys = change_failed(keys, term=1)
        elif kind == "cancel":
            model.on_cancel()
            keys = cancelled(keys, token=5, pending_revision=5)
        else:
            configuration = keys.pending[0] if kind == "applied" and keys.pending else target
            model.on_applied(replicas(configuration))
            _, keys = configuration_applied(
                keys, applied=configuration, calculated=at(NODES), term=1, index=1
            )
        assert model.agrees(keys), (kind, target, keys, model)
    assert not keys.chain, "a zone that keeps no chain goes on without one"
    # When nothing happens any more, the last accepted target is reached with at most two changes of the group.
    last = model.planned or model.pending or model.stable
    for _ in range(2):
        if keys.pending:
            _, keys = configuration_applied(
                keys, applied=keys.pending[0], calculated=at(NODES), term=1, index=1
            )
    assert keys.stable is not None
    assert (replicas(keys.stable), keys.pending, keys.planned) == (last, (), None)


# -- triggers


def test_a_partition_without_stable_assignments_goes_by_those_that_the_event_knows() -> None:
    """`known_stable` is a fallback: once the metastore holds stable assignments these alone count."""
    unborn = PartitionKeys()
    assert triggered(unborn, "AB")[0] is Result.PENDING_KEY_UPDATED
    assert triggered(unborn, "AB", known=at("AC"))[0] is Result.PENDING_KEY_UPDATED
    assert triggered(unborn, "AB", known=at("AB"))[0] is Result.PLANNED_KEY_REMOVED_EMPTY_PENDING
    stable = PartitionKeys(stable=at("AB"))
    assert triggered(stable, "AB", known=at("AC"))[0] is Result.PLANNED_KEY_REMOVED_EMPTY_PENDING
    assert triggered(stable, "AC", known=at("AC"))[0] is Result.PENDING_KEY_UPDATED


def test_a_target_is_compared_with_where_the_queue_leads() -> None:
    keys = PartitionKeys(stable=at("A"), pending=(at("AB"), at("ABC")), planned=at("D"))
    assert triggered(keys, "ABC")[0] is Result.PLANNED_KEY_REMOVED_EQUALS_PENDING
    result, after = triggered(keys, "AB")
    assert (result, shown(after)) == (Result.PLANNED_KEY_UPDATED, "S=A P=AB,ABC N=AB T=9")


@pytest.mark.rule("zones/A-12")
@pytest.mark.parametrize(
    ("pending", "lock", "replaced"),
    [
        ((at("ABC"),), None, True),
        ((at("ABC"),), TargetLock(7, 1), False),
        ((at("ABC", force=True),), None, False),
        ((at("ABC", from_reset=True),), None, False),
        ((at("ABC", force=True, from_reset=True),), None, False),
        ((at("ABC"), at("ABD")), None, False),
        ((at("A", force=True), at("ABC")), None, False),
    ],
)
def test_only_one_graceful_target_without_a_lock_is_replaced(
    pending: tuple[Assignments, ...], lock: TargetLock | None, replaced: bool
) -> None:
    keys = PartitionKeys(
        stable=at("AB"), pending=pending, planned=at("ABF"), lock=lock, switch_append=at("G"), trigger=1
    )
    result, after = triggered(keys, "ABE", replaces=True)
    if replaced:
        assert result is Result.PENDING_KEY_UPDATED
        assert after == PartitionKeys(stable=at("AB"), pending=(at("ABE", ts=109),), trigger=9)
    else:
        assert result is Result.PLANNED_KEY_UPDATED
        assert after == msgspec.structs.replace(keys, planned=at("ABE", ts=109), trigger=9)
    waits, kept = triggered(keys, "ABE")
    assert (waits, kept.pending) == (Result.PLANNED_KEY_UPDATED, pending), "the other way of adjusting waits"


def test_a_target_carries_the_time_of_its_assignments_and_the_event_is_noted_apart() -> None:
    _, after = triggered(PartitionKeys(stable=at("A")), "BA", "C", ts=5)
    assert after.pending == (at("AB", "C", ts=105),)
    assert after.trigger == 5


def test_high_availability_waits_for_live_nodes_and_for_stable_ones() -> None:
    keys = PartitionKeys(stable=at("AB"))
    _, after = triggered(keys, "BCD", consistency=HA, alive="D")
    assert after.pending == (at("BD", ts=109),), "B is stable; C is away; A is not in the placement"
    _, strong = triggered(keys, "BCD", alive="D")
    assert strong.pending == (at("BCD", ts=109),)
    _, unborn = triggered(PartitionKeys(), "BCD", consistency=HA, alive="D")
    assert unborn.pending == (at("D", ts=109),)
    for outdated in (9, 10):
        with pytest.raises(NoVoters):
            triggered(PartitionKeys(trigger=outdated), "B", "D", consistency=HA, alive="D")


# -- what a group reports


def test_a_completion_ends_the_lock_whatever_follows() -> None:
    locked = PartitionKeys(stable=at("A"), pending=(at("AB"), at("ABC")), lock=TargetLock(7, 1))
    result, after = applied(locked, "AB")
    assert (result, after.lock) == (Result.QUEUE_POLLED, None)
    alone = msgspec.structs.replace(locked, pending=(at("AB"),))
    result, after = applied(alone, "AB")
    assert (result, after.lock) == (Result.FINISH_REBALANCE, None)
    result, after = applied(alone, "ABC")
    assert (result, after) == (Result.IGNORED_NOT_PENDING, alone)


def test_stable_assignments_carry_the_time_of_their_target_and_no_flags() -> None:
    keys = PartitionKeys(stable=at("A", ts=1), pending=(at("B", force=True, ts=8),), planned=at("BC", ts=9))
    _, after = applied(keys, "B")
    assert (after.stable, after.pending) == (at("B", ts=8), (at("BC", ts=9),))


def replaced_replica(
    reduce: str, append: str, stable: str | None, is_now: str, calculated: str, planned: str = ""
) -> tuple[Result, str, str, str]:
    """What follows a completed change: result, pending, reduce, append."""
    keys = PartitionKeys(
        stable=at(stable) if stable is not None else None,
        pending=(at(is_now, ts=8),),
        planned=at(planned) if planned else None,
        switch_reduce=at(reduce, ts=3) if reduce else None,
        switch_append=at(append, ts=4) if append else None,
    )
    result, after = applied(keys, is_now, calculated=calculated)
    assert after.stable == at(is_now, ts=8)

    def peers(one: Assignments | None, ts: int) -> str:
        assert one is None or (one.nodes and one.ts == ts)
        return "" if one is None else "".join(one.peers)

    pending = "".join(",".join("".join(one.peers) for one in after.pending))
    assert all(one.ts == 8 for one in after.pending if result is not Result.SCHEDULE_PENDING_REBALANCE)
    return result, pending, peers(after.switch_reduce, 3), peers(after.switch_append, 4 if append else 0)


@pytest.mark.parametrize(
    ("case", "result", "pending", "reduce", "append"),
    [
        # reduce, append, stable before, applied, calculated, planned
        (("", "", "AB", "ABC", "ABC", ""), Result.FINISH_REBALANCE, "", "", ""),
        (("", "", "AB", "ABC", "ABC", "ABD"), Result.SCHEDULE_PENDING_REBALANCE, "ABD", "", ""),
        # C was taken out, and comes back; before anything that is planned.
        (("C", "", "ABC", "AB", "ABC", ""), Result.SWITCH_APPEND, "ABC", "", "C"),
        (("C", "", "ABC", "AB", "ABC", "ABD"), Result.SWITCH_APPEND, "ABC", "", "C"),
        # C was taken out, and the placement does not want it any more.
        (("C", "", "ABC", "AB", "ABD", ""), Result.FINISH_REBALANCE, "", "", ""),
        # C was put back.
        (("", "C", "AB", "ABC", "ABC", ""), Result.FINISH_REBALANCE, "", "", ""),
        # Another change came first: C still has to come back, and only nodes of the placement stay.
        (("", "C", "AB", "ABD", "ABC", ""), Result.SWITCH_APPEND, "AB", "", "C"),
        (("", "C", None, "ABD", "ABC", ""), Result.SWITCH_APPEND, "AB", "", "C"),
        # C lost its data while the group moved: it is in the group, and has to leave it first.
        (("C", "", "AB", "ABC", "ABC", ""), Result.SWITCH_REDUCE, "AB", "C", ""),
        (("C", "", "AB", "ABC", "ABC", "ABD"), Result.SWITCH_REDUCE, "AB", "C", ""),
        # Of two one is out, one is in.
        (("CB", "", "ABC", "AB", "ABC", ""), Result.SWITCH_APPEND, "ABC", "B", "C"),
        # All voters lost their data: nobody can be taken out.
        (("AB", "", "A", "AB", "AB", ""), Result.FINISH_REBALANCE, "", "AB", ""),
        (("AB", "", "A", "AB", "AB", "ABD"), Result.SCHEDULE_PENDING_REBALANCE, "ABD", "AB", ""),
        # It came back in the same change that made it stable: it was added, so it need not be appended.
        (("", "CD", "ABD", "ABCD", "ABCD", ""), Result.SWITCH_APPEND, "ABCD", "", "D"),
    ],
)
def test_replicas_without_data_leave_the_group_and_come_back(
    case: tuple[str, str, str | None, str, str, str], result: Result, pending: str, reduce: str, append: str
) -> None:
    assert replaced_replica(*case) == (result, pending, reduce, append)


@pytest.mark.parametrize(
    ("head", "links"),
    [
        (at("AD"), [(at("AD"), 2, 30)]),
        (at("AD", force=True), [(at("A"), 1, 1), (at("AB"), 1, 9), (at("AD"), 2, 30)]),
        (at("AD", from_reset=True), [(at("A"), 1, 1), (at("AD"), 2, 30)]),
    ],
)
def test_the_chain_begins_again_grows_or_has_its_last_link_replaced(
    head: Assignments, links: list[tuple[Assignments, int, int]]
) -> None:
    chain = (ChainLink(at("A"), 1, 1), ChainLink(at("AB"), 1, 9))
    _, after = applied(PartitionKeys(stable=at("AB"), pending=(head,), chain=chain), "AD")
    assert after.chain == tuple(ChainLink(*link) for link in links)


# -- replicas that have lost their data


def reduced(keys: PartitionKeys, reduce: str, calculated: str = "ABC", ts: int = 9) -> Transition:
    return reduce_changed(
        keys, reduce=at(reduce), calculated=at(calculated), event_ts=ts, assignments_ts=ts + 100
    )


def test_replicas_without_data_are_taken_out_once_and_only_from_a_group_that_does_not_move() -> None:
    stable = PartitionKeys(stable=at("ABC", ts=1), trigger=5)
    result, after = reduced(stable, "C")
    assert (result, after) == (
        Result.PENDING_WRITTEN,
        PartitionKeys(stable=at("ABC", ts=1), pending=(at("AB", ts=109),), trigger=9),
    )
    unborn = PartitionKeys(pending=(at("AB", ts=109),), stable=at("ABC", ts=109), trigger=9)
    assert reduced(PartitionKeys(), "C") == (Result.PENDING_AND_STABLE_WRITTEN, unborn)
    moving = msgspec.structs.replace(stable, pending=(at("ABD"),))
    for keys, reduce, ts in ((stable, "", 9), (moving, "C", 9), (stable, "C", 5), (stable, "C", 4)):
        assert reduced(keys, reduce, ts=ts) == (Result.NOOP, keys)


def test_a_partition_whose_every_voter_has_lost_its_data_is_left_to_an_operator() -> None:
    with pytest.raises(NoVoters):
        reduced(PartitionKeys(stable=at("ABC")), "ABC")


# -- resets


def healthy(**index: int) -> dict[str, LocalReplica]:
    return {node: LocalReplica(LocalState.HEALTHY, at_) for node, at_ in index.items()}


@pytest.mark.parametrize("state", LocalState)
def test_only_replicas_that_hold_data_are_counted_by_a_reset(state: LocalState) -> None:
    """With voters {A, B, C} and C away, A and B are a majority if both have their data."""
    states = {**healthy(A=5), "B": LocalReplica(state, 7)}
    result, after = wants_reset(PartitionKeys(stable=at("ABC")), "AB", replicas_of=states)
    if state in (LocalState.HEALTHY, LocalState.CATCHING_UP):
        assert result is Result.ASSIGNMENT_NOT_UPDATED
    else:
        assert result is Result.PENDING_KEY_UPDATED
        assert (after.pending, after.planned) == ((at("A", force=True, ts=9),), None)


def test_what_a_dead_member_said_of_its_replica_does_not_count() -> None:
    result, after = wants_reset(PartitionKeys(stable=at("ABC")), "A", replicas_of=healthy(A=1, B=9))
    assert (result, after.pending) == (Result.PENDING_KEY_UPDATED, (at("A", force=True, ts=9),))


def test_without_stable_assignments_only_an_operator_gets_a_group() -> None:
    assert wants_reset(PartitionKeys(), "AB") == (Result.ASSIGNMENT_NOT_UPDATED, PartitionKeys())
    result, after = wants_reset(PartitionKeys(), "AB", manual=True)
    assert (result, after.pending, after.planned) == (
        Result.PENDING_KEY_UPDATED,
        (at("A", force=True, ts=9),),
        at("AB", from_reset=True, ts=9),
    )
    nobody = wants_reset(PartitionKeys(stable=at("AB")), "", manual=True)
    assert nobody == (Result.ASSIGNMENT_NOT_UPDATED, PartitionKeys(stable=at("AB")))


@pytest.mark.rule("zones/A-5")
@pytest.mark.parametrize(
    ("pending", "newer", "manual", "updated"),
    [
        # A move that began after the reset was asked for leads away from the dead nodes: it is left alone.
        ((at("AD"),), True, False, False),
        ((at("AD"), at("A")), True, False, False),
        # One of its targets needs a dead node.
        ((at("AD"), at("AX")), True, False, True),
        ((at("AX"), at("AD")), True, False, True),
        # It is older than the request.
        ((at("AD"),), False, False, True),
        # `pending` was removed after the request: nothing moves.
        ((), True, False, True),
        # An operator has the last word.
        ((at("AD"),), True, True, True),
    ],
)
def test_an_automatic_reset_gives_way_to_a_newer_move_among_live_nodes(
    pending: tuple[Assignments, ...], newer: bool, manual: bool, updated: bool
) -> None:
    keys = PartitionKeys(stable=at("ABC"), pending=pending)
    result, after = wants_reset(keys, "AD", holds="A", pending_newer=newer, manual=manual)
    assert result is (Result.PENDING_KEY_UPDATED if updated else Result.ASSIGNMENT_NOT_UPDATED)
    assert (after == keys) is not updated


def test_an_automatic_reset_adds_nobody_and_an_operators_fills_up() -> None:
    keys = PartitionKeys(stable=at("ABC"))
    _, alone = wants_reset(keys, "ADEFG", holds="A")
    assert (alone.pending, alone.planned) == ((at("A", force=True, ts=9),), None)
    _, filled = wants_reset(keys, "ADEFG", holds="A", manual=True)
    assert filled.planned == at("ADE", from_reset=True, ts=9), "in the order of the placement, no more than 3"
    _, filtered = wants_reset(keys, "ADEFG", holds="A", manual=True, alive_data_nodes=frozenset("AGHB"))
    assert filtered.planned == at("AG", from_reset=True, ts=9), "nodes that are alive and pass the filter"
    _, wide = wants_reset(
        PartitionKeys(stable=at("ABCDE")),
        "ABCDFG",
        holds="ABCD",
        manual=True,
        replicas=2,
        consensus=2,
        quorum=5,
    )
    assert wide.planned == at("AB", "CD", from_reset=True, ts=9), "who has data stays, as a learner"
    _, ordered = wants_reset(keys, "ABDE", holds="AB", quorum=3, manual=True, placement_order="EDCBA")
    assert ordered.planned == at("ABE", from_reset=True, ts=9)
    _, roles = wants_reset(keys, "AB", quorum=3, consensus=1, placement_order="EDCBA")
    assert roles.planned == at("B", "A", from_reset=True, ts=9), "the first of the placement votes"


def test_replicas_outside_of_the_placement_come_last() -> None:
    keys = PartitionKeys(stable=at("XYAB"))
    _, after = wants_reset(keys, "AXY", quorum=4, consensus=2)
    assert after.planned == at("AX", "Y", from_reset=True, ts=9)


def test_a_reset_begins_with_the_longest_log_among_replicas_with_data() -> None:
    keys = PartitionKeys(stable=at("AB"))
    states = {**healthy(A=5, F=80), "B": LocalReplica(LocalState.BROKEN, 90)}
    _, after = wants_reset(keys, "ABF", replicas_of=states, manual=True, replicas=2, consensus=2)
    assert after.pending == (at("A", force=True, ts=9),), (
        "B's data is damaged, F is not to hold the partition"
    )
    assert after.planned == at("AB", from_reset=True, ts=9)
    damaged = {"B": LocalReplica(LocalState.BROKEN, 1)}
    _, after = wants_reset(keys, "AB", replicas_of=damaged, manual=True)
    assert after.pending == (at("B", force=True, ts=9),), "with nobody better, one that has something at all"


@pytest.mark.rule("zones/A-1")
def test_a_reset_notes_its_request_and_ends_locks_and_is_taken_once() -> None:
    keys = PartitionKeys(
        stable=at("ABC"), pending=(at("ABD"),), planned=at("E"), lock=TargetLock(7, 2), trigger=8
    )
    result, after = wants_reset(keys, "A", assignments_ts=55)
    assert result is Result.PENDING_KEY_UPDATED
    assert after == PartitionKeys(stable=at("ABC"), pending=(at("A", force=True, ts=55), at("A")), trigger=9)
    for ts in (8, 7):
        assert wants_reset(keys, "A", event_ts=ts) == (Result.OUTDATED_UPDATE_RECEIVED, keys)


# -- values


@pytest.mark.parametrize(
    "value",
    [
        Assignments(),
        ChainLink(Assignments()),
        TargetLock(1, 2),
        PartitionKeys(),
        LocalReplica(LocalState.HEALTHY),
    ],
)
def test_values_cannot_be_changed_and_unknown_fields_are_refused(value: msgspec.Struct) -> None:
    for field in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, field, getattr(value, field))
    text = msgspec.json.encode({**msgspec.to_builtins(value), "newer": 1})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=type(value))
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


def test_a_replica_says_nothing_more_than_its_state_unless_told() -> None:
    assert LocalReplica(LocalState.BROKEN) == LocalReplica(LocalState.BROKEN, 0, learner=False)

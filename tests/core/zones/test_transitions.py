"""What events make of a partition's assignments: single ones, whole stories of them, and what none may ever do."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.main import holdfast
from holdfast.core.zones.assignments import Assignments, ChainLink, PartitionKeys, TargetLock
from holdfast.core.zones.transitions import (
    Consistency,
    LocalReplica,
    LocalState,
    NoVoters,
    ResetRequest,
    Result,
    Transition,
    configuration_applied,
    reduce_changed,
    reset,
    update_pending,
)


def at(peers: str, learners: str = "", **more: object) -> Assignments:
    return Assignments(tuple(peers), tuple(learners), **more)  # type: ignore[arg-type]


def triggered(keys: PartitionKeys, peers: str, ts: int, learners: str = "", **more: object) -> Transition:
    calculated = at(peers, learners)
    return update_pending(
        keys,
        calculated=calculated,
        known_stable=keys.stable,
        event_ts=ts,
        assignments_ts=ts,
        **more,  # type: ignore[arg-type]
    )


def applied(keys: PartitionKeys, peers: str, learners: str = "", calculated: str = "ABCDEFG") -> Transition:
    return configuration_applied(
        keys, applied=at(peers, learners), calculated=at(calculated), term=2, index=30
    )


def names(assignments: Assignments | None) -> str:
    return "-" if assignments is None else "".join(assignments.peers)


def shown(keys: PartitionKeys) -> str:
    pending = ",".join(map(names, keys.pending)) or "-"
    return f"S={names(keys.stable)} P={pending} N={names(keys.planned)} T={keys.trigger}"


# -- stories


def test_a_target_that_changes_twice_while_the_group_moves_is_reached_in_the_end() -> None:
    """SC02."""
    keys = PartitionKeys(stable=at("A"))
    result, keys = triggered(keys, "AB", 1)
    assert (result, shown(keys)) == (Result.PENDING_KEY_UPDATED, "S=A P=AB N=- T=1")
    result, keys = triggered(keys, "ABC", 2)
    assert (result, shown(keys)) == (Result.PLANNED_KEY_UPDATED, "S=A P=AB N=ABC T=2")
    result, keys = applied(keys, "AB")
    assert (result, shown(keys)) == (Result.SCHEDULE_PENDING_REBALANCE, "S=AB P=ABC N=- T=2")
    result, keys = applied(keys, "CBA")
    assert (result, shown(keys)) == (Result.FINISH_REBALANCE, "S=ABC P=- N=- T=2")


@pytest.mark.rule("zones/A-2")
def test_a_target_that_is_where_the_group_is_moving_takes_back_what_waits() -> None:
    """SC03, SC04."""
    keys = PartitionKeys(stable=at("A"), pending=(at("AB"),), planned=at("ABC"), trigger=2)
    result, after = triggered(keys, "AB", 3)
    assert (result, shown(after)) == (Result.PLANNED_KEY_REMOVED_EQUALS_PENDING, "S=A P=AB N=- T=3")
    result, after = triggered(keys, "A", 3)
    assert (result, shown(after)) == (Result.PLANNED_KEY_UPDATED, "S=A P=AB N=A T=3")
    result, after = triggered(PartitionKeys(stable=at("A"), planned=at("B")), "A", 3)
    assert (result, shown(after)) == (Result.PLANNED_KEY_REMOVED_EMPTY_PENDING, "S=A P=- N=- T=3")


@pytest.mark.rule("zones/A-1")
def test_an_event_is_taken_once_and_never_after_a_newer_one() -> None:
    """SC07."""
    keys = PartitionKeys(stable=at("A"))
    _, keys = triggered(keys, "AB", 5)
    for ts in (5, 4):
        assert triggered(keys, "ABC", ts) == (Result.OUTDATED_UPDATE_RECEIVED, keys)
    _, same = triggered(keys, "AB", 6)
    assert same.trigger == 6, "it is noted, though it changes nothing else"


def test_when_it_was_worked_out_is_no_difference() -> None:
    keys = PartitionKeys(stable=at("AB", ts=1))
    result, after = triggered(keys, "BA", 9)
    assert result is Result.PLANNED_KEY_REMOVED_EMPTY_PENDING
    assert not after.pending


def test_roles_change_in_one_step() -> None:
    keys = PartitionKeys(stable=at("ABC", "D"))
    _, keys = triggered(keys, "ABD", 1, learners="C")
    assert keys.pending == (at("ABD", "C", ts=1),)


@pytest.mark.rule("zones/A-3", "zones/A-4")
def test_a_group_that_reports_something_else_changes_nothing() -> None:
    keys = PartitionKeys(stable=at("A"), pending=(at("AB"),), planned=at("ABC"))
    for late in ("A", "ABC", "B"):
        assert applied(keys, late) == (Result.IGNORED_NOT_PENDING, keys)
    assert applied(keys, "A", "B") == (Result.IGNORED_NOT_PENDING, keys), "the role counts, too"
    assert applied(PartitionKeys(stable=at("A")), "A")[0] is Result.IGNORED_NOT_PENDING


def test_a_queue_is_worked_off_before_anything_is_stable() -> None:
    keys = PartitionKeys(stable=at("A"), pending=(at("B", force=True), at("BC"), at("BCD")))
    result, keys = applied(keys, "B")
    assert (result, shown(keys)) == (Result.QUEUE_POLLED, "S=A P=BC,BCD N=- T=None")
    _, keys = applied(keys, "BC")
    result, keys = applied(keys, "BCD")
    assert (result, shown(keys)) == (Result.FINISH_REBALANCE, "S=BCD P=- N=- T=None")


def test_of_high_availability_nobody_is_waited_for_who_is_away_and_nobody_leaves_for_it() -> None:
    keys = PartitionKeys(stable=at("AB"))
    ha = Consistency.HIGH_AVAILABILITY
    _, after = triggered(keys, "ABCD", 1, consistency=ha, alive="AC")
    assert after.pending == (at("ABC", ts=1),)
    with pytest.raises(NoVoters):
        triggered(PartitionKeys(), "AB", 1, consistency=ha, alive="C")


def test_a_replica_without_data_goes_and_comes_back() -> None:
    keys = PartitionKeys(stable=at("ABC"), switch_reduce=at("C"))
    result, keys = reduce_changed(keys, reduce=at("C"), calculated=at("ABC"), event_ts=1, assignments_ts=1)
    assert (result, shown(keys)) == (Result.PENDING_WRITTEN, "S=ABC P=AB N=- T=1")
    result, keys = applied(keys, "AB", calculated="ABC")
    assert (result, shown(keys)) == (Result.SWITCH_APPEND, "S=AB P=ABC N=- T=1")
    assert (names(keys.switch_append), keys.switch_reduce) == ("C", None)
    result, keys = applied(keys, "ABC", calculated="ABC")
    assert (result, shown(keys)) == (Result.FINISH_REBALANCE, "S=ABC P=- N=- T=1")
    assert keys.switch_append is None


def test_what_is_to_be_reduced_waits_while_the_group_moves_and_then_is() -> None:
    keys = PartitionKeys(stable=at("ABC"), pending=(at("ABD"),), switch_reduce=at("B"), trigger=1)
    assert reduce_changed(keys, reduce=at("B"), calculated=at("ABD"), event_ts=2, assignments_ts=2) == (
        Result.NOOP,
        keys,
    )
    result, keys = applied(keys, "ABD", calculated="ABD")
    assert (result, shown(keys)) == (Result.SWITCH_REDUCE, "S=ABD P=AD N=- T=1")
    result, new = reduce_changed(
        PartitionKeys(), reduce=at("B"), calculated=at("AB"), event_ts=2, assignments_ts=2
    )
    assert (result, shown(new)) == (Result.PENDING_AND_STABLE_WRITTEN, "S=AB P=A N=- T=2")


def test_the_chain_tells_what_was_in_force() -> None:
    link = ChainLink(at("ABC"), -1, -1)
    graceful = PartitionKeys(stable=at("ABC"), pending=(at("ABD"),), chain=(link,))
    assert applied(graceful, "ABD")[1].chain == (ChainLink(at("ABD"), 2, 30),)
    forced = PartitionKeys(stable=at("ABC"), pending=(at("A", force=True),), chain=(link,))
    _, forced = applied(forced, "A")
    assert forced.chain == (link, ChainLink(at("A"), 2, 30))
    second = PartitionKeys(stable=at("A"), pending=(at("AD", from_reset=True),), chain=forced.chain)
    assert applied(second, "AD")[1].chain == (link, ChainLink(at("AD"), 2, 30))
    assert applied(PartitionKeys(pending=(at("A"),)), "A")[1].chain == ()


# -- reset


def wants_reset(keys: PartitionKeys, alive: str, **more: object) -> Transition:
    indexes = more.pop("indexes", {})
    assert isinstance(indexes, dict)
    given_: dict[str, object] = {
        "manual": False,
        "alive": frozenset(alive),
        "alive_data_nodes": frozenset(alive),
        "replicas_of": {
            node: LocalReplica(LocalState.HEALTHY, indexes.get(node, 10))
            for node in more.pop("holds", alive)  # type: ignore[attr-defined]
        },
        "placement_order": tuple("ABCDEFG"),
        "quorum": 2,
        "replicas": 3,
        "consensus": 3,
        "pending_newer": False,
        "event_ts": 9,
        "assignments_ts": 9,
        **more,
    }
    return reset(keys, ResetRequest(**given_))  # type: ignore[arg-type]


@pytest.mark.rule("zones/A-5")
def test_a_majority_that_is_there_is_not_given_up() -> None:
    keys = PartitionKeys(stable=at("ABC"))
    assert wants_reset(keys, "AB") == (Result.ASSIGNMENT_NOT_UPDATED, keys)
    assert wants_reset(keys, "DE") == (Result.ASSIGNMENT_NOT_UPDATED, keys), "nobody has any data"
    moving = PartitionKeys(stable=at("ABC"), pending=(at("AD"),))
    assert wants_reset(moving, "AD", pending_newer=True)[0] is Result.ASSIGNMENT_NOT_UPDATED
    assert wants_reset(moving, "A", pending_newer=True)[0] is Result.PENDING_KEY_UPDATED


def test_a_reset_begins_with_who_has_most_and_goes_on_with_the_others() -> None:
    keys = PartitionKeys(stable=at("ABCDE"))
    result, after = wants_reset(keys, "AB", indexes={"A": 5, "B": 7}, quorum=3)
    assert result is Result.PENDING_KEY_UPDATED
    assert after.pending == (at("B", force=True, ts=9),)
    assert after.planned == at("AB", from_reset=True, ts=9)
    _, equal = wants_reset(keys, "BA", quorum=3)
    assert names(equal.pending[0]) == "A", "the first by name of those that have as much"
    _, alone = wants_reset(keys, "C", quorum=3)
    assert alone.planned is None


@pytest.mark.rule("zones/A-25")
def test_an_operator_frees_a_group_whose_target_has_lost_its_majority() -> None:
    """{A, B, C} narrows to {A, B}, both sets have to agree, and the files of B are damaged."""
    locked = TargetLock(9, 1)
    narrowing = PartitionKeys(stable=at("ABC"), pending=(at("AB"),), lock=locked)
    alive = {"indexes": {"A": 7, "C": 5}, "manual": True, "quorum": 2, "replicas": 2}
    result, after = wants_reset(narrowing, "AC", **alive)
    assert result is Result.PENDING_KEY_UPDATED
    assert (after.pending, after.lock) == ((at("A", force=True, ts=9),), None)
    # Nothing is stuck while the target is only catching up, while it has a majority, or without an operator.
    catching_up = msgspec.structs.replace(narrowing, lock=None)
    assert wants_reset(catching_up, "AC", **alive) == (Result.ASSIGNMENT_NOT_UPDATED, catching_up)
    assert wants_reset(narrowing, "ABC", **alive) == (Result.ASSIGNMENT_NOT_UPDATED, narrowing)
    assert wants_reset(narrowing, "AC", **{**alive, "manual": False})[0] is Result.ASSIGNMENT_NOT_UPDATED


@pytest.mark.rule("zones/A-25")
def test_the_longest_log_of_a_target_that_is_being_joined_counts() -> None:
    """The group has left A and B, of which it has not been told yet, and C died after it had written more with D."""
    moved = PartitionKeys(stable=at("AB"), pending=(at("CD"),), lock=TargetLock(9, 1))
    _, after = wants_reset(
        moved, "ABD", manual=True, quorum=2, replicas=2, consensus=2, indexes={"A": 5, "B": 5, "D": 8}
    )
    assert names(after.pending[0]) == "D"


def test_an_automatic_reset_keeps_who_is_alive_of_what_was_under_way() -> None:
    keys = PartitionKeys(stable=at("ABC"), pending=(at("CDE"), at("F")))
    _, after = wants_reset(keys, "CD")
    assert [names(one) for one in after.pending] == ["C", "CD"]
    _, manual = wants_reset(keys, "CD", manual=True, holds="C")
    assert [names(one) for one in manual.pending] == ["C"]
    assert names(manual.planned) == "CD"


def test_an_operator_gets_a_new_group_where_nobody_has_data_and_learners_become_voters() -> None:
    _, after = wants_reset(PartitionKeys(stable=at("AB")), "DEFG", manual=True, holds="")
    assert (names(after.pending[0]), names(after.planned)) == ("D", "DEF")
    _, learners = wants_reset(PartitionKeys(stable=at("ABC", "DE")), "DE", consensus=3, replicas=5)
    assert learners.planned == at("DE", from_reset=True, ts=9)
    assert wants_reset(PartitionKeys(stable=at("ABC"), trigger=9), "A")[0] is Result.OUTDATED_UPDATE_RECEIVED


# -- whatever happens

NODES = st.sets(st.sampled_from("ABCDE"), min_size=1).map(lambda nodes: "".join(sorted(nodes)))


@given(
    st.lists(
        st.tuples(st.sampled_from(["trigger", "apply", "reset"]), NODES, st.integers(0, 20)), max_size=30
    )
)
def test_invariants_of_the_keys(events: list[tuple[str, str, int]]) -> None:
    keys = PartitionKeys(stable=at("AB"))
    for kind, nodes, ts in events:
        before = keys
        if kind == "trigger":
            _, keys = triggered(keys, nodes, ts)
        elif kind == "apply":
            what = keys.pending[0] if keys.pending and ts % 2 else at(nodes)
            _, keys = configuration_applied(keys, applied=what, calculated=at("ABCDE"), term=1, index=1)
        else:
            _, keys = wants_reset(keys, nodes, event_ts=ts)
        assert keys.pending or keys.planned is None, "I4"
        assert (keys.trigger or 0) >= (before.trigger or 0), "I7"
        if keys.stable != before.stable:
            assert before.pending, "I3"
            assert keys.stable is not None
            assert keys.stable.same_nodes(before.pending[0])


# -- the command


def test_a_file_of_steps_is_explained_one_after_the_other() -> None:
    steps = [
        {
            "op": "update_pending",
            "before": {"stable": {"peers": ["A"]}},
            "event": {"calculated": {"peers": ["A", "B"]}, "known_stable": {"peers": ["A"]}, "event_ts": 7},
        },
        {"op": "conf_applied", "event": {"applied": {"peers": ["B", "A"]}, "term": 1, "index": 5}},
    ]
    run = CliRunner()
    told = run.invoke(holdfast, ["plan", "--json", "-"], input=json.dumps(steps))
    assert list(map(json.loads, told.stdout.splitlines())) == [
        {
            "number": 0,
            "op": "update_pending",
            "result": "PENDING_KEY_UPDATED",
            "after": {"stable": {"peers": ["A"]}, "pending": [{"peers": ["A", "B"]}], "trigger": 7},
        },
        {
            "number": 1,
            "op": "conf_applied",
            "result": "FINISH_REBALANCE",
            "after": {"stable": {"peers": ["A", "B"]}, "trigger": 7},
        },
    ]
    single = run.invoke(holdfast, ["plan", "--json", "-"], input=json.dumps(steps[0]))
    assert json.loads(single.output)["result"] == "PENDING_KEY_UPDATED"
    people = run.invoke(holdfast, ["plan", "-"], input=json.dumps(steps))
    assert "pending      A B" in people.output


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ("nonsense", "is not JSON"),
        ('{"op": "move", "event": {}}', "op 'move' is none of update_pending"),
        ('{"op": "reset", "event": {"quorum": "a"}}', "Expected `int`, got `str` - at `event.quorum`"),
        ('{"op": "reset", "evnt": {}}', "unknown field `evnt`"),
        (
            '{"op": "update_pending", "event": {"calculated": {}, "event_ts": 1}}',
            "would leave the partition without voters",
        ),
    ],
)
def test_a_file_that_is_wrong_is_told_where(given_: str, why: str) -> None:
    told = CliRunner().invoke(holdfast, ["plan", "-"], input=given_)
    assert told.exit_code == 2
    assert why in told.output

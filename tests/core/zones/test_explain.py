"""Steps as data, for `holdfast plan`: what a file may leave out, and that nothing it says is ignored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.zones.test_transitions import at

from holdfast.core.zones.assignments import Assignments, PartitionKeys
from holdfast.core.zones.explain import EVENTS_OF, ExplainStep, NotAStep, explain
from holdfast.core.zones.transitions import Result, Transition


def explained(*steps: tuple[str, dict[str, Any], PartitionKeys | None]) -> list[Transition]:
    return list(explain([ExplainStep(*step) for step in steps]))


def peers(text: str, **more: object) -> dict[str, object]:
    return {"peers": list(text), **more}


def test_a_step_goes_on_from_the_one_before_or_from_what_it_says() -> None:
    trigger = {"calculated": peers("AB"), "event_ts": 3}
    done = {"applied": peers("AB")}
    first, second, third, again = explained(
        ("update_pending", trigger, PartitionKeys(stable=at("A"))),
        ("conf_applied", done, None),
        ("update_pending", {"calculated": peers("AC"), "event_ts": 3}, None),
        ("update_pending", trigger, PartitionKeys(stable=at("B"))),
    )
    assert first == (
        Result.PENDING_KEY_UPDATED,
        PartitionKeys(stable=at("A"), pending=(at("AB"),), trigger=3),
    )
    assert second == (Result.FINISH_REBALANCE, PartitionKeys(stable=at("AB"), trigger=3))
    assert third == (Result.OUTDATED_UPDATE_RECEIVED, second[1])
    assert again[1].stable == at("B")
    assert explained(("conf_applied", done, None)) == [(Result.IGNORED_NOT_PENDING, PartitionKeys())]


def test_events_say_times_modes_and_nodes() -> None:
    ((_, strong),) = explained(
        ("update_pending", {"calculated": peers("AB"), "event_ts": 3, "assignments_ts": 5}, None)
    )
    assert strong == PartitionKeys(pending=(at("AB", ts=5),), trigger=3)
    ((_, alive),) = explained(
        (
            "update_pending",
            {"calculated": peers("AB"), "event_ts": 3, "mode": "ha", "alive_nodes": ["B"]},
            None,
        )
    )
    assert alive.pending == (at("B"),)
    known = {"calculated": peers("AB"), "event_ts": 3, "known_stable": peers("AB")}
    assert explained(("update_pending", known, None))[0][0] is Result.PLANNED_KEY_REMOVED_EMPTY_PENDING


def test_an_applied_configuration_has_a_place_in_the_log_and_a_placement() -> None:
    keys = msgspec.convert(
        {
            "stable": peers("ABC"),
            "pending": [peers("AB")],
            "switch_reduce": peers("C"),
            "chain": [{"assignments": peers("ABC")}],
        },
        PartitionKeys,
    )
    ((result, after),) = explained(("conf_applied", {"applied": peers("AB")}, keys))
    assert (result, after.switch_append) == (Result.FINISH_REBALANCE, None), "nobody is wanted back"
    assert [(link.term, link.index) for link in after.chain] == [(0, 0)]
    event = {"applied": peers("AB"), "calculated_now": peers("ABC"), "term": 4, "index": 7}
    ((result, after),) = explained(("conf_applied", event, keys))
    assert (result, after.switch_append) == (Result.SWITCH_APPEND, at("C"))
    assert [(link.term, link.index) for link in after.chain] == [(4, 7)]


def test_replicas_without_data() -> None:
    event = {"switch_reduce": peers("C"), "calculated": peers("ABC"), "event_ts": 3}
    ((result, after),) = explained(("reduce_changed", event, None))
    assert result is Result.PENDING_AND_STABLE_WRITTEN
    assert after == PartitionKeys(stable=at("ABC"), pending=(at("AB"),), trigger=3)
    ((_, dated),) = explained(("reduce_changed", {**event, "assignments_ts": 6}, None))
    assert dated.pending == (at("AB", ts=6),)
    with pytest.raises(NotAStep, match=r"step 1: reduce_changed: .* has no voters"):
        explained(
            ("reduce_changed", event, PartitionKeys(trigger=9)),
            ("reduce_changed", {**event, "switch_reduce": peers("ABC")}, PartitionKeys()),
        )


RESET = {
    "alive_nodes": ["C", "D"],
    "quorum": 2,
    "replicas": 2,
    "consensus": 2,
    "event_ts": 9,
    "local_states": {"C": {"state": "HEALTHY", "log_index": 5}},
}


@pytest.mark.parametrize(
    ("changes", "pending", "planned"),
    [
        ({}, [at("C", force=True), at("C")], None),
        ({"manual": True}, [at("C", force=True)], None),
        (
            {"manual": True, "alive_data_nodes": ["C", "D"], "placement_order": ["D", "C"]},
            [at("C", force=True)],
            at("CD", from_reset=True),
        ),
        (
            {"manual": True, "alive_data_nodes": ["C", "D"], "placement_order": ["D", "C"], "consensus": 1},
            [at("C", force=True)],
            at("D", "C", from_reset=True),
        ),
        ({"assignments_ts": 4}, [at("C", force=True, ts=4), at("C")], None),
        ({"pending_newer_than_recovery_trigger": True}, [at("CX")], None),
        ({"alive_nodes": ["C", "X"]}, [at("C", force=True), at("CX")], None),
        ({"quorum": 1}, [at("CX")], None),
        ({"local_states": {}}, [at("CX")], None),
        ({"event_ts": 2}, [at("CX")], None),
    ],
)
def test_resets(changes: dict[str, Any], pending: list[Assignments], planned: Assignments | None) -> None:
    keys = PartitionKeys(stable=at("ABC"), pending=(at("CX"),), trigger=2)
    alive = {**RESET, **changes}
    if changes.get("pending_newer_than_recovery_trigger"):
        alive["alive_nodes"] = ["C", "D", "X"]
    ((_, after),) = explained(("reset", alive, keys))
    assert (list(after.pending), after.planned) == (pending, planned)


@pytest.mark.parametrize("op", EVENTS_OF)
def test_what_a_step_says_too_much_or_not_at_all_is_named(op: str) -> None:
    with pytest.raises(NotAStep, match=rf"step 0: {op}: .*(missing|unknown)"):
        explained((op, {"newer": 1}, None))
    with pytest.raises(NotAStep, match="step 0: op 'move' is none of update_pending, conf_applied"):
        explained(("move", {}, None))
    with pytest.raises(msgspec.ValidationError, match="newer"):
        msgspec.convert({"op": op, "event": {}, "newer": 1}, ExplainStep)
    number = "term" if op == "conf_applied" else "event_ts"
    with pytest.raises(NotAStep, match=rf"at `event\.{number}`"):
        explained((op, {number: "x"}, None))
    for kind in (EVENTS_OF[op], ExplainStep):
        assert kind.__struct_config__.frozen
        assert kind.__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize(
    ("op", "whole"),
    [
        ("update_pending", {"calculated": peers("A"), "event_ts": 1}),
        ("conf_applied", {"applied": peers("A")}),
        ("reduce_changed", {"switch_reduce": peers("B"), "calculated": peers("A"), "event_ts": 1}),
        ("reset", RESET),
    ],
)
def test_a_field_that_no_event_has_is_refused(op: str, whole: dict[str, Any]) -> None:
    explained((op, whole, None))
    with pytest.raises(NotAStep, match=f"step 0: {op}: .*unknown field `newer`"):
        explained((op, {**whole, "newer": 1}, None))

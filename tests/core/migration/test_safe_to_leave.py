"""What keeps a member that wants to leave, in words that say what helps."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from holdfast.core.migration.safe_to_leave import leave_blocker
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, Intent, MemberInfo

A, B, C, LITE = (MemberId(name) for name in ("a", "b", "c", "lite"))
HELD = [Assignment(1, (A, B)), Assignment(1, (B, A)), Assignment(1, (B, C)), Assignment(1, (A, None, C))]


@dataclass
class Around:
    """What a member knows of its cluster."""

    here: list[MemberId]
    leaving: set[MemberId]
    cluster_state: ClusterState = ClusterState.ACTIVE
    ending: bool = False
    may_be_missed: bool = False
    intents: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.intents = SimpleNamespace(of=lambda uuid: Intent.LEAVE if uuid in self.leaving else Intent.DATA)

    def may_hold(self, info: MemberInfo) -> bool:
        return not info.lite

    def members(self) -> list[MemberInfo]:
        return [MemberInfo(uuid, 1, "host", 1, "host", 1, uuid, uuid == LITE) for uuid in self.here]


def why(around: Around, rows: list[Assignment] = HELD, complete: int = 2) -> str:
    return leave_blocker(A, rows, around, complete)  # type: ignore[arg-type]


def test_while_partitions_move_every_replica_that_is_left_keeps_it() -> None:
    assert why(Around([A, B, C], {A})) == "3 partition replicas are still here"
    assert why(Around([A, B, C], {A}), [Assignment(1, (B, C))]) == ""


def test_while_nothing_moves_only_what_nobody_else_has_whole_keeps_it() -> None:
    frozen = ClusterState.FROZEN
    assert not frozen.migrates
    told = why(Around([A, B, C], {A}, frozen))
    assert told.startswith(
        f"the cluster is {frozen}: this member holds the only copy of 1 partitions; set the state"
    )
    assert why(Around([A, B, C], {A}, frozen), HELD[:3]) == ""
    assert "only copy of 3 partitions" in why(Around([A, B, C], {A, B}, frozen)), (
        "who leaves as well does not count"
    )
    assert why(Around([A, B, C], {A}, frozen), complete=3) == "", "the third replica holds every map"
    assert why(Around([A, B, C], {A}, frozen), [Assignment(1, (MemberId("gone"),))]) == "", (
        "that is not held here"
    )
    behind = [Assignment(1, (A, B), behind=(B,))]
    assert "only copy of 1 partitions" in why(Around([A, B, C], {A}, frozen), behind)


@pytest.mark.parametrize("state", [ClusterState.ACTIVE, ClusterState.FROZEN])
def test_when_all_who_hold_data_leave_the_cluster_ends(state: ClusterState) -> None:
    assert why(Around([A, B, LITE], {A, B}, state)) == "", "lite members hold nothing that would go on"
    assert why(Around([A, LITE], {A}, state), [Assignment(0, ())]) == "", (
        "what was never assigned is not missed"
    )


def test_the_cluster_does_not_end_without_those_who_hold_what_nobody_here_does() -> None:
    rows = [*HELD, Assignment(1, (C,)), Assignment(3, (C, None))]
    told = why(Around([A, B], {A, B}), rows)
    assert told.startswith("all data members leave, and 2 partitions have no copy here; start the members")
    assert why(Around([A, B], {A, B}, ending=True), rows) == "", "it was ordered"


def test_nor_while_somebody_may_be_about_to_return() -> None:
    told = why(Around([A], {A}, may_be_missed=True), [])
    assert told == "all data members leave, and one that was just removed may return"
    assert why(Around([A], {A}, ending=True, may_be_missed=True), []) == ""

"""The history of the table: what is told first, what is told later, and that it has an end."""

from __future__ import annotations

import pytest

from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import MemberInfo
from holdfast.observe.table_history import TableHistory

A, B = MemberId("aaaaaaaa-a"), MemberId("bbbbbbbb-b")
MEMBERS = [MemberInfo(uuid, 1, "h", 1, "h", 2, name) for uuid, name in ((A, "one"), (B, "two"))]


def row(version: int, *replicas: MemberId | None) -> Assignment:
    return Assignment(version, replicas)


def test_first_everything_is_told_and_then_what_has_changed() -> None:
    history = TableHistory()
    before = [row(1, A, B), row(1, A, None)]
    assert not history.look(100, before, MEMBERS)
    assert history.told() == {
        "number": 0, "members": [[A, "one"], [B, "two"]], "base": [[0, 1], [0, -1]], "base_ms": 100, "changes": [],
    }  # fmt: skip
    assert not history.look(150, [before[0], row(2, A, None)], MEMBERS), "who holds it is the same"
    assert history.look(200, [before[0], row(3, B, A)], MEMBERS)
    told = history.told(0)
    assert (told["number"], told["base"], told["changes"]) == (1, None, [(200, 1, [0, 1])])
    assert told["members"] == [[B, "two"], [A, "one"]]
    assert history.told(1)["changes"] == []


def test_who_knows_a_number_that_never_was_is_told_everything() -> None:
    history = TableHistory()
    history.look(100, [row(1, A)], MEMBERS)
    assert history.told(7)["base"] == [[0]]


@pytest.mark.rule("observe/T-1")
def test_what_is_old_becomes_the_table_from_which_changes_begin() -> None:
    history = TableHistory(kept=3)
    history.look(0, [row(1, A), row(1, A)], MEMBERS)
    for number in range(1, 6):
        owner = B if number % 2 else A
        history.look(number * 10, [row(1 + number, owner), row(1, A)], MEMBERS)
    told = history.told(0)
    assert told["number"] == 5
    assert told["base_ms"] == 20
    assert told["base"] == [[0], [0]]
    assert [change[0] for change in told["changes"]] == [30, 40, 50]  # type: ignore[attr-defined]
    assert history.told(3)["base"] is None
    assert len(history.told(3)["changes"]) == 2  # type: ignore[arg-type]

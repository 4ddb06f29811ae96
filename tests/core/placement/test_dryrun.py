"""A dry run does what the master does: repair, layout, plans; and says what it does not do."""

from __future__ import annotations

from holdfast.core.model.migration import MigrationKind, ReplicaList
from holdfast.core.placement.dryrun import Outlook, dry_run, forecast
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.planner import plan


def row(text: str) -> ReplicaList:
    return tuple(None if name == "-" else name for name in text)


def states(outlook: Outlook) -> list[str]:
    return ["".join(owner or "-" for owner in state) for state in outlook.states()]


def one(before: str, after: str) -> Outlook:
    (outlook,) = dry_run([row(before)], [row(after)])
    return outlook


def with_members(before: str, members: str, replicas: int, **options: object) -> Outlook:
    candidates = [Candidate(name) for name in members]
    (outlook,) = forecast([row(before)], set(members), candidates, replicas, **options)  # type: ignore[arg-type]
    return outlook


def test_a_row_with_an_owner_is_just_planned() -> None:
    outlook = one("ABC", "DAC")
    assert outlook.plan == plan(0, row("ABC"), row("DAC"))
    assert (outlook.promoted, outlook.lost, outlook.gone, outlook.restarts_on) == (-1, False, [], None)
    assert states(outlook) == ["ABC", "DBC", "DAC"]
    assert outlook.increment == 2


def test_the_hottest_survivor_is_promoted_before_anything_moves() -> None:
    outlook = one("-BC", "DBC")
    assert outlook.promoted == 1
    assert [step.kind for step in outlook.plan.migrations] == [MigrationKind.SHIFT_DOWN]
    assert states(outlook) == ["-BC", "B-C", "DBC"]
    assert outlook.increment == 4
    assert one("--C", "DBC").promoted == 2


def test_a_row_without_survivor_is_lost_and_gets_no_migrations() -> None:
    outlook = one("---", "DBC")
    assert outlook.lost
    assert outlook.plan.steps == []
    assert outlook.wanted == row("DBC")
    assert states(outlook) == ["---"]


def test_members_that_are_gone_are_named_and_taken_out_first() -> None:
    outlook = with_members("ABC", "BCD", 3)
    assert outlook.gone == ["A"]
    assert outlook.before == row("ABC")
    assert states(outlook) == ["-BC", "B-C", "BDC"]
    assert outlook.wanted == row("BDC")


def test_only_gone_backups_leave_the_owner_alone() -> None:
    outlook = with_members("ABC", "ACD", 3)
    assert (outlook.gone, outlook.promoted) == (["B"], -1)
    assert states(outlook) == ["A-C", "ADC"]


def test_a_survivor_that_does_not_hold_every_map_waits_unless_losses_are_accepted() -> None:
    waiting = with_members("ABC", "CDE", 3, holders=2)
    assert waiting.lost
    assert waiting.plan.steps == []
    assert states(waiting) == ["--C"]
    accepted = with_members("ABC", "CDE", 3, holders=2, heirs=["C", "D", "E"])
    assert (accepted.lost, accepted.promoted, accepted.restarts_on) == (True, 2, None)
    assert states(accepted)[:2] == ["--C", "C--"]
    assert not with_members("ABC", "CDE", 3, holders=3).lost


def test_a_lost_partition_begins_anew_if_losses_are_accepted() -> None:
    rows = [row("AB"), row("AB")]
    found = list(forecast(rows, set("CD"), [Candidate("C"), Candidate("D")], 2, heirs=["C", "D"]))
    assert [outlook.restarts_on for outlook in found] == ["C", "D"]
    assert [states(outlook) for outlook in found] == [["--", "C-", "CD"], ["--", "D-", "DC"]]
    assert all(outlook.lost for outlook in found)


def test_a_lost_partition_does_not_count_for_the_balance() -> None:
    rows = [row("AB"), row("XY"), row("BA")]
    found = list(forecast(rows, set("ABC"), [Candidate(name) for name in "ABC"], 2))
    assert [outlook.lost for outlook in found] == [False, True, False]
    assert found[1].plan.steps == []
    assert [found[0].wanted, found[2].wanted] == arrange(
        [row("AB"), row("BA")], [Candidate(n) for n in "ABC"], 2
    )


def test_wider_and_narrower_rows_have_one_width() -> None:
    outlook = with_members("A", "AB", 2)
    assert (outlook.before, outlook.left, outlook.wanted) == (row("A-"), row("A-"), row("AB"))
    outlook = with_members("ABC", "ABC", 2)
    assert states(outlook) == ["ABC", "AB-"]


def test_what_is_left_out_is_told_apart_from_rotations() -> None:
    assert (one("ABC", "CAB").plan.cycles, one("ABC", "CAB").left_out) == ([[0, 1, 2]], [])
    assert (one("A-", "-A").plan.cycles, one("A-", "-A").left_out) == ([], [0, 1])

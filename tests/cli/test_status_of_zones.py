"""`holdfast status`: how zones stand, put together from what all members say."""

from __future__ import annotations

from typing import Any

from tests.statuses import status

from holdfast.cli.status import Report, _agreed


def zone(name: str, number: int, lag: int, moving: int = 0, takes: list[str] | None = None) -> dict[str, Any]:
    settings = {"partitions": 11, "replicas": 3}
    return {
        "id": number,
        "name": name,
        "settings": settings,
        "leaderless": 0,
        "moving": moving,
        "under_replicated": 0,
        "lag": lag,
        "eligible_members": takes or ["m1", "m2", "m3"],
    }


def test_of_lags_the_largest_that_any_leader_tells_is_shown_zone_by_zone() -> None:
    seen = {"zones": [zone("y", 1, 0), zone("z", 2, 3, moving=4)]}
    own = {"a": seen, "b": {"zones": [zone("y", 1, 7), zone("z", 2, 1)]}, "c": {}}
    report = Report(status(seen), {uuid: status(one) for uuid, one in own.items()})
    assert [(one.name, one.lag, one.moving) for one in report.zones] == [("y", 7, 0), ("z", 3, 4)]
    [line] = _agreed(report)
    assert line == (
        "zones: y with 11 partitions, 0 without a leader, 0 moving, 0 under-replicated, "
        "largest lag of a follower 7; z with 11 partitions, 0 without a leader, 4 moving, 0 under-replicated, "
        "largest lag of a follower 3"
    )
    assert list(_agreed(Report(status()))) == []


def test_a_zone_with_fewer_members_than_replicas_says_so() -> None:
    [line] = _agreed(Report(status(zones=[zone("y", 1, 0, takes=["m1", "m2"])])))
    assert line.endswith("largest lag of a follower 0, 2 members for 3 replicas")

"""`holdfast cluster watch`: what happens to zones as lines for people, and for scripts."""

from __future__ import annotations

import json

import pytest
from rich.text import Text

from holdfast.cli.rendering import as_json
from holdfast.cli.watch import Lines, Summary, is_alarming, struct_of
from holdfast.client.zone_events import ZoneEvent, ZoneEventKind
from holdfast.client.zone_watcher import ZonesGap, ZonesWatched
from holdfast.core.model.partition_events import Kind, Loss, News

KIND = ZoneEventKind
LINES = [
    (
        ZoneEvent(KIND.CREATED, "z", changed={"partitions": [7], "replicas": [3]}),
        ("zone z: created, 7 partitions, 3 replicas"),
    ),
    (
        ZoneEvent(KIND.ALTERED, "z", changed={"replicas": [3, 5], "filter": ["", "group=a"]}),
        ("zone z: altered, replicas 3 to 5, filter none to group=a"),
    ),
    (ZoneEvent(KIND.RENAMED, "y", was="z"), "zone z: is called y now"),
    (ZoneEvent(KIND.DROPPED, "z"), "zone z: dropped, with everything in it"),
    (
        ZoneEvent(KIND.DATA_NODES, "z", before=["a", "b"], after=["a"]),
        ("zone z: members that may hold it: a b to a"),
    ),
    (
        ZoneEvent(KIND.RESET_ASKED, "z"),
        ("zone z: reset of partitions that have lost their majority (all)"),
    ),
    (
        ZoneEvent(KIND.RESET, "z", 7, ["a", "b", "c"], ["a"]),
        ("zone z partition 7: RESET, continues with a; data that only others had is lost"),
    ),
    (ZoneEvent(KIND.PLACED, "z", 0, [], ["a", "b (learner)"]), "zone z partition 0: placed on a b (learner)"),
    (
        ZoneEvent(KIND.MOVE_BEGUN, "z", 7, ["a"], ["b"], by_force=True),
        ("zone z partition 7: move started, a to b, by force"),
    ),
    (ZoneEvent(KIND.MOVE_CHANGED, "z", 7, ["a"], ["c"]), "zone z partition 7: move has another target, c"),
    (
        ZoneEvent(KIND.MOVE_GIVEN_UP, "z", 7, ["a"], ["c"]),
        ("zone z partition 7: move to c cancelled, stays on a"),
    ),
    (ZoneEvent(KIND.ASSIGNED, "z", 7, ["a", "b"], ["a", "c"]), "zone z partition 7: moved, a b to a c"),
    (ZoneEvent(KIND.LEADER, "z", 7, [], ["c"], term=4), "zone z partition 7: leader c in term 4, was none"),
    (
        ZoneEvent(KIND.FAILING, "z", 7, after=["c"], attempts=20, why="no room"),
        ("zone z partition 7: FAILING on c, 20 times: no room"),
    ),
]


def line_of(counts: Summary) -> str:
    """The summary without the time at its beginning."""
    told = counts.take()
    return "" if told is None else str(*told.view()).partition(" ")[2]


def test_there_is_a_line_for_each_kind_of_event() -> None:
    assert {event.kind for event, _ in LINES} == set(ZoneEventKind)


@pytest.mark.parametrize(("event", "line"), LINES, ids=[event.kind for event, _ in LINES])
def test_an_event_is_told_in_a_line_and_as_plain_data(event: ZoneEvent, line: str) -> None:
    assert Lines().of(event) == line
    plain = json.loads(as_json(struct_of(event)))
    assert (plain["kind"], plain["zone"]) == (event.kind.value, event.zone)
    assert plain.get("partition") == event.partition


def test_where_the_telling_begins_and_what_is_not_known_is_said() -> None:
    assert Lines().of(ZonesWatched(("y", "z"), 7)) == "watching zones as of revision 7: y, z"
    assert Lines().of(ZonesWatched((), 7)) == "watching zones as of revision 7: there are none"
    assert "are unknown: compacted" in Lines().of(ZonesGap("compacted"))


def test_a_summary_counts_what_happens_to_many_partitions_and_nothing_else() -> None:
    def ended(kind: Kind, completed: int, failed: int) -> News:
        return News((1, 1), kind, planned=9, completed=completed, failed=failed)

    counts = Summary()
    assert line_of(counts) == ""
    assert counts.takes(ended(Kind.COMPLETED, 1, 0))
    assert counts.takes(ended(Kind.COMPLETED, 2, 0))
    assert counts.takes(ended(Kind.FAILED, 2, 1))
    assert counts.takes(ZoneEvent(KIND.LEADER, "z", 7, [], ["c"], term=4))
    for told in (
        ZoneEvent(KIND.FAILING, "z", 7, after=["c"], attempts=20, why="no room"),
        ZoneEvent(KIND.DROPPED, "z"),
        ZonesGap("compacted"),
    ):
        assert not counts.takes(told), told
    line = "2 migrations done, 1 failed, 3 of 9 of this rebalance; of zones: 1 leader changed"
    assert line_of(counts) == line
    assert line_of(counts) == "", "each is counted once"
    counts.takes(ended(Kind.COMPLETED, 3, 1))
    summary = counts.take()
    assert summary is not None
    assert json.loads(as_json(summary)) == {
        "kind": "summary",
        "migrations": {"completed": 1, "failed": 0, "ended": 4, "planned": 9},
        "zones": {},
        "taken_over": 0,
        "lost": {},
    }


def lost(partition: int, *, maps: tuple[str, ...] = (), all_lost: bool = False) -> News:
    return News((1, 1), Kind.LOST, loss=Loss(partition, 0, all_lost, list(maps)))


def test_a_crash_that_costs_nothing_is_one_calm_line_of_a_summary() -> None:
    counts = Summary()
    assert all(counts.takes(lost(partition)) for partition in range(90))
    assert line_of(counts) == "90 partitions taken over by backups, no entry is lost"
    assert not is_alarming(lost(7))
    assert Lines().of(lost(7)) == "partition 7: the owner is gone; a backup has taken over; no entry is lost"


def test_a_summary_names_the_partitions_that_lost_entries() -> None:
    counts = Summary()
    for event in (
        *(lost(partition, maps=("m",)) for partition in (3, 4, 5)),
        lost(9, all_lost=True),
        lost(1),
    ):
        assert counts.takes(event)
    told = counts.take()
    assert told is not None
    [text] = told.view()
    assert isinstance(text, Text)
    assert text.style == "bold red"
    assert text.plain.partition(" ")[2] == (
        "LOST 1 partitions (9): every copy is gone; it waits for a member that holds one to return; "
        "LOST 3 partitions (3-5): the owner is gone; a backup has taken over; entries are lost of: m; "
        "1 partitions taken over by backups, no entry is lost"
    )
    assert is_alarming(lost(9, all_lost=True))
    assert Lines().of(lost(3, maps=("m",))).startswith("LOST partition 3: ")

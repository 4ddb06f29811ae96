"""What has happened, in words; and that it is kept once, and has an end."""

from __future__ import annotations

import pytest

from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.observe.cluster_events import ClusterEvents, lost


@pytest.mark.rule("observe/E-1")
def test_the_oldest_are_forgotten_and_who_is_late_is_told_how_many() -> None:
    cluster_events = ClusterEvents(kept=5)
    for number in range(8):
        cluster_events.add(number, "x", str(number))
    some, missed = cluster_events.since(0)
    assert ([one.number for one in some], missed) == ([4, 5, 6, 7, 8], 3)
    some, missed = cluster_events.since(4, most=2)
    assert ([one.number for one in some], missed) == ([5, 6], 0)
    assert cluster_events.since(8) == ([], 0)


def test_news_of_partitions_in_words() -> None:
    told: list[int] = []
    cluster_events = ClusterEvents(lambda: told.append(cluster_events.number))
    moved = Migration(7, MemberId("aaaaaaaa-1"), 0, 1, MemberId("bbbbbbbb-2"), NONE, 0)
    cluster_events.heard(1, News((1, 1), Kind.STARTED, planned=3))
    cluster_events.heard(2, News((1, 2), Kind.COMPLETED, migration=moved, took_ms=12))
    cluster_events.heard(3, News((1, 3), Kind.FAILED, migration=moved))
    cluster_events.heard(4, News((1, 4), Kind.FINISHED, planned=3, completed=2, failed=1, elapsed_ms=900))
    cluster_events.heard(5, News((1, 5), Kind.LOST, loss=Loss(7, 0, all_lost=True, maps=["m"])))
    assert told == [1, 2, 3, 4, 5]
    lines, _ = cluster_events.since(0)
    assert [(one.kind, one.level, one.text) for one in lines] == [
        ("rebalance", "info", "a rebalance started: 3 migrations planned"),
        ("migrated", "info", "partition 7 replica 0 from aaaaaaaa to bbbbbbbb"),
        ("failed", "warning", "FAILED: partition 7 replica 0 from aaaaaaaa to bbbbbbbb"),
        ("rebalanced", "warning", "the rebalance finished: 2 of 3 done, 1 failed"),
        ("lost", "error", "partition 7 has lost every copy, and waits for one to return"),
    ]
    assert (lines[1].took_ms, lines[1].replica, lines[1].partition) == (12, 0, 7)


def test_losses_in_words() -> None:
    assert lost(Loss(1, 0, all_lost=False, maps=[])) == (
        "partition 1 has lost its owner: a backup has taken over; no entry is lost"
    )
    assert lost(Loss(1, 1, all_lost=True, maps=["a", "b"], begun_anew=True)) == (
        "partition 1 has lost every copy, and continues empty; entries are lost of a, b"
    )

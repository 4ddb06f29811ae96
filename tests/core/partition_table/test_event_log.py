"""What a member remembers of the news it has told, and announces."""

from __future__ import annotations

import pytest

from holdfast.core.effects import Announce
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table import event_log as under_test
from holdfast.core.partition_table.event_log import EventLog, Reporter

MOVE = Migration(3, "a", 0, NONE, "b", NONE, 0)


def said(view: int, count: int) -> News:
    return News((view, count), Kind.STARTED)


def test_news_are_announced_once_in_order() -> None:
    out = Outbox()
    event_log = EventLog(out)
    event_log.learn(1, [said(1, 2), said(1, 1)], whole=True)
    event_log.learn(2, [said(1, 2), said(1, 3)], whole=False)
    assert out.take() == [Announce(said(1, 1)), Announce(said(1, 2)), Announce(said(1, 3))]


def test_what_was_told_can_be_asked_for_again() -> None:
    event_log = EventLog(Outbox())
    event_log.admitted(1)
    assert event_log.since((1, 0)) == ([], True)
    event_log.learn(1, [said(1, 1), said(1, 2)], whole=True)
    assert event_log.since((1, 0)) == ([said(1, 1), said(1, 2)], True)
    assert event_log.since((1, 1)) == ([said(1, 2)], True)
    assert event_log.since((1, 2)) == ([], True)
    assert event_log.delivered == (1, 2)


def test_what_a_member_was_not_there_for_is_said_to_be_missing() -> None:
    event_log = EventLog(Outbox())
    event_log.admitted(5)
    event_log.learn(1, [said(5, 1)], whole=True)
    assert event_log.since((4, 9)) == ([said(5, 1)], False)
    assert event_log.since((5, 0)) == ([said(5, 1)], True)
    event_log.admitted(9)  # it was removed, and admitted again
    news, whole = event_log.since((5, 1))
    assert not whole
    assert [one.kind for one in news] == [Kind.FINISHED], "for its listeners the process is over"
    assert event_log.since((9, 0)) == ([], True)


def test_old_news_are_forgotten_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "RECENT", 3)
    event_log = EventLog(Outbox())
    for count in range(1, 6):
        event_log.learn(count, [said(1, count)], whole=False)
    assert event_log.since((1, 1)) == ([said(1, 3), said(1, 4), said(1, 5)], False)
    assert event_log.since((1, 2)) == ([said(1, 3), said(1, 4), said(1, 5)], True)


def test_the_reporter_says_how_long_each_migration_took() -> None:
    out = Outbox()
    reporter = Reporter(out)
    reporter.view_changed(7)
    reporter.started(2)
    out.now_ns = 30 * MILLISECOND
    reporter.ended(MOVE, 2, well=True, began_ns=10 * MILLISECOND)
    reporter.ended(MOVE, 3, well=False)
    reporter.finished()
    told = reporter.take()
    assert [news.took_ms for news in told] == [0, 20, 0, 0]
    assert [(news.completed, news.failed, news.remaining) for news in told] == [
        (0, 0, 2),
        (1, 0, 1),
        (1, 1, 0),
        (1, 1, 0),
    ]


@pytest.mark.parametrize(
    ("maps", "name", "concerned"),
    [
        (["default"], "other", True),
        (["default"], "flights", False),
        (["flights"], "flights", True),
        (["flights"], "other", False),
        ([], "other", False),
    ],
)
def test_which_maps_a_loss_concerns(maps: list[str], name: str, *, concerned: bool) -> None:
    loss = Loss(1, 0, False, maps)
    assert loss.concerns(name, {"flights"}) is concerned

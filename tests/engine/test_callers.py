"""Who is told what the member answers: each question once, each listener until it ends, by a token of its own."""

from __future__ import annotations

import pytest

from holdfast.core.effects import Announce, BackpressureChanged, ClusterChanged, Complete, Notify
from holdfast.core.events import (
    ChangesAsked,
    CollectorAdded,
    CutLeased,
    CutRequested,
    Event,
    ListenerAdded,
    MapDestroyed,
    SubscriptionEnded,
    TransactionAsked,
)
from holdfast.core.model.changes_since import Asked
from holdfast.core.model.operations import EntryEvent, EventKind, WrittenEntries
from holdfast.core.model.partition_events import Kind, News
from holdfast.core.model.transaction_orders import ResumeCommits
from holdfast.engine.callers import Callers

ASKED = Asked("m", 3, 0, 0, 7, 1, 1000)
NEWS = News((1, 1), Kind.STARTED)


@pytest.fixture
def put() -> list[Event]:
    return []


@pytest.fixture
def callers(put: list[Event]) -> Callers:
    return Callers(put.append, put.append)


def test_each_question_is_answered_once_by_its_own_token(callers: Callers, put: list[Event]) -> None:
    told: list[tuple[str, object]] = []
    first = callers.expect(lambda answer: told.append(("request", answer)))
    callers.take_cut(b"cut", ("m",), (1, 2), 500, lambda taken: told.append(("cut", taken)))
    callers.hold_cut(b"cut", 700, lambda count: told.append(("hold", count)))
    callers.ask_changes(ASKED, lambda found: told.append(("changes", found)))
    assert first == 1
    assert put == [
        CutRequested(2, b"cut", ("m",), (1, 2), 500, False),
        CutLeased(3, b"cut", 700),
        ChangesAsked(4, ASKED),
    ]
    for token in (3, 1, 4):
        callers.deliver(Complete(token, f"answer {token}"))
    assert told == [("hold", "answer 3"), ("request", "answer 1"), ("changes", "answer 4")]
    callers.complete(2, "answer 2")
    assert told[-1] == ("cut", "answer 2")
    with pytest.raises(KeyError):
        callers.complete(2, "once more")


def test_a_cut_of_a_passive_cluster_says_so(callers: Callers, put: list[Event]) -> None:
    callers.take_cut(b"cut", ("m",), (1,), 500, print, passive=True)
    assert put == [CutRequested(1, b"cut", ("m",), (1,), 500, True)]


def test_a_listener_hears_until_it_ends_and_ends_once(callers: Callers, put: list[Event]) -> None:
    heard: list[tuple[str, object]] = []
    end = callers.listen("m", key=b"k", local_only=True, on_event=lambda event: heard.append(("m", event)))
    end_other = callers.watch_acks(b"client", lambda number: heard.append(("collector", number)))
    assert put == [ListenerAdded(1, "m", b"k", True), CollectorAdded(2, b"client")]
    callers.deliver(Notify(1, "changed"))  # type: ignore[arg-type]
    callers.deliver(Notify(2, 77))
    assert heard == [("m", "changed"), ("collector", 77)]
    end()
    end()
    assert put[2:] == [SubscriptionEnded(1)]
    callers.deliver(Notify(1, "changed again"))  # type: ignore[arg-type]
    assert len(heard) == 2
    end_other()
    assert put[3:] == [SubscriptionEnded(2)]


def test_watchers_are_told_of_each_change_until_they_end(callers: Callers) -> None:
    told: list[str] = []

    def leave() -> None:
        told.append("first")
        end_second()

    end_first = callers.watch(leave)
    end_second = callers.watch(lambda: told.append("second"))
    callers.watch(lambda: told.append("third"))
    callers.deliver(ClusterChanged())
    assert told == ["first", "third"], "who has ended while others are told hears nothing more"
    end_first()
    end_first()
    callers.deliver(ClusterChanged())
    assert told == ["first", "third", "third"]


def test_who_hears_news_ends_once_and_is_told_whether_it_did(callers: Callers) -> None:
    heard: list[object] = []
    ends = []

    def hear(news: News) -> None:
        heard.append(news)
        ends[1]()

    ends += [callers.on_news(hear), callers.on_news(heard.append), callers.on_news(heard.append)]
    callers.deliver(Announce(NEWS))
    assert heard == [NEWS, NEWS]
    assert [end() for end in (*ends, *ends)] == [True, False, True, False, False, False]
    callers.deliver(Announce(NEWS))
    assert len(heard) == 2


def test_the_door_is_told_of_too_much_for_backups(callers: Callers) -> None:
    callers.deliver(BackpressureChanged())
    told: list[bool] = []
    callers.backpressure_changed = lambda: told.append(True)
    callers.deliver(BackpressureChanged())
    assert told == [True]


def test_orders_of_transactions_are_answered_and_destroyed_maps_reported(
    callers: Callers, put: list[Event]
) -> None:
    answers: list[object] = []
    order = ResumeCommits(b"token")
    callers.order_transaction(order, answers.append)
    callers.destroyed("m")
    assert put == [TransactionAsked(1, order, more=True), MapDestroyed("m")]
    callers.deliver(Complete(1, "answer"))
    assert answers == ["answer"]


def written() -> WrittenEntries:
    """Two events of one map."""
    entries = WrittenEntries("m", "member")
    entries.rows += [
        (EventKind.ADDED, b"k", b"v", None, 5, 7, 3),
        (EventKind.REMOVED, b"l", None, b"w", 0, 8, 3),
    ]
    return entries


def test_a_listener_gets_several_events_at_once_if_it_can(callers: Callers) -> None:
    single: list[EntryEvent] = []
    together: list[WrittenEntries] = []
    told = written()
    callers.listen("m", key=None, local_only=False, on_event=single.append)
    end = callers.listen("m", key=None, local_only=False, on_event=single.append, on_written=together.append)
    callers.deliver(Notify(2, told))
    assert (single, together) == ([], [told])
    callers.deliver(Notify(1, told))
    assert single == told.events()
    end()
    callers.deliver(Notify(2, told))
    assert (len(single), len(together)) == (2, 1)


def test_a_listener_that_ends_with_an_event_gets_no_further_one(callers: Callers) -> None:
    heard: list[EntryEvent] = []

    def hear(event: EntryEvent) -> None:
        heard.append(event)
        end()

    end = callers.listen("m", key=None, local_only=False, on_event=hear)
    callers.deliver(Notify(1, written()))
    assert heard == written().events()[:1]

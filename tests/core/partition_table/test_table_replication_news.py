"""News travel in the rounds of the table replication, once to each member, also when the master changes
(partition_table/L-7).
"""

from __future__ import annotations

import pytest
from tests.core.placement.rounds import (
    MOVE,
    follower,
    heard,
    leader,
    offer,
    offers,
    report,
    row,
    said,
    stored,
)
from tests.core.seats import A, B, C, D, Seat, info, view_of

from holdfast.core.effects import Announce
from holdfast.core.messages import TableCommit, TableFetch
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.views import View


def announced(seat: Seat) -> list[News]:
    return [effect.news for effect in seat.effects() if isinstance(effect, Announce)]


def test_news_are_told_with_their_round_and_reported_until_then() -> None:
    seat = follower()
    first, second = said(1, 1), said(1, 2, Kind.LOST, loss=Loss(0, 0, False, []))
    seat.hear(A, offer(1, [], news=(first, second)))
    assert announced(seat) == []
    seat.hear(A, TableCommit(1, 1))
    assert announced(seat) == [first, second]
    seat.hear(A, TableFetch(1))
    assert seat.sent() == [(A, report(news=[first, second]))], "somebody may not have applied the round"
    seat.beat(C, 1, 1, 1)
    seat.beat(A, 2, 1, 1)
    assert len(seat.table_replication.event_log.kept) == 2
    seat.beat(A, 1, 1, 9)
    assert seat.table_replication.event_log.kept == []


@pytest.mark.rule("partition_table/L-7")
def test_news_are_kept_until_this_member_too_has_applied_their_round() -> None:
    seat = follower()
    seat.hear(A, offer(1, [], news=(said(1, 1),)))
    seat.hear(A, TableCommit(1, 1))
    seat.beat(A, 1, 1, 0)
    assert seat.table_replication.event_log.kept == [said(1, 1)]


def test_the_first_round_of_a_view_lists_all_that_is_to_be_kept_and_later_ones_add_to_it() -> None:
    seat = follower()
    for number, news in ((1, said(1, 1)), (2, said(1, 2))):
        seat.hear(A, offer(number, [], news=(news,)))
        seat.hear(A, TableCommit(1, number))
    assert len(seat.table_replication.event_log.kept) == 2
    seat.install(view_of(2, A, B))
    seat.hear(A, offer(1, [], view=2, news=(said(2, 1),)))
    seat.hear(A, TableCommit(2, 1))
    assert seat.table_replication.event_log.kept == [said(2, 1)]


@pytest.mark.rule("partition_table/L-7")
def test_a_new_master_tells_again_what_others_have_told_and_what_turns_out_to_be_true() -> None:
    seat = Seat(A, 2)
    seat.install(view_of(2, A, B, C))
    done = said(1, 3, Kind.COMPLETED, migration=MOVE, version=5)
    undone = said(1, 4, Kind.COMPLETED, migration=Migration(1, A, 0, NONE, B, NONE, 0), version=9)
    seat.hear(B, report(((0, row(5)), (1, row(8))), view=2, news=[said(1, 2)], offered=[undone]))
    seat.hear(C, report(view=2, news=[said(1, 1)], offered=[done]))
    ((_, first),) = [one for one in offers(seat) if one[0] == B]
    assert first.news == [said(1, 1), said(1, 2), done]
    stored(seat, 1, B, C, view=2)
    seat.effects()
    seat.table_replication.reporter.lost(Loss(0, 0, False, []))
    seat.table_replication.send_news()
    fresh = said(2, 1, Kind.LOST, loss=Loss(0, 0, False, []))
    assert [message.news for _, message in offers(seat)] == [[fresh]] * 2, "the others have been told"


def test_what_was_told_is_certain_even_if_the_rows_have_gone_on() -> None:
    seat = Seat(A, 2)
    seat.install(view_of(2, A, B))
    done = said(1, 3, Kind.COMPLETED, migration=MOVE, version=5)
    seat.hear(B, report(((0, row(8)),), view=2, news=[done], offered=[done]))
    assert [message.news for _, message in offers(seat)] == [[done]]


def test_a_master_tells_in_the_next_view_what_it_had_not_told_in_this_one() -> None:
    seat = leader(B, C, D)
    seat.table_replication.reporter.started(1)
    seat.table_replication.send_news()
    seat.table_replication.reporter.started(2)
    seat.effects()
    seat.install(view_of(2, A, B, C))
    under_way = said(1, 1, process=(1, 1), planned=1)
    over = said(1, 2, Kind.FINISHED, process=(1, 1), planned=1)
    pending = said(1, 3, process=(1, 3), planned=2)
    assert [message.news for _, message in offers(seat)] == []
    seat.table_replication.reporter.finished()
    seat.table_replication.send_news()
    first = next(message.news for _, message in offers(seat))
    assert first[:3] == [under_way, over, pending]
    assert [news.number for news in first[3:]] == [(2, 1)]


def test_news_that_were_told_here_and_are_kept_go_with_the_first_round() -> None:
    seat = leader(B, C)
    seat.table_replication.reporter.started(1)
    seat.table_replication.send_news()
    stored(seat, 1, B)
    seat.effects()
    seat.install(view_of(2, A, B, C))
    seat.table_replication.propose({0: row(1, A)})
    assert [news.number for news in offers(seat)[0][1].news] == [(1, 1)]


def test_what_others_had_told_is_not_told_again_in_a_later_view() -> None:
    seat = Seat(A)
    seat.install(view_of(2, A, B))
    seat.hear(B, report(view=2, news=[said(1, 1)]))
    seat.table_replication.reporter.lost(Loss(0, 0, False, []))
    seat.table_replication.send_news()
    assert [news.number for news in offers(seat)[0][1].news] == [(1, 1), (2, 1)]
    stored(seat, 1, B, view=2)
    heard(seat, B, 1, view=2)
    seat.table_replication.rounds()
    seat.effects()
    seat.install(view_of(3, A, B, C))
    seat.table_replication.propose({0: row(1, A)})
    assert offers(seat)[0][1].news == []


def test_a_new_master_goes_on_with_the_process_that_was_told() -> None:
    seat = follower()
    seat.hear(A, offer(1, [], news=(said(1, 1, process=(1, 1), planned=2),)))
    seat.hear(A, TableCommit(1, 1))
    assert not seat.table_replication.reporter.under_way
    seat.install(view_of(2, B, C))
    seat.hear(C, report(view=2))
    assert seat.table_replication.reporter.under_way


def test_a_removed_master_forgets_what_it_was_about_to_say() -> None:
    seat = leader(B, C)
    seat.table_replication.reporter.started(1)
    seat.table_replication.propose({0: row(1, C)})
    seat.table_replication.propose({1: row(1, C)})
    seat.table_replication.reporter.started(2)
    seat.install(view_of(2, B, C))
    assert not seat.table_replication.reporter.under_way
    assert sum(seat.table_replication.leftovers.values()) == 0
    seat.effects()
    seat.install(View(3, "id", [info(B), info(C), info(A, 3)]))
    seat.hear(B, TableFetch(3))
    assert seat.sent() == [(B, report(view=3))]

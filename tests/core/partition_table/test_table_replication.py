"""How a row becomes the cluster's table: who stores it first, when it is committed, and what a new master finds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from tests.core.placement.rounds import (
    MOVE,
    VIEW,
    E,
    follower,
    heard,
    leader,
    offer,
    offered_to,
    offers,
    report,
    row,
    said,
    stored,
)
from tests.core.seats import A, B, C, D, Picks, Seat, every_order, info, view_of

from holdfast.core.effects import Note, SetTimer
from holdfast.core.messages import (
    Heartbeat,
    Prepare,
    TableCheck,
    TableCommit,
    TableDiffers,
    TableFetch,
    TableOffer,
    TableStored,
)
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.notices import Notice
from holdfast.core.model.partition_events import Kind, Loss
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Intent, View
from holdfast.errors import InvariantBroken
from holdfast_lab.sim.ablations.switching import ablated

# -- members store what the master of their view offers (partition_table/L-1)


def test_an_offered_row_is_stored_and_known_but_is_not_the_table_yet() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(1, row(3))]))
    assert seat.sent() == [(A, TableStored(1, 1))]
    assert seat.table_replication.stored_assignment(1) == row(3)
    assert seat.table_replication.stored_assignment(0) is None
    assert seat.table_replication.known() == [(1, row(3))]
    assert seat.table.rows == [Assignment(), Assignment()]
    assert seat.applied == []


def of_another(seat: Seat) -> None:
    seat.hear(C, offer(1, [(0, row(3))]))


def of_an_older_view(seat: Seat) -> None:
    seat.hear(A, offer(1, [(0, row(3))], view=0))


def after_agreeing_to_a_next_view(seat: Seat) -> None:
    seat.seal(view_of(2, B, C))
    seat.effects()
    seat.hear(A, offer(1, [(0, row(3))]))


@pytest.mark.rule("membership/A-3", "partition_table/L-1")
@pytest.mark.parametrize("offered", [of_another, of_an_older_view, after_agreeing_to_a_next_view])
def test_an_offer_is_not_stored(offered: Callable[[Seat], None]) -> None:
    seat = follower()
    offered(seat)
    assert (seat.sent(), seat.table_replication.known()) == ([], [])
    seat.hear(A, TableCommit(1, 1))
    assert seat.applied == []
    assert sum(seat.table_replication.leftovers.values()) == 0


@pytest.mark.parametrize("later", [row(2), row(3, B, C), Assignment()])
def test_only_a_newer_row_takes_the_place_of_a_stored_one(later: Assignment) -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3))]))
    seat.hear(A, offer(2, [(0, later)], committed=0))
    assert seat.table_replication.stored_assignment(0) == row(3)
    seat.hear(A, offer(3, [(0, row(4))], committed=0))
    assert seat.table_replication.stored_assignment(0) == row(4)


def test_a_row_that_is_the_table_already_is_not_stored_above_it() -> None:
    seat = follower()
    seat.table.rows[0] = row(3)
    seat.hear(A, offer(1, [(0, row(3))]))
    assert seat.table_replication.stored_assignment(0) is None
    assert seat.table_replication.known() == [(0, row(3))]


def test_the_offer_fetch_and_commit_of_a_view_that_is_to_come_wait_for_it() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3))], view=2))
    seat.hear(A, TableCommit(2, 1))
    seat.hear(A, TableFetch(2))
    assert (seat.sent(), seat.table_replication.known()) == ([], [])
    assert seat.table_replication.leftovers["early rounds"] == 3
    seat.install(view_of(2, A, B))
    assert seat.sent() == [(A, TableStored(2, 1)), (A, report(((0, row(3)),), view=2))]
    assert seat.applied == [(0, Assignment(), row(3))]
    assert sum(seat.table_replication.leftovers.values()) == 0


@pytest.mark.parametrize("message", [offer(1, [(0, row(3))]), TableCommit(1, 1), TableFetch(1)])
def test_who_is_in_no_view_answers_nothing_yet(
    message: TableOffer | TableCommit | TableFetch,
) -> None:
    seat = Seat(B)
    seat.hear(A, message)
    assert seat.sent() == []
    assert seat.table_replication.leftovers["early rounds"] == 1
    seat.install(VIEW)
    assert sum(seat.table_replication.leftovers.values()) == isinstance(message, TableOffer) * 2


# -- rounds are applied in their order, when they are committed


def test_a_committed_round_is_applied_and_told() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3)), (1, row(2))]))
    seat.hear(A, TableCommit(1, 1))
    assert seat.applied == [(0, Assignment(), row(3)), (1, Assignment(), row(2))]
    assert seat.table.rows == [row(3), row(2)]
    assert sum(seat.table_replication.leftovers.values()) == 0


def test_the_next_offer_says_that_the_round_before_is_committed() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3))]))
    seat.hear(A, offer(2, [(0, row(4))]))
    assert seat.applied == [(0, Assignment(), row(3))]
    assert seat.table_replication.stored_assignment(0) == row(4), "what is newer stays stored"


def test_rounds_are_applied_one_after_the_other_however_their_commits_arrive() -> None:
    """Each order of three offers and three commits: what is applied is what is decided without a gap, and no more."""
    messages = [offer(n, [(0, row(n))], committed=0) for n in (1, 2, 3)] + [
        TableCommit(1, n) for n in (1, 2, 3)
    ]

    def run(pick: Picks) -> None:
        seat, rest = follower(), list(messages)
        here: set[int] = set()
        decided = 0
        while rest:
            message = rest.pop(pick(len(rest)))
            seat.hear(A, message)
            if isinstance(message, TableOffer):
                here.add(message.round)
            else:
                decided = max(decided, message.round)
            gapless = next(n for n in (0, 1, 2, 3) if n + 1 not in here)
            assert [new.version for _, _, new in seat.applied] == list(range(1, min(decided, gapless) + 1))
        assert sum(seat.table_replication.leftovers.values()) == 0

    assert every_order(run) == 720


@pytest.mark.parametrize(
    ("sender", "commit"), [(C, TableCommit(1, 1)), (A, TableCommit(0, 1)), (A, TableCommit(2, 1))]
)
def test_a_commit_of_somebody_else_or_of_another_view_commits_nothing(
    sender: MemberId, commit: TableCommit
) -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3))]))
    seat.hear(sender, commit)
    assert seat.applied == []
    assert seat.table_replication.stored_assignment(0) == row(3)


def test_an_older_row_in_a_round_changes_nothing_and_is_not_told() -> None:
    seat = follower()
    seat.table.rows[0] = row(5)
    seat.hear(A, offer(1, [(0, row(3)), (1, row(2))]))
    seat.hear(A, TableCommit(1, 1))
    assert seat.applied == [(1, Assignment(), row(2))]
    assert seat.table.rows[0] == row(5)


def test_a_stored_row_that_is_newer_than_the_committed_one_stays() -> None:
    seat = follower()
    seat.membership.carried = [(0, row(4))]
    seat.install(view_of(2, A, B))
    seat.hear(A, offer(1, [(0, row(3))], view=2))
    seat.hear(A, TableCommit(2, 1))
    assert seat.table.rows[0] == row(3)
    assert seat.table_replication.stored_assignment(0) == row(4)


def test_two_histories_of_one_version_stop_the_member() -> None:
    seat = follower()
    seat.table.rows[0] = row(3)
    seat.hear(A, offer(1, [(0, row(3, B, C))]))
    with pytest.raises(InvariantBroken):
        seat.hear(A, TableCommit(1, 1))


def test_a_member_is_current_from_the_first_round_of_its_stay_on() -> None:
    seat = follower()
    assert not seat.table_replication.current
    for number in (1, 2):
        seat.hear(A, offer(number, [(0, row(number))]))
        seat.hear(A, TableCommit(1, number))
        assert seat.table_replication.current
    seat.install(view_of(2, A, B))
    assert seat.table_replication.current
    assert seat.current == 1


# -- views come and go (partition_table/L-5)


def test_in_the_next_view_rounds_count_from_one_and_what_was_not_committed_is_not() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(1))]))
    seat.hear(A, offer(2, [(0, row(2))]))
    seat.hear(A, offer(3, [(0, row(3))], committed=1))
    seat.hear(A, TableCommit(1, 2))
    seat.install(view_of(2, A, B))
    seat.hear(A, TableCommit(2, 3))
    assert seat.table.rows[0] == row(2), "the offer of the view before is void"
    seat.hear(A, offer(1, [(0, row(4))], view=2))
    assert seat.table.rows[0] == row(4), "the first of three rounds that are decided"
    assert seat.table_replication.rounds()[0] == 1


def test_in_the_next_view_nothing_is_decided_before_its_master_says_so() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(1))]))
    seat.hear(A, TableCommit(1, 1))
    seat.install(view_of(2, A, B))
    assert seat.table_replication.rounds() == (0, 0)
    seat.hear(A, offer(1, [(0, row(2))], view=2))
    assert seat.table.rows[0] == row(1)


@pytest.mark.rule("partition_table/L-5")
def test_who_is_removed_though_alive_forgets_what_was_never_committed() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3))], news=(said(1, 1),)))
    seat.hear(A, offer(9, [], view=7))
    seat.install(view_of(2, A, C))
    assert seat.membership.view is None
    assert seat.table_replication.known() == []
    assert sum(seat.table_replication.leftovers.values()) == 0
    assert not seat.table_replication.ready
    back = View(3, "id", [info(A), info(B, 3)])
    seat.effects()
    seat.install(back)
    seat.hear(A, TableFetch(3))
    assert seat.sent() == [(A, report(view=3))], "nor does it tell news of that time"


def test_who_comes_back_is_current_again_only_with_a_round_of_its_new_stay() -> None:
    seat = follower()
    seat.hear(A, offer(1, []))
    seat.hear(A, TableCommit(1, 1))
    seat.install(view_of(2, A, C))
    seat.install(View(3, "id", [info(A), info(B, 3)]))
    assert not seat.table_replication.current
    assert seat.table_replication.event_log.delivered == (3, 0), (
        "what happened before it came does not concern it"
    )
    seat.hear(A, offer(1, [], view=3))
    seat.hear(A, TableCommit(3, 1))
    assert seat.table_replication.current
    assert seat.current == 2


def test_who_stays_hears_the_rest_of_what_began_before() -> None:
    seat = follower()
    assert seat.table_replication.event_log.delivered == (1, 0)
    seat.install(View(2, "id", [info(A), info(B), info(C)]))
    assert seat.table_replication.event_log.delivered == (1, 0)


@pytest.mark.parametrize(
    ("carried", "known"), [(row(4), row(4)), (row(3, B, C), row(3)), (row(2), row(3)), (row(1), row(3))]
)
def test_rows_that_the_decided_view_carries_are_stored_when_they_are_newer(
    carried: Assignment, known: Assignment
) -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(3))]))
    seat.membership.carried = [(0, carried)]
    seat.install(view_of(2, C, B))
    assert seat.table_replication.known() == [(0, known)]
    assert seat.table.rows[0] == Assignment()


# -- what a new master asks, and what it is told (partition_table/L-3)


def test_a_fetch_is_answered_with_all_that_is_known() -> None:
    seat = follower(3)
    seat.active = [(MOVE, 4)]
    seat.hear(A, offer(1, [(0, row(3)), (2, row(1))], news=(said(1, 1),)))
    seat.hear(A, offer(2, [(2, row(2))], news=(said(1, 3), said(1, 2))))
    seat.effects()
    seat.hear(A, TableFetch(1))
    rows = ((0, row(3)), (2, row(2)))
    assert seat.sent() == [
        (
            A,
            report(rows, active=[(MOVE, 4)], news=[said(1, 1)], offered=[said(1, 2), said(1, 3)]),
        )
    ]


@pytest.mark.parametrize(("sender", "view"), [(C, 1), (A, 0)])
def test_a_fetch_of_somebody_else_or_of_an_older_view_is_not_answered(sender: MemberId, view: int) -> None:
    seat = follower()
    seat.hear(sender, TableFetch(view))
    assert seat.sent() == []


@pytest.mark.rule("partition_table/L-3", "partition_table/L-4")
def test_a_new_master_asks_everyone_and_does_nothing_before_all_have_answered() -> None:
    seat = Seat(A, 2)
    seat.active = [(MOVE, 7)]
    seat.install(VIEW)
    assert seat.sent() == [(B, TableFetch(1)), (C, TableFetch(1))]
    assert seat.table_replication.leftovers["reports of a table without a search"] == 1
    seat.hear(B, report(((0, row(3)),)))
    seat.hear(B, report(((0, row(3)),)))
    seat.hear(C, report(((0, row(9)),), view=0))
    assert (seat.sent(), seat.table_replication.ready, seat.gathered) == ([], False, [])
    seat.hear(C, report(((0, row(5)), (1, row(1))), active=[(MOVE, 3)]))
    assert seat.table_replication.ready
    assert seat.table_replication.head == [row(5), row(1)]
    assert seat.gathered == [([(MOVE, 7), (MOVE, 3)], set())]
    whole = offer(1, [(0, row(5)), (1, row(1))])
    assert offers(seat) == [(B, whole)], "partition_table/L-4: the whole table, to those that it names first"
    seat.hear(C, report(((0, row(9)),)))
    assert seat.table_replication.head == [row(5), row(1)]
    assert len(seat.gathered) == 1


@ablated("newest-table")
def test_without_that_rule_it_begins_with_what_it_knows_alone() -> None:
    seat = Seat(A, 1)
    seat.install(VIEW)
    assert seat.sent() == []
    assert seat.table_replication.ready


@pytest.mark.rule("partition_table/L-3")
@pytest.mark.parametrize("where", list(product(range(4), repeat=3)))
def test_a_new_master_finds_the_newest_row_wherever_it_is(where: tuple[int, int, int]) -> None:
    """Own row, and those of two others: stored by an earlier round, or applied; each of four versions."""
    mine, of_b, of_c = where
    for applied in (True, False):
        seat = Seat(A)
        if applied:
            seat.table.rows[0] = row(mine) if mine else Assignment()
        elif mine:
            seat.membership.carried = [(0, row(mine))]
        seat.install(VIEW)
        for member, version in ((B, of_b), (C, of_c)):
            seat.hear(member, report(((0, row(version)),) if version else ()))
        newest = max(where)
        assert seat.table_replication.head[0].version == newest
        assert seat.table_replication.base(0).version == newest
        assert seat.table_replication.leftovers["rows to offer"] == (newest > 0)


def test_what_a_master_offered_in_vain_is_forgotten_when_it_leads_again() -> None:
    seat = leader()
    seat.table_replication.propose({0: row(9, C)})
    seat.install(view_of(2, B, A, C))
    seat.install(view_of(3, A, C))
    seat.hear(C, report(view=3))
    assert seat.table_replication.head[0] == Assignment(), "neither C nor this member had stored it"


def test_with_an_empty_table_a_new_master_tells_what_has_happened() -> None:
    seat = Seat(A)
    seat.then = lambda: seat.table_replication.reporter.lost(Loss(0, 0, False, []))
    seat.install(VIEW)
    seat.hear(B, report())
    seat.hear(C, report())
    assert [message.news[0].kind for _, message in offers(seat)] == [Kind.LOST] * 2
    assert not seat.table_replication.current


def test_with_an_empty_table_a_new_master_is_current_at_once() -> None:
    seat = leader()
    assert seat.table_replication.current
    assert seat.committed == [[]]
    assert offers(seat) == []


def test_the_table_of_a_new_master_begins_with_what_it_has_applied_itself() -> None:
    seat = Seat(A, 2)
    seat.table.rows[1] = row(2)
    seat.install(VIEW)
    seat.hear(B, report(((1, row(2, B, C)),)))
    seat.hear(C, report())
    assert seat.table_replication.head == [Assignment(), row(2)]


def test_a_master_that_was_one_before_asks_nobody_and_knows_who_has_stayed() -> None:
    seat = leader(B, C, D)
    seat.install(View(2, "id", [info(A), info(B), info(C, 2)]))
    assert [message for _, message in seat.sent()] == []
    assert seat.table_replication.ready
    assert seat.gathered[-1] == ([], {A, B})


def test_what_one_master_has_asked_for_is_void_when_another_one_leads() -> None:
    seat = Seat(B)
    seat.install(view_of(1, B, C))
    assert seat.table_replication.leftovers["reports of a table without a search"] == 1
    seat.install(view_of(2, C, B))
    assert sum(seat.table_replication.leftovers.values()) == 0
    leads = leader()
    leads.install(view_of(2, B, A))
    assert not leads.table_replication.ready
    leads.table_replication.on_timer()
    assert leads.effects()[-1:] != [SetTimer("table", 15 * SECOND)]


def test_the_newest_row_that_may_be_committed_is_what_was_inherited_until_newer_ones_are() -> None:
    seat = leader(rows=((0, row(5)),))
    assert seat.table_replication.base(0) == row(5)
    assert seat.table_replication.base(1) == Assignment()
    stored(seat, 1, B, C)
    seat.table_replication.propose({0: row(6)})
    assert seat.table_replication.base(0) == row(5), "its own offer may be taken back"
    stored(seat, 2, B, C)
    assert seat.table_replication.base(0) == row(6)


def test_an_equal_row_of_its_own_table_is_what_may_be_committed() -> None:
    seat = leader(rows=((0, row(5)),))
    seat.table.rows[0] = Assignment(5, (A, B), behind=(B,))
    assert seat.table_replication.base(0) is seat.table.rows[0]


# -- rounds of the master (partition_table/L-2)


@pytest.mark.rule("partition_table/L-2")
def test_those_whom_a_row_names_store_it_first_then_all_others() -> None:
    seat = leader(B, C, D, E)
    seat.table_replication.propose({0: row(1, D, C)})
    assert offers(seat) == [(C, offer(1, [(0, row(1, D, C))])), (D, offer(1, [(0, row(1, D, C))]))]
    assert seat.table_replication.stored_assignment(0) is None, "nor has the master itself stored it"
    stored(seat, 1, C)
    assert offers(seat) == []
    stored(seat, 1, D)
    sent = seat.sent()
    assert [to for to, message in sent if isinstance(message, TableOffer)] == [B, E]
    assert [to for to, message in sent if isinstance(message, TableCommit)] == [B, C, D, E]
    assert seat.table.rows[0] == row(1, D, C), "three of five have it"


@ablated("destination-first")
def test_without_that_rule_all_are_asked_at_once() -> None:
    seat = leader(B, C, D, E)
    seat.table_replication.propose({0: row(1, D, C)})
    assert offered_to(seat) == [B, C, D, E]


@pytest.mark.rule("partition_table/L-2")
def test_a_round_is_committed_when_a_majority_has_stored_it() -> None:
    seat = leader(B, C, D, E)
    seat.table_replication.propose({0: row(1, A)})
    assert seat.sent() == [(one, offer(1, [(0, row(1, A))])) for one in (B, C, D, E)]
    assert seat.table_replication.stored_assignment(0) == row(1, A)
    stored(seat, 1, B, B)
    assert (seat.sent(), seat.table.rows[0], seat.committed) == ([], Assignment(), [[]])
    assert seat.table_replication.leftovers["rows to offer"] == 1
    stored(seat, 1, E)
    assert seat.sent() == [(one, TableCommit(1, 1)) for one in (B, C, D, E)]
    assert seat.applied == [(0, Assignment(), row(1, A))]
    assert seat.committed == [[], [0]]
    assert sum(seat.table_replication.leftovers.values()) == 0


@ablated("table-majority")
def test_without_that_rule_the_master_alone_makes_it_the_table() -> None:
    seat = leader(B, C)
    seat.table_replication.propose({0: row(1, A)})
    assert seat.table.rows[0] == row(1, A)


def test_only_one_round_is_under_way_and_what_comes_meanwhile_is_the_next() -> None:
    seat = leader(partitions=3)
    seat.table_replication.propose({0: row(1, A), 2: row(1, B)})
    seat.effects()
    seat.table_replication.propose({1: row(1, A)})
    seat.table_replication.propose({0: row(2, A)})
    assert offers(seat) == []
    assert seat.table_replication.head == [row(2, A), row(1, A), row(1, B)]
    assert seat.table_replication.leftovers["rows to offer"] == 3
    stored(seat, 1, B)
    assert offers(seat) == [
        (C, offer(1, [(0, row(1, A)), (2, row(1, B))])),
        *((one, offer(2, [(0, row(2, A)), (1, row(1, A))])) for one in (B, C)),
    ]
    stored(seat, 2, B)
    assert seat.committed == [[], [0, 2], [0, 1]]


def test_rows_that_are_the_table_already_name_nobody() -> None:
    seat = leader(B, C, D, partitions=2)
    seat.table_replication.propose({0: row(1, B, C)})
    stored(seat, 1, B, C, D)
    seat.effects()
    seat.install(view_of(2, A, B, C))
    assert offers(seat) == [(one, offer(1, [(0, row(1, B, C))], view=2)) for one in (B, C)]


def test_who_is_not_in_the_view_is_not_waited_for() -> None:
    seat = leader(B, C)
    seat.table_replication.propose({0: row(1, D, None, B)})
    assert offered_to(seat) == [B]
    stored(seat, 1, B)
    assert offered_to(seat) == [C]


def test_a_row_that_names_nobody_who_is_here_is_offered_to_all() -> None:
    seat = leader(B, C)
    seat.table_replication.propose({0: row(1, D, None)})
    assert offered_to(seat) == [B, C]


def test_the_master_stores_its_own_offer_unless_it_knows_a_newer_row() -> None:
    seat = leader(B, C)
    seat.table_replication.publish({0: row(3, A)})
    assert seat.table_replication.stored_assignment(0) == row(3, A)
    assert seat.table_replication.head[0] == Assignment(), "what is published is in the head already"
    other = leader(B, C)
    other.membership.carried = [(0, row(3, A, C))]
    other.install(view_of(2, A, B, C))
    other.table_replication.publish({0: row(3, A)})
    assert other.table_replication.stored_assignment(0) == row(3, A, C)


def sealed(seat: Seat) -> None:
    seat.seal(view_of(2, A, B))
    seat.effects()


def test_a_master_that_has_agreed_to_a_next_view_offers_and_commits_nothing_more() -> None:
    seat = leader(B, C)
    seat.table_replication.propose({0: row(1, A)})
    sealed(seat)
    stored(seat, 1, B, C)
    assert (seat.sent(), seat.table.rows[0]) == ([], Assignment())
    assert not seat.table_replication.settled, "though all others have it"
    late = leader(B, C)
    sealed(late)
    late.table_replication.propose({0: row(1, B)})
    assert late.sent() == []
    assert late.table_replication.leftovers["rows to offer"] == 1


def test_words_of_another_view_or_an_earlier_round_do_not_count_for_a_round() -> None:
    seat = leader(B, C)
    seat.table_replication.propose({0: row(1, A)})
    stored(seat, 1, B, view=0)
    stored(seat, 0, B)
    assert seat.table.rows[0] == Assignment()
    stored(seat, 1, C)
    seat.table_replication.propose({0: row(2, A)})
    stored(seat, 1, B)
    assert seat.table.rows[0] == row(1, A)
    other = follower()
    stored(other, 1, C)
    assert not other.table_replication.settled


def test_news_travel_without_rows_when_there_are_any() -> None:
    seat = leader()
    seat.table_replication.send_news()
    assert offers(seat) == []
    seat.table_replication.reporter.started(3)
    seat.table_replication.send_news()
    begun = said(1, 1, process=(1, 1), planned=3)
    assert offers(seat) == [(one, offer(1, [], news=(begun,))) for one in (B, C)]
    stored(seat, 1, C)
    assert seat.table_replication.event_log.delivered == (1, 1)


# -- whether all have it


def test_the_table_is_settled_when_every_member_has_stored_every_round() -> None:
    seat = leader(B, C)
    assert seat.table_replication.settled
    seat.table_replication.propose({0: row(1, A)})
    assert not seat.table_replication.settled
    stored(seat, 1, B)
    assert not seat.table_replication.settled, "it is committed, but one has not said to have stored it"
    stored(seat, 1, C)
    stored(seat, 0, C)
    assert seat.table_replication.settled
    seat.install(view_of(2, A, B, C))
    stored(seat, 1, B, view=2)
    assert not seat.table_replication.settled, "words of the view before do not count"
    assert not follower().table_replication.settled


def test_what_waits_to_be_offered_is_not_settled() -> None:
    seat = leader(B, C)
    sealed(seat)
    seat.table_replication.propose({0: row(1, A)})
    assert not seat.table_replication.settled


def wants_to_leave(seat: Seat, member: MemberId) -> None:
    seat.parting = True
    seat.membership.intents.heard(Heartbeat(member, 1, 1, wish=Intent.LEAVE, wish_number=1), 1)


@pytest.mark.parametrize("all_stored", [True, False])
def test_whoever_waits_to_leave_goes_when_the_last_one_has_stored_the_last_round(*, all_stored: bool) -> None:
    seat = leader(B, C, D, E)
    seat.table_replication.propose({0: row(1, A)})
    stored(seat, 1, B, C)
    wants_to_leave(seat, C)
    seat.effects()
    stored(seat, 1, D)
    assert seat.sent() == []
    if all_stored:
        stored(seat, 1, E)
        assert {type(message) for _, message in seat.sent()} == {Prepare}


def test_a_round_is_known_to_all_when_all_say_that_they_have_applied_it() -> None:
    seat = leader(B, C)
    for number in (1, 2, 3):
        seat.table_replication.propose({0: row(number, A)})
        stored(seat, number, B)
    assert seat.table_replication.rounds() == (3, 0)
    heard(seat, B, 2)
    assert seat.table_replication.rounds() == (3, 0)
    heard(seat, C, 9, view=2)
    heard(seat, C, 1)
    assert seat.table_replication.rounds() == (3, 1)
    heard(seat, C, 5)
    heard(seat, C, 3)
    heard(seat, B, 5)
    assert seat.table_replication.rounds() == (3, 3), "no more than it has applied itself"
    seat.install(view_of(2, A, B, C))
    assert seat.table_replication.rounds() == (0, 0)
    stored(seat, 1, B, C, view=2)
    assert seat.table_replication.rounds() == (1, 0), "words of the view before do not count"
    heard(seat, B, 1, view=2)
    heard(seat, C, 0, view=2)
    assert seat.table_replication.rounds() == (1, 0)


def test_what_all_have_applied_the_master_need_not_tell_again() -> None:
    seat = leader(B, C)
    seat.table_replication.reporter.started(1)
    seat.table_replication.send_news()
    stored(seat, 1, B)
    heard(seat, B, 1)
    seat.table_replication.rounds()
    assert seat.table_replication.event_log.kept != []
    heard(seat, C, 1)
    seat.table_replication.rounds()
    assert seat.table_replication.event_log.kept == []


def test_a_master_alone_knows_what_all_have_applied() -> None:
    seat = Seat(A)
    seat.install(view_of(1, A))
    seat.table_replication.propose({0: row(1, A)})
    assert seat.table_replication.rounds() == (1, 1)


def test_other_members_say_what_they_have_applied_and_know_nothing_of_all() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(1))]))
    seat.hear(A, TableCommit(1, 1))
    heard(seat, A, 1)
    heard(seat, C, 1)
    assert seat.table_replication.rounds() == (1, 0)


def test_who_is_in_no_view_has_applied_nothing_and_hears_nothing() -> None:
    seat = Seat(B, 2)
    heard(seat, A, 1, known=1)
    assert seat.table_replication.rounds() == (0, 0)
    assert (seat.table_replication.current, seat.table_replication.ready, seat.table_replication.settled) == (
        False,
        False,
        False,
    )
    assert seat.table_replication.head == [Assignment(), Assignment()]
    assert seat.table_replication.base(1) == Assignment()
    assert seat.table_replication.kept_by_all
    assert sum(seat.table_replication.leftovers.values()) == 0


def test_a_round_counts_as_applied_when_a_restart_would_know_it() -> None:
    seat = follower()
    disk: list[Notice] = []
    seat.journal.notify_when_durable = disk.append  # type: ignore[method-assign]
    for number in (1, 2):
        seat.hear(A, offer(number, [(0, row(number))]))
        seat.hear(A, TableCommit(1, number))
    assert seat.table_replication.rounds() == (0, 0)
    seat.on_notice(disk[1])
    assert seat.table_replication.rounds() == (2, 0)
    seat.on_notice(disk[0])
    assert seat.table_replication.rounds() == (2, 0)
    seat.install(view_of(2, A, B))
    seat.on_notice(disk[1])
    assert seat.table_replication.rounds() == (0, 0), "that was in another view"
    seat.install(view_of(3, A))
    seat.on_notice(disk[1])
    assert seat.table_replication.rounds() == (0, 0)


def test_a_new_table_is_kept_by_all_when_all_have_it_on_their_disks() -> None:
    seat = leader(B, C)
    disk: list[Notice] = []
    seat.journal.notify_when_durable = disk.append  # type: ignore[method-assign]
    assert seat.table_replication.kept_by_all
    seat.table_replication.propose({0: row(1, A)})
    stored(seat, 1, B, C)
    heard(seat, B, 1)
    seat.on_notice(disk[0])
    assert not seat.table_replication.kept_by_all
    heard(seat, C, 1)
    assert seat.table_replication.kept_by_all
    seat.table_replication.propose({0: row(2, A)})
    stored(seat, 2, B, C)
    heard(seat, B, 2)
    heard(seat, C, 2)
    assert not seat.table_replication.kept_by_all, "its own disk has not"
    seat.on_notice(disk[1])
    assert seat.table_replication.kept_by_all


# -- tables are compared (partition_table/L-8)


def checked(seat: Seat) -> list[object]:
    seat.effects()
    seat.table_replication.on_timer()
    effects = seat.effects()
    assert [effect for effect in effects if isinstance(effect, SetTimer)] == [SetTimer("table", 15 * SECOND)]
    return [effect.message for effect in effects if not isinstance(effect, SetTimer)]  # type: ignore[union-attr]


@pytest.mark.rule("partition_table/L-8")
def test_from_time_to_time_the_master_says_the_stamp_of_its_table() -> None:
    seat = Seat(A, 2)
    seat.install(VIEW)
    seat.hear(B, report())
    seat.hear(C, report())
    assert SetTimer("table", 15 * SECOND) in seat.effects()
    seat.table_replication.propose({0: row(1, A)})
    assert checked(seat) == []
    stored(seat, 1, B)
    assert checked(seat) == [], "somebody may not have it yet"
    stored(seat, 1, C)
    assert checked(seat) == [TableCheck(1, 1, seat.table.stamp)] * 2
    other = follower()
    other.table_replication.on_timer()
    assert other.effects() == []


def test_whose_table_differs_after_the_same_round_says_so() -> None:
    seat = follower()
    seat.hear(A, offer(1, [(0, row(1))]))
    seat.hear(A, TableCommit(1, 1))
    mine = seat.table.stamp
    seat.effects()
    for sender, check in (
        (A, TableCheck(1, 1, mine)),
        (A, TableCheck(1, 2, mine + 1)),
        (A, TableCheck(0, 1, mine + 1)),
        (C, TableCheck(1, 1, mine + 1)),
    ):
        seat.hear(sender, check)
        assert seat.sent() == []
    seat.hear(A, TableCheck(1, 1, mine + 1))
    assert seat.sent() == [(A, TableDiffers(1, 1, mine))]
    nowhere = Seat(B)
    nowhere.hear(A, TableCheck(1, 0, 1))
    assert nowhere.sent() == []


@pytest.mark.rule("partition_table/L-8")
def test_whoever_differs_is_sent_the_whole_table() -> None:
    seat = leader(partitions=3)
    seat.table_replication.propose({0: row(1, A), 2: row(1, B)})
    stored(seat, 1, B, C)
    seat.effects()
    for answer in (TableDiffers(1, 0, 5), TableDiffers(0, 1, 5)):
        seat.hear(C, answer)
        assert seat.sent() == []
    seat.hear(C, TableDiffers(1, 1, 5))
    assert offers(seat) == [(one, offer(2, [(0, row(1, A)), (2, row(1, B))])) for one in (B, C)]
    seat.install(view_of(2, B, A))
    seat.effects()
    seat.hear(C, TableDiffers(2, 2, 5))
    assert seat.sent() == [], "it leads no more"


def test_that_tables_differ_is_told_to_the_operator_by_both() -> None:
    view = view_of(4, A, B)
    one = follower(view=view)
    one.hear(A, offer(1, [(0, row(1))], view=4))
    one.hear(A, TableCommit(4, 1))
    one.effects()
    one.hear(A, TableCheck(4, 1, 5))
    note, answer = one.effects()
    assert note == Note("partition table differs from the master's", {"round": 1}, "error")
    assert answer.message == TableDiffers(4, 1, one.table.stamp)  # type: ignore[union-attr]
    seat = Seat(A)
    seat.install(view)
    seat.hear(B, report(((0, row(1)),), view=4))
    assert Note("newest partition table found", {"version": 1, "of": 2}) in seat.effects()
    assert not seat.table_replication.current
    stored(seat, 1, B, view=4)
    assert seat.sent() == [(B, TableCommit(4, 1))]
    assert seat.table_replication.current
    assert checked(seat) == [TableCheck(4, 1, seat.table.stamp)]
    seat.hear(B, TableDiffers(4, 1, 5))
    assert seat.effects()[0] == Note("partition table differs", {"member": B, "round": 1}, "error")


def test_what_waits_is_not_undone_by_the_whole_table() -> None:
    seat = leader(partitions=1, rows=((0, row(1, A)),))
    seat.table_replication.publish({0: row(2, A)})
    seat.hear(C, TableDiffers(1, 1, 5))
    seat.effects()
    stored(seat, 1, B)
    assert offers(seat) == [(one, offer(2, [(0, row(2, A))])) for one in (B, C)]

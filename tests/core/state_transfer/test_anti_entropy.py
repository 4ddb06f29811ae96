"""Replicas are compared and mended: what a primary says, what a backup makes of it, and who gets a permit."""

from __future__ import annotations

import pytest
from tests.core.state_transfer.supplying import ME, NEW, OTHER, Side
from tests.core.telling import assigned, gone, removed

from holdfast.core.effects import Note, Send, SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.messages import Fill, Filled, FillRefused, RepairWanted, Summary, Summed
from holdfast.core.model.ids import MemberId
from holdfast.core.model.notices import AssignmentChanged, RecordsTaken, ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.model.views import ClusterState
from holdfast.core.state_transfer.anti_entropy import CHECK_EVERY, TICKS, AntiEntropy, summed
from holdfast.core.store.partition_copy import PartitionCopy

OWNER = OTHER


class Pair(Side):
    """A member with one partition: as its primary, with OTHER and NEW as backups, or as a backup of OWNER."""

    def __init__(self, *row: MemberId) -> None:
        super().__init__(*(row or (ME, OTHER, NEW)), backups=2)
        self.repair = AntiEntropy(
            ME,
            self.settings,
            self.out,
            self.rows,
            self.copies,
            self.source,
            Log(self.out, on=False),
            membership=self.around,  # type: ignore[arg-type]
            activation=self.around,  # type: ignore[arg-type]
            lane=self.lane,
        )
        self.copy = self.copies.held[0]
        self.out.take()

    def hold(self, counter: int, *, name: str = "m", term: int = 1, value: bytes = b"v") -> None:  # type: ignore[override]
        """Let the copy hold so many updates of a map."""
        held = self.copies.open(self.copy, name)
        held.enter(term)
        for number in range(held.counter + 1, counter + 1):
            held.apply(Record(name, number, Change.SET, b"key", value), 0)

    def arrives(self, fill: Fill) -> None:
        """The backup has taken this chunk."""
        self.source.on_filled(OTHER, Filled(0, fill.version, fill.ticket, fill.sequence))

    def said(self, *, version: int = 5, **counters: int) -> Summary:
        """A summary in which maps stand at these counters, with what they then hold."""
        return Summary(0, version, [self.like(name, counter) for name, counter in counters.items()])

    @staticmethod
    def like(name: str, counter: int, *, term: int = 1, value: bytes = b"v") -> Summed:
        other = Pair(OWNER, ME)
        other.hold(counter, name=name, term=term, value=value)
        return summed(other.copy.maps[name])

    def summary(self, message: Summary, sender: MemberId = OWNER) -> list[RepairWanted]:
        self.repair.on_summary(sender, message)
        return self.asked()

    def asked(self) -> list[RepairWanted]:
        return [message for message in self.sent() if isinstance(message, RepairWanted)]

    def summaries(self) -> list[tuple[MemberId, Summary]]:
        return [
            (one.to, one.message)
            for one in self.out.take()
            if isinstance(one, Send) and isinstance(one.message, Summary)
        ]

    def wants(self, member: MemberId = OTHER, *, version: int = 5, partition: int = 0) -> list[Fill]:
        self.repair.on_wanted(member, RepairWanted(partition, version, "it differs"))
        return self.fills()


# -- the primary


@pytest.mark.rule("state_transfer/R-1")
def test_a_primary_says_to_each_backup_what_it_should_hold() -> None:
    pair = Pair()
    pair.hold(3)
    pair.repair.summarise(0)
    message = Summary(0, 5, [pair.like("m", 3)], [])
    assert pair.summaries() == [(OTHER, message), (NEW, message)]


def another_is_primary(pair: Pair) -> None:
    pair.rows[0] = Assignment(5, (OTHER, ME))


def it_is_taking_office(pair: Pair) -> None:
    pair.around.active.clear()


def it_holds_nothing(pair: Pair) -> None:
    del pair.copies.held[0]


@pytest.mark.parametrize("why", [another_is_primary, it_is_taking_office, it_holds_nothing])
def test_who_does_not_serve_says_nothing(why: object) -> None:
    pair = Pair()
    pair.hold(3)
    why(pair)  # type: ignore[operator]
    pair.repair.summarise(0)
    assert pair.summaries() == []


def test_in_one_round_each_partition_is_summed_up_once() -> None:
    pair = Pair()
    pair.hold(1)
    for _ in range(TICKS):
        pair.repair.on_timer()
    assert [to for to, _ in pair.summaries()] == [OTHER, NEW]
    pair.around.cluster_state = ClusterState.NO_MIGRATION
    for _ in range(TICKS):
        pair.repair.on_timer()
    assert pair.summaries() == [], "and never while nothing may be mended"


@pytest.mark.rule("state_transfer/R-2", "state_transfer/R-3")
def test_who_asks_is_filled_when_there_is_a_permit() -> None:
    pair = Pair()
    pair.repair._parallel = 1
    (fill,) = pair.wants(OTHER)
    assert (fill.version, fill.joining, fill.compare) == (5, False, True)
    assert pair.wants(OTHER) == [], "once for each backup"
    assert pair.wants(NEW) == [], "it waits for a permit"
    assert pair.repair.leftovers["repairs"] == 2
    pair.arrives(fill)
    (last,) = pair.fills()
    pair.arrives(last)
    assert pair.repair.repaired == 1
    pair.repair.look()
    assert len(pair.fills()) == 1, "the permit is back"


@pytest.mark.rule("state_transfer/R-3")
def test_a_permit_comes_back_when_the_repair_is_given_up() -> None:
    pair = Pair()
    (fill,) = pair.wants()
    pair.source.on_fill_refused(OTHER, FillRefused(0, 5, fill.ticket, "not now"))
    assert (pair.repair.leftovers["repairs"], pair.repair.repaired) == (0, 0)
    assert len(pair.wants()) == 1


@pytest.mark.rule("state_transfer/R-3")
def test_a_wish_that_does_not_fit_has_no_effect() -> None:
    pair = Pair()
    assert pair.wants(version=4) == []
    assert pair.wants(partition=7) == []
    assert pair.wants(partition=-1) == []
    assert pair.wants(MemberId("stranger")) == []
    assert pair.wants(ME) == []
    pair.around.cluster_state = ClusterState.NO_MIGRATION
    assert pair.wants() == []
    another_is_primary(pair)
    pair.around.cluster_state = ClusterState.ACTIVE
    assert pair.wants() == []
    assert pair.repair.leftovers["repairs"] == 0


def test_what_waits_goes_with_its_row_its_backup_or_this_members_stay() -> None:
    for end in ("row", "member", "stay"):
        pair = Pair()
        pair.repair._parallel = 0
        pair.wants()
        assert pair.repair.leftovers["repairs"] == 1
        match end:
            case "row":
                pair.repair.on_assignment(assigned(0, pair.rows[0]))
            case "member":
                pair.repair.on_view(gone(OTHER))
            case _:
                pair.repair.on_view(removed())
        assert pair.repair.leftovers["repairs"] == 0


# -- the backup


def backup(counter: int = 3) -> Pair:
    pair = Pair(OWNER, ME)
    pair.hold(counter)
    return pair


@pytest.mark.rule("state_transfer/R-1")
def test_what_is_equal_is_left_alone() -> None:
    pair = backup()
    assert pair.summary(pair.said(m=3)) == []
    assert pair.repair.leftovers["summaries that wait"] == 0


@pytest.mark.rule("state_transfer/R-1", "state_transfer/R-2")
def test_what_differs_at_the_same_counter_is_asked_for_with_the_reason() -> None:
    pair = backup()
    (asked,) = pair.summary(Summary(0, 5, [pair.like("m", 3, value=b"other")]))
    assert (asked.why, asked.content) == ("the content of m at 3 differs", True)
    (asked,) = pair.summary(Summary(0, 5, [pair.like("m", 3, term=2)]))
    assert asked.why == "m stands at 3, of term 1 and not 2"


@pytest.mark.rule("state_transfer/R-1")
def test_what_may_be_on_its_way_is_waited_for_until_the_next_summary() -> None:
    pair = backup(2)
    assert pair.summary(pair.said(m=3)) == []
    assert pair.repair.leftovers["summaries that wait"] == 2
    (asked,) = pair.summary(pair.said(m=5))
    assert (asked.why, asked.content) == ("m stands at 2, and 3 was said before", False)


@pytest.mark.rule("state_transfer/R-1")
def test_it_compares_as_soon_as_it_stands_where_the_summary_does() -> None:
    pair = backup(2)
    pair.summary(Summary(0, 5, [pair.like("m", 3, value=b"other")]))
    pair.hold(3)
    pair.repair.on_records(RecordsTaken(0))
    (asked,) = pair.asked()
    assert asked.why == "the content of m at 3 differs"
    pair = backup(2)
    pair.summary(pair.said(m=3))
    pair.hold(4)
    pair.repair.on_records(RecordsTaken(0))
    assert pair.asked() == [], "what has gone on is not compared"
    assert pair.repair.leftovers["summaries that wait"] == 0


@pytest.mark.rule("state_transfer/R-1")
def test_a_copy_that_counts_updates_that_there_never_were_is_asked_for() -> None:
    pair = backup(5)
    assert pair.summary(pair.said(m=3)) == [], "its primary's word may be an older one"
    (asked,) = pair.summary(pair.said(m=4))
    assert asked.why == "m stood at 5, and its primary is at 4 only now"
    pair = backup(5)
    pair.summary(pair.said(m=3))
    assert pair.summary(pair.said(m=5)) == [], "it has come there"


@pytest.mark.rule("state_transfer/R-4")
def test_a_map_that_the_primary_does_not_hold_is_forgotten() -> None:
    pair = backup()
    pair.hold(1, name="gone")
    for left in ({"m", "gone"}, {"m"}):
        assert pair.summary(pair.said(m=3)) == []
        assert set(pair.copy.maps) == left


@pytest.mark.rule("state_transfer/R-4")
def test_a_map_that_is_newer_than_a_summary_is_kept() -> None:
    """Seed 52035 with zones: the first updates of a map overtook the summary of the step that opened it."""
    pair = backup()
    pair.hold(1, name="new")
    pair.summary(pair.said(m=3))
    pair.hold(2, name="new")
    pair.summary(pair.said(m=3))
    assert set(pair.copy.maps) == {"m", "new"}, "it had another update meanwhile"
    pair.summary(pair.said(m=3, new=2))
    pair.summary(pair.said(m=3))
    assert set(pair.copy.maps) == {"m", "new"}, "the primary held it meanwhile"


@pytest.mark.rule("state_transfer/R-4")
@pytest.mark.parametrize("exiled", [False, True])
def test_a_summary_of_an_earlier_primary_does_not_count_as_the_first(*, exiled: bool) -> None:
    """The next one may be of the step in which another primary opens the map."""
    pair = backup()
    pair.hold(1, name="new")
    pair.summary(pair.said(m=3))
    if exiled:
        pair.repair.on_view(ViewInstalled(None, None, False, frozenset(), frozenset()))
    else:
        pair.repair.on_assignment(AssignmentChanged(0, pair.rows[0], pair.rows[0]))
    pair.summary(pair.said(m=3))
    assert set(pair.copy.maps) == {"m", "new"}
    pair.summary(pair.said(m=3))
    assert set(pair.copy.maps) == {"m"}


def test_a_summary_of_somebody_else_or_of_another_row_says_nothing() -> None:
    pair = backup()
    for message, sender in (
        (pair.said(m=9), NEW),
        (pair.said(m=9, version=4), OWNER),
        (pair.said(m=9, version=6), OWNER),
        (Summary(7, 5, []), OWNER),
        (Summary(-1, 5, []), OWNER),
    ):
        assert pair.summary(message, sender) == []
    assert set(pair.copy.maps) == {"m"}
    assert pair.repair.leftovers["summaries that wait"] == 0


# -- damage


@pytest.mark.rule("state_transfer/R-5")
@pytest.mark.parametrize("primary", [True, False])
def test_content_that_no_update_has_made_is_found_by_counting_anew(*, primary: bool) -> None:
    pair = Pair(ME, OTHER) if primary else backup()
    pair.hold(3)
    pair.copy.maps["m"].state.digests()
    pair.repair.check(0)
    assert pair.asked() == []
    pair.copy.maps["m"].state.entries[b"key"] = b"rotten"
    for _ in range(CHECK_EVERY):
        pair.repair.on_timer()
    effects = pair.out.take()
    (note,) = [one for one in effects if isinstance(one, Note)]
    assert (note.kind, note.level, note.fields["primary"]) == ("replica content is damaged", "error", primary)
    asked = [one.to for one in effects if isinstance(one, Send) and isinstance(one.message, RepairWanted)]
    assert asked == ([] if primary else [OWNER]), "a primary's is told, and nobody has a better one"


def test_nothing_is_compared_where_that_is_not_wanted() -> None:
    pair = Pair()
    pair.repair._step_ns = 0
    pair.repair.start()
    assert [one for one in pair.out.take() if isinstance(one, SetTimer)] == []


def test_copies_are_counted_one_after_the_other() -> None:
    pair = Pair()
    pair.copies.held[1] = PartitionCopy(1, 0)
    pair.rows.append(Assignment(5, (ME, OTHER)))
    looked: list[int] = []
    pair.repair.check = looked.append  # type: ignore[method-assign]
    for _ in range(4 * CHECK_EVERY):
        pair.repair.on_timer()
    assert looked == [0, 1, 0, 1]

"""Observers in simulated runs: they see much, are content with members that tell the truth, and notice lies."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.sim.stage import Stage

from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.operations import EventKind, Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast_lab.check.linearizability import UNTOLD, Call
from holdfast_lab.check.linearizability import Outcome as Told
from holdfast_lab.sim.lies import telling
from holdfast_lab.sim.listening import Registration
from holdfast_lab.sim.run import Verdict, simulate
from holdfast_lab.sim.steady import Office, Offices, Spans, ZoneOffices
from holdfast_lab.sim.workload import MAP

SEED = 1


def one_run(seed: int, *lies: str) -> Verdict:
    with telling(lies):
        return simulate(seed)


def test_observers_see_something_and_are_content() -> None:
    verdict = one_run(96)
    assert verdict.problems == []
    for what in ("events_heard", "cuts_read", "reads_observed"):
        assert verdict.figures[what] > 100, what


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "what"),
    [
        ("listener-misses", "was not heard"),
        ("listener-hears-twice", "heard before"),
        ("cut-later", "by cut"),
        ("view-version-stays", "the version did not change"),
    ],
)
def test_observers_notice_what_is_told_wrong_to_them(lie: str, what: str) -> None:
    assert any(what in problem for problem in one_run(SEED, lie).problems)


def test_spans_hold_as_long_as_nothing_else_was_seen() -> None:
    spans: Spans[str] = Spans()
    for now, what in ((10, "a"), (20, "a"), (30, None), (40, "a"), (50, "b"), (60, "b")):
        spans.note(now, what)
    spans.note(70, "b", sure=False)
    assert [spans.over(*span) for span in ((10, 20), (12, 15), (40, 40), (51, 60))] == ["a", "a", "a", "b"]
    assert [spans.over(*span) for span in ((9, 20), (20, 40), (40, 50), (55, 65))] == [None] * 4
    spans.note(80, "b")
    assert spans.over(51, 80) == "b", "it has turned out to have been so"


def test_what_changes_in_the_very_moment_is_not_sure() -> None:
    """Seed 3208 with transactions: a member took office between a look and an answer of the same moment."""
    spans: Spans[str] = Spans()
    for now, what in ((10, "a"), (20, "a"), (20, "b"), (30, "b")):
        spans.note(now, what)
    assert [spans.over(*span) for span in ((10, 19), (10, 20), (20, 30), (21, 30))] == ["a", None, None, "b"]


class Clearing:
    """A member is asked to clear a map; the event does not reach the member of one listener until the cut is healed."""

    def __init__(self) -> None:
        self.stage = Stage(3)
        self.offices = Offices(self.stage.world, self.stage.cluster)
        self.listening, self.asked, _ = self.stage.processes
        self.registration = Registration("0", self.listening, MAP, None)
        listen = self.listening.driver.callers.listen
        self.listening.step(lambda: listen(MAP, key=None, local_only=False, on_event=self.registration.hear))
        self.stage.wait(0.5)
        self.look()
        request = Request(Op.CLEAR, MAP, list(range(self.stage.settings.partitions.count)))
        self.call = Call("remove", "k", self.stage.world.now_ns, outcome=Told.DONE, result=UNTOLD)
        self.asked.step(partial(self.asked.driver.execute, request, self._answered))
        self.stage.wait(0.5)
        assert self.call.end < self.stage.world.now_ns, "it was answered"
        self.look()

    def _answered(self, outcome: Outcome) -> None:
        assert outcome.status is Status.OK
        self.call.end = self.stage.world.now_ns
        self.stage.cut(self.asked, self.listening)

    def look(self) -> None:
        self.offices.look()
        self.registration.look(self.stage.cluster, self.stage.world.now_ns)

    def must_be_heard(self) -> bool:
        return self.registration.must_hear(self.offices, 0, self.call)

    def heard(self) -> list[EventKind]:
        return [heard.kind for heard in self.registration.listening.heard]


def test_that_a_map_was_cleared_is_heard_from_whoever_lives_on() -> None:
    story = Clearing()
    assert (story.must_be_heard(), story.heard()) == (False, []), "it is on its way"
    story.stage.heal()
    story.stage.wait(2)
    story.look()
    assert (story.must_be_heard(), story.heard()) == (True, [EventKind.CLEAR_ALL])


def test_that_a_map_was_cleared_need_not_be_heard_from_one_who_dies_before_it_has_told() -> None:
    """Seed 3608 with transactions, once: a map was cleared through a member whose packets were lost until it died, and
    the judge took the word of those who were left.
    """
    story = Clearing()
    story.asked.crash()
    story.stage.heal()
    for _ in range(20):
        story.stage.wait(1)
        story.look()
    assert (story.must_be_heard(), story.heard()) == (False, [])
    later = Call("remove", "k", story.stage.world.now_ns, outcome=Told.DONE, result=UNTOLD)
    later.end = later.start + 1
    story.stage.wait(1)
    story.look()
    assert story.registration.must_hear(story.offices, 0, later), "those who are left can be relied on again"


def test_what_was_under_way_in_an_earlier_life_need_not_be_heard() -> None:
    """Its member was removed and is back between two looks: what it had sent is forgotten, and its links are new."""
    story = Clearing()
    way = story.registration.known[story.asked.driver.member.me]
    story.stage.isolate(story.asked)
    story.stage.wait(20)
    assert len(story.stage.view().members) == 2
    story.stage.heal()
    story.stage.rest()
    story.look()
    assert story.stage.cluster.living() == story.stage.processes, "all of them live"
    assert (story.must_be_heard(), story.heard()) == (False, [])
    assert way.over(story.call.start, story.call.end) is None, "nor anything else that it told then"


def test_a_primary_that_was_replaced_without_knowing_is_not_the_only_one() -> None:
    """Seed 27009 of the zones: a primary stood still. Its successor served between two looks, and at the second one was
    just handing the partition over, so the old one seemed to have been the only primary.
    """
    stage = Stage(1)
    old, new = MemberId("old"), MemberId("new")
    known = Assignment(4, (old,))
    for tables, only in (([[known]], True), ([[known], [Assignment(5, (new,))]], False)):
        offices = Offices(stage.world, stage.cluster)
        began_ns = stage.world.now_ns
        for _ in range(3):
            offices._note([(old, [SimpleNamespace(term=3)])], tables)
            stage.wait(1)
        assert (offices.over(0, began_ns + 1, began_ns + SECOND) is not None) is only


def test_offices_follow_a_map_that_moves_out_of_a_zone() -> None:
    """Seed 52057 of the zones: the map had left its zone, and a listener was judged by leaders of groups still."""
    stage = Stage(1)
    member = MemberId("member")
    table = [Assignment(7, (member,))]
    zone = SimpleNamespace(serving=[SimpleNamespace(term=7)], leaders=table)

    def picture(number: int, *, in_zone: bool) -> SimpleNamespace:
        copies = SimpleNamespace(zone_entries=lambda name: zone if in_zone and name == "zoned" else None)
        view, leading = SimpleNamespace(number=number), [SimpleNamespace(term=7)]
        return SimpleNamespace(me=member, view=view, copies=copies, leading=leading, assignments=table)

    seen = [picture(1, in_zone=True)]
    cluster = SimpleNamespace(settings=stage.cluster.settings, pictures=lambda: seen)
    offices = ZoneOffices(stage.world, cast("Any", cluster), "zoned")

    def look(*pictures: SimpleNamespace) -> Office | None:
        seen[:] = pictures
        began_ns = stage.world.now_ns
        for _ in range(3):
            offices.look()
            stage.wait(1)
        return offices.over(0, began_ns + 1, began_ns + SECOND)

    assert look(picture(1, in_zone=True)) == Office(member, 7, in_zone=True)
    assert look(picture(2, in_zone=True), picture(2, in_zone=False)) is None
    behind = picture(1, in_zone=True)
    behind.leading = [None]
    assert look(picture(3, in_zone=False), behind) == Office(member, 7), (
        "a member that is behind decides nothing"
    )
    assert len(offices.begun(0, member)) == 2, "equal terms of both engines are two offices"

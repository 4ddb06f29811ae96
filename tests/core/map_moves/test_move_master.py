"""The master's choice of the next phase of a move (map_moves/V-2)."""

from __future__ import annotations

import pytest
from tests.core.membership.one_member import One, a, b, c, info

from holdfast.core.map_moves.move_master import REST_NS, SWITCH_NS, MoveMaster
from holdfast.core.messages import MapMoveReport
from holdfast.core.model.levels import OF_THIS_BUILD
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.map_moves import MapMove, MovePhase
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.views import View

A, B, C = (info(name, levels=OF_THIS_BUILD) for name in "abc")
PARTITIONS = 6
SHARES = {a: [0, 1], b: [2, 3], c: [4, 5]}
"""Partitions that each member leads, in both engines."""


class Bench:
    def __init__(self, phase: MovePhase, round: int = 0) -> None:  # noqa: A002
        self.one = One(A)
        self.move = MapMove(1, "", "z", phase, round)
        self.changes = MapChanges().moving("m", self.move)
        view = View(5, "id", [A, B, C], level=OF_THIS_BUILD.highest, maps=self.changes)
        self.one.membership.install(view)
        self.master = MoveMaster(self.one.out, self.one.membership, PARTITIONS)
        self.master.on_view(ViewInstalled(None, view, True, frozenset(), frozenset()))

    def report(self, *who: str, problem: str = "", **changed: object) -> None:
        for sender in who:
            mine = SHARES[sender]  # type: ignore[index]
            values = {
                "view": 5,
                "phase": self.move.phase,
                "round": self.move.round,
                "source": mine,
                "target": mine,
            }
            values |= {"name": "m", "number": 1, "problem": problem} | changed
            self.master.on_report(sender, MapMoveReport(**values))  # type: ignore[arg-type]

    def next(self, after_ns: int = 0) -> MapMove | None:
        self.one.out.now_ns += after_ns
        return self.master.wanted(self.changes).moves.get("m")


def test_it_switches_when_every_partition_is_close() -> None:
    bench = Bench(MovePhase.COPYING)
    bench.report(a, b)
    assert bench.next() == bench.move
    bench.report(c)
    following = bench.next()
    assert following is not None
    assert (following.phase, following.round) == (MovePhase.SWITCHING, 1)


@pytest.mark.rule("map_moves/V-2")
def test_the_home_changes_when_every_partition_is_filled_in_this_round() -> None:
    bench = Bench(MovePhase.SWITCHING, 2)
    bench.report(a, b)
    bench.report(c, round=1)
    assert bench.next() == bench.move, "that is of an earlier round"
    bench.report(c, view=4)
    assert bench.next() == bench.move, "and that of an earlier view"
    bench.report(c, phase=MovePhase.COPYING)
    assert bench.next() == bench.move, "close is not filled"
    bench.report(c)
    following = bench.next()
    assert following is not None
    assert following.phase is MovePhase.MOVED
    assert following.home == "z"


def test_a_switch_that_takes_long_is_given_up_and_tried_again_later() -> None:
    bench = Bench(MovePhase.SWITCHING, 1)
    bench.report(a, b)
    assert bench.next(SWITCH_NS - 1) == bench.move
    following = bench.next(1)
    assert following is not None
    assert (following.phase, following.round) == (MovePhase.COPYING, 1)
    bench = Bench(MovePhase.COPYING, 1)
    bench.report(a, b, c)
    assert bench.next(REST_NS - 1) == bench.move, "requests are served for a while"
    following = bench.next(1)
    assert following is not None
    assert (following.phase, following.round) == (MovePhase.SWITCHING, 2)


@pytest.mark.rule("map_moves/V-2")
def test_the_source_forgets_nothing_before_every_member_knows_the_new_home() -> None:
    bench = Bench(MovePhase.MOVED, 1)
    bench.report(a, b, source=[], target=[])
    assert bench.next() == bench.move
    bench.report(c, source=[], target=[])
    following = bench.next()
    assert following is not None
    assert following.phase is MovePhase.CLEANING


@pytest.mark.parametrize("phase", [MovePhase.CLEANING, MovePhase.CANCELLING])
def test_a_move_ends_when_both_places_have_no_marks(phase: MovePhase) -> None:
    bench = Bench(phase, 1)
    bench.report(a, b)
    bench.report(c, target=[4])
    assert bench.next() == bench.move
    bench.report(c)
    assert bench.next() is None
    change = bench.master.wanted(bench.changes).find("m")
    assert change is not None
    assert change.home == ("z" if phase is MovePhase.CLEANING else "")


def test_a_problem_cancels_a_move() -> None:
    bench = Bench(MovePhase.COPYING)
    bench.report(b, problem="an entry is odd")
    following = bench.next()
    assert following is not None
    assert (following.phase, following.why) == (MovePhase.CANCELLING, "an entry is odd")

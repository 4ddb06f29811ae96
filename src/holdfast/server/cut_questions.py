"""Consistent cuts in the own protocol: `Cut` and `HoldCut`."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.operations import Op, Request
from holdfast.core.primary_backup.cuts import CUT_ID_BYTES, CUTS_MAX, LEASE_MS_MAX, Pin, PinMark, Taken
from holdfast.server.grid import Grid
from holdfast.server.reply_channel import ReplyChannel
from holdfast.wire import own


def rejection(grid: Grid, question: own.Cut | own.HoldCut) -> tuple[own.FaultKind, str] | None:
    malformed = own.FaultKind.MALFORMED
    if len(question.cut) != CUT_ID_BYTES:
        return malformed, f"the id of a cut has {CUT_ID_BYTES} bytes"
    least = 1 if isinstance(question, own.Cut) else 0
    if not least <= question.lease_ms <= LEASE_MS_MAX:
        return malformed, f"the lease of a cut is {least} to {LEASE_MS_MAX} milliseconds"
    if len(question.partitions) > own.CUT_MARKS_MAX:
        return malformed, f"a question about a cut is about {own.CUT_MARKS_MAX} partitions at most"
    return _begin_rejection(grid, question) if isinstance(question, own.Cut) else None


def _begin_rejection(grid: Grid, question: own.Cut) -> tuple[own.FaultKind, str] | None:
    malformed = own.FaultKind.MALFORMED
    maps, marks = question.maps, own.CUT_MARKS_MAX
    if not 1 <= len(maps) <= own.CUT_MAPS_MAX:
        return malformed, f"a cut is of 1 to {own.CUT_MAPS_MAX} maps"
    if len(question.partitions) > max(1, marks // len(maps)):
        return (
            malformed,
            f"maps times partitions of a question for a cut are at most {marks}, or it is one partition",
        )
    if not all(1 <= len(name) <= own.MAP_NAME_MAX for name in maps):
        return malformed, f"a map's name has 1 to {own.MAP_NAME_MAX} characters"
    begun = grid.cuts.begun(question.cut)
    if begun is not None and begun != frozenset(maps):
        return malformed, "this cut is of other maps: a cut has the same maps whenever it is asked for"
    if begun is None and grid.cuts.full:
        return (
            own.FaultKind.NOT_READY,
            f"{CUTS_MAX} cuts were begun here already; end one, or wait for a lease to end",
        )
    return None


def make(grid: Grid, question: own.Cut, say: Callable[[own.Answer], None]) -> None:
    """Take the cut of validated partitions; `say` is called once. To bound the time of a turn, some partitions may be
    left over: `CutMade.left`.
    """

    def done(taken: Taken) -> None:
        pins: list[Pin | PinMark] = [*taken.pins, *taken.in_zones]
        marks = [
            own.Mark(pin.partition, pin.map, pin.counter, pin.term, pin.entries, list(pin.holders))
            for pin in pins
        ]
        marks += [own.Mark(partition, name, 0, 0, 0, []) for partition, name in taken.unwritten]
        say(own.CutMade(question.id, marks, taken.moved, taken.known, taken.why, taken.left))

    # While writes are rejected, only this member keeps the cut, so maps can be read even if memory is full.
    # Maps in zones are cut by their logs, which take such a request also then.
    primary = [name for name in question.maps if not grid.zone_of(name)]
    writes = [Request(Op.SET, name, question.partitions) for name in primary]
    passive = grid.passive or any(grid.rejection(write) is not None for write in writes)
    grid.take_cut(question.cut, question.maps, question.partitions, question.lease_ms, done, passive=passive)


def hold(grid: Grid, question: own.HoldCut, say: Callable[[own.Answer], None]) -> None:
    pins = grid.cuts.kept(question.cut, question.partitions, own.CUT_MAPS_MAX)
    kept = [(pin.partition, pin.map, pin.counter, pin.term) for pin in pins]

    def done(count: int) -> None:
        say(own.CutHeld(question.id, count, kept))

    grid.hold_cut(question.cut, question.lease_ms, done)


class CutQuestions:
    """Answers `Cut` and `HoldCut` for one connection."""

    __slots__ = ("_grid", "_replies")

    def __init__(self, replies: ReplyChannel) -> None:
        self._replies = replies
        self._grid = replies.grid

    def answer(self, question: own.Cut | own.HoldCut) -> None:
        """Take, renew or end a cut; the answer may come later."""
        replies, grid = self._replies, self._grid
        wrong = rejection(grid, question)
        if wrong is not None:
            replies.fault(question.id, *wrong)
            return
        maps = question.maps if isinstance(question, own.Cut) else []
        if (
            not replies.in_range(question.id, question.partitions)
            or replies.are_lost(question.id, maps, question.partitions)
            or not replies.may_wait(question.id)
        ):
            return

        def done(answer: own.Answer) -> None:
            replies.answered()
            replies.send(answer)

        replies.handed_over = True
        if isinstance(question, own.HoldCut):
            hold(grid, question, replies.on_done("HoldCut", question.id, done))
        else:
            make(grid, question, replies.on_done("Cut", question.id, done))

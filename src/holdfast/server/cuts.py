"""Cuts for clients of Holdfast's own protocol: `Cut` and `HoldCut` (S1)."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.replication.cuts import CUTS_MAX, LEASE_MS_MAX, Taken
from holdfast.server.grid import Grid
from holdfast.wire import own

CUT_ID_BYTES = 16


def why_refused(grid: Grid, question: own.Cut | own.HoldCut) -> tuple[own.FaultKind, str] | None:
    """Why the question is not answered; None when it is."""
    malformed = own.FaultKind.MALFORMED
    if len(question.cut) != CUT_ID_BYTES:
        return malformed, f"the id of a cut has {CUT_ID_BYTES} bytes"
    least = 1 if isinstance(question, own.Cut) else 0
    if not least <= question.lease_ms <= LEASE_MS_MAX:
        return malformed, f"the lease of a cut is {least} to {LEASE_MS_MAX} milliseconds"
    if isinstance(question, own.Cut) and grid.cuts.full and not grid.cuts.keeps(question.cut):
        return (
            own.FaultKind.NOT_READY,
            f"{CUTS_MAX} cuts are kept here already; end one, or wait for a lease to end",
        )
    return None


def make(grid: Grid, question: own.Cut, say: Callable[[own.Answer], None]) -> None:
    """Take the cut; `say` is called once. Its partitions exist, and the question is not refused."""

    def done(taken: Taken) -> None:
        marks = [
            own.Mark(pin.partition, pin.map, pin.counter, pin.term, pin.entries, list(pin.holders))
            for pin in taken.pins
        ]
        marks += [own.Mark(partition, name, 0, 0, 0, []) for partition, name in taken.unwritten]
        say(own.CutMade(question.id, marks, taken.moved, taken.known, taken.why))

    grid.cuts.take(
        question.cut, question.maps, question.partitions, question.lease_ms, done, passive=grid.passive
    )


def hold(grid: Grid, question: own.HoldCut) -> own.CutHeld:
    """Renew or end the lease."""
    return own.CutHeld(question.id, grid.cuts.hold(question.cut, question.lease_ms))

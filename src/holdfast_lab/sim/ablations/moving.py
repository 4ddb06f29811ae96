"""Ablations of the rules of maps that move between engines."""

# ruff: noqa: SLF001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.map_moves.partition_transfer import PartitionTransfer
from holdfast.core.model.decisions import Decision
from holdfast.core.model.map_moves import FillMap, MoveMark
from holdfast.core.operations import move_steps
from holdfast.core.primary_backup import primary_copy
from holdfast.core.raft_partition import consensus_replication, state_machine
from holdfast.core.routing.router import Router
from holdfast.core.store import move_marks
from holdfast.core.store.replica import MapReplica
from holdfast_lab.sim.ablations.place import Place, always, never, nothing
from holdfast_lab.sim.replacing import Method

_is_closed = move_marks.is_closed
"""The rule itself, also while its places are replaced."""


def _applies_what_comes(
    truth: Method,
    maps: Mapping[str, MapReplica],
    name: str,
    mark: MoveMark | None,
    step: FillMap,
    wall_ms: int,
    opened_at: int,
) -> Decision:
    decision: Decision = truth(maps, name, mark, step, wall_ms, opened_at)
    if decision.updates:
        return decision
    return Decision(decision.answer, move_steps._entries(maps, name, step, wall_ms))


MOVING: dict[str, tuple[Place, ...]] = {
    "map-paused": (
        Place(primary_copy, "is_closed", never, when=_is_closed),
        Place(consensus_replication, "is_closed", never, when=_is_closed),
        Place(state_machine, "is_closed", never, when=_is_closed),
    ),
    "waiters-follow": (Place(Router, "depart", nothing),),
    "fills-in-order": (Place(move_steps, "_fill", _applies_what_comes),),
    "source-observed": (Place(PartitionTransfer, "_is_observed", always),),
}

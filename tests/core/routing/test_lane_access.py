"""Maps that sessions must not serve directly."""

from __future__ import annotations

from holdfast.config import MOVES_MAP, MapSettings, Settings
from holdfast.core.model.map_moves import MapMove, MarkKind, MoveMark, MovePhase, encode_move
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.routing.lost_partitions import LostPartitions
from holdfast.core.store.partition_copy import PartitionCopy


def access() -> LaneAccess:
    return LaneAccess(LostPartitions(Settings(maps={"safe": MapSettings(loss_policy="read-write-safe")})))


def test_sessions_look_again_when_a_map_has_losses() -> None:
    losses = LostPartitions(Settings(maps={"safe": MapSettings(loss_policy="read-write-safe")}))
    one = LaneAccess(losses)
    losses.learn(1, ("safe",))
    one.on_losses()
    assert one.changes == 1
    assert one.is_closed("safe")
    assert not one.is_closed("other")


def test_a_map_is_closed_while_its_move_switches() -> None:
    one = access()
    for phase in MovePhase:
        one.on_moves({"m": MapMove(1, "", "z", phase), "zoned": MapMove(2, "z", "", phase)})
        assert one.is_closed("m") is (phase is MovePhase.SWITCHING)
        assert not one.is_closed("zoned"), "groups of zones know pauses themselves"
    assert one.changes == len(MovePhase), "each phase may be another home"


def test_a_map_is_closed_wherever_a_copy_that_is_led_here_is_paused() -> None:
    """Also at a member that has not heard of the switch and becomes primary."""
    one, copy = access(), PartitionCopy(3, 0)
    marks = copy.open(MOVES_MAP).state.entries
    for kind in MarkKind:
        marks[b"m"] = encode_move(MoveMark(1, kind))
        one.look(3, copy)
        assert one.is_closed("m") is (kind is MarkKind.PAUSED)
    marks[b"m"] = encode_move(MoveMark(1, MarkKind.PAUSED))
    one.look(3, copy)
    before = one.changes
    one.look(3, copy)
    assert one.changes == before, "nothing has changed"
    one.look(3, None)
    assert not one.is_closed("m")
    assert one.changes == before + 1

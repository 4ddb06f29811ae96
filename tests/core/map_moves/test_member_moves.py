"""The steps of a move that a member sends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.membership.one_member import A, One

from holdfast.core.map_moves.member_moves import MemberMoves
from holdfast.core.model.levels import FORGETS_LEFT_OVER
from holdfast.core.model.map_moves import FillMap, decode_move_step
from holdfast.core.model.operations import Request
from holdfast.core.routing.pending import Asker


class Submits:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def submit(self, request: Request, asker: Asker) -> None:
        self.sent.append(decode_move_step(request.value))


@pytest.mark.rule("raft_partition/Z-11")
def test_a_first_fill_lets_a_zone_forget_what_is_left_over_when_all_replicas_can() -> None:
    one, submits = One(A, A), Submits()
    moves = MemberMoves(one.out, one.membership, 7, submits, *[None] * 3)  # type: ignore[arg-type]
    for level in (FORGETS_LEFT_OVER - 1, FORGETS_LEFT_OVER):
        one.out.level = level
        for place in range(2):
            moves._send("m", 3, FillMap(1, 1, place, [b"k"], [b"v"]), "z")
    assert [(step.place, step.forgets) for step in submits.sent] == [
        (0, False),
        (1, False),
        (0, True),
        (1, False),
    ]

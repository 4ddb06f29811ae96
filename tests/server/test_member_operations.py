"""Operations that members send each other are rejected when a client sends them."""

from __future__ import annotations

import pytest

from holdfast.config import LimitSettings
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import BETWEEN_MEMBERS, Op, Request
from holdfast.server.question_checks import request_rejection

KEY = b"k" * 16
COUNT = 7


@pytest.mark.parametrize("op", sorted(BETWEEN_MEMBERS))
def test_an_operation_of_members_is_rejected_from_a_client(op: Op) -> None:
    request = Request(op, "m", [partition_of(KEY, 0, COUNT)], KEY, items=[b"m"], ttl_ms=1000)
    rejection = request_rejection(request, COUNT, LimitSettings())
    assert rejection is not None
    assert rejection[1] == f"{op.name} is internal to members"

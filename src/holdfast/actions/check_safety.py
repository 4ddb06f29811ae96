"""Check whether a crash could lose data now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, OperatorQuery
from holdfast.config.permissions import Action


class Safety(msgspec.Struct, frozen=True):
    """Whether a crash would lose nothing now; if not, the reason."""

    safe: bool
    reason: Annotated[str, Meta(description="why it is not safe")]


class CheckSafety(OperatorQuery, frozen=True):
    r"""Check whether the whole cluster is safe: every partition has all its copies, and nothing is moving.

    Cheap enough to run every second.

    \b
      holdfast cluster safe || echo "do not stop anything now"
      holdfast cluster safe --wait 2min -a 127.0.0.1:5701,127.0.0.1:5702
    """

    declared = Declaration(
        "safe", Action.STATUS, "cluster safe", "Check whether a crash could lose data now.", timeout_s=5
    )
    result = Safety

    def ask(self, process: MemberProcess, reply: Callable[[Any], None]) -> None:
        reason = process.cluster_unsafe_reason()
        reply(Safety(not reason, reason))

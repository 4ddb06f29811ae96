"""End a connection of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import Declaration, ProcessAction, Target
from holdfast.config.permissions import Action
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.core.member_view import MemberView

REASON = "an operator has ended the connection"


class KillClient(ProcessAction, frozen=True):
    r"""End a connection of a client to a member: MEMBER and ID as `holdfast client list` shows them.

    Its open transactions are rolled back. A client may connect again; remove its user, or change the password, to keep
    it out.

    \b
      holdfast client kill two 17
    """

    declared = Declaration(
        "kill-client",
        Action.KILL_CLIENT,
        "client kill",
        "End a connection of a client.",
        target=Target.MEMBER,
        timeout_s=10,
        withdrawn=True,
        at_timeout="After that the command gives up.",
    )

    client: Annotated[
        int, Meta(ge=1, le=1 << 53, description="The id of the connection.", extra={"argument": "ID"})
    ]

    def carry_out(self, process: MemberProcess) -> None:
        if not process.end_client(self.client, REASON):
            raise Refused(
                f"no client with id {self.client} is connected to this member: see holdfast client list"
            )

    def done_text(self, view: MemberView) -> str:
        return f"the connection of client {self.client} has ended"

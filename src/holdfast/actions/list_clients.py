"""Show the connections of clients."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.actions.member_process import ClientConnection, MemberProcess
from holdfast.actions.operator_action import (
    Declaration,
    OperatorQuery,
    Target,
)
from holdfast.config.permissions import Action
from holdfast.core.model.result_columns import column


class ClientList(msgspec.Struct, frozen=True):
    """The connections of clients to one member."""

    clients: Annotated[list[ClientConnection], column("clients")]


class ListClients(OperatorQuery, frozen=True):
    r"""List the connections of clients to all members: address, user, protocol, age, memory and open transactions.

    \b
      holdfast client list
      holdfast client list --json
    """

    declared = Declaration(
        "clients",
        Action.CLIENTS,
        "client list",
        "List the connections of clients.",
        target=Target.EACH,
        timeout_s=5,
    )
    result = ClientList

    def answer(self, process: MemberProcess) -> ClientList:
        return ClientList(process.clients())

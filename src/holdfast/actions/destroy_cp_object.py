"""Destroy a CP object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    AnsweredAction,
    Declaration,
    Needed,
    must_be_member,
)
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.cp import (
    DEFAULT_GROUP,
    NAME_MAX,
    CpKind,
    CpStep,
    CpStepKind,
    cp_name,
    cp_request,
)
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.operations import Outcome, Status
from holdfast.errors import NotReady, Refused, Unknown

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView

ObjectKind = Literal["long", "reference", "latch", "lock", "semaphore"]
ObjectName = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]


class DestroyCpObject(AnsweredAction, frozen=True):
    r"""Destroy the CP object NAME of this KIND: long, reference, latch, lock or semaphore.

    Clients that wait for it, and all later calls, get an error. Its name cannot be used again.

    \b
      holdfast cp destroy lock ledger
      holdfast cp destroy semaphore jobs --group eu
    """

    declared = Declaration(
        "destroy-cp-object",
        Action.DESTROY,
        "cp destroy",
        "Destroy a CP object, for ever.",
        timeout_s=30,
        kind=Kind.CP,
        at_timeout="After that it is unknown whether it was destroyed.",
    )

    object_kind: Annotated[ObjectKind, Meta(description="The kind.", extra={"argument": "KIND"})]
    name: Annotated[ObjectName, Meta(description="The name.", extra={"argument": "NAME"})]
    group: Annotated[ObjectName, Meta(description="Its CP group.", extra={"metavar": "GROUP"})] = (
        DEFAULT_GROUP
    )

    def needs(self) -> list[Needed]:
        return [Needed(Action.DESTROY, Kind.CP, cp_name(self.name, self.group))]

    def problem(self, partitions: int) -> str:
        return "a name with @ is that of an object and its group: use --group" if "@" in self.name else ""

    def question(self, seen: MemberStatus) -> str:
        return f"Destroy {self.object_kind} {cp_name(self.name, self.group)}? Its name cannot be used again"

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        if view.level < STRUCTURES:
            raise Refused(f"CP objects need feature level {STRUCTURES}: holdfast cluster upgrade")

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        from holdfast.core.routing.pending import Within

        step, kind = CpStep(CpStepKind.DESTROY), CpKind(self.object_kind)
        request = cp_request(self.group, len(member.picture.assignments), step, self.name, kind)
        member.agreed.zones.homes.submit(request, Within(_Reply(reply), 0))

    def unfinished_reason(self) -> str:
        return "the group has not answered; the object may be destroyed, or not"

    def answer_text(self, answer: None) -> str:
        return f"{self.object_kind} {cp_name(self.name, self.group)} is destroyed"


class _Reply:
    """An `OutcomeReceiver`."""

    def __init__(self, reply: Callable[[object], None]) -> None:
        self._reply = reply

    def answered(self, ticket: int, outcome: Outcome) -> None:
        if outcome.status is Status.OK:
            self._reply(None)
        elif outcome.status is Status.UNKNOWN:
            self._reply(Unknown(outcome.detail))
        else:
            self._reply(NotReady(outcome.detail))

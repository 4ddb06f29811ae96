"""Continue without most of the voters of the metastore."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.actions.operator_action import (
    OUTCOME_UNKNOWN,
    AnsweredAction,
    Declaration,
    Needed,
    Target,
)
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.metastore_answers import MetastoreRevision

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.model.member_status import MemberStatus


class ResetMetastore(AnsweredAction, frozen=True):
    r"""Make the copy of the member at --address the metastore, after most of its voters are gone for good.

    Choose the member with the highest revision (`holdfast metastore status`). Changes that only the lost voters had
    are lost, such as zones that were just created. Rejected while a majority of the voters is available.

    \b
      holdfast metastore reset -a 10.0.0.1:5701
    """

    declared = Declaration(
        "reset-metastore",
        Action.RESET,
        "metastore reset",
        "Continue without most of the voters. Their last changes are lost.",
        target=Target.CONTACTED,
        timeout_s=30,
        kind=Kind.METASTORE,
        sent_once=True,
        at_timeout=OUTCOME_UNKNOWN,
    )
    result = MetastoreRevision

    def needs(self) -> list[Needed]:
        return [Needed(Action.RESET, Kind.METASTORE, every=True)]

    def question(self, seen: MemberStatus) -> str:
        return "Discard changes that only lost voters of the metastore have? Acknowledged changes may be lost"

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            member.agreed.reset_metastore(advised)

    def answer_text(self, answer: MetastoreRevision) -> str:
        return f"the metastore continues from revision {answer.revision} of this member"

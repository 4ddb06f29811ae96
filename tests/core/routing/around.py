"""What a router asks of the member around it, as a test wants it to be."""

from __future__ import annotations

from holdfast.core.effects import Complete, Effect
from holdfast.core.model.ids import MemberId
from holdfast.core.model.notices import Notice
from holdfast.core.model.operations import Outcome
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox


class Around:
    """The membership and the table's replication, in one."""

    def __init__(self, *, absent: MemberId | None = None) -> None:
        self.absent = {absent}
        """Who is not in the view."""
        self.hearing = True
        """Whether this member is in the cluster, and hears of the others."""
        self.stored: Assignment | None = None
        """The row that is stored here and not committed."""

    def is_member(self, member: MemberId) -> bool:
        return member not in self.absent

    def hears(self, member: MemberId) -> bool:
        return self.hearing

    def stored_assignment(self, partition: int) -> Assignment | None:
        return self.stored


class Told:
    """Hears what a member's sessions are answered."""

    def __init__(self) -> None:
        self.out = Outbox(self)
        self._told: list[Outcome] = []

    def on_notice(self, notice: Notice) -> None:
        """Other machines would receive it."""

    def hear(self) -> None:
        """Take in what was answered until now."""
        answers = [effect for effect in self.out.effects if isinstance(effect, Complete)]
        for effect in answers:
            self.out.effects.remove(effect)
            assert isinstance(effect.answer, Outcome)
            self._told.append(effect.answer)

    @property
    def told(self) -> list[Outcome]:
        """All answers until now, in order."""
        self.hear()
        return self._told

    def taken(self) -> list[Effect]:
        """What was laid down besides."""
        self.hear()
        return self.out.take()
